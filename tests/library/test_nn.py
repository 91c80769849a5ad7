"""The modules behave as those of `torch.nn`."""

import copy
import io
import pickle

import pytest
import torch

from triton_softmax import LogSoftmax, Softmax

PAIRS = [(Softmax, torch.nn.Softmax), (LogSoftmax, torch.nn.LogSoftmax)]
modules = pytest.mark.parametrize("ours, theirs", PAIRS, ids=["softmax", "log_softmax"])


@modules
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_same_result(ours, theirs, dim):
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    y, want = ours(dim)(x), theirs(dim)(x)
    torch.testing.assert_close(y, want)
    dy = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), torch.autograd.grad(want, x, dy))


@modules
def test_repr_as_torch(ours, theirs):
    assert repr(ours(dim=1)) == repr(theirs(dim=1))
    assert repr(ours(0, batch_invariant=True)) == f"{ours.__name__}(dim=0, batch_invariant=True)"


@modules
def test_copies(ours, theirs):
    module = ours(1, batch_invariant=True)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    copies = [copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    for each in [*copies, torch.load(buffer, weights_only=False)]:
        assert type(each) is ours and repr(each) == repr(module)
        x = torch.randn(2, 3)
        torch.testing.assert_close(each(x), theirs(1)(x))


@modules
def test_no_parameters_and_no_state(ours, theirs):
    module = ours()
    assert module.dim == -1 and module.extras == {"batch_invariant": False}
    assert not list(module.parameters()) and not module.state_dict()
    assert module.eval().half() is module


@modules
def test_errors(ours, theirs):
    with pytest.raises(TypeError, match="unexpected keyword argument 'causal'"):
        ours(causal=True)
    with pytest.raises(IndexError, match="Dimension out of range"):
        ours(2)(torch.zeros(2, 3))
