"""The tests of what changed since `main`, for `make quick`: their paths, one a line.

A file of the library has the tests that mutants of it are tried with, and its doctests; another
file of `src/` the tests that are named after it; a page its own code; a file of tests itself.
"""

import subprocess
from pathlib import Path

from mutate import LIBRARY, ROOT, checked_by

ALWAYS = ["tests/test_structure.py"]


def git(*arguments: str) -> list[str]:
    """Return what git says, by lines; nothing if it fails."""
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed() -> list[str]:
    """Return the files that differ from where this branch left `main`, or are new."""
    bases = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
    names = git("diff", "--name-only", *(bases or ["HEAD"]))
    return sorted({*names, *git("ls-files", "--others", "--exclude-standard")})


def checks_of(path: str) -> list[str]:
    """Return the tests of a file: paths that pytest takes."""
    file = Path(path)
    if not (ROOT / path).is_file():
        return []
    if path.startswith("docs/") and file.suffix == ".md" and "_computed" not in path:
        return [path]
    if path.startswith(f"{LIBRARY}/"):
        return [*([path] if file.suffix == ".py" else []), *checked_by(path)]
    if file.suffix != ".py":
        return []
    if path.startswith("src/"):
        named = (ROOT / "tests").rglob(f"test_{file.stem}.py")
        return [path, *(each.relative_to(ROOT).as_posix() for each in named)]
    return [path] if path.startswith("tests/") and file.stem.startswith("test_") else []


def main() -> None:
    found = [each for path in changed() for each in checks_of(path)]
    print(*dict.fromkeys([*ALWAYS, *found]), sep="\n")


if __name__ == "__main__":
    main()
