"""The lines of Python in each package, and whether any has more than its ceiling.

Ceilings are `[tool.size]` in `pyproject.toml`: folders, or several in one name, and how many lines
of committed Python they may have. Raising one is a decision, so it shows in the diff.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines_of(files: list[str]) -> int:
    """As `wc -l` counts them."""
    return sum((ROOT / file).read_bytes().count(b"\n") for file in files)


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    ceilings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["tool"]["size"]
    too_many = 0
    for folder, ceiling in ceilings.items():
        lines = lines_of([name for name in files if name.startswith(f"{folder}/")])
        too_many += lines > ceiling
        print(f"{lines:7,} of {ceiling:7,}  {folder}{'  TOO MANY' * (lines > ceiling)}")
    return int(too_many > 0)


if __name__ == "__main__":
    sys.exit(main())
