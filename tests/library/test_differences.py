"""Where we differ from PyTorch: the table of docs/kernels/edge-cases.md, line by line. Results that
differ in bits are compared in `test_invariance.py`, and gradients of log-sum-exp on its page."""

import pytest
import torch

from triton_softmax import logsumexp, softmax


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
