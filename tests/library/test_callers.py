"""Every way in which others call the functions: compiled, traced, by keywords of PyTorch and NumPy,
and with integers. A CPU without kernels is in `test_matrix.py` and `test_derivatives.py`."""

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import jvp

from kernel_cases import DEVICE, PAIRS, pairs, quiet
from kernel_cases import drawn as random
from triton_softmax import (
    CrossEntropyLoss,
    LogSoftmax,
    Softmax,
    cross_entropy,
    entropy_from_logits,
    linear_cross_entropy,
    log_softmax,
    logsumexp,
    selective_log_softmax,
    selective_log_softmax_and_entropy,
    softmax,
    token_logprobs,
)

pytestmark = quiet

# --- arguments of a compiled function -------------------------------------------------------------

DIMS = (0, 2, -1, -3)
SEVERAL = ((1, 2), [0, 3], (2,), (0, 1, 2, 3), torch.Size((1, 0)))
"""Of a tensor whose third dimension has size 1: what is left out of a shape must be right."""
PASSED: dict[str, tuple[Callable, list[tuple]]] = {
    "softmax-dim": (lambda x, dim: softmax(x, dim), [(d,) for d in DIMS]),
    "softmax-axis": (lambda x, axis: softmax(input=x, axis=axis), [(d,) for d in DIMS]),
    "softmax-dtype": (
        lambda x, dtype: softmax(x, 1, dtype),
        [(None,), (torch.float32,), (torch.float64,)],
    ),
    "softmax-batch_invariant": (
        lambda x, invariant: softmax(x, 1, batch_invariant=invariant),
        [(False,), (True,)],
    ),
    "log_softmax-dim": (lambda x, dim: log_softmax(x, dim), [(d,) for d in DIMS]),
    "log_softmax-integers": (
        lambda x, dtype: log_softmax((4 * x).int(), -1, dtype),
        [(torch.float32,), (torch.float64,)],
    ),
    "log_softmax-dtype": (lambda x, dtype: log_softmax(x, 1, dtype=dtype), [(torch.float32,)]),
    "logsumexp-dim": (
        lambda x, dim, keepdim: logsumexp(x, dim, keepdim),
        list(zip(DIMS, (False, True, True, False))),
    ),
    "logsumexp-dims": (
        lambda x, dim, keepdim: logsumexp(x, dim, keepdim),
        list(zip(SEVERAL, (False, True, True, False, True))),
    ),
    "logsumexp-axis": (lambda x, axis: logsumexp(x, axis=axis), [(d,) for d in SEVERAL]),
    "module-dim": (lambda x, dim: Softmax(dim)(x) + LogSoftmax(dim)(x), [(d,) for d in DIMS]),
}


@pytest.mark.parametrize(
    "name, dynamic",
    [(name, (True, None)[i % 2]) for i, name in enumerate(PASSED)]
    + [("softmax-dim", None), ("logsumexp-dim", True)],
)
def test_arguments_of_a_compiled_function(name, dynamic):
    """Each call of one compiled function with other arguments is what it is uncompiled."""
    torch._dynamo.reset()
    function, calls = PASSED[name]
    compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=dynamic)
    x = random(2, 3, 1, 4)
    with torch._dynamo.config.patch(recompile_limit=len(calls) + 1):
        for arguments in calls:
            got, want = compiled(x, *arguments), function(x, *arguments)
            assert got.shape == want.shape, arguments
            torch.testing.assert_close(got, want)


# --- what is no tensor ----------------------------------------------------------------------------


