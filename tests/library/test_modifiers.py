"""Softmax and log-softmax with maps: the numbers of PyTorch's operators, shapes, errors, and what
is read."""

import math

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import probe
from kernel_cases import (
    DEVICE,
    INTERPRETED,
    drawn,
    modified_by_operators,
    quiet,
    watch_accesses,
)
from triton_softmax import log_softmax, plan, softmax
from triton_softmax.arguments import Part
from triton_softmax.distributed.process_group import send
from triton_softmax.kernels.modified_rows import ModifierFlags
from triton_softmax.operations import OPERATIONS
from triton_softmax.plan import modified

pytestmark = quiet
INF, NAN = float("inf"), float("nan")
FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax}
both = pytest.mark.parametrize("name", FUNCTIONS)


def tensor(*shape: int, **how) -> torch.Tensor:
    return drawn(*shape, scale=2.0, **how).requires_grad_()


def mask(*shape: int, seed: int = 7) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) > 0.3).to(DEVICE)


def maps(*shape: int) -> dict:
    """Maps along the last dimension, by name; a bias is one for every second dimension."""
    return {
        "scale": (tensor(*shape[:-1], 1, seed=1).detach().abs() + 0.5).requires_grad_(),
        "where": mask(shape[-1]),
        "bias": tensor(*(size if i % 2 else 1 for i, size in enumerate(shape)), seed=2),
        "sink": tensor(*(1,) * len(shape), seed=3),
    }


HOSTILE = torch.tensor(
    [
        [0.0, -INF, 1.0, 2.0],
        [-INF, -INF, -INF, -INF],
        [1.0, NAN, 2.0, NAN],
        [65504.0, -65504.0, 65504.0, 0.0],
        [1e38, -1e38, 1e38, 3.0],
        [INF, 0.0, 1.0, INF],
    ]
)
"""Rows of which the second and fourth places are masked."""
KEPT = torch.tensor([True, False, True, False])


@pytest.mark.parametrize(
    "name, safe", [("softmax", False), ("softmax", True), ("log_softmax", True)]
)
def test_hostile_rows(name, safe, geometry):
    x = HOSTILE.to(DEVICE)
    y = FUNCTIONS[name](x, where=KEPT.to(DEVICE), safe=safe).cpu()
    empty = -INF if name == "log_softmax" else 0.0
    wanted = getattr(torch, name)(HOSTILE[:, ::2], -1)
    if safe:
        wanted = torch.where(HOSTILE[:, ::2] == -INF, empty, wanted)
    torch.testing.assert_close(y[:, ::2], wanted, equal_nan=True)
    dead = torch.tensor([False, not safe, False, False, False, False])
    masked = torch.where(dead[:, None], NAN, torch.full((6, 2), empty))
    torch.testing.assert_close(y[:, 1::2], masked, equal_nan=True)
    again = modified_by_operators(name, HOSTILE, -1, {"where": KEPT, "safe": safe})
    torch.testing.assert_close(again, y, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_safe_row_with_nan_or_infinity_is_nan_as_in_torch(name, geometry):
    """Beside −∞ too, which counts as masked in other rows, and in a row of nothing else."""
    rows = [[NAN, -INF, 1.0], [INF, -INF, 1.0], [-INF] * 3, [1.0, -INF, 2.0]]
    rows += [[NAN, -INF, -INF], [-INF, -INF, NAN]]
    x = torch.tensor(rows, device=DEVICE)
    wanted = torch._safe_softmax(x, -1)
    wanted = wanted.log() if name == "log_softmax" else wanted
    torch.testing.assert_close(FUNCTIONS[name](x, safe=True), wanted, equal_nan=True)
    torch.testing.assert_close(
        modified_by_operators(name, x, -1, {"safe": True}), wanted, equal_nan=True
    )


@both
@pytest.mark.parametrize("again", [False, True])
def test_a_gradient_that_a_mask_stops_and_a_scale_needs_none_of(name, again):
    x, dy, where = tensor(2, 3, 5), drawn(2, 3, 5, seed=9), mask(5)
    scale = tensor(2, 3, 1, seed=1).detach().abs() + 0.5
    y = FUNCTIONS[name](x, scale=scale, where=where)
    wanted = getattr(torch, name)((x * scale).masked_fill(~where, -INF), -1)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=again)
    # What arrives at a masked place is ignored; PyTorch's log-softmax would sum it.
    torch.testing.assert_close(dx, torch.autograd.grad(wanted, x, dy * where)[0])


