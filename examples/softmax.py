"""Softmax along the last dimension and its gradient: float32, float16, bfloat16. MIT licence."""

import torch
import triton
import triton.language as tl
from torch.autograd.functional import vjp

LONGEST = 32768  # columns that a program holds; it walks along longer rows twice, in tiles
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def exp_shifted(x, m):
    return tl.exp2((x - tl.where(m == float("-inf"), 0.0, m)) * 1.4426950408889634)


@triton.jit
def merge(m1, d1, m2, d2):
    m = tl.maximum(m1, m2)
    return m, d1 * exp_shifted(m1, m) + d2 * exp_shifted(m2, m)


@triton.jit
def forward_single_block(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row + cols, mask=mask, other=float("-inf")).to(tl.float32)
    e = exp_shifted(x, tl.max(x, axis=0))
    tl.store(y_ptr + row + cols, e / tl.sum(e, axis=0), mask=mask, cache_modifier=".cs")


@triton.jit
def backward_single_block(y_ptr, dy_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    y = tl.load(y_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row + cols, y * (dy - tl.sum(y * dy, axis=0)), mask=mask)


@triton.jit
def forward_two_loops(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n_cols
    m = float("-inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        m_tile = tl.max(x, axis=0)
        m, d = merge(m, d, m_tile, tl.sum(exp_shifted(x, m_tile), axis=0))
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row + cols, mask=mask, other=float("-inf")).to(tl.float32)
        tl.store(y_ptr + row + cols, exp_shifted(x, m) / d, mask=mask)


@triton.jit
def backward_two_loops(y_ptr, dy_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n_cols
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        y = tl.load(y_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        y = tl.load(y_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row + cols, y * (dy - s), mask=mask)


def run(short, long, *inputs):
    out, n_cols = torch.empty_like(inputs[0]), inputs[0].shape[-1]
    kernel, block = (short, triton.next_power_of_2(n_cols)) if n_cols <= LONGEST else (long, 4096)
    warps = 4 if block < 2048 else 8 if block < 8192 else 16 if block < 32768 else 32
    kernel[(out.numel() // n_cols,)](*inputs, out, n_cols, block, num_warps=warps)
    return out


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = run(forward_single_block, forward_two_loops, x.contiguous())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return run(backward_single_block, backward_two_loops, *ctx.saved_tensors, dy.contiguous())


def test_softmax(device=DEVICE):
    both = Softmax.apply, torch.nn.Softmax(-1)
    for x, dy in (torch.randn(2, *n, device=device) for n in ((4, 1), (2, 781), (2, 32769))):
        torch.testing.assert_close(*(vjp(f, 8 * x, dy) for f in both))
