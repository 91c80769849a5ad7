"""What each rank does in the tests of `examples/`, as `tests/ranks.py` asks for it."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import interpreted  # noqa: F401  # before Triton
import triton_softmax
from examples import symmetric_memory
from examples.symmetric_memory import Peers, softmax
from on_ranks import drawn, mesh_of, messages, near, of_the_whole, part  # noqa: F401


def by_file(n_words: int, group: Any, device: torch.device) -> tuple[list[Tensor], Any]:
    """Memory that ranks on one machine share, in place of that of GPUs."""
    names: list[Any] = [f"{tempfile.mkdtemp()}/{rank}" for rank in range(group.size())]
    dist.broadcast_object_list(names, 0, group=group)
    dist.barrier(group)
    words = [torch.from_file(name, True, n_words, dtype=torch.int64) for name in names]
    dist.barrier(group)
    return words, None


@contextlib.contextmanager
def small_buffers():
    """Memory for few words at first, so that more is needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetric_memory, "LEAST_WORDS", 4)
        yield


def pushed(group: Any, log: bool, shape: tuple[int, int], dtype: torch.dtype, values=None) -> None:
    """Values and gradients are those of whole rows, call after call, and nothing is sent."""
    peers = Peers(group, 5.0, by_file)
    x = drawn(shape, dtype) if values is None else torch.tensor(values, dtype=dtype)
    function = torch.log_softmax if log else torch.softmax
    for turned in (False, True):
        x = x.flip(1) if turned else x
        expected, dy, gradient = of_the_whole(lambda x: function(x, 1), x, dtype)
        mine = part(x, group).requires_grad_()
        with messages() as sent:
            y = softmax(mine, peers, log)
            y.backward(part(dy, group))
        assert sent == [] and y.dtype == dtype
        near(y, part(expected, group), dtype)
        near(mine.grad, part(gradient, group), dtype)
    peers.check()


def as_sent(group: Any) -> None:
    """The library's result, which takes a message, to the last bits; and equal elements have equal
    probabilities on all ranks."""
    peers = Peers(group, 5.0, by_file)
    x = part(drawn((2, 40), torch.float32), group)
    sent = triton_softmax.softmax(x, group=group)
    torch.testing.assert_close(softmax(x, peers), sent, atol=1e-7, rtol=3e-7)
    y = softmax(torch.zeros(3, 1), peers)
    every = [torch.empty_like(y) for _ in range(group.size())]
    dist.all_gather(every, y, group=group)
    assert all(torch.equal(y, each) for each in every)


def in_turn(group: Any) -> None:
    """More calls than buffers, of several shapes, the largest of which need more memory."""
    with small_buffers():
        peers = Peers(group, 5.0, by_file)
        for n_rows in (1, 3, 2, 7, 1):
            x = drawn((n_rows, 6), torch.float32, seed=n_rows)
            near(softmax(part(x, group), peers), part(torch.softmax(x, 1), group), torch.float32)
    assert softmax(torch.empty(0, 3), peers).shape == (0, 3)


def without_one(group: Any) -> None:
    """A rank that does not come is named: NaN in the rows that lack its words, and an error at the
    next call, and when asked."""
    peers = Peers(group, 0.2, by_file)
    x = part(drawn((1, 10), torch.float32), group)
    softmax(x, peers)
    if group.rank() != 1:
        assert softmax(x, peers).isnan().all()
        for call in (lambda: softmax(x, peers), peers.check):
            with pytest.raises(RuntimeError, match="rank 1 of the group"):
                call()
    dist.barrier(group)


def refused(group: Any) -> None:
    """What cannot be pushed is said."""
    peers = Peers(group)
    for x in (torch.ones(2, 3).double(), torch.ones(2), torch.ones(2, 3).long()):
        with pytest.raises(ValueError, match="x must be a matrix"):
            softmax(x, peers)
    with pytest.raises(RuntimeError, match="from GPU to GPU"):
        softmax(torch.ones(2, 3), peers)
