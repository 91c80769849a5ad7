"""Use an installed wheel as its users do, in an environment that has nothing else.

python .github/try_release.py v0.1.0
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import torch

import triton_softmax as ours

version = sys.argv[1].removeprefix("v")
found = {ours.__version__, metadata.version("triton-softmax")}
if found != {version}:
    sys.exit(f"{version} is tagged, and {found} installed")
repository = Path(__file__).resolve().parents[1]
if Path(ours.__file__).is_relative_to(repository / "src"):
    sys.exit(f"{ours.__file__} is not installed")

x = torch.randn(4, 300, requires_grad=True)
target = torch.tensor([3, 299, 0, -100])
y, loss = ours.softmax(x), ours.cross_entropy(x, target)
torch.testing.assert_close(y, torch.softmax(x, -1))
torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x, target))
(y.square().sum() + loss).backward()
assert x.grad is not None and x.grad.isfinite().all()
