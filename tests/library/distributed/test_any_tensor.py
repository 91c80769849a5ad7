"""Calls on sharded rows, on tensors whose memory does not hold their values: PyTorch's answer, or
an error that names the argument. A group of one rank takes the road of several."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as functional

import triton_softmax
from kernel_cases import DEVICE
from tests.library.test_any_tensor import MAKERS, dense

TARGET = torch.tensor([0, 3, 4099])
FUNCTIONS = {
    "softmax": (triton_softmax.softmax, lambda x: torch.softmax(x, -1), {}),
    "scaled": (triton_softmax.softmax, lambda x: torch.softmax(0.5 * x, -1), {"scale": 0.5}),
    "log_softmax": (triton_softmax.log_softmax, lambda x: torch.log_softmax(x, -1), {}),
    "logsumexp": (triton_softmax.logsumexp, lambda x: torch.logsumexp(x, -1), {}),
    "cross_entropy": (
        lambda x, **more: triton_softmax.cross_entropy(x, TARGET.to(x.device), **more),
        lambda x: functional.cross_entropy(x, TARGET.to(x.device)),
        {},
    ),
    "token_logprobs": (
        lambda x, **more: triton_softmax.token_logprobs(x, TARGET.to(x.device), **more),
        lambda x: torch.log_softmax(x, -1).gather(-1, TARGET.to(x.device)[:, None])[:, 0],
        {},
    ),
}
KINDS = ("plain", "negated", "conjugated", "zero", "wrapper", "collective", "offset", "lazy")


@pytest.fixture(scope="module")
def group():
    begun = not dist.is_initialized()
    if begun:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if begun:
        dist.destroy_process_group()


@pytest.mark.skipif(DEVICE == "cuda", reason="a group of gloo is for CPUs")
@pytest.mark.parametrize("stage", ["input", "incoming gradient"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_tensor(name, kind, stage, group):
    function, theirs, more = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4100, generator=generator)
    dy = torch.randn(theirs(x).shape, generator=generator)
    make = MAKERS[kind]
    if kind == "zero":
        x, dy = (t * 0 if at == stage else t for t, at in ((x, "input"), (dy, "incoming gradient")))
    leaf, same = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = theirs(same)
    expected.backward(dy)
    try:
        y = function(make(leaf) if stage == "input" else leaf, group=group, **more)
        if y.requires_grad:
            y.backward(dy if stage == "input" else make(dy))
    except TypeError as error:
        assert kind == "wrapper" and stage in str(error)
        return
    torch.testing.assert_close(dense(y), expected.detach())
    if leaf.grad is not None:
        torch.testing.assert_close(dense(leaf.grad), same.grad)
    assert stage == "input" or leaf.grad is not None
