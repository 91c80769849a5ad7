"""Write the library as a kernel of the Hugging Face Hub, which its package `kernels` loads:

    python tools/hub/write_tree.py DIRECTORY --owner NAME

`torch-ext/` is the source, `build.toml` what `kernel-builder` needs to build it, and
`build/torch-universal/` what it builds for a kernel without compiled parts: the same files, and
metadata. The files are the library's own, as they are, and `layers.py`, which only the kernel has.
Imports between them are relative, and operators are named after the package
(`operators.NAMESPACE`), so a tree runs under any name, beside others and beside the installed
library.
"""

import argparse
import ast
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

FILES = Path(__file__).resolve().parent
"""What the tree has besides files of the library."""
LIBRARY = FILES.parents[1] / "src/triton_softmax"
VERSION = re.findall(r'__version__ = "(.+)"', (LIBRARY / "__init__.py").read_text("utf8"))[0]
DATA = ("config/measured.txt",)
METADATA = {
    "name": "triton-softmax",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cuda"},
}
"""Of the variant, without its id. The version is the interface's, not the library's: a number that
goes up when a call of before no longer works."""


def imported(path: str, text: str) -> Iterator[str]:
    """Yield the files of the library that a file imports, and the `__init__` of each package on the
    way.

    >>> list(imported("config/choose.py", "from . import calls"))
    ['__init__.py', 'config/__init__.py', '__init__.py', 'config/__init__.py', 'config/calls.py']
    """
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        stem = PurePosixPath(path).parents[node.level - 1]
        stem = stem.joinpath(*(node.module or "").split("."))
        for each in (stem, *(stem / alias.name for alias in node.names)):
            packages = [folder / "__init__.py" for folder in (*reversed(each.parents), each)]
            for file in (*packages, PurePosixPath(f"{each}.py")):
                if (LIBRARY / file).is_file():
                    yield str(file)


def package() -> dict[str, str]:
    """Return the kernel's files, by path: its own `__init__`, and what that needs of the
    library."""
    found = {
        "__init__.py": (FILES / "init.txt").read_text("utf8").replace("VERSION", VERSION),
        "layers.py": (FILES / "layers.py").read_text("utf8"),
        # The library's brings in every integration.
        "integrations/__init__.py": "",
    }
    todo = list(found)
    while todo:
        path = todo.pop()
        for name in imported(path, found[path]):
            if name not in found:
                found[name] = (LIBRARY / name).read_text("utf8")
                todo.append(name)
    return found | {name: (LIBRARY / name).read_text("utf8") for name in DATA}


def write(directory: Path, owner: str) -> None:
    """Write the tree into a directory, which is made if it is not there.

    Args:
        directory: Where to.
        owner: The user or organisation on the Hub to whom the kernel will belong.

    Raises:
        FileExistsError: The directory is not empty, or no directory.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} is not an empty directory")
    files = package()
    # Unique, so that `kernels` loads two versions side by side.
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    metadata = {"id": f"_triton_softmax_universal_{digest[:12]}", **METADATA}
    tree = {"build/torch-universal/metadata.json": json.dumps(metadata, indent=2) + "\n"}
    # What stands around the tree has no say in its tests.
    tree["pytest.ini"] = "[pytest]\n"
    for name, text in files.items():
        tree[f"build/torch-universal/{name}"] = tree[f"torch-ext/triton_softmax/{name}"] = text
    for name, source in (
        ("CARD.md", "card.txt"),
        ("build.toml", "build.toml"),
        ("tests/test_triton_softmax.py", "tests.txt"),
    ):
        text = (FILES / source).read_text("utf8")
        tree[name] = text.replace("OWNER", owner).replace("VERSION", VERSION)
    for name, text in tree.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the library as a kernel of the Hub.")
    parser.add_argument("directory", type=Path, help="empty, or made")
    parser.add_argument("--owner", default="triton-softmax", help="whose kernel it is, on the Hub")
    given = parser.parse_args()
    try:
        write(given.directory, given.owner)
    except FileExistsError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
