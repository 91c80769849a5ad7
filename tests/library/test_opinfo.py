"""PyTorch's own samples and error inputs of the functions that we stand for."""

from __future__ import annotations

import pytest
import torch

from kernel_cases import DEVICE, quiet
from triton_softmax import CrossEntropyLoss, cross_entropy, log_softmax, softmax

pytestmark = quiet
FEW = 12
"""Samples of a function at most, evenly drawn: the interpreter is slow."""


def opinfo(name: str):
    pytest.importorskip("expecttest")  # which PyTorch's samples import
    from torch.testing._internal.common_methods_invocations import op_db

    return next(op for op in op_db if op.name == name and not op.variant_test_name)


def samples(name: str) -> list:
    torch.manual_seed(0)
    return list(opinfo(name).sample_inputs(DEVICE, torch.float64, requires_grad=True))


def some(name: str) -> list:
    every = samples(name)
    return every[:: max(1, -(-len(every) // FEW))]


def corner(x: torch.Tensor) -> torch.Tensor:
    """At most two along every dimension but the last."""
    return x[tuple(slice(2) for _ in x.shape[:-1])]


def assert_same(ours, theirs, input) -> None:
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    if theirs.requires_grad and theirs.numel():
        along = torch.where(torch.isfinite(theirs), torch.ones_like(theirs), 0.0).detach()
        wanted = torch.autograd.grad(theirs, input, along)
        torch.testing.assert_close(torch.autograd.grad(ours, input, along), wanted, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
def test_cross_entropy():
    for sample in some("nn.functional.cross_entropy"):
        theirs = torch.nn.functional.cross_entropy(sample.input, *sample.args, **sample.kwargs)
        ours = cross_entropy(sample.input, *sample.args, **sample.kwargs)
        assert_same(ours, theirs, sample.input)


@pytest.mark.filterwarnings("ignore")
def test_nll_loss_of_log_softmax():
    for sample in some("nn.functional.nll_loss"):
        if sample.args[0].is_floating_point():
            continue
        dim = 0 if sample.input.dim() == 1 else 1
        y = torch.log_softmax(sample.input, dim)
        theirs = torch.nn.functional.nll_loss(y, *sample.args, **sample.kwargs)
        weight = sample.kwargs.get("weight")
        kwargs = sample.kwargs | ({} if weight is None else {"weight": weight.detach()})
        ours = cross_entropy(sample.input, *sample.args, **kwargs)
        assert_same(ours, theirs, sample.input)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, function", [("softmax", softmax), ("log_softmax", log_softmax)])
def test_softmax_and_what_is_masked(name, function):
    theirs = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}[name]
    for sample in samples(name):
        x = corner(sample.input)
        wanted = theirs(x, *sample.args, **sample.kwargs)
        assert_same(function(x, *sample.args, **sample.kwargs), wanted, x)
    masked = getattr(torch.masked, name)
    for sample in samples(f"masked.{name}"):
        dtype, mask = sample.kwargs.get("dtype"), sample.kwargs.get("mask")
        x, mask = corner(sample.input), mask if mask is None else corner(mask)
        wanted = masked(x, *sample.args, dtype=dtype, mask=mask)
        ours = function(x, *sample.args, dtype=dtype, where=mask)
        if mask is None:
            assert_same(ours, wanted, x)
        else:  # what torch has at masked places is nobody's business
            assert_same(torch.where(mask, ours, 0.0), torch.where(mask, wanted, 0.0), x)


def test_errors_of_the_module():
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_modules import module_db

    info = next(each for each in module_db if each.name == "nn.CrossEntropyLoss")
    errors = info.module_error_inputs_func(
        info, DEVICE, torch.float64, requires_grad=False, training=True
    )
    for error in errors:
        made = error.module_error_input
        module = CrossEntropyLoss(*made.constructor_input.args, **made.constructor_input.kwargs)
        arguments = made.forward_input
        with pytest.raises(error.error_type, match=error.error_regex):
            module(*arguments.args, **arguments.kwargs)
    assert errors
