"""log(sum(exp(x))) as it is called, and its gradient: rows in one program, and rows in chunks.

Each geometry is tested with log-sum-exp beside the other operations, in a file of its own.
"""

import pytest
import torch

import probe
from kernel_cases import (
    DEVICE,
    HOSTILE,
    assert_as_torch,
    assert_result,
    matrix,
    quiet,
)

pytestmark = quiet


def forward(x, implementation=None):
    return probe.run("logsumexp", (x,), 1, None, implementation)


def backward(dlse, x, implementation=None):
    return probe.run("logsumexp_backward", (x, dlse), 1, None, implementation)


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((1, 1), torch.float32),
        ((3, 2), torch.float16),
        ((2, 128), torch.bfloat16),
        ((2, 129), torch.float64),
        ((1, 4097), torch.float32),
    ],
    ids=str,
)
def test_forward_and_backward(shape, dtype):
    x = matrix(*shape, dtype, gap=3)
    lse = forward(x)
    assert lse.dtype == dtype and lse.shape == shape[:1]
    assert_result("logsumexp", lse, (x,))
    dlse = matrix(shape[0], 1, dtype, seed=1)[:, 0]
    dx = backward(dlse, x)
    assert dx.dtype == dtype and dx.is_contiguous()
    assert_result("logsumexp_backward", dx, (x, dlse))


@pytest.mark.parametrize("implementation", [None, "split_rows"])
def test_chunks(implementation):
    x = matrix(1, 12305, torch.float32, gap=1)
    assert_result("logsumexp", forward(x, implementation), (x,))


def test_hostile_rows_as_torch():
    x = torch.tensor(HOSTILE)
    on_device = x.to(DEVICE)
    lse = forward(on_device)
    assert_as_torch("logsumexp", lse, (on_device,))
    dlse = torch.ones_like(lse)
    dx = backward(dlse, on_device)
    assert_as_torch("logsumexp_backward", dx, (on_device, dlse))
    exact = x.clone().requires_grad_()
    torch.logsumexp(exact, 1).sum().backward()
    assert torch.equal(dx.isnan().cpu(), exact.grad.isnan())
