"""Attention on vectors: every rung, the function and its gradients, against float64."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernel_cases import DEVICE, INF, INTERPRETED, NAN, quiet
from softmax_tutorial.attention import attention
from softmax_tutorial.attention.descriptors import attention_descriptors
from softmax_tutorial.attention.diagonal import attention_diagonal
from softmax_tutorial.attention.in_memory import attention_in_memory
from softmax_tutorial.attention.split_keys import attention_split
from softmax_tutorial.attention.vectors import attention_vectors
from softmax_tutorial.attention.warp_groups import attention_warp_groups

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
    (1, 1, 1, 65, 133, 64, True, torch.bfloat16),
    (2, 4, 2, 17, 70, 24, True, torch.float16),
    (1, 3, 1, 33, 70, 16, False, torch.bfloat16),
    (1, 1, 1, 130, 50, 20, True, torch.float16),  # 80 queries see no key
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


def small(n_queries=40, n_keys=70, heads=2, key_heads=1):
    q, k, v, do = tensors(1, heads, key_heads, n_queries, n_keys, 16, torch.float32)
    return q.contiguous(), k.contiguous(), v.contiguous(), do.contiguous()


@pytest.mark.parametrize("poison", [NAN, INF], ids=str)
@EVERY_RUNG
def test_what_is_not_finite_stays_in_its_row(rung, poison):
    """A query has no part in the other queries' results, and keys of one head none in another's."""
    q, k, v, _ = (each.half() for each in small(heads=4, key_heads=2))
    clean, clean_lse = rung(q, k, v, True, 0.25)
    q[0, 1, 30], k[0, 1, 69], v[0, 1, 69] = poison, poison, poison
    o, lse = rung(q, k, v, True, 0.25)
    changed = torch.zeros(q.shape[:3], dtype=torch.bool, device=DEVICE)
    changed[0, 1, 30] = True
    changed[0, 2:] = True
    assert o[0, 1, 30].isnan().any()
    assert torch.equal(o[~changed], clean[~changed])
    assert torch.equal(lse[~changed], clean_lse[~changed])


@pytest.mark.parametrize("poison", [NAN, INF], ids=str)
def test_gradients_of_other_rows_are_finite(poison):
    q, k, v, do = small(heads=4, key_heads=2)
    do[0, 1, 30] = poison
    leaves = [each.requires_grad_() for each in (q, k, v)]
    dq, dk, dv = torch.autograd.grad(attention(*leaves), leaves, do)
    assert not dq[0, 1, 30].isfinite().all()
    dq[0, 1, 30] = 0.0
    assert dq.isfinite().all() and dk[0, 1].isfinite().all() and dv[0, 1].isfinite().all()


def test_scores_far_below_zero_have_gradients():
    """Keys beyond the last have the score 0, whose weight would be infinite here."""
    q, k, v, do = small(n_queries=20, n_keys=35)
    leaves = [each.requires_grad_() for each in (q, k.abs().detach(), v)]
    exact = [each.detach().double().requires_grad_() for each in leaves]
    got = torch.autograd.grad(attention(-100 * leaves[0].abs(), *leaves[1:]), leaves, do)
    o, _ = attention_in_memory(-100 * exact[0].abs(), *exact[1:], False, 0.25)
    for ours, theirs in zip(got, torch.autograd.grad(o, exact, do.double())):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


def test_halves_of_the_keys_merge():
    """By softmax of their lse; a half that a query does not see is the identity."""
    q, k, v, _ = small()
    first = attention(q, k[:, :, :33], v[:, :, :33], return_lse=True)
    second = attention(q, k[:, :, 33:], v[:, :, 33:], return_lse=True)
    lse = torch.stack([first[1], second[1]])
    o = (torch.softmax(lse, 0)[..., None] * torch.stack([first[0], second[0]])).sum(0)
    want, want_lse = attention(q, k, v, return_lse=True)
    torch.testing.assert_close(o, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.logsumexp(0), want_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [-0.5, 0.0, 2])
def test_any_scale(scale):
    q, k, v, _ = small()
    o, lse = attention(q, k, v, True, scale, True)
    want, want_lse = expected(q, k, v, True, scale)
    check(o, want, torch.float32)
    check(lse, want_lse, torch.float32)


def test_one_query_takes_keys_in_chunks():
    """As decoding does: the function's own choice, and grouped heads share what is read."""
    q, k, v, do = small(n_queries=2, n_keys=1030, heads=3)
    leaves = [each.requires_grad_() for each in (q, k, v)]
    o = attention(*leaves, causal=True)
    check(o, expected(*(each.detach() for each in leaves), True, 0.25)[0], torch.float32)
    assert all(each.isfinite().all() for each in torch.autograd.grad(o, leaves, do))


@pytest.mark.parametrize(
    "sizes", [(0, 2, 2, 3, 3), (1, 0, 1, 3, 3), (1, 2, 2, 0, 3), (1, 2, 2, 3, 0)]
)
def test_empty(sizes):
    q, k, v, _ = tensors(*sizes, 16, torch.float32)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    o, lse = attention(*leaves, return_lse=True)
    assert o.shape == q.shape and not o.any() and (lse == -INF).all()
    gradients = torch.autograd.grad(o.sum(), leaves)
    assert all(each.shape == leaf.shape and not each.any() for each, leaf in zip(gradients, leaves))