@both
def test_a_mask_and_causal_both_hold_inside_a_transform(name):
    """There PyTorch's operators take the place of the kernel."""
    x, where = tensor(2, 5, 5).detach(), mask(5, 5)
    where[:, 0] = True
    kept = where & torch.ones_like(where).tril()
    function = FUNCTIONS[name]
    wanted = getattr(torch, name)(x.masked_fill(~kept, -INF), -1)
    torch.testing.assert_close(function(x, where=where, causal=True), wanted)
    mapped_over = torch.func.vmap(lambda x: function(x, where=where, causal=True))
    torch.testing.assert_close(mapped_over(x), wanted)


@both
@pytest.mark.parametrize("safe", [False, True])
def test_a_gradient_of_infinities_that_may_be_differentiated_is_the_kernels(name, safe):
    x = HOSTILE.double().to(DEVICE).requires_grad_()
    y, dy = FUNCTIONS[name](x, scale=0.5, safe=safe), drawn(6, 4, seed=9)
    once, again = (
        torch.autograd.grad(y, x, dy, retain_graph=True, create_graph=each)[0]
        for each in (False, True)
    )
    torch.testing.assert_close(again, once, equal_nan=True)


@both
def test_a_bias_keeps_its_digits_beside_narrow_elements(name):
    """The gradient of x is rounded to 16 bits; that of the bias is not, on the way."""
    x = tensor(3, 8, dtype=torch.float16)
    bias, dy = tensor(3, 8, dtype=torch.float32), tensor(3, 8, dtype=torch.float32, seed=2)
    y = FUNCTIONS[name](x, dtype=torch.float32, bias=bias)
    (found,) = torch.autograd.grad(y, bias, dy)
    wanted = getattr(torch, name)(x.double() + bias.double(), -1)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, bias, dy.double())[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@both
def test_sinks_of_infinity(name, dtype, geometry):
    x = tensor(3, 4, dtype=dtype).detach()
    empty = -INF if name == "log_softmax" else 0.0
    assert (FUNCTIONS[name](x, sink=INF) == empty).all()
    torch.testing.assert_close(FUNCTIONS[name](x, sink=-INF), getattr(torch, name)(x, -1))
    sink = torch.tensor([[INF], [-INF], [0.0]], dtype=dtype, device=DEVICE, requires_grad=True)
    y = softmax(x, sink=sink)
    assert not y[0].any()
    y[:, 0].sum().backward()
    assert torch.isfinite(sink.grad).all() and sink.grad[2] != 0.0


@both
@pytest.mark.parametrize("again", [False, True])
def test_what_is_empty_or_minus_infinity_has_no_gradient_if_safe(name, again):
    """Of a sink of −∞ beside an empty row; and none comes from where a log-softmax is −∞."""
    x = torch.tensor([[-INF, -INF, -INF], [-INF, 0.0, 1.0]], device=DEVICE, requires_grad=True)
    sink = torch.tensor([[-INF], [0.0]], device=DEVICE, requires_grad=True)
    y = FUNCTIONS[name](x, sink=sink, safe=True)
    dy = torch.tensor([[1.0, 2.0, 3.0], [5.0, 1.0, 1.0]], device=DEVICE)
    dx, dsink = torch.autograd.grad(y, (x, sink), dy, create_graph=again)
    finite = x.detach()[1:, 1:].requires_grad_()
    least = torch.zeros(1, 1, device=DEVICE, requires_grad=True)
    wanted = FUNCTIONS[name](finite, sink=least)
    torch.testing.assert_close(y[1:, 1:], wanted)
    wanted = torch.autograd.grad(wanted, (finite, least), dy[1:, 1:])
    torch.testing.assert_close((dx[1:, 1:], dsink[1:]), wanted)
    assert not dx[0].any() and not dx[1, 0] and not dsink[0].any()


@both
def test_a_sinks_gradient_has_its_digits_in_every_way(name):
    """Where it is differentiated again, too, and rounded results hold no small share."""
    x, sink = tensor(2, 500).detach().bfloat16(), torch.full((2, 1), -3.0, device=DEVICE)
    dy, sink = drawn(2, 500, seed=1).bfloat16(), sink.requires_grad_()
    y = FUNCTIONS[name](x, sink=sink)
    once, again = (torch.autograd.grad(y, sink, dy, True, each)[0] for each in (False, True))
    torch.testing.assert_close(again, once, rtol=1e-5, atol=0)


def test_what_is_masked_in_a_row_of_nan_has_no_gradient():
    x, kept = torch.tensor([[NAN, 1.0, 2.0]], device=DEVICE), torch.tensor([True, True, False])
    x.requires_grad_()
    for again in (False, True):
        y = softmax(x, where=kept.to(DEVICE))
        assert torch.autograd.grad(y, x, torch.ones_like(y), create_graph=again)[0][0, 2] == 0.0


def test_a_sink_of_each_head():
    x, sink = tensor(2, 3, 4, 4).detach(), tensor(3).detach()
    for head, each in enumerate(softmax(x, sink=sink).unbind(1)):
        torch.testing.assert_close(each, softmax(x[:, head], sink=sink[head]))


def test_no_dimension_and_a_scale_of_none():
    x = tensor()
    y = softmax(x, 0, scale=2.0, sink=0.0)
    torch.testing.assert_close(y, torch.sigmoid(2 * x))
    y.backward()
    scale = torch.full((), 0.5, dtype=x.dtype, device=DEVICE, requires_grad=True)
    x = tensor(2, 3)
    softmax(x, scale=scale)[:, 0].sum().backward()
    assert scale.grad.shape == ()


@both
def test_nothing_comes_of_nothing(name):
    for shape in ((0, 3), (2, 0)):
        x = torch.empty(shape, device=DEVICE, requires_grad=True)
        y = FUNCTIONS[name](x, scale=2.0, where=torch.ones(shape, dtype=torch.bool, device=DEVICE))
        assert y.shape == shape
        y.sum().backward()


def test_integers_need_a_dtype():
    x = torch.ones(2, 3, dtype=torch.int64, device=DEVICE)
    assert softmax(x, dtype=torch.float32, scale=2.0).dtype == torch.float32


# --- what is refused ---


REFUSED = [
    ({"where": torch.ones(4)}, TypeError, "where must hold bool"),
    ({"where": torch.ones(3, dtype=torch.bool)}, ValueError, "where of shape"),
    ({"where": [True]}, TypeError, "where must be a tensor"),
    ({"bias": torch.ones(4, dtype=torch.int64)}, TypeError, "bias must hold floating"),
    ({"bias": torch.ones(2, 4, 4)}, ValueError, "bias of shape"),
    ({"scale": torch.ones(4)}, ValueError, "scale of shape"),
    ({"scale": torch.ones(1)}, ValueError, "scale must be a number, or have no dimension"),
    ({"scale": INF}, ValueError, "scale must be finite"),
    ({"scale": "2"}, TypeError, "scale must be a number"),
    ({"softcap": 0.0}, ValueError, "softcap must be positive"),
    ({"softcap": NAN}, ValueError, "softcap must be positive"),
    ({"softcap": True}, TypeError, "softcap must be a number"),
    ({"sink": torch.ones(4)}, ValueError, "sink of shape"),
    ({"sink": "0"}, TypeError, "sink must be a number"),
    ({"causal": True, "dim": 0}, ValueError, "causal takes dim=-1"),
    ({"causal": True, "x": (4,)}, ValueError, "as many queries as keys"),
    ({"causal": True, "x": (3, 4)}, ValueError, "as many queries as keys"),
    ({"scale": 2.0, "dim": 2}, IndexError, "Dimension out of range"),
    ({"group": 3, "scale": 2.0}, TypeError, "group must be a torch.distributed.ProcessGroup"),
    ({"out": torch.empty(4)}, ValueError, "out must have shape"),
    ({"out": torch.empty(4, 4, dtype=torch.float16)}, ValueError, "out must have shape"),
    ({"out": torch.empty(1, 4).expand(4, 4)}, ValueError, "overlaps itself"),
    ({"out": torch.empty(4, 4, requires_grad=True)}, RuntimeError, "without gradients"),
    ({"out": torch.empty(4, 4, device="meta")}, RuntimeError, "out is on meta"),
    ({"out": 3}, TypeError, "out must be a tensor"),
]


@pytest.mark.parametrize("given, error, words", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(given, error, words):
    """Tensors of other kinds and devices are in `test_any_tensor.py`."""
    given = {
        name: v.to(DEVICE)
        if name != "out" and isinstance(v, torch.Tensor) and v.device.type == "cpu"
        else v
        for name, v in given.items()
    }
    x = torch.ones(given.pop("x", (4, 4)), device=DEVICE)
    with pytest.raises(error, match=words):
        softmax(x, given.pop("dim", -1), **given)


def test_wide_indices_change_nothing(geometry, monkeypatch):
    x, along = tensor(2, 1, 40), tensor(2, 1, 40, seed=9).detach()
    given = maps(2, 1, 40)

    def call() -> tuple[torch.Tensor, ...]:
        y = softmax(x, **given)
        return y, *torch.autograd.grad(y, (x, given["scale"]), along)

    narrow = call()
    choose = plan.chosen
    probe.forget()
    wide = lambda call, *of: choose(call._replace(wide_index=True), *of)  # noqa: E731
    monkeypatch.setattr(plan, "chosen", wide)
    again = call()
    probe.forget()
    for a, b in zip(narrow, again, strict=True):
        assert torch.equal(a, b)


# --- a place for the result ---


@pytest.mark.parametrize("geometry", ["whole", "operators"][: 1 + INTERPRETED], indirect=True)
def test_out_strided_in_place_and_overlapping(geometry):
    x = tensor(4, 6).detach()
    wanted = torch.softmax(2 * x, -1)
    out = torch.full((6, 4), NAN, dtype=x.dtype, device=DEVICE).T
    assert softmax(x, scale=2.0, out=out) is out
    torch.testing.assert_close(out, wanted)
    place = x.clone()
    version = place._version
    assert softmax(place, scale=2.0, out=place) is place and place._version > version
    torch.testing.assert_close(place, wanted)
    buffer = torch.cat([x.flatten(), x[0, :2]])
    shifted = buffer[2:].view(4, 6)
    softmax(buffer[:24].view(4, 6), scale=2.0, out=shifted)
    torch.testing.assert_close(shifted, wanted)
    whole = x.clone()
    torch.testing.assert_close(softmax(whole, out=whole), torch.softmax(x, -1))
    square = tensor(4, 4).detach()
    wanted = torch.softmax(square + square, -1)
    torch.testing.assert_close(softmax(square, bias=square, out=square), wanted)


@pytest.mark.parametrize("name, safe", [("softmax", False), ("log_softmax", True)])
def test_rows_in_three_tiles(name, safe):
    x, where = tensor(4, 600, dtype=torch.float32).detach(), mask(4, 600)
    where[0] = False
    x[1, where[1].nonzero()[0]] = NAN
    x[2, :300] = -INF
    given = {"where": where, "safe": safe, "scale": 0.5}
    y = FUNCTIONS[name](x.requires_grad_(), **given)
    wanted = modified_by_operators(name, x, 1, given)
    torch.testing.assert_close(y, wanted, equal_nan=True)
    dy = torch.where(wanted == -INF, 0.0, tensor(4, 600, dtype=torch.float32, seed=5).detach())
    (dx,), (dz,) = (torch.autograd.grad(each[2:], x, dy[2:]) for each in (y, wanted))
    torch.testing.assert_close(dx[2:], dz[2:])


# --- what is read ---


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_masks_are_read_where_they_lie_and_causal_reads_nothing_above_the_diagonal(geometry):
    x = tensor(2, 19, 19, dtype=torch.float32).detach()
    where = mask(1, 1, 19)
    with watch_accesses() as watch:
        softmax(x, where=where, causal=True)
    read = set(np.concatenate(watch.loads).tolist())
    begin = x.data_ptr()
    of_x = {(address - begin) // 4 for address in read if begin <= address < begin + 4 * x.numel()}
    assert all(place % 19 <= place // 19 % 19 for place in of_x)
    of_where = {a - where.data_ptr() for a in read} & set(range(19))
    assert of_where == set(range(19))


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_rows_with_the_same_mask_follow_each_other(monkeypatch):
    monkeypatch.setattr(modified, "CACHED", 0)
    x, where = tensor(3, 5, 19, dtype=torch.float32).detach(), mask(5, 19)
    with watch_accesses() as watch:
        softmax(x, where=where)
    places = np.concatenate([each.ravel() for each in watch.loads]) - where.data_ptr()
    queries = places[(places >= 0) & (places < where.numel())] // 19
    assert queries.tolist() == sorted(queries.tolist()) and len(queries) == x.numel()


def test_a_mask_is_never_copied(monkeypatch):
    seen = []
    run = plan.Plan.__call__
    monkeypatch.setattr(
        plan.Plan,
        "__call__",
        lambda self, *i, **more: (seen.append(i), run(self, *i, **more))[1],
    )
    x, where, bias = tensor(2, 3, 4, 5), mask(2, 1, 1, 5), tensor(4, 1, seed=1)
    softmax(x, where=where, bias=bias).sum().backward()
    forward, backward = seen
    places = [each.data_ptr() for each in forward]
    assert where.data_ptr() in places and bias.data_ptr() in places
    assert where.data_ptr() in [each.data_ptr() for each in backward]


# --- callers ---


def test_compiled_without_a_break_and_once_for_all_lengths():
    counter, where = CompileCounterWithBackend("eager"), mask(64)  # whose length is their bound

    def call(x, scale):
        return softmax(x, scale=scale, where=where[: x.shape[-1]], causal=True, sink=0.0).sum()

    compiled = torch.compile(call, backend=counter, fullgraph=True)
    for length in (3, 4, 5, 7, 8, 9, 17):
        x, scale = tensor(length, length), tensor(length, 1, seed=1)
        torch.testing.assert_close(compiled(x, scale), call(x, scale))
    assert counter.frame_count <= 4


def test_a_subclass_sees_the_call():
    class Seen(torch.Tensor):
        calls: list = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.calls.append((function, kwargs))
            return "seen"

    bias = torch.ones(3, device=DEVICE).as_subclass(Seen)
    assert softmax(torch.ones(2, 3, device=DEVICE), bias=bias, scale=2.0) == "seen"
    function, kwargs = Seen.calls[-1]
    assert function is softmax and kwargs["scale"] == 2.0 and kwargs["bias"] is bias


def test_tanh_has_all_its_digits():
    x = torch.cat([torch.logspace(-12, 2, 40, dtype=torch.float64), torch.tensor([INF])])
    x = x.to(DEVICE)
    y = log_softmax(torch.stack([x, torch.zeros_like(x)], -1), softcap=7.0, sink=-INF)
    difference = (y[:, 0] - y[:, 1]) / 7.0
    torch.testing.assert_close(difference, torch.tanh(x / 7.0), rtol=0, atol=4e-16)
    assert math.isclose(float(difference[-1]), 1.0)


@pytest.mark.parametrize("dtype, sizes", [(torch.float16, (3, 2)), (torch.float32, (2, 3))])
def test_rows_that_share_a_map_are_neighbours_if_the_cache_does_not_hold_it(dtype, sizes):
    """The same 3 rows of a bias for each of 2 slices: 6 MiB stay in the cache, 12 do not."""
    x = torch.empty(2, 3, 2**20, dtype=torch.float16, device=DEVICE)
    inputs = x, torch.empty(3, 2**20, dtype=dtype, device=DEVICE)
    options = (2, x.dtype, None, False, None, None)
    flags = ModifierFlags(bias=True)
    made = modified._plan_modified(OPERATIONS["softmax"], flags, inputs, *options)
    assert made.launches[0].numbers[2] == sizes


@pytest.mark.parametrize("ranks", [2, 4, 8])
@both
def test_ranks_have_the_chunks_of_one_gpu_among_them(name, ranks):
    """In a batch-invariant call: no more programs and words than the whole row has."""
    n_cols, op = 1 << 14, OPERATIONS[name]
    part = Part(0, n_cols, n_cols // ranks, ranks, None, send)
    options = (1, torch.float32, None, True)
    one, mine = (
        modified._plan_modified(op, ModifierFlags(), (x,), *options, of, None)
        for x, of in (
            (torch.empty(3, n_cols, device=DEVICE), None),
            (torch.empty(3, n_cols // ranks, device=DEVICE), part),
        )
    )
    assert mine.launches[0].grid * ranks == one.launches[0].grid
    assert mine.n_words * ranks == one.workspace.n_words > 0


@pytest.mark.parametrize("function", [softmax, log_softmax])
@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_no_second_derivative(function, hostile):
    x = torch.tensor([[0.3, hostile, -0.5]], requires_grad=True)
    where = torch.tensor([[True, False, True]])
    y = function(x, -1, where=where, softcap=2.0, scale=-0.3)
    weights = torch.tensor([[1.0, 2.0, 3.0]])
    total = (y.masked_fill(~where, 0.0) * weights).sum()
    (dx,) = torch.autograd.grad(total, x, create_graph=True)
    (found,) = torch.autograd.grad((dx * weights).sum(), x)
    assert torch.isfinite(dx).all() and torch.isfinite(found).all() and found[0, 1] == 0
