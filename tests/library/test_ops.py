"""The operators under everything PyTorch may do to them: autograd, torch.func, tracing,
autocast."""

from functools import partial

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import gradcheck
from torch.func import grad, jacfwd, jacrev, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import probe
import triton_softmax
from kernel_cases import DEVICE, PAIRS, pairs
from kernel_cases import drawn as random
from triton_softmax import arguments, operators


def scalar(f, dim=-1):
    """A function whose derivatives of every order are neither zero nor symmetric by accident."""

    def g(x):
        y = f(x, dim)
        return (y**3 * torch.arange(1.0, 1.0 + y.numel(), dtype=y.dtype).reshape(y.shape)).sum()

    return g


def cases(name, *shape, dim=-1):
    """The forward and backward operator of `name` with arguments that require gradients."""
    x = random(*shape).requires_grad_()
    y = PAIRS[name][1](x.detach(), dim).requires_grad_()
    dy = random(*y.shape, seed=1).requires_grad_()
    forward = getattr(operators, name)
    forward, backward = forward.overload, forward.vjp.overload
    if name == "logsumexp":
        return (forward, (x, dim)), (backward, (dy, x, dim))
    return (forward, (x, dim)), (backward, (dy, y, dim, torch.float64))


class Called(TorchDispatchMode):
    """The calls of this library's operators, with copies of what they were given."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == operators.NAMESPACE:
            self.calls.append((op, *tree_map_only(torch.Tensor, copied, (args, kwargs or {}))))
        return op(*args, **(kwargs or {}))


def copied(t, wanted=False):
    return t.detach().clone().requires_grad_(wanted and t.is_floating_point())


TARGET, WEIGHT = torch.tensor([2, -100, 0], device=DEVICE), random(5).abs()
WHERE, TOKENS = random(3, 5, seed=2) > -1, TARGET.clamp(min=0)


def softmax_of_two(x: torch.Tensor) -> torch.Tensor:
    """Softmax of rows of which two ranks have the same part."""
    line = operators.published_rows.overload([x], [], "softmax", x.dtype, 2)
    return operators.written_rows.overload([x], [], line.repeat(2, 1), "softmax", x.dtype)[0]


def of_two(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Entropies of rows of which two ranks have the same part."""
    known, given = x[:, 0].detach(), (x.detach(), None, None, None, 1.0, 1.0, None, True)
    line = operators.published_tokens.overload(known, 2, *given)
    return operators.written_tokens.overload(known, line.repeat(2, 1), *given)


CALLS = {
    "softmax": lambda x: triton_softmax.softmax(x, 0),
    "log-softmax": lambda x: triton_softmax.log_softmax(x.float(), 1, torch.float64),
    "0-d": lambda x: triton_softmax.log_softmax(x[0, 0], 0),
    "logsumexp": lambda x: triton_softmax.logsumexp(x, -1),
    "modifiers": lambda x: triton_softmax.softmax(
        x, scale=x[:, :1], softcap=1.5, bias=x[0], where=WHERE, sink=x[0, :1], safe=True
    ),
    "causal": lambda x: triton_softmax.log_softmax(x[:, 1:4], causal=True, scale=0.5),
    "out": lambda x: triton_softmax.softmax(
        x.detach(), where=WHERE, out=torch.empty_like(x.detach().T).T
    ),
    "over itself": lambda x: triton_softmax.softmax(y := x.detach() * 1, scale=2.0, out=y),
    "loss": lambda x: triton_softmax.cross_entropy(x, TARGET),
    "smoothed": lambda x: triton_softmax.cross_entropy(
        x, TARGET, WEIGHT, label_smoothing=0.1, z_loss=0.1
    ),
    "probabilities": lambda x: triton_softmax.cross_entropy(x, x.detach().softmax(1)),
    "capped": lambda x: triton_softmax.cross_entropy(x, TARGET, softcap=2.0, reduction="none"),
    "in place": lambda x: triton_softmax.cross_entropy(x * 1, TARGET, inplace_backward=True),
    "capped in place": lambda x: triton_softmax.cross_entropy(
        x * 1, TARGET, softcap=2.0, inplace_backward=True
    ),
    "tokens": lambda x: triton_softmax.token_logprobs(
        x, TOKENS, temperature=x.detach()[:, :1].abs()
    ),
    "both": lambda x: triton_softmax.selective_log_softmax_and_entropy(
        x, TOKENS, row_mask=TARGET >= 0
    )[1],
    "entropy": triton_softmax.entropy_from_logits,
    "parts": lambda x: softmax_of_two(x.detach()),
    "tokens of parts": lambda x: of_two(x)[1],
}
"""Between them they call every operator, forward and backward."""


