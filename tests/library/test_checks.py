"""Only a new kind of call is checked. So a property: whatever ran before, a call answers, or raises
the same error, as if it were the first.

After a valid call each of its arguments is changed in turn, as its kind can go wrong: dtype, shape,
device, layout, a tensor that requires a gradient, and numbers and names that are none. Nothing says
which changes are errors: the answer without a first call does.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import probe
import triton_softmax as ours
from kernel_cases import DEVICE, INTERPRETED, drawn, quiet
from triton_softmax.plan.launch import Launch

pytestmark = [
    quiet,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(DEVICE == "cuda", reason="a class out of range ends a GPU's context"),
]


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """The interpreter would take minutes for values that other tests compare: here it writes 0."""

    def run(self, inputs, outs, *more):
        for out in outs:
            out.zero_()

    if INTERPRETED:
        monkeypatch.setattr(Launch, "run", run)
    probe.forget()
    yield
    probe.forget()


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return drawn(*shape, seed=seed).float().to(DEVICE)


X, ROWS = tensor(2, 2, 3, 3), tensor(3, 5)
CLASSES, INDEX, SEVERAL = (
    torch.tensor(each, device=DEVICE)
    for each in ([0, 4, -100], [0, 4, 1], [[0, 1], [4, 3], [1, 1]])
)
WEIGHT, MASK = tensor(5).abs(), torch.tensor([True, False, True], device=DEVICE)
LEFT_OUT = ("axis", "group", "out", "size_average", "reduce")


def call_of(
    function: Callable[..., Any], **given: Any
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function with all its arguments, those that are not given at their defaults."""
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return function, {n: v for n, v in defaults.items() if n not in LEFT_OUT} | given


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "softmax": call_of(ours.softmax, input=X),
    "logsumexp": call_of(ours.logsumexp, input=X),
    "modifiers": call_of(
        ours.log_softmax, input=X, scale=0.5, softcap=3.0, where=X > -1.0, bias=X[0, 0], sink=0.5
    ),
    "modifiers that are tensors": call_of(
        ours.softmax, input=X, scale=X[..., :1].abs(), bias=X[:, :, :1], causal=True,
        sink=X[0, :, 0, 0], safe=True,
    ),
    "out": (ours.softmax, {"input": X, "dim": -1, "scale": None, "out": torch.empty_like(X)}),
    "cross_entropy": call_of(ours.cross_entropy, input=ROWS, target=CLASSES),
    "class weights": call_of(
        ours.cross_entropy, input=ROWS, target=CLASSES, weight=WEIGHT, label_smoothing=0.1
    ),
    "probabilities": call_of(ours.cross_entropy, input=ROWS, target=ROWS.flip(0).softmax(1)),
    "linear": call_of(
        ours.linear_cross_entropy, input=tensor(3, 4), linear_weight=tensor(5, 4), target=CLASSES,
        linear_bias=tensor(5), weight=WEIGHT, chunk_size=2,
    ),
    "log-probabilities": call_of(ours.selective_log_softmax, logits=ROWS, index=INDEX),
    "tokens": call_of(ours.token_logprobs, logits=ROWS, index=INDEX, row_mask=MASK),
    "tokens, tensors": call_of(
        ours.token_logprobs, logits=ROWS, index=SEVERAL, temperature=tensor(3, 1).abs() + 0.5,
        return_entropy=True,
    ),
    "entropy": call_of(ours.entropy_from_logits, logits=ROWS),
}  # fmt: skip


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Values like an argument but for one thing, most of them wrong, each with its name."""
    if isinstance(value, Tensor):
        others = torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool
        yield from ((str(dtype), value.to(dtype)) for dtype in (*others, torch.complex64))
        yield "one dimension more", value.unsqueeze(0)
        yield "one element", value.flatten()[0]
        for i, size in enumerate(value.shape):
            yield f"longer along {i}", torch.cat([value, value.narrow(i, size - 1, 1)], i)
            yield f"empty along {i}", value.narrow(i, 0, 0)
        yield "meta", value.to("meta")
        yield "sparse", value.to_sparse()
        yield "nested", torch.nested.nested_tensor([value], layout=torch.jagged)
        yield "strided", torch.stack([value, value], -1)[..., 0]
        yield "beyond", torch.full_like(value, 7)
        yield "negative", torch.full_like(value, -1) if value.dtype != torch.bool else ~value
        if value.is_floating_point():
            yield "requires a gradient", value.clone().requires_grad_()
    for other in (None, True, 0, 1, -1, 7, 1.0, 2.5, -0.5, float("nan"), float("inf")):
        yield repr(other), other
    yield from {"text": "none", "list": [1], "dtype": torch.float64, "int": torch.int8}.items()
    yield "number in a tensor", torch.tensor(0.5, device=DEVICE)
    yield "one more dtype", torch.tensor([0.5], dtype=torch.float64, device=DEVICE)


def copied(named: dict[str, Any]) -> dict[str, Any]:
    return {
        name: v.detach().clone().requires_grad_(v.requires_grad)
        if isinstance(v, Tensor) and v.layout == torch.strided and not v.is_nested
        else v
        for name, v in named.items()
    }


def answer(function: Callable[..., Any], named: dict[str, Any], grad: bool = True) -> Any:
    """What a call returns, as numbers, or the error that it raises."""
    try:
        with torch.set_grad_enabled(grad):
            results = function(**named)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:  # no AttributeError
        return type(error), str(error)
    return [
        (each.dtype, each.shape, each.requires_grad, each.is_meta or each.detach().tolist())
        for each in (results if isinstance(results, tuple) else (results,))
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_answers_as_if_it_were_the_first(name):
    function, valid = CALLS[name]
    want = repr(answer(function, copied(valid)))
    assert "Error" not in want, want
    errors = 0
    for argument, value in valid.items():
        for kind, other in changes(value):
            changed = valid | {argument: other}
            probe.forget()
            alone = repr(answer(function, copied(changed)))
            errors += "Error" in alone
            probe.forget()
            answer(function, copied(changed), grad=False)
            assert repr(answer(function, copied(valid))) == want, (argument, kind)
            assert repr(answer(function, copied(changed))) == alone, (argument, kind)
    assert errors > 5 * len(valid)
