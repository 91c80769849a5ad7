"""Refuse to publish what is not one sdist and one wheel of the tagged version, the library alone.

python .github/check_release.py dist v0.1.0
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGE = "triton_softmax"


def problems(folder: Path, tag: str) -> list[str]:
    """What speaks against publishing the distributions in `folder` under `tag`."""
    stem = f"{PACKAGE}-{tag.removeprefix('v')}"
    wheel = f"{stem}-py3-none-any.whl"
    found = sorted(path.name for path in folder.iterdir())
    if found != sorted([wheel, f"{stem}.tar.gz"]):
        return [f"{tag} needs {wheel} and {stem}.tar.gz, not {found}"]
    names = zipfile.ZipFile(folder / wheel).namelist()
    foreign = [name for name in names if name.split("/")[0] not in (PACKAGE, f"{stem}.dist-info")]
    report = [f"the wheel holds {name}, which is not {PACKAGE}" for name in foreign]
    for name in (f"{PACKAGE}/__init__.py", f"{PACKAGE}/py.typed"):
        if name not in names:
            report.append(f"the wheel lacks {name}")
    return report


if __name__ == "__main__":
    sys.exit("\n".join(problems(Path(sys.argv[1]), sys.argv[2])) or None)
