"""Liger's softmax of a row beyond 65,536 columns, though it has a kernel that loops over a row."""

from importlib.metadata import version

import torch
from liger_kernel.ops.softmax import LigerSoftmaxFunction

print(*(f"{name} {version(name)}" for name in ("liger-kernel", "torch", "triton")))
x = torch.randn(8, 131_072, device="cuda")
print(LigerSoftmaxFunction.apply(x).sum(1))