class Calls(torch.nn.Module):
    """Every public function, one with a dimension that is only known when it runs."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(Softmax(0), LogSoftmax(-1, batch_invariant=True))

    def forward(self, x):
        y = softmax(x, x.dim() - 1) + log_softmax(input=x, axis=0) + self.inner(x)
        return y + logsumexp(x, (0, 1), keepdim=True) + logsumexp(x, dim=1, keepdim=True)


def test_symbolic_trace():
    """A proxy of torch.fx answers each call itself, so the call is in the graph."""
    model = Calls()
    graph = torch.fx.symbolic_trace(model)
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    for function in PAIRS.values():
        assert called.count(function[0]) == 2
    for shape in ((2, 3), (4, 5)):
        torch.testing.assert_close(graph(random(*shape)), model(random(*shape)))


@pairs
def test_whatever_takes_part_in_torch_functions_answers(ours, theirs):
    class StandIn:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function, args[1:], kwargs

    function, args, kwargs = ours(StandIn(), dim=1, batch_invariant=True)
    assert function is ours and args[0] == 1
    assert kwargs == {"batch_invariant": True}
    for other in ([1.0, 2.0], 3.0, None):
        message = f"^the input must be a torch.Tensor, not {type(other).__name__}$"
        with pytest.raises(TypeError, match=message):
            ours(other, 0)


# --- keywords and dtypes --------------------------------------------------------------------------


@pairs
def test_keywords_of_torch(ours, theirs):
    x = random(2, 3)
    for keywords in ({"dim": 0}, {"axis": 0}, {"axis": -1}):
        torch.testing.assert_close(ours(input=x, **keywords), theirs(input=x, **keywords))
    with pytest.raises(TypeError, match="dim and axis are two names of one argument"):
        ours(x, 0, axis=1)


@pytest.mark.parametrize(
    "dtype, default",
    [(torch.int64, torch.float32), (torch.uint8, torch.float64), (torch.bool, torch.bfloat16)],
    ids=str,
)
def test_logsumexp_promotes_as_torch(dtype, default):
    x = torch.tensor([[0, 3, 1], [1, 1, 0]], device=DEVICE).to(dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for dim in (0, -1, (0, 1)):
            got, want = logsumexp(x, dim), torch.logsumexp(x, dim)
            assert got.dtype == want.dtype == default
            torch.testing.assert_close(got, want)
    finally:
        torch.set_default_dtype(before)
    with pytest.raises(TypeError, match="the input has dtype complex64"):
        logsumexp(x.to(torch.complex64), 0)


# --- the derivative of log-sum-exp at an offset ---------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 100.0, -1e4, 1e6])
def test_an_offset_costs_the_derivative_nothing(offset):
    """x − lse has lost what rounding took from lse; m and log d apart have not."""
    x = (random(4, 50, dtype=torch.float32) * 3 + offset).requires_grad_()
    exact = torch.softmax(x.detach().double(), 1)
    lse = logsumexp(x, 1)
    (dx,) = torch.autograd.grad(lse.sum(), x)
    assert (dx.double() - exact).abs().max() < 3e-7
    t = random(4, 50, dtype=torch.float32, seed=1)
    _, tangent = jvp(lambda x: logsumexp(x, 1), (x.detach(),), (t,))
    assert (tangent.double() - (exact * t.double()).sum(1)).abs().max() < 1e-6
    (log,) = torch.autograd.grad(log_softmax(x, 1)[:, 0].sum(), x)
    wanted = -exact
    wanted[:, 0] += 1
    assert (log.double() - wanted).abs().max() < 1e-6
    if abs(offset) >= 1e4:
        rounded = (x.detach() - lse.detach()[:, None]).exp()
        assert (rounded.double() - exact).abs().max() > 1e-5, "what this avoids"


# --- rows that data decide, under torch.compile ---------------------------------------------------

X, MASK = random(6, 9), torch.tensor([True, False, True, True, False, True], device=DEVICE)
CLASSES = torch.tensor([0, 8, 3, 3, -100, 1], device=DEVICE)
TOKENS, WEIGHT = CLASSES.clamp(min=0), X[0].exp()
BY_ROWS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x, m: softmax(x[m], 0),
    "log_softmax": lambda x, m: log_softmax(x[m]),
    "logsumexp": lambda x, m: logsumexp(x[m]),
    "modifiers": lambda x, m: softmax(
        x[m], scale=0.5, softcap=2.0, bias=x[m], where=(X > -1.0)[m], safe=True, sink=0.5
    ),
    "module": lambda x, m: CrossEntropyLoss(z_loss=0.1)(x[m], CLASSES[m]),
    "losses of rows": lambda x, m: cross_entropy(x[m], CLASSES[m], reduction="none", softcap=2.0),
    "smoothed": lambda x, m: cross_entropy(x[m], CLASSES[m], WEIGHT, label_smoothing=0.1),
    "probabilities": lambda x, m: cross_entropy(x[m], X.softmax(1)[m]),
    "layer": lambda x, m: linear_cross_entropy(
        x[m], X, CLASSES[m].clamp(max=5), linear_bias=WEIGHT[:6]
    ),
    "layer, rows": lambda x, m: linear_cross_entropy(
        x[m], X, CLASSES[m].clamp(max=5), reduction="none", chunk_size=2
    ),
    "tokens": lambda x, m: token_logprobs(
        x[m], CLASSES[m], temperature=0.7, scale=0.5, softcap=2.0, row_mask=(CLASSES >= 0)[m]
    ),
    "several": lambda x, m: selective_log_softmax(x[m], torch.stack([TOKENS, TOKENS], 1)[m]),
    "both": lambda x, m: selective_log_softmax_and_entropy(x[m], TOKENS[m], x[m][:, :1].exp())[1],
    "entropy": lambda x, m: entropy_from_logits(x[m]),
}


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_that_a_mask_keeps_compile_and_may_be_none(name):
    """One program for any number of them: its size is no constant that a compiler guards."""
    torch._dynamo.reset()
    function, x = BY_ROWS[name], X.clone().requires_grad_()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for mask in (MASK, ~MASK, torch.zeros_like(MASK)):
            got, want = compiled(x, mask), function(x, mask)
            torch.testing.assert_close(got, want, equal_nan=True)
            got, want = [torch.autograd.grad(each.sum(), x)[0] for each in (got, want)]
            torch.testing.assert_close(got, want, equal_nan=True)
    assert counter.frame_count == 1
