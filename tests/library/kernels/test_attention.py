"""Attention on vectors: every rung, the function and its gradients, against float64."""

import math

import pytest
import torch

from kernel_cases import DEVICE, INF, INTERPRETED, NAN, quiet
from softmax_tutorial.attention import attention
from softmax_tutorial.attention.descriptors import attention_descriptors
from softmax_tutorial.attention.diagonal import attention_diagonal
from softmax_tutorial.attention.in_memory import attention_in_memory
from softmax_tutorial.attention.split_keys import attention_split
from softmax_tutorial.attention.warp_groups import attention_warp_groups
from softmax_tutorial.attention.vectors import attention_vectors

pytestmark = quiet

HOPPER = DEVICE == "cuda" and torch.cuda.get_device_capability()[0] == 9 and not torch.version.hip


def in_chunks(q, k, v, causal, scale):
    return attention_split(q, k, v, causal, scale, 64)


def of_the_function(q, k, v, causal, scale):
    return attention(q, k, v, causal, scale, return_lse=True)


RUNGS = {
    "in_memory": attention_in_memory,
    "vectors": attention_vectors,
    "diagonal": attention_diagonal,
    "descriptors": attention_descriptors,
    "warp_groups": attention_warp_groups,
    "split_keys": in_chunks,
    "function": of_the_function,
}
EVERY_RUNG = pytest.mark.parametrize(
    "rung",
    [
        pytest.param(rung, marks=pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU"))
        if name == "warp_groups"
        else rung
        for name, rung in RUNGS.items()
    ],
    ids=RUNGS,
)
TOLERANCE = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
CASES = [
    # batch, heads, key heads, queries, keys, dimensions, causal, dtype
    (2, 2, 2, 65, 65, 64, True, torch.bfloat16),
    (1, 4, 2, 70, 133, 24, True, torch.float16),
    (1, 3, 1, 33, 70, 16, False, torch.bfloat16),
    (1, 2, 2, 130, 50, 20, True, torch.float16),  # 80 queries see no key
    (1, 2, 1, 1, 300, 33, True, torch.float32),
    (1, 1, 1, 20, 7, 130, False, torch.float32),
]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))


def apart(batch, heads, length, dims, dtype, seed):
    """A tensor (batch, heads, length, dims) inside of another, whose other elements are NaN: rows
    of different heads lie side by side, and start at multiples of 16 bytes where `dims` does."""
    step = 16 // dtype.itemsize
    buffer = torch.full((batch, length + 2, heads, dims + step), NAN, dtype=dtype)
    numbers = torch.randn(batch, length, heads, dims, generator=torch.Generator().manual_seed(seed))
    buffer[:, 1:-1, :, :dims] = numbers
    return buffer.to(DEVICE)[:, 1:-1, :, :dims].transpose(1, 2)


def tensors(batch, heads, key_heads, n_queries, n_keys, dims, dtype):
    """q, k, v, and a gradient like q."""
    sizes = (heads, n_queries), (key_heads, n_keys), (key_heads, n_keys), (heads, n_queries)
    return [apart(batch, *size, dims, dtype, seed) for seed, size in enumerate(sizes)]


def expected(q, k, v, causal, scale):
    """o and lse from the definition, in float64, query by query over the keys that it sees."""
    q, k, v = (each.double().cpu() for each in (q, k, v))
    n_queries, n_keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    o, lse = torch.zeros_like(q), torch.full(q.shape[:3], -INF, dtype=torch.float64)
    for i in range(n_queries):
        seen = max(0, min(n_keys, i + 1 + n_keys - n_queries)) if causal else n_keys
        if seen:
            scores = scale * torch.einsum("bhd,bhtd->bht", q[:, :, i], k[:, :, :seen])
            weights = torch.softmax(scores, -1)
            o[:, :, i] = torch.einsum("bht,bhtd->bhd", weights, v[:, :, :seen])
            lse[:, :, i] = torch.logsumexp(scores, -1)
    return o, lse


def check(got, want, dtype, times=1.0):
    assert got.isnan().sum() == 0
    torch.testing.assert_close(
        got.double().cpu(), want, rtol=TOLERANCE[dtype], atol=times * TOLERANCE[dtype]
    )


@EVERY_RUNG
@EVERY_CASE
def test_every_rung_is_attention(rung, case):
    *sizes, causal, dtype = case
    if rung is attention_warp_groups and dtype == torch.float32:
        pytest.skip("for 16 bits")
    if (
        INTERPRETED
        and dtype == torch.bfloat16
        and rung not in (attention_in_memory, of_the_function)
    ):
        dtype = torch.float16  # the interpreter multiplies the bits of bfloat16
    q, k, v, _ = tensors(*sizes, dtype)
    scale = 1 / math.sqrt(sizes[-1])
    o, lse = rung(q, k, v, causal, scale)
    assert o.dtype == dtype and lse.dtype == torch.float32
    want, want_lse = expected(q, k, v, causal, scale)
    check(o, want, dtype)
    check(lse, want_lse, torch.float32)


@EVERY_CASE
def test_gradients(case):
    """Of both results, against float64; queries without a key have 0."""
    *sizes, causal, dtype = case
    q, k, v, do = tensors(*sizes, dtype)
    dlse = torch.randn(q.shape[:3], generator=torch.Generator().manual_seed(7)).to(DEVICE)
    scale = 1 / math.sqrt(sizes[-1])
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    o, lse = attention(*leaves, causal, return_lse=True)
    got = torch.autograd.grad((o, lse), leaves, (do, dlse))
    exact = [each.detach().double().requires_grad_() for each in (q, k, v)]
    o, lse = attention_in_memory(*exact, causal, scale)
    want = torch.autograd.grad((o, lse), exact, (do.double(), dlse.double()))
    for ours, theirs, leaf in zip(got, want, leaves):
        assert ours.dtype == dtype and ours.shape == leaf.shape
        check(ours, theirs.cpu(), dtype, times=2 * theirs.abs().max().clamp(min=1).item())
    blind = sizes[3] - sizes[4]
    if causal and blind > 0:
        assert not got[0][:, :, :blind].any()