@pytest.fixture(scope="module")
def called():
    calls = []
    for call in CALLS.values():
        x = random(3, 5).requires_grad_()
        with Called() as seen:
            y = call(x)
            if y.requires_grad:
                y.sum().backward()
        calls += seen.calls
    return calls


OPERATORS = {
    name: each.overload
    for name, each in vars(operators).items()
    if isinstance(each, operators.Operator)
}


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name, called):
    """Of plain tensors; and, where the operator has derivatives, of ones that require gradients."""
    op = OPERATORS[name]
    calls = [(args, kwargs) for which, args, kwargs in called if which is op]
    assert calls
    derivatives = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Autograd")
    for wanted in (False, True)[: 1 + derivatives]:
        for call in calls:
            given = tree_map_only(torch.Tensor, partial(copied, wanted=wanted), call)
            torch.library.opcheck(op, *given)


def test_an_operator_returns_no_memory_that_it_has_not_written():
    """It would differ from call to call, and `opcheck` would fail now and then."""
    numbers = (1.0, 1.0, None, True, False)
    found, *_ = operators.token_rows.overload(random(3, 5), None, None, None, *numbers)
    assert not found.numel()


@pytest.mark.parametrize("name, dim", [("softmax", 0), ("log_softmax", 1), ("logsumexp", 0)])
def test_every_operator_passes_gradcheck_in_both_modes(name, dim):
    for op, given in cases(name, 2, 2, dim=dim):
        inputs = [each for each in given if isinstance(each, torch.Tensor)]
        rest = given[len(inputs) :]
        assert gradcheck(
            lambda *ts, op=op, rest=rest: op(*ts, *rest),
            inputs,
            check_forward_ad=True,
            check_batched_grad=True,
            check_batched_forward_grad=True,
        )


@pairs
@pytest.mark.parametrize(
    "transforms",
    [(jacfwd, jacfwd, jacrev), (jacfwd, jacrev, jacfwd), (jacrev, jacrev, jacrev)],
    ids=lambda t: "-".join(f.__name__ for f in t),
)
def test_transforms_nest_and_compile(ours, theirs, transforms):
    """Each inside each other."""
    x = random(3)
    f, g = scalar(ours), scalar(theirs)
    for transform in transforms:
        f, g = transform(f), transform(g)
        torch.testing.assert_close(f(x), g(x))
    torch._dynamo.reset()
    f, g = (vmap(jacrev(grad(scalar(each)))) for each in (ours, theirs))  # no hessian compiles
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(random(2, 3)), g(random(2, 3)))


def test_an_exported_program_names_the_operator():
    program = torch.export.export(triton_softmax.Softmax(dim=1), (random(2, 3),))
    assert "triton_softmax.softmax" in program.graph_module.code


@pytest.mark.parametrize("in_dim", [0, 1, -1])
@pytest.mark.parametrize("dim", [0, -1, 1, -2])
def test_vmap_shifts_the_dimension(in_dim, dim):
    x, (ours, theirs) = random(3, 2, 2), [*PAIRS.values()][(in_dim + dim) % 3]
    torch.testing.assert_close(
        vmap(lambda x: ours(x, dim), in_dim)(x), vmap(lambda x: theirs(x, dim), in_dim)(x)
    )


