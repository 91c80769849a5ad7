"""Only a new kind of call is checked. So a property: whatever ran before, a call answers, or raises
the same error, as if it were the first.

After a valid call each of its arguments is changed in turn, as its kind can go wrong: dtype, shape,
device, layout, a tensor that requires a gradient, and numbers and names that are none. Nothing says
which changes are errors: the answer without a first call does.
"""

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


X = tensor(2, 2, 3, 3)
ROWS = {"input": tensor(3, 5), "target": torch.tensor([0, 4, -100], device=DEVICE)}
OPTIONS = {
    "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0, "z_loss": 0.0,
    "softcap": None, "scale": 1.0,
}  # fmt: skip
TOKENS = {"logits": tensor(3, 5), "index": torch.tensor([0, 4, 1], device=DEVICE)}
MASK = torch.tensor([True, False, True], device=DEVICE)
AS_THEY_COME = {"inplace_backward": False, "batch_invariant": False}

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "softmax": (ours.softmax, {"input": X, "dim": -1, "dtype": None, "batch_invariant": False}),
    "logsumexp": (ours.logsumexp, {"input": X, "dim": -1, "keepdim": False}),
    "modifiers": (
        ours.log_softmax,
        {
            "input": X,
            "dim": -1,
            "dtype": None,
            "scale": 0.5,
            "softcap": 3.0,
            "where": X > -1.0,
            "bias": X[0, 0],
            "causal": False,
            "safe": False,
            "sink": 0.5,
        },  # fmt: skip
    ),
    "modifiers that are tensors": (
        ours.softmax,
        {
            "input": X,
            "dim": -1,
            "scale": X[..., :1].abs(),
            "bias": X[:, :, :1],
            "causal": True,
            "sink": X[0, :, 0, 0],
            "safe": True,
        },  # fmt: skip
    ),
    "out": (ours.softmax, {"input": X, "dim": -1, "scale": None, "out": torch.empty_like(X)}),
    "cross_entropy": (ours.cross_entropy, ROWS | OPTIONS | {"loss_dtype": None}),
    "class weights": (
        ours.cross_entropy,
        {**ROWS, "weight": tensor(5).abs(), "label_smoothing": 0.1, "return_lse": False},
    ),
    "probabilities": (
        ours.cross_entropy,
        {"input": ROWS["input"], "target": tensor(3, 5, seed=1).softmax(1), "ignore_index": -100},
    ),
    "linear": (
        ours.linear_cross_entropy,
        {
            "input": tensor(3, 4),
            "linear_weight": tensor(5, 4),
            "target": ROWS["target"],
            "linear_bias": tensor(5),
            "weight": tensor(5).abs(),
            **OPTIONS,
            "chunk_size": 2,
            "accum_dtype": None,
            "loss_dtype": None,
        },  # fmt: skip
    ),
    "log-probabilities": (ours.selective_log_softmax, TOKENS | AS_THEY_COME),
    "tokens": (
        ours.token_logprobs,
        {**TOKENS, "temperature": 1.0, "scale": 1.0, "softcap": None, "row_mask": MASK},
    ),
    "tokens, tensors": (
        ours.token_logprobs,
        {
            "logits": tensor(3, 5),
            "index": torch.tensor([[0, 1], [4, 3], [1, 1]], device=DEVICE),
            "temperature": tensor(3, 1).abs() + 0.5,
            "row_mask": None,
            "return_entropy": True,
        },  # fmt: skip
    ),
    "entropy": (ours.entropy_from_logits, {"logits": tensor(3, 5)} | AS_THEY_COME),
}


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
    yield from (
        ("text", "none"),
        ("list", [1]),
        ("dtype", torch.float64),
        ("int dtype", torch.int8),
    )
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
