"""The public functions against PyTorch's: every shape, stride, dtype and hostile row, and every
error message."""

import functools
import math
from types import ModuleType

import pytest
import torch

import triton_softmax
from kernel_cases import HOSTILE, PAIRS, drawn, pairs
from triton_softmax import functional, logsumexp, operators, softmax

INF, NAN = math.inf, math.nan
normalizers = pytest.mark.parametrize("ours, theirs", [*PAIRS.values()][:2], ids=[*PAIRS][:2])

# Against a float64 reference that starts from the same rounded input. One unit in the last place of
# the result; the interpreter truncates to bfloat16 where a GPU rounds to the nearest.
TOLERANCE = {
    torch.float64: dict(rtol=1e-12, atol=1e-14),
    torch.float32: dict(rtol=2e-6, atol=1e-7),
    torch.float16: dict(rtol=1e-3, atol=1e-6),
    torch.bfloat16: dict(rtol=8e-3, atol=1e-6),
}


random = functools.partial(drawn, scale=3.0)


def check_close(actual, expected, tolerance):
    """Compare a result of any dtype with a float64 reference."""
    torch.testing.assert_close(actual.double(), expected, equal_nan=True, **tolerance)


# Shapes


@pairs
@pytest.mark.parametrize("dim", [0, -1])
def test_zero_dimensional(ours, theirs, dim):
    for value in (3.0, -INF, INF, NAN):
        x, exact = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for _ in range(2))
        y, want = ours(x, dim), theirs(exact, dim)
        assert y.shape == ()
        torch.testing.assert_close(y, want, equal_nan=True)
        y.backward()
        want.backward()
        torch.testing.assert_close(x.grad, exact.grad, equal_nan=True)


EMPTY = [(0,), (3, 0), (0, 3), (3, 0, 2), (0, 0)]


@pairs
@pytest.mark.parametrize("geometry", ["whole", "operators"], indirect=True)
@pytest.mark.parametrize(
    "shape, dim", [(shape, dim) for shape in EMPTY for dim in range(len(shape))], ids=str
)
def test_empty(ours, theirs, shape, dim, geometry):
    x, exact = (torch.empty(shape, requires_grad=True) for _ in range(2))
    y, want = ours(x, dim), theirs(exact, dim)
    assert y.dtype == want.dtype and y.stride() == want.stride()
    torch.testing.assert_close(y, want)
    y.sum().backward()
    assert x.grad.shape == x.shape


# Hostile rows


@pairs
def test_hostile_rows(ours, theirs):
    """All at once, and a good row beside them, which stays good; as rows, and as columns. Their
    gradients are compared in `kernels/`."""
    rows = torch.tensor([*HOSTILE, [7.0] * 3], dtype=torch.float64)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = rows.to(dtype)
        x = x if ours is not logsumexp or dtype.itemsize > 2 else x.clamp(-3e4, 3e4)
        for y, dim in ((ours(x, 1), 1), (ours(x.t(), 0).t(), 1)):
            assert y.dtype == dtype and y.is_contiguous() or y.t().is_contiguous()
            check_close(y, theirs(x.double(), dim), TOLERANCE[dtype])


# dtype=


@normalizers
@pytest.mark.parametrize(
    "source, out",
    [
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float64),
        (torch.float64, torch.float16),
    ],
    ids=str,
)
def test_dtype_casts_first(ours, theirs, source, out):
    x = random(2, 9, dtype=torch.bfloat16).to(source)  # exact in all four
    y = ours(x, 1, out)
    assert y.dtype == out
    check_close(y, theirs(x.to(out).double(), 1), TOLERANCE[out])
    x.requires_grad_()
    (dx,) = torch.autograd.grad(ours(x, 1, dtype=out), x, torch.eye(2, 9, dtype=out))
    exact = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(theirs(exact, 1), exact, torch.eye(2, 9, dtype=torch.float64))
    assert dx.dtype == source
    coarse = max(source, out, key=lambda dtype: torch.finfo(dtype).eps)
    check_close(dx, want, dict(rtol=0, atol=64 * torch.finfo(coarse).eps))