@pairs
@pytest.mark.parametrize("dim", [0, -1])
def test_vmap_over_scalars(ours, theirs, dim):
    for of in (lambda f: f, grad):
        got, want = (vmap(of(lambda x, f=f: f(x, dim)))(random(3)) for f in (ours, theirs))
        torch.testing.assert_close(got, want)
    backward = getattr(operators, ours.__name__).vjp.overload
    options = (dim,) if ours is triton_softmax.logsumexp else (dim, torch.float64)
    pairs = random(3, seed=1), theirs(random(3, 1), 1).view(3)
    got = vmap(lambda *each: backward(*each, *options))(*pairs)
    torch.testing.assert_close(
        got, torch.stack([backward(*each, *options) for each in zip(*pairs)])
    )
    with pytest.raises(IndexError, match=r"range of \[-1, 0\], but got 1"):
        vmap(lambda x: ours(x, 1))(random(3))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_tangents_pass_the_cast(name):
    (ours, theirs), op = PAIRS[name], getattr(operators, name).overload
    x, tangent = (random(2, 5, seed=seed).half() for seed in (0, 2))
    want = jvp(lambda x: theirs(x, 1, dtype=torch.float32), (x,), (tangent,))
    for f in (ours, op):
        found = jvp(lambda x, f=f: f(x, 1, torch.float32), (x,), (tangent,))
        torch.testing.assert_close(found, want)


class Scaled(torch.nn.Module):
    def forward(self, x):
        return triton_softmax.softmax(x, scale=2.0)


@pytest.mark.skipif(DEVICE == "cpu" and not arguments.INTERPRETED, reason="no kernel computes")
@pytest.mark.parametrize("wanted", [False, True])
def test_export_keeps_the_kernel_of_modifiers_or_derivatives(wanted):
    """The operator has no derivative: if one may be wanted, PyTorch's operators take its place."""
    x = random(2, 3)
    with torch.set_grad_enabled(wanted):
        program = torch.export.export(Scaled(), (x,))
    assert ("triton_softmax.rows" in program.graph_module.code) is not wanted
    torch.testing.assert_close(program.module()(x), torch.softmax(2.0 * x, 1))


# Tensors without data, and modes


@pairs
def test_fake_tensors_of_a_device_this_machine_may_lack(ours, theirs):
    with FakeTensorMode():
        for dtype in arguments.DTYPES:
            x = torch.empty(2, 3, 4, dtype=dtype, device="cuda").permute(2, 0, 1)
            got, want = ours(x, 1), theirs(torch.empty_like(x, device="cpu"), 1)
            assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, x.device)
            assert got.is_contiguous()


@pytest.mark.parametrize("name", PAIRS)
def test_modes_see_the_operator(name):
    x, op = random(2, 3).requires_grad_(), getattr(operators, name)
    with probe.Operators() as seen:
        PAIRS[name][0](x, 1)
    assert str(op.overload) in seen.names
    y = PAIRS[name][0](x, 1)  # a graph made outside the mode
    with probe.Operators() as seen:
        y.sum().backward()
    assert str(op.vjp.overload) in seen.names


# Autocast, compared with PyTorch's own on tensors without data: no GPU is needed


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("dtype", arguments.DTYPES, ids=str)
@pairs
def test_autocast_as_torch(ours, theirs, device, dtype):
    wide = torch.float32 if device == "cuda" and dtype != torch.float64 else dtype
    was = torch.is_autocast_enabled(device)
    torch.set_autocast_enabled(device, True)  # `torch.autocast` asks for the device
    try:
        with FakeTensorMode():
            x = torch.empty(2, 3, dtype=dtype, device=device)
            assert ours(x, 1).dtype == theirs(x, 1).dtype == wide
            for out in arguments.DTYPES if ours is not triton_softmax.logsumexp else ():
                assert ours(x, 1, out).dtype == theirs(x, 1, dtype=out).dtype == out
    finally:
        torch.set_autocast_enabled(device, was)


# Errors of the operators themselves


def test_errors_of_operators():
    x = random(2, 3)
    for name in PAIRS:
        op = getattr(operators, name).overload
        with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got -3"):
            op(x, -3)
        with pytest.raises(TypeError, match="the input has dtype int64"):
            op(x.long(), 0)
    with pytest.raises(TypeError, match="the argument dtype has dtype int32"):
        operators.softmax.overload(x, 0, torch.int32)


def test_devices():
    for name in ("cuda:1", "xpu"):
        arguments.check_device(torch.device(name))
    arguments.check_device(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="no kernels for device 'mps'; expected cuda, xpu or"):
        arguments.check_device(torch.device("mps"))
