"""QuACK's softmax of rows of a length that vectors do not divide."""

from importlib.metadata import version

import torch
from quack.softmax import softmax

print(*(f"{name} {version(name)}" for name in ("quack-kernels", "nvidia-cutlass-dsl", "torch")))
print(softmax(torch.randn(64, 50_257, dtype=torch.bfloat16, device="cuda")).sum(1))
