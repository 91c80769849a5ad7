"""Liger's gradient of softmax of short 16-bit rows: products and sums in 16 bits."""

from importlib.metadata import version

import torch
from liger_kernel.ops.softmax import LigerSoftmaxFunction

print(*(f"{name} {version(name)}" for name in ("liger-kernel", "torch", "triton")))
x = torch.randn(2**20, 32, dtype=torch.bfloat16, device="cuda").requires_grad_()
y, dy = LigerSoftmaxFunction.apply(x), torch.randn_like(x)
(dx,) = torch.autograd.grad(y, x, dy)
y, dy = y.detach().double(), dy.double()
right = y * (dy - (y * dy).sum(1, keepdim=True))
error = (dx - right).abs() / right.abs().amax(1, True)
print(f"largest error, of the row's largest: {error.max():.3f}")
