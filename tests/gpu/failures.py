"""Run the programs that show what other libraries get wrong or refuse, and keep what each prints:
`python tests/gpu/failures.py`.

A program whose library is not installed is left out, and what it printed before stays.
"""

import re
import subprocess
import sys
from pathlib import Path

import torch

PROGRAMS = Path(__file__).parents[2] / "docs/benchmarks/failures"


def main() -> None:
    for program in sorted(PROGRAMS.glob("*.py")):
        command = ["timeout", "300", sys.executable, program]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace")
        # Of what goes wrong the last line of the report, without colours.
        lines = [*run.stdout.splitlines(), *run.stderr.splitlines()[-1:] * (run.returncode != 0)]
        printed = re.sub(r"\x1b\[\d*m", "", "\n".join(lines))
        if "ModuleNotFoundError" in printed:
            print(program.stem, "left out:", printed)
            continue
        printed = f"{torch.cuda.get_device_name()}\n{printed}\n"
        program.with_suffix(".txt").write_text(printed, "utf8")
        print(program.stem, printed, sep="\n", flush=True)


if __name__ == "__main__":
    main()
