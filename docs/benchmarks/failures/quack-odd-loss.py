"""QuACK's cross-entropy of rows of an odd length."""

from importlib.metadata import version

import torch
from quack.cross_entropy import cross_entropy

print(*(f"{name} {version(name)}" for name in ("quack-kernels", "nvidia-cutlass-dsl", "torch")))
x = torch.randn(64, 50_257, dtype=torch.bfloat16, device="cuda")
print(cross_entropy(x, torch.zeros(64, dtype=torch.int64, device="cuda")))
