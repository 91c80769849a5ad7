"""PyTorch's gradient of softmax of short 16-bit rows: dy·y is rounded before it is summed."""

import torch

print("torch", torch.__version__)
x = torch.randn(2**20, 4, dtype=torch.bfloat16, device="cuda").requires_grad_()
y, dy = torch.softmax(x, 1), torch.randn_like(x)
(dx,) = torch.autograd.grad(y, x, dy)
y, dy = y.detach().double(), dy.double()
right = y * (dy - (y * dy).sum(1, keepdim=True))
error = (dx - right).abs() / right.abs().amax(1, True)
print(f"largest error, of the row's largest: {error.max():.3f}")