def test_no_scores_in_memory():
    """Whatever an operator returns, forward and backward, is linear in the lengths."""
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            results = function(*arguments, **(named or {}))
            tensors = (t for t in tree_leaves(results) if isinstance(t, torch.Tensor))
            sizes.extend(t.numel() for t in tensors if t.is_floating_point())  # not bytes
            return results

    q, k, v, do = small(n_queries=200, n_keys=200, heads=1)
    with Sizes():
        attention(*(leaves := [each.requires_grad_() for each in (q, k, v)])).backward(do)
    assert len(sizes) > 4 and all(each.grad is not None for each in leaves)
    assert max(sizes) <= 200 * 16 < 200 * 200


def test_no_gradient_of_a_gradient():
    q, k, v, do = small()
    leaves = [each.requires_grad_() for each in (q, k, v)]
    dq = torch.autograd.grad(attention(*leaves), q, do.requires_grad_(), create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(q=[1.0]), TypeError, "q must be a tensor"),
        (dict(k=torch.ones(1, 1, 70, 16).double()), TypeError, "k must be float16"),
        (dict(v=torch.ones(1, 1, 70, 16).half()), ValueError, "v must be torch.float32"),
        (dict(q=torch.ones(2, 40, 16)), ValueError, "q must be .batch, heads"),
        (dict(q=torch.ones(1, 2, 40, 8)), ValueError, "q must be .batch, heads, length, 16"),
        (dict(k=torch.ones(1, 1, 70, 32)), ValueError, "k must agree with q"),
        (dict(v=torch.ones(2, 1, 70, 16)), ValueError, "v must agree with q"),
        (dict(k=torch.ones(1, 3, 70, 16)), ValueError, "k must have a number of heads"),
        (dict(v=torch.ones(1, 1, 71, 16)), ValueError, "v must be .1, 1, 70, 16. as k is"),
        (dict(v=torch.ones(1, 1, 70, 16, device="meta")), ValueError, "v must be .* on meta"),
        (dict(causal=1), TypeError, "causal must be a bool"),
        (dict(scale="1"), TypeError, "scale must be a number"),
        (dict(scale=NAN), ValueError, "scale must be finite"),
    ],
)
def test_what_is_refused(change, error, message):
    q, k, v, _ = small()
    moved = {
        name: each.to(DEVICE) if isinstance(each, torch.Tensor) and each.is_cpu else each
        for name, each in change.items()
    }
    with pytest.raises(error, match=message):
        attention(**{"q": q, "k": k, "v": v, **moved})


def test_tensors_on_the_cpu_run_pytorchs_operators(monkeypatch):
    """Where kernels are not interpreted; doubly differentiable then."""
    monkeypatch.setattr("triton.knobs.runtime.interpret", False)
    q, k, v, _ = (each.cpu() for each in small())
    o = attention(q.requires_grad_(), k, v, causal=True)
    check(o, expected(q.detach(), k, v, True, 0.25)[0], torch.float32)
    assert "Attention" not in str(o.grad_fn)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dims", [64, 128])
def test_more_tasks_than_programs(dims, causal):
    """Programs go on from task to task, and tiles of queries are odd in number."""
    q, k, v, do = tensors(2, 32, 8, 2100, 2300, dims, torch.bfloat16)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    o, lse = attention(*leaves, causal, return_lse=True)
    got = torch.autograd.grad(o, leaves, do)
    again = torch.autograd.grad(attention(*leaves, causal), leaves, do)
    exact = [each.detach().float().requires_grad_() for each in leaves]
    want, want_lse = attention_in_memory(*exact, causal, 1 / math.sqrt(dims))
    check(o, want.detach().cpu().double(), torch.bfloat16)
    torch.testing.assert_close(lse, want_lse, rtol=1e-4, atol=1e-4)
    for ours, repeated, theirs in zip(got, again, torch.autograd.grad(want, exact, do.float())):
        assert (ours - theirs).abs().max() <= 0.02 * theirs.abs().max().clamp(min=1)
        assert not HOPPER or torch.equal(ours, repeated)


@pytest.mark.gpu
def test_heads_that_lie_more_than_two_to_the_31_elements_apart():
    near = [each.contiguous() for each in tensors(1, 3, 3, 90, 90, 64, torch.bfloat16)]
    memory = torch.empty(2**31 + 90 * 64, dtype=torch.bfloat16, device=DEVICE)
    for x in near[:3]:
        far = memory.as_strided(x.shape, (0, 2**30, 64, 1)).copy_(x)
        assert torch.equal(attention(far, *near[1:3]), attention(x, *near[1:3]))
        assert torch.equal(attention(near[0], far, near[2]), attention(near[0], x, near[2]))
    leaf = far.requires_grad_()
    got = torch.autograd.grad(attention(near[0], near[1], leaf), leaf, near[3])[0]
    leaf = near[2].requires_grad_()
    want = torch.autograd.grad(attention(near[0], near[1], leaf), leaf, near[3])[0]
    assert torch.equal(got, want)
