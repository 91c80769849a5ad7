"""The monoid on the device: the laws that every kernel relies on, and agreement with the
reference."""

import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernel_cases import DEVICE, quiet
from softmax_tutorial import reference
from triton_softmax.kernels.device.monoid import exp_shifted, merge

INF = float("inf")
PAIRS = [
    (-INF, 0.0),
    (0.0, 1.0),
    (3.0, 1.5),
    (-200.0, 2.0),
    (200.0, 7.25),
    (3.0e4, 1.0),
    (-3.0e4, 1024.0),
]


@triton.jit
def merge_kernel(m1_ptr, d1_ptr, m2_ptr, d2_ptr, m_ptr, d_ptr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    m, d = merge(tl.load(m1_ptr + i), tl.load(d1_ptr + i), tl.load(m2_ptr + i), tl.load(d2_ptr + i))
    tl.store(m_ptr + i, m)
    tl.store(d_ptr + i, d)


@triton.jit
def exp_shifted_kernel(x_ptr, m_ptr, y_ptr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y_ptr + i, exp_shifted(tl.load(x_ptr + i), tl.load(m_ptr + i)))


@triton.jit
def summaries_kernel(x_ptr, m_ptr, d_ptr, SIZE: tl.constexpr):
    """A summary of all elements, and behind it those of the first ones."""
    i = tl.arange(0, SIZE)
    x = tl.load(x_ptr + i)
    pairs = (x, tl.where(x == float("-inf"), 0.0, 1.0).to(x.dtype))
    m, d = tl.reduce(pairs, 0, merge)
    tl.store(m_ptr, m)
    tl.store(d_ptr, d)
    m, d = tl.associative_scan(pairs, 0, merge)
    tl.store(m_ptr + 1 + i, m)
    tl.store(d_ptr + 1 + i, d)


def device_merge(first, second, dtype=torch.float64):
    """`merge` of two lists of (m, d) pairs, padded to a power of two with the identity."""
    size = triton.next_power_of_2(len(first))
    padded = [[*pairs, *[(-INF, 0.0)] * (size - len(pairs))] for pairs in (first, second)]
    (m1, d1), (m2, d2) = (
        torch.tensor(pairs, dtype=dtype, device=DEVICE).T.contiguous() for pairs in padded
    )
    m, d = torch.empty_like(m1), torch.empty_like(d1)
    merge_kernel[(1,)](m1, d1, m2, d2, m, d, size)
    return list(zip(m[: len(first)].tolist(), d[: len(first)].tolist()))


def test_merge_is_that_of_the_reference_in_any_order():
    """Whose laws are tested with it; and the identity leaves a pair alone, to the last bit."""
    a, b = zip(*itertools.product(PAIRS, repeat=2))
    merged = device_merge(a, b)
    (m1, d1), (m2, d2) = np.array(a).T, np.array(b).T
    np.testing.assert_allclose(np.array(merged).T, reference.merge(m1, d1, m2, d2), rtol=1e-13)
    assert merged == device_merge(b, a)
    assert device_merge(PAIRS, PAIRS[:1] * len(PAIRS)) == PAIRS


@quiet
@pytest.mark.parametrize(
    "bad", [(INF, 1.0), (float("nan"), 1.0), (0.0, float("nan"))], ids=["inf", "nan-m", "nan-d"]
)
def test_what_is_not_finite_is_never_lost(bad):
    others = [(0.0, 1.0), (-INF, 0.0), (1e300, 1.0), (-1e300, 2.0)]
    bad_pairs = [bad] * len(others)
    once = device_merge(bad_pairs, others)
    twice = device_merge(others, once)
    again = device_merge(twice, others)
    assert all(np.isnan(d) for _, d in again) and all(np.isnan(d) for _, d in twice)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_exp_shifted(dtype):
    x = torch.tensor(
        [-INF, -INF, 3.0, 30000.5, -5.0, 0.0, -1e30, -700.0], dtype=dtype, device=DEVICE
    )
    m = torch.tensor([-INF, 2.0, 3.0, 30001.0, 1.0, 0.0, 1e30, 0.0], dtype=dtype, device=DEVICE)
    y = torch.empty_like(x)
    exp_shifted_kernel[(1,)](x, m, y, 8)
    expected = torch.tensor(
        reference.exp_shifted(x.cpu().double().numpy(), m.cpu().double().numpy())
    )
    rtol = 1e-6 if dtype == torch.float32 else 1e-13  # 2 ** t loses |t| times what t has lost
    torch.testing.assert_close(
        y.cpu().double(), expected, rtol=rtol, atol=1e-38 if dtype == torch.float32 else 0
    )


@pytest.mark.parametrize(
    "row", [[1.0, -INF, 3.0, 5.0, -INF, 2.0, 4.5, 0.0], [1.0, 3.0, 2.0, 5.0, 5.0, -4.0, 7.0, 6.0]]
)
def test_merge_as_a_combine_function(row):
    """Of a reduction, and of a scan, which gives the online recurrence."""
    x = torch.tensor(row, dtype=torch.float64, device=DEVICE)
    m, d = torch.empty(2, 9, dtype=x.dtype, device=DEVICE)
    summaries_kernel[(1,)](x, m, d, 8)
    steps = list(reference.online_steps(np.array(row)))
    whole = reference.summary(np.array(row))
    np.testing.assert_allclose(m.cpu(), [whole[0], *(step.m for step in steps)], rtol=1e-14)
    np.testing.assert_allclose(d.cpu(), [whole[1], *(step.d for step in steps)], rtol=1e-14)
