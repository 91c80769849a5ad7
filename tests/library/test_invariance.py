"""Batch-invariant calls: the same bits for a row in every batch, at every place, on every border
between kernels."""

import math
from fractions import Fraction
from functools import partial

import pytest
import torch
import triton
import triton.language as tl

from kernel_cases import DEVICE, drawn, expected, quiet, small_tiles
from probe import plan_of
from softmax_bench import possible
from triton_softmax import (
    LogSoftmax,
    Softmax,
    batch_invariant,
    cross_entropy,
    entropy_from_logits,
    log_softmax,
    logsumexp,
    plan,
    selective_log_softmax,
    softmax,
    token_logprobs,
)
from triton_softmax.config import Choice, Device, Traits, rows_of, splitting
from triton_softmax.kernels.device.sums import sums_of
from triton_softmax.kernels.modified_rows import sum_of_tile
from triton_softmax.operations import OPERATIONS
from triton_softmax.operations.operation import in_any_order
from triton_softmax.operations.softmax import SOFTMAX_VJP

pytestmark = quiet
FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
M = 5


def rows(n_cols: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return drawn(M, n_cols, dtype=dtype, seed=seed, scale=3.0)


def both(function, x: torch.Tensor, g: torch.Tensor, dim: int = -1):
    x = x.detach().requires_grad_()
    y = function(x, dim, batch_invariant=True)
    return y.detach(), *torch.autograd.grad(y, x, g)


def check(name: str, x: torch.Tensor, g: torch.Tensor, which: tuple[int, ...] = (1, M - 1)):
    """Rows alone, and at another place of a smaller batch, have the bits that they have here."""
    together = both(FUNCTIONS[name], x, g)
    for i in which:
        alone = both(FUNCTIONS[name], x[i : i + 1].clone(), g[i : i + 1].clone())
        few = both(FUNCTIONS[name], x[i - 1 :], g[i - 1 :])  # starts where it may
        for one, some, all_ in zip(alone, few, together, strict=True):
            assert torch.equal(one[0], all_[i]) and torch.equal(some[1], all_[i])
    return together


LONGEST = splitting.INVARIANT_TILE_COLS
ONE_PROGRAM = [(1, torch.float32), (8, torch.bfloat16), (33, torch.float64)]
ONE_PROGRAM += [(257, torch.float32), (1027, torch.bfloat16)]
SEVERAL = [
    ("softmax", LONGEST + 1, torch.bfloat16),
    ("log_softmax", LONGEST + 8, torch.bfloat16),
    ("logsumexp", LONGEST + 3, torch.float32),
    ("softmax", 9_001, torch.float64),
]


@pytest.mark.parametrize(
    "name, n_cols, dtype",
    [([*FUNCTIONS][(i + j) % 3], *case) for i, case in enumerate(ONE_PROGRAM) for j in (0, 1)]
    + SEVERAL,
    ids=str,
)
def test_a_row_of_one_program_and_of_several(name, n_cols, dtype):
    x, g = rows(n_cols, dtype), rows(n_cols, dtype, seed=1)
    if name == "logsumexp":
        g = g[:, 0].contiguous()
    several = n_cols > LONGEST
    y, dx = check(name, x[:3], g[:3], which=(2,)) if several else check(name, x, g)
    x, g = x[: len(y)], g[: len(y)]
    for operation, got in ((name, y), (f"{name}_backward", dx)):
        inputs = (x,) if got is y else (x if name == "logsumexp" else y, g)
        wanted = expected(operation, inputs, 1).double()
        far = (got.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30)
        assert far < {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float64: 1e-14}[dtype]


def planned(monkeypatch, operation: str, inputs: tuple[torch.Tensor, ...], choice: Choice):
    """The results of a batch-invariant call, by one choice."""
    with monkeypatch.context() as patch:
        patch.setattr(plan, "chosen", lambda *_: choice)
        return plan.make_plan(OPERATIONS[operation], inputs, 1, None, True)(*inputs)


BORDERS = [1, 2, 7, 8, 9, 24, 63, 64, 65, 127, 128, 129, 1000, 1003, 2047, 2048, 2050]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("n_cols", BORDERS)
def test_whichever_tiles_hold_a_row(n_cols, dtype, monkeypatch):
    """The bits are those of the length and dtype: however many tiles, warps and rows a program has,
    and whether rows have edges, so that any of them may be chosen by the number of rows."""
    operations = ["softmax", "logsumexp", "log_softmax_backward"]
    operation = operations[BORDERS.index(n_cols) % 3]
    inputs = (rows(n_cols, dtype), rows(n_cols, dtype, seed=1))
    inputs = inputs[: OPERATIONS[operation].inputs]
    held = inputs[0].element_size()
    lies = rows_of(M, n_cols, held, (0,) * 2, (n_cols,) * 2)
    group = splitting.group_of(n_cols, held)
    choices = {}
    for each in possible.row_tiles(lies, Device(132)):
        how = each.how._replace(block_rows=min(8, each.how.block_rows))
        if how.block_cols >= group:
            choices[how.block_cols, how.tiles, how.edges] = each._replace(how=how)
    found = [planned(monkeypatch, operation, inputs, each) for each in choices.values()]
    assert found and all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("n_cols", [4_095, 4_096, 4_097, 8_193, 12_289])
@pytest.mark.parametrize("operation", ["softmax", "softmax_backward"])
def test_however_the_chunks_of_a_row_are_computed(operation, n_cols, monkeypatch):
    """What follows from the number of rows changes no bits: warps, depth, lanes of status words."""
    x = rows(n_cols, torch.bfloat16)[:2]
    inputs = (x,) if operation == "softmax" else (torch.softmax(x, -1), x)
    lies = rows_of(2, n_cols, 2, (0,) * 2, (n_cols,) * 2)
    taken = splitting.Candidate(2048, 96)
    choice = splitting.split_as(taken, lies, Traits(len(inputs), any_order=True), Device(132))
    hows = [choice.how._replace(words=w, depth=d) for w, d in ((128, 0), (512, 1), (256, 2))]
    found = [planned(monkeypatch, operation, inputs, choice._replace(how=h)) for h in hows]
    assert all(torch.equal(each, found[0]) for each in found)


def peaked(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A sum a little above 1, whose last digit shows in its logarithm."""
    x = drawn(*shape, scale=1.0) - 6
    return x.index_fill(1, torch.tensor(0, device=DEVICE), 0.0).to(dtype)


def check_alike(name: str, x: torch.Tensor, dim: int, views: list[torch.Tensor]):
    """A view of all values, or of the last of them, has the bits of the whole."""
    g = drawn(*x.shape, dtype=x.dtype, seed=1)
    if name == "logsumexp":
        g = g.select(dim, 0).contiguous()
    every = both(FUNCTIONS[name], x, g, dim)
    for view in views:
        last = slice(len(x) - len(view), None)
        assert torch.equal(view, x[last])
        for some, all_ in zip(both(FUNCTIONS[name], view, g[last], dim), every, strict=True):
            assert torch.equal(some, all_[last]), (view.shape, view.stride())


@pytest.mark.parametrize("n_cols", [131, 136, 2_049, LONGEST + 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_layout_of_rows(name, dtype, n_cols):
    """Padded, from within a vector, in pieces, and side by side, however many."""
    x = peaked(M, n_cols, dtype=dtype)
    padded = torch.zeros(M, n_cols + 9, dtype=dtype, device=DEVICE)
    views = [padded.clone()[:, start : start + n_cols].copy_(x) for start in (0, 1, 8)]
    views += [x[3:], x[3:].t().contiguous().t(), x.t().contiguous().t()]
    check_alike(name, x, 1, views)


@pytest.mark.parametrize("n_inner", [1, 2, 4])
@pytest.mark.parametrize("n_cols", [300, 1_025, 2_049])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_layout_of_columns(name, n_cols, n_inner):
    """A dimension that is not the last: any number of slices, wherever they lie; short ones have
    the bits of rows."""
    x = peaked(M, n_cols, n_inner, dtype=torch.float32)
    views = [x[3:].clone(), x[1:], x.permute(1, 2, 0).contiguous().permute(2, 0, 1)]
    views += [
        x.transpose(1, 2).contiguous().transpose(1, 2),
        x[3:].permute(1, 2, 0).contiguous().permute(2, 0, 1),
    ]
    check_alike(name, x, 1, views)
    if n_cols <= 2_048:
        rows_ = FUNCTIONS[name](x.transpose(1, 2).contiguous(), 2, batch_invariant=True)
        columns = FUNCTIONS[name](x, 1, batch_invariant=True)
        assert torch.equal(columns if name == "logsumexp" else columns.transpose(1, 2), rows_)


def test_where_a_result_is_written_and_who_computes_the_share_of_a_class():
    """`out` alone changes no bits; nor does label smoothing by the kernel of targets, or without it
    where logits are not contiguous."""
    x = peaked(M, 600, dtype=torch.float32)
    y = softmax(x, batch_invariant=True)
    for out in (torch.empty_like(x), torch.empty(600, M, device=DEVICE).t()):
        assert torch.equal(softmax(x, out=out, batch_invariant=True), y) and torch.equal(out, y)
    x, target = drawn(2, 23, M, dtype=torch.float32), torch.arange(M, device=DEVICE).expand(2, M)
    smoothed = {"reduction": "none", "label_smoothing": 0.1, "batch_invariant": True}
    last = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(*[cross_entropy(each, target, **smoothed) for each in (x, last)])


@pytest.mark.parametrize("n_rows, n_cols", [(19, LONGEST + 17), (3, 32_896)])
def test_a_target_beside_the_border_of_two_chunks(n_rows, n_cols, monkeypatch):
    """The program that has the target's column subtracts 1 there, wherever the row starts: rows of
    an odd length, and of eight parts with three chunks that differ, each with its target at another
    distance from a border."""
    choices, chosen = [], plan.chosen
    monkeypatch.setattr(plan, "chosen", lambda *of: choices.append(chosen(*of)) or choices[-1])
    x = drawn(n_rows, n_cols, dtype=torch.bfloat16).requires_grad_()
    cross_entropy(x, torch.zeros(n_rows, dtype=torch.int64, device=DEVICE), batch_invariant=True)
    split = choices[-1]
    assert split.kernel == "split_rows" and split.n_chunks > 1
    near = torch.arange(n_rows, device=DEVICE) - n_rows // 2
    part, each = n_cols // split.parts, split.n_chunks // split.parts
    borders = split.chunk_cols, n_cols - part + (each - 1) * split.chunk_cols, part % n_cols
    for target in [border + near for border in borders if border]:
        loss = cross_entropy(x, target, reduction="sum", batch_invariant=True)
        (dx,) = torch.autograd.grad(loss, x)
        at_target = dx.gather(1, target[:, None])
        assert (at_target < -0.5).all(), at_target.flatten()


@pytest.mark.parametrize(
    "n_cols, dtype", [(3, torch.float32), (9_001, torch.bfloat16), (9_000, torch.float16)]
)
def test_what_is_no_number(n_cols, dtype):
    """NaN and infinities are what they are without it, in one program and in several."""
    inf, nan = torch.inf, torch.nan
    x, g = torch.zeros(2, M, n_cols, dtype=dtype, device=DEVICE)
    x[:, -3:] = torch.tensor(
        [[0.0, -inf, 1.0], [-inf] * 3, [0.0, inf, 1.0], [nan, 0.0, 1.0], [inf, inf, nan]]
    )
    g[:, :3] = torch.tensor([[1.0, inf, 0], [1, 2, 3], [nan, 1, 1], [0, 0, 0], [3e38, inf, -inf]])
    y = torch.softmax(rows(n_cols, dtype), -1)
    for operation, inputs in {
        "softmax": (x,),
        "log_softmax": (x,),
        "logsumexp": (x,),
        "softmax_backward": (y, g),
        "log_softmax_backward": (y.log(), g),
        "logsumexp_backward": (x, g[:, 0].contiguous()),
    }.items():
        default = plan_of(operation, inputs, 1)(*inputs)
        invariant = plan_of(operation, inputs, 1, None, "batch_invariant")(*inputs)
        torch.testing.assert_close(invariant, default, equal_nan=True)


def test_a_sum_that_overflows_in_some_orders():
    """Numbers whose sum is finite have that sum, wherever they stand."""
    z = torch.full((1, 3), math.log(1 / 3), device=DEVICE)
    for order in ([3e38, 3e38, -3e38], [3e38, -3e38, 3e38], [-3e38, 3e38, 3e38]):
        g = torch.tensor([order], device=DEVICE)
        dx = plan_of("log_softmax_backward", (z, g), 1, None, "batch_invariant")(z, g)
        torch.testing.assert_close(dx, g - 1e38, rtol=1e-6, atol=0.0)


def test_tiny_and_huge_gradients():
    """The unit of the integers follows the largest term over the whole range of a float32."""
    y = torch.softmax(rows(100, torch.float32), -1)
    for scale in (1e-44, 1e-38, 1e-20, 1.0, 1e20, 1e37):
        dy = rows(100, torch.float32, seed=2) * scale
        got = plan_of("softmax_backward", (y, dy), 1, None, "batch_invariant")(y, dy)
        want = expected("softmax_backward", (y, dy), 1)
        assert (got.double() - want.double()).abs().max() <= 4e-6 * scale + 2**-126


@triton.jit
def sum_kernel(x_ptr, y_ptr, N: tl.constexpr, OP: tl.constexpr):
    first = tl.load(x_ptr + tl.arange(0, N)[None, :])
    second = tl.load(x_ptr + N + tl.arange(0, N)[None, :])
    (total,) = sums_of((((first,),), ((second,),)), 0.0, 1, OP)
    tl.store(y_ptr + tl.arange(0, 1), total)
    of_tile = sum_of_tile(tl.load(x_ptr + tl.arange(0, 2 * N)[None, :]), OP)
    tl.store(y_ptr + 1 + tl.arange(0, 1)[:, None], of_tile)


@pytest.mark.parametrize("exponent", [-149, -126, -78, -77, 114])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sums_at_the_borders_of_their_integers(dtype, exponent):
    """2¹³ of the largest terms fit 64 bits, the smallest unit is a normal number, and each term is
    cut to a multiple of its unit, however large the part that the largest is in: exactly."""
    wide = dtype == torch.float64
    exponent *= 8 if wide and exponent < 0 else 1
    most, least = (2**53 - 1, -1022) if wide else (2**24 - 1, -126)
    cut = 2.0 ** (126 if wide else 61)  # whose unit is larger than the last digit of the others
    cases = [[most] * 8192, [-1] * 8191 + [most], [cut, -cut] + [most] * 8190]
    for case in cases:
        power = 2.0 ** max(exponent - math.frexp(max(case))[1] + 1, least - 23 - 29 * wide)
        x = (torch.tensor(case, dtype=torch.float64) * power).to(dtype).to(DEVICE)
        y = torch.empty(2, dtype=dtype, device=DEVICE)
        sum_kernel[(1,)](x, y, 4096, in_any_order(SOFTMAX_VJP))
        terms = [Fraction(each) for each in x.tolist()]
        unit = Fraction(2) ** max(math.frexp(x.abs().max())[1] - 1 - 48, least)
        unit /= 2**48 if wide else 1
        wanted = sum(int(term / unit) for term in terms) * unit
        assert y.tolist() == 2 * [torch.tensor(float(wanted), dtype=torch.float64).to(dtype).item()]


@pytest.mark.parametrize("n_cols", [4096, 4097])
def test_a_peak_over_many_small_terms(n_cols):
    """Each small term is far below the last digit of the largest, and together they count."""
    x = torch.zeros(2, n_cols, device=DEVICE)
    x[:, 0] = 15.0
    far = logsumexp(x, batch_invariant=True).double() - torch.logsumexp(x.double(), -1)
    assert far.abs().max() < 2e-6
    y = softmax(x, batch_invariant=True).double()
    assert (y / torch.softmax(x.double(), -1) - 1).abs().max() < 1e-6


def test_the_context_and_the_modules():
    x = rows(1001, torch.float32)
    want = [function(x, batch_invariant=True) for function in FUNCTIONS.values()]
    assert not all(torch.equal(f(x), w) for f, w in zip(FUNCTIONS.values(), want, strict=True))
    with batch_invariant():
        with batch_invariant():
            pass
        got = [function(x) for function in FUNCTIONS.values()]
    assert all(map(torch.equal, got, want))
    assert torch.equal(Softmax(batch_invariant=True)(x), want[0])
    assert torch.equal(batch_invariant()(LogSoftmax())(x), want[1])
    assert "batch_invariant=True" in repr(Softmax(batch_invariant=True))


TARGET = torch.tensor([3, -100, 0, 1002, 500], device=DEVICE)
INDEX, Q = TARGET.clamp(min=0), torch.softmax(rows(1003, torch.float32, seed=2), -1)
CALLS = {
    "classes": lambda x, _, r, **way: cross_entropy(x, TARGET[r], reduction="none", **way),
    "softcap": lambda x, _, r, **way: cross_entropy(
        x, TARGET[r], reduction="none", softcap=5.0, **way
    ),
    "probabilities": lambda x, _, r, **way: cross_entropy(x, Q[r], reduction="none", **way),
    "entropy": lambda x, _, r, **way: entropy_from_logits(x, **way),
    "token": lambda x, _, r, **way: selective_log_softmax(x, INDEX[r], **way),
    "tempered": lambda x, _, r, **way: token_logprobs(
        x, INDEX[r], temperature=0.7, scale=-0.3, softcap=2.0, **way
    ),
    "softmax": lambda x, scale, r, **way: softmax(x, scale=scale, softcap=3.0, **way),
    "log_softmax": lambda x, scale, r, **way: log_softmax(x, scale=scale, softcap=3.0, **way),
}


@pytest.mark.parametrize("name", CALLS)
def test_losses_tokens_and_modifiers(name, monkeypatch):
    """Modifiers in tiles so small that a row takes several."""
    n_cols = 1003
    if "softmax" in name:
        small_tiles(monkeypatch, 128)
        n_cols = 131
    x, scale, dy = (rows(n, torch.float32, seed=i) for i, n in enumerate((n_cols, 1, n_cols)))

    def call(r, **way):
        leaves = [t[r].detach().requires_grad_() for t in (x, scale)]
        y = CALLS[name](*leaves, r, **way)
        g = dy[r] if y.dim() > 1 else torch.ones_like(y)
        return y, *torch.autograd.grad(y, leaves, g, allow_unused=True)

    one = slice(3, 4)
    every, alone = call(slice(None), batch_invariant=True), call(one, batch_invariant=True)
    with batch_invariant():
        within = call(one)
    for together, *others in zip(every, alone, within, strict=True):
        assert together is None or all(torch.equal(each[0], together[3]) for each in others)


def test_a_temperature_is_the_same_number_in_every_form():
    torch._dynamo.reset()
    x, index, each = rows(50, torch.float32), torch.arange(M, device=DEVICE), torch.ones(M, 1)
    call = partial(token_logprobs, x, index, batch_invariant=True)
    wanted = call(temperature=1.1)
    assert torch.equal(call(temperature=1.1 * each.to(DEVICE)), wanted)
    compiled = torch.compile(lambda: call(temperature=1.1), backend="aot_eager")
    assert torch.equal(compiled(), wanted)


def test_the_gradient_at_a_scale_of_each_row():
    """Of eight parts of a row, which PyTorch adds in an order that follows the number of rows."""
    x, g = (drawn(48, 16_384, dtype=torch.float32, seed=i) for i in (0, 1))
    scale = torch.ones(48, 1, device=DEVICE, requires_grad=True)

    def gradient(r):
        y = softmax(x[r], scale=scale[r], batch_invariant=True)
        return torch.autograd.grad(y, scale, g[r])[0][r]

    every = gradient(slice(None))
    assert all(torch.equal(gradient(slice(i, i + 1)), every[i : i + 1]) for i in range(0, 48, 5))


def test_compiled():
    """The context is part of what a compiled function is compiled for."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: softmax(x), backend="aot_eager", fullgraph=True)
    x = rows(1001, torch.float32)
    with batch_invariant():
        inside = compiled(x)
    assert torch.equal(inside, softmax(x, batch_invariant=True))
    assert torch.equal(compiled(x), softmax(x))
    within = torch.compile(batch_invariant()(softmax), backend="aot_eager")
    assert torch.equal(within(x), inside)
