"""Run the programs that show what other libraries get wrong or refuse, and keep what each prints:
`python tests/gpu/failures.py`.

A program whose library is not installed is left out, and what it printed before stays.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

PROGRAMS = Path(__file__).parents[2] / "docs/benchmarks/failures"


def printed_by(program: Path) -> str:
    """What a program prints; of an error, the last line that names one, without colours."""
    command = ["timeout", "300", sys.executable, program]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace")
    said, report = (
        [line for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines() if line.strip()]
        for text in (run.stdout, run.stderr if run.returncode else "")
    )
    named = [line for line in report if re.match(r"[\w.]*Error\b", line)]
    return "\n".join([*said, *(named or report)[-1:]])


def main() -> None:
    programs = sorted(PROGRAMS.glob("*.py"))
    with ThreadPoolExecutor() as pool:  # most of their time they import and compile
        for program, printed in zip(programs, pool.map(printed_by, programs), strict=True):
            if "ModuleNotFoundError" in printed:
                print(program.stem, "left out:", printed)
                continue
            printed = f"{torch.cuda.get_device_name()}\n{printed}\n"
            program.with_suffix(".txt").write_text(printed, "utf8")
            print(program.stem, printed, sep="\n", flush=True)


if __name__ == "__main__":
    main()