@normalizers
def test_dtype_casts_before_the_kernel_sees_the_numbers(ours, theirs):
    x = torch.tensor([1.0, 1.001, 70000.0])  # in float16: 1, 1.001 rounded, inf
    torch.testing.assert_close(
        ours(x, 0, torch.float16), theirs(x, 0, dtype=torch.float16), equal_nan=True
    )


@normalizers
@pytest.mark.parametrize("source", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_dtype_admits_integers(ours, theirs, source):
    x = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=source)
    torch.testing.assert_close(ours(x, 1, torch.float32), theirs(x, 1, dtype=torch.float32))


@pytest.mark.filterwarnings("ignore:Casting complex values to real:UserWarning")
@normalizers
def test_dtype_admits_complex_numbers_and_keeps_their_gradient(ours, theirs):
    def run(f):
        z = torch.complex(random(2, 3), random(2, 3, seed=1)).requires_grad_()
        y = f(z, 1, dtype=torch.float64)
        return y, *torch.autograd.grad(y[:, 0].sum(), z)

    torch.testing.assert_close(run(ours), run(theirs))


# logsumexp


def test_logsumexp_of_nothing():
    for keepdim in (False, True):
        for dim in (1, (0, 1), (0, 2)):
            x = torch.empty(2, 0, 4)
            torch.testing.assert_close(logsumexp(x, dim, keepdim), torch.logsumexp(x, dim, keepdim))
        assert logsumexp(torch.tensor(3.0), (), keepdim) == logsumexp(torch.tensor(3.0), 0) == 3


@pairs
def test_an_inference_tensor_outside_inference_mode(ours, theirs):
    with torch.inference_mode():
        y = ours(random(2, 3).requires_grad_(), 1)
    assert y.is_inference() and not ours(y, 0).requires_grad


# Autograd


@pairs
def test_undefined_gradients(ours, theirs):
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        def backward(ctx, dy):
            return None

    def run(f):
        x = random(2, 3).requires_grad_()
        return torch.autograd.grad(Cut.apply(f(x, 1)).sum(), x, allow_unused=True)

    assert run(ours) == run(theirs) == (None,)


@normalizers
def test_changing_the_output_in_place_is_noticed(ours, theirs):
    for f in (ours, theirs):
        y = f(random(2, 3).requires_grad_(), 1)
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pairs
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("shape, dim", [((), 0), ((2, 3), 0), ((2, 3), 1)], ids=str)
def test_the_result_may_be_changed_in_place(ours, theirs, shape, dim, requires_grad):
    x = random(*shape).requires_grad_(requires_grad)
    weight = torch.tensor(2.0, dtype=x.dtype, requires_grad=True)
    for op in (ours, getattr(operators, ours.__name__).overload):
        y, want = op(x, dim), theirs(x, dim)
        assert not y._is_view()
        torch.testing.assert_close(y.mul_(weight), want.mul_(weight))
    with torch.autograd.forward_ad.dual_level():
        torch.testing.assert_close(ours(x, dim).mul_(weight), want)


def test_hooks_see_the_saved_output():
    saved = []

    def pack(t):
        saved.append(t)
        return t

    x = random(2, 3).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = softmax(x, 1)
    assert [each.data_ptr() for each in saved] == [y.data_ptr()]  # all that the backward pass needs
    y[:, 0].sum().backward()
    assert x.grad.abs().sum() > 0


# Which way a call goes


def uses_operators(monkeypatch, f, *args):
    """Whether `f` calls the operators."""
    calls = []
    for name in ("softmax", "log_softmax", "logsumexp"):
        op = getattr(operators, name)
        overload = lambda *a, op=op.overload: calls.append(op) or op(*a)  # noqa: E731
        monkeypatch.setattr(op, "overload", overload)
    f(*args)
    monkeypatch.undo()
    return bool(calls)


