"""The way of a later call through the library: how many of its functions it enters before the
kernels run, and in how many files. Each costs a reader a jump and a caller time."""

import pytest
import torch

import probe
from kernel_cases import DEVICE
from triton_softmax import cross_entropy, logsumexp, softmax, token_logprobs

CEILINGS = {
    "softmax": (5, 4),
    "softmax, gradient": (6, 4),
    "logsumexp": (4, 4),
    "cross_entropy": (12, 6),
    "cross_entropy, gradient": (13, 6),
    "softmax, where=": (11, 6),
    "softmax, where=, gradient": (12, 6),
    "token_logprobs": (10, 6),
    "token_logprobs, gradient": (11, 6),
}
"""The most functions and files of each kind of call: never more than 7 functions for softmax and
log-sum-exp and 14 for everything else, in 6 files."""


def calls(gradient: bool) -> dict:
    x = torch.randn(4, 64, device=DEVICE, requires_grad=gradient)
    target = torch.tensor([0, 3, 63, 5], device=DEVICE)
    where = torch.arange(64, device=DEVICE) % 3 > 0
    return {
        "softmax": lambda: softmax(x),
        "logsumexp": lambda: logsumexp(x),
        "cross_entropy": lambda: cross_entropy(x, target),
        "softmax, where=": lambda: softmax(x, where=where),
        "token_logprobs": lambda: token_logprobs(x, target),
    }


@pytest.mark.parametrize("name", CEILINGS)
def test_later_calls_enter_few_functions_of_few_files(name):
    kind = name.removesuffix(", gradient")
    way = probe.way_of(calls(gradient=kind != name)[kind])
    frames, files = CEILINGS[name]
    assert 0 < len(way.frames) <= frames, way.frames
    assert len(way.files) <= files, sorted(way.files)


def test_what_triton_runs_is_not_counted():
    way = probe.way_of(calls(gradient=False)["softmax"])
    assert not any(each.startswith(("kernels/", "operations/")) for each in way.frames)
