"""Values and derivatives of every function, with options that are drawn at random, against
the same in float64 by PyTorch's operators; rows in one tile, in several, and without kernels."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from drawn_calls import FAMILIES, Call, Draw, again, check, leaves_of, near
from kernel_cases import INTERPRETED, quiet

pytestmark = quiet


def second(function, tensors, options) -> list[Tensor]:
    """The gradient of a weighted sum of the first gradients, at every leaf."""
    results = function(*tensors, **options)
    results = results if isinstance(results, tuple) else (results,)
    leaves = leaves_of(*tensors, *options.values())
    weights = [torch.linspace(-1, 1, y.numel()).view(y.shape).to(y) for y in results]
    total = sum(
        (torch.where(torch.isfinite(y), y, 0.0) * w).sum() for y, w in zip(results, weights)
    )
    first = torch.autograd.grad(total, leaves, create_graph=True)
    weights = [torch.linspace(0.5, 1.5, g.numel()).view(g.shape).to(g) for g in first]
    again = sum((g * w).sum() for g, w in zip(first, weights))
    return list(torch.autograd.grad(again, leaves, allow_unused=True, materialize_grads=True))


WAYS = {
    **dict.fromkeys(["whole", "operators"][: 1 + INTERPRETED], tuple(FAMILIES)),
    **dict.fromkeys(["loops", "chunks"], ("softmax", "cross_entropy", "token_logprobs")),
}
"""How rows are computed, and of which functions; by operators as on a machine without a GPU."""


def with_any(family: str, check: Callable[[Call], None], examples: int) -> None:
    """Check calls that are drawn.

    In a thread, which begins a stack: at some depths, and Hypothesis is deep, CPython maps a page
    of memory for each call, and the interpreter makes thousands.
    """
    with ThreadPoolExecutor(1) as thread:

        @settings(max_examples=examples, deadline=None, derandomize=True, print_blob=True)
        @given(st.randoms(use_true_random=False))
        def run(r):
            thread.submit(check, FAMILIES[family](Draw(r))).result()

        run()


@pytest.mark.parametrize(
    "geometry, family", [(way, each) for way in WAYS for each in WAYS[way]], indirect=["geometry"]
)
def test_values_and_derivatives_of_anything(family, geometry):
    with_any(family, check, examples=40 if family == "softmax" else 25)


@pytest.mark.parametrize("geometry", ["whole"], indirect=True)
@pytest.mark.parametrize("family", FAMILIES)
def test_second_derivatives_are_right_or_refused(family, geometry):
    """Of losses they are refused, where kernels compute them. Where a row has no element left,
    PyTorch's operators have NaN and ours the limit."""
    of_loss = family in ("cross_entropy", "linear_cross_entropy")
    refused = []

    def check(call):
        options = {
            name: value
            for name, value in call.options.items()
            if name not in ("inplace_backward", "return_lse")
        }
        exact = [again(t, exactly=True) for t in call.tensors]
        exactly = {n: again(v, exactly=True) for n, v in options.items()}
        try:
            got = second(call.ours, call.tensors, options)
        except RuntimeError as error:
            refused.append(re.search("second derivative|differentiate", str(error)))
            assert of_loss and refused[-1], error
            return
        eps = max(torch.finfo(call.tensors[0].dtype).eps, 1e-13)
        for a, b in zip(got, second(call.theirs, exact, exactly), strict=True):
            near(a, torch.where(torch.isfinite(b), b, a.double().cpu()), 512 * eps)

    with_any(family, check, examples=15)
    assert bool(refused) == of_loss
