"""QuACK's softmax of a row that is −∞ but for its first column, as in causal attention."""

from importlib.metadata import version

import torch
from quack.softmax import softmax

print(*(f"{name} {version(name)}" for name in ("quack-kernels", "nvidia-cutlass-dsl", "torch")))
x = torch.full((16, 4096), float("-inf"), device="cuda")
x[:, 0] = 0.0
print("first elements, of which one is 1:", softmax(x)[0, :4])
