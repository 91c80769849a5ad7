"""The hastened interpreter answers what Triton's answers, to the bit."""

from __future__ import annotations

import itertools
from importlib.metadata import version

import pytest
import torch
import triton
import triton.language as tl

import hasten
from triton_softmax import log_softmax, logsumexp, softmax

pytestmark = pytest.mark.skipif(
    not triton.knobs.runtime.interpret, reason="about the interpreter alone"
)

SHAPES = [((3, 7), -1), ((4, 16), -1), ((2, 5, 3), 1), ((5, 1), 0), ((1, 2049), 1)]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MIXED = (torch.float16, torch.float32, torch.float64)


def both_ways(function):
    """What a function answers hastened, and as Triton ships the interpreter."""
    ours = function()
    with hasten.as_shipped():
        return ours, function()


@pytest.mark.skipif(not version("triton").startswith("3.7."), reason="written for Triton 3.7")
def test_everything_is_replaced_in_the_pinned_triton():
    assert {name for _, name, _, _ in hasten._replaced} == {
        "_patch_lang",
        "options",
        "_patch_attr",
        "_get_np_dtype",
        "__init__",
        "_validate_np_data_size",
        "cast",
        "binary_op_type_checking_impl",
        "broadcast_impl_value",
    }
    for owner, name, shipped, ours in hasten._replaced:
        assert getattr(owner, name) is ours is not shipped


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_functions_answer_the_same_bits(shape, dim, dtype):
    def answers():
        for function in (softmax, log_softmax, logsumexp):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
            x.requires_grad_()
            y = function(x, dim)
            yield y.detach()
            yield torch.autograd.grad(y, x, torch.ones_like(y).cumsum(0))[0]

    for one, other in zip(*both_ways(lambda: list(answers()))):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@triton.jit
def mixture(x_ptr, i_ptr, out_ptr, n, WIDE: tl.constexpr):
    """Numbers beside tensors, types beside each other, and shapes that have to be made alike."""
    row = tl.arange(0, 4)
    at = row[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    x = tl.load(x_ptr + at, mask=at < n, other=-1.5)
    i = tl.load(i_ptr + at, mask=at < n, other=3)
    line = row[:, None].to(tl.int64)
    a = (i // 3 - i % 4 + (i >> 1) * 2 - (1 << row[:, None])) * line
    b = x * 2 - 1 / (3 + x * x) + tl.where(at % 2 == 0, 1.0, i)
    c = (x > 0) & (i != 2) | (row[:, None] >= 1 + (n - n))
    d = tl.maximum(x, 0.25) + tl.sum(b, 1)[:, None] - tl.max(x, 0)[None, :] * 2**-3
    unsigned = (at.to(tl.uint32) * 2654435761) >> 5
    e = a.to(tl.float64) + b + c + d + unsigned + (i.to(tl.uint32) // 7 + 4294967295)
    tl.store(out_ptr + at, e.to(tl.float32), mask=at < n)


@pytest.mark.parametrize(
    ("floats", "integers"),
    list(itertools.product(MIXED, (torch.int8, torch.int32, torch.int64, torch.uint8))),
    ids=str,
)
def test_mixed_types_answer_the_same_bits(floats, integers):
    def answer():
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(32, generator=generator).to(floats)
        i = torch.randint(0, 100, (32,), generator=generator).to(integers)
        out = torch.full((32,), torch.nan)
        mixture[(1,)](x, i, out, 30, 8)
        return out

    one, other = both_ways(answer)
    assert one[:30].isfinite().all()
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@triton.jit
def refused(x_ptr, HOW: tl.constexpr):
    i = tl.arange(0, 4)
    if HOW == "a number too large":
        tl.store(x_ptr + i, i + 1099511627776)
    if HOW == "a negative number beside an unsigned tensor":
        tl.store(x_ptr + i, i.to(tl.uint32) + -1)
    if HOW == "shapes that do not agree":
        tl.store(x_ptr + i, i + tl.arange(0, 8))
    if HOW == "a shape that is no power of two":
        tl.store(x_ptr + i, i + tl.zeros((3,), tl.int32))


@pytest.mark.parametrize(
    "how",
    [
        "a number too large",
        "a negative number beside an unsigned tensor",
        "shapes that do not agree",
        "a shape that is no power of two",
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(how):
    def message() -> str:
        with pytest.raises(Exception) as error:
            refused[(1,)](torch.zeros(4, dtype=torch.int32), how)
        return str(error.value)

    one, other = both_ways(message)
    assert one == other
