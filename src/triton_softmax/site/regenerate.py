"""Write the committed files that are computed from the library.

`python -m triton_softmax.site.regenerate [name …]` runs `generate()` of every module in
`generators/` and writes what it returns: a dictionary from path to text.
A test runs the same functions and compares, so no such file goes stale unseen.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def names(root: Path = ROOT) -> list[str]:
    """The generators there are."""
    return sorted(
        path.stem for path in (root / "generators").glob("*.py") if not path.stem.startswith("_")
    )


def generate(name: str, root: Path = ROOT) -> dict[str, str]:
    """Run one generator and return its files as text by path."""
    path = root / "generators" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"generators_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generate()


def main(arguments: list[str]) -> None:
    """Write every file of the generators named, or of all of them."""
    for name in arguments or names():
        for path, text in generate(name).items():
            target = ROOT / path
            changed = not target.is_file() or target.read_text("utf8") != text
            if changed:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, "utf8")
            print(f"{'wrote' if changed else 'same '} {path}")


if __name__ == "__main__":
    # The kernels run on the CPU unless there is a device: decided before Triton is imported.
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    main(sys.argv[1:])
