"""QuACK's softmax of a row of a million float32 columns."""

from importlib.metadata import version

import torch
from quack.softmax import softmax

print(*(f"{name} {version(name)}" for name in ("quack-kernels", "nvidia-cutlass-dsl", "torch")))
print(softmax(torch.randn(8, 1_048_576, device="cuda")).sum(1))
