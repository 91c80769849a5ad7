"""The command `python -m softmax_site.computed [name …]`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from softmax_site.computed import NAMES

ROOT = Path(__file__).resolve().parents[3]


def main(arguments: list[str]) -> None:
    """Write every file of the modules named, or of all of them."""
    for name in arguments or NAMES:
        module = importlib.import_module(f"softmax_site.computed.{name}")
        for path, text in module.generate().items():
            target = ROOT / path
            changed = not target.is_file() or target.read_text("utf8") != text
            if changed:
                target.write_text(text, "utf8")
            print(f"{'wrote' if changed else 'same '} {path}")


if __name__ == "__main__":
    # The kernels run on the CPU unless there is a device: decided before Triton is imported.
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    main(sys.argv[1:])