@pairs
def test_plain_calls_skip_the_dispatcher_and_watched_ones_use_the_operators(
    monkeypatch, ours, theirs
):
    x = random(2, 3)
    for plain in (x, x.clone().requires_grad_(), torch.nn.Parameter(x), x.conj()):
        assert not uses_operators(monkeypatch, ours, plain, 1)
    if ours is not logsumexp:
        assert not uses_operators(monkeypatch, ours, x, 1, torch.float32)
    assert uses_operators(monkeypatch, ours, torch.empty(2, 3, device="meta"), 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert uses_operators(monkeypatch, ours, x, 1)
    with torch.device("cpu"):
        assert uses_operators(monkeypatch, ours, x, 1)
    with torch.autograd.forward_ad.dual_level():
        assert uses_operators(monkeypatch, ours, x, 1)
    assert uses_operators(monkeypatch, torch.vmap(lambda x: ours(x, 0)), x)
    assert uses_operators(monkeypatch, ours, torch.complex(x, x).conj().imag, 1)


# Errors


@pairs
def test_dim_out_of_range_as_torch(ours, theirs):
    for shape, dim in [((2, 3), 2), ((2, 3), -3), ((), 1), ((), -2), ((0,), 1)]:
        x = random(*shape)
        with pytest.raises(IndexError) as want:
            theirs(x, dim)
        for each in (x, x.requires_grad_(), x.detach().to("meta")):
            with pytest.raises(IndexError) as got:
                ours(each, dim)
            assert str(got.value) == str(want.value)


@pairs
def test_dim_may_be_any_integer(ours, theirs):
    import numpy

    x = random(2, 3)
    torch.testing.assert_close(ours(x, numpy.int64(0)), theirs(x, 0))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_logsumexp_of_a_quantized_tensor_is_refused_on_the_short_way_too(monkeypatch):
    monkeypatch.setattr(functional, "is_plain_eager", lambda *tensors: True)  # as on a GPU
    x = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match="dense tensor, not a quantized one"):
        logsumexp(x)


REFUSED = [
    *(
        (each, (dim,), TypeError, f"^dim must be an int, not {type(dim).__name__}$")
        for each in PAIRS
        for dim in ("a", 1.0, None, True)
    ),
    *(
        (each, (1, "float32"), TypeError, "^dtype must be a torch.dtype or None, not str$")
        for each in ("softmax", "log_softmax")
    ),
    # What PyTorch's function lacks is passed by keyword only.
    *((each, (1, None, 0), TypeError, "positional") for each in ("softmax", "log_softmax")),
    ("logsumexp", ((1, -1),), ValueError, r"^dim names a dimension twice: \(1, 1\)$"),
    ("logsumexp", ((),), ValueError, "^dim is an empty tuple; name at least one dimension$"),
    ("logsumexp", ((0, 2),), IndexError, r"expected to be in range of \[-2, 1\], but got 2"),
    ("logsumexp", ((0, 1.0),), TypeError, "^dim must be an int, not float$"),
]


@pytest.mark.parametrize("name, given, error, words", REFUSED, ids=str)
def test_what_is_refused(name, given, error, words):
    ours, theirs = PAIRS[name]
    with pytest.raises(error, match=words):
        ours(random(2, 3), *given)
    with pytest.raises((TypeError, RuntimeError, IndexError)):  # the second in PyTorch 2.11
        theirs(random(2, 3), *given)


# The package


def test_public_names():
    public = {
        name
        for name, value in vars(triton_softmax).items()
        if not (name.startswith("_") or isinstance(value, ModuleType))
    }
    assert public | {"__version__"} == set(triton_softmax.__all__)
    for name in triton_softmax.__all__:
        assert getattr(triton_softmax, name) is not None
    assert triton_softmax.softmax is functional.softmax
    with pytest.raises(AttributeError, match="module 'triton_softmax' has no attribute 'sotfmax'"):
        triton_softmax.sotfmax  # noqa: B018
