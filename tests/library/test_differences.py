"""Where we differ from PyTorch: the table of docs/kernels/edge-cases.md, line by line. Results that
differ in bits are compared in `test_invariance.py`, and gradients of log-sum-exp on its page."""

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import triton_softmax
from triton_softmax import (
    CrossEntropyLoss,
    Softmax,
    cross_entropy,
    linear_cross_entropy,
    logsumexp,
    softmax,
)

PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "edge-cases.md"

NAMESAKES = {
    name: getattr(functional, name, getattr(nn, name, None)) or getattr(torch, name, None)
    for name in triton_softmax.__all__
    if not name.startswith("_")
}
NAMESAKES = {name: theirs for name, theirs in NAMESAKES.items() if theirs is not None}

OTHERWISE = {
    "softmax": {"dim": -1},
    "log_softmax": {"dim": -1},
    "Softmax": {"dim": -1},
    "LogSoftmax": {"dim": -1},
    "linear_cross_entropy": {"options": None},
}
"""Arguments of PyTorch with another default here, or, at None, that are missing here: as the page
says."""


def arguments_of(function) -> dict[str, inspect.Parameter]:
    if function is torch.logsumexp:  # written in C++
        function = lambda input, dim, keepdim=False: None  # noqa: E731
    given = inspect.signature(function).parameters
    return {name: each for name, each in given.items() if not name.startswith("_")}


def test_the_names_that_pytorch_has():
    """On the oldest release all but one."""
    names = {"softmax", "log_softmax", "logsumexp", "cross_entropy"}
    names |= {"Softmax", "LogSoftmax", "CrossEntropyLoss"}
    assert NAMESAKES.keys() - {"linear_cross_entropy"} == names


@pytest.mark.parametrize("name", NAMESAKES)
def test_arguments_are_those_of_pytorchs_function_of_the_same_name(name):
    theirs, ours = arguments_of(NAMESAKES[name]), arguments_of(getattr(triton_softmax, name))
    otherwise = OTHERWISE.get(name, {})
    for argument, each in theirs.items():
        if argument in otherwise:
            assert f"`{argument}" in PAGE.read_text("utf8")
        if otherwise.get(argument, 0) is None:
            assert argument not in ours
            continue
        assert ours[argument].kind == each.kind, argument
        if name != "logsumexp":  # `dim` has a default as well
            default = otherwise.get(argument, each.default)
            assert ours[argument].default == default, argument
    positional = [n for n, each in theirs.items() if each.kind == each.POSITIONAL_OR_KEYWORD]
    assert [*ours][: len(positional)] == positional


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_layers_loss_is_that_of_pytorchs_function_of_the_same_name(reduction):
    theirs = getattr(functional, "linear_cross_entropy", None)
    if theirs is None:
        pytest.skip("PyTorch has it from 2.13 on")
    x, weight, bias = torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)
    for rows, target in ((x, torch.tensor([0, -100, 4, 2])), (x[0], torch.tensor(3))):
        for more in ({}, {"ignore_index": None}, {"ignore_index": 2}, {"label_smoothing": 0.1}):
            given = {"linear_bias": bias, "reduction": reduction, **more}
            classes = target.masked_fill(target == -100, 2) if 2 in more.values() else target
            wanted = theirs(rows, weight, classes, **given)
            found = linear_cross_entropy(rows, weight, classes, **given)
            torch.testing.assert_close(found, wanted)
    target, cubes = torch.tensor([0, 1, 4, 2]), torch.randn(5, 2, 3)
    theirs(x, weight, torch.rand(4, 5)), theirs(x, cubes, torch.zeros(4, 2, dtype=torch.long))
    theirs(x, weight, target, options=torch.nn.LinearCrossEntropyOptions())
    with pytest.raises(ValueError, match="target of shape"):
        linear_cross_entropy(x, weight, torch.rand(4, 5))
    with pytest.raises(ValueError, match="linear_weight of shape"):
        linear_cross_entropy(x, cubes, torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(TypeError, match="options"):
        linear_cross_entropy(x, weight, target, options=None)


def test_a_module_refuses_an_argument_that_the_function_lacks():
    with pytest.raises(TypeError, match="unexpected keyword argument 'zloss'"):
        CrossEntropyLoss(zloss=0.1)
    assert CrossEntropyLoss(z_loss=0.1, group=None).extras == {"z_loss": 0.1, "group": None}
    assert inspect.signature(cross_entropy).parameters.keys() >= {"z_loss", "group"}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_no_module_is_scripted():
    torch.jit.script(nn.Softmax(-1))
    with pytest.raises(Exception, match="keyword-arg expansion is not supported"):
        torch.jit.script(Softmax(-1))


def test_each_line_of_the_table():
    x = torch.zeros(2, 4)
    with pytest.raises(NotImplementedError):
        torch.softmax(torch.tensor([1, 2]), 0)
    with pytest.raises(TypeError):
        softmax(torch.tensor([1, 2]), 0)
    assert torch.logsumexp(x.cfloat(), 0).is_complex()
    with pytest.raises(TypeError):
        logsumexp(x.cfloat(), 0)
    for dims in ((), (0, 0)):
        with pytest.raises(RuntimeError):
            torch.logsumexp(x, dims)
        with pytest.raises(ValueError):
            logsumexp(x, dims)
    with pytest.raises(ValueError):
        softmax(x, 0, out=torch.empty(4))
    torch.logsumexp(x, 0, out=torch.empty(4))
    with pytest.raises(TypeError):
        logsumexp(x, 0, out=torch.empty(4))
    with pytest.raises(TypeError):
        torch.softmax(x)
    assert torch.equal(softmax(x), torch.full((2, 4), 0.25))
    assert (
        torch.softmax(x=x, dim=1).shape == torch.logsumexp(x, 1, keepdims=True).expand(2, 4).shape
    )
    with pytest.raises(TypeError):
        softmax(x=x, dim=1)
    with pytest.raises(TypeError):
        logsumexp(x, 1, keepdims=True)
