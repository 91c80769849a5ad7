"""What each rank does in the tests of `triton_softmax.distributed`: functions that are asked for by
name, with the group as first argument. They assert, and what they return is compared."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import functional as F

import triton_softmax
from triton_softmax import checks, cross_entropy, dispatch, log_softmax, logsumexp, softmax
from triton_softmax.distributed import ranks

NORMALIZED = {"softmax": softmax, "log_softmax": log_softmax}
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
INF = float("inf")


@contextlib.contextmanager
def computed(by_kernels: bool):
    """By kernels in Triton's interpreter, or by PyTorch's operators."""
    kept, checks.INTERPRETED = checks.INTERPRETED, by_kernels and checks.INTERPRETED
    dispatch.clear_plans()
    try:
        yield
    finally:
        checks.INTERPRETED = kept
        dispatch.clear_plans()


class Messages(list):
    """The bytes of every message that this rank sends meanwhile."""

    def __enter__(self) -> Messages:
        self.shipped = ranks._all_gather, dist.all_reduce

        def gather(out, words, **more):
            self.append(words.nbytes)
            return self.shipped[0](out, words, **more)

        def reduce(tensor, **more):
            self.append(tensor.nbytes)
            return self.shipped[1](tensor, **more)

        ranks._all_gather, dist.all_reduce = gather, reduce
        return self

    def __exit__(self, *_: object) -> None:
        ranks._all_gather, dist.all_reduce = self.shipped


def drawn(shape, dtype=torch.float64, seed=0) -> torch.Tensor:
    """The same numbers on all ranks, and for all dtypes."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def bounds(group, n: int, sizes: list[int] | None = None) -> tuple[int, int]:
    """Where this rank's part lies: of these sizes, or by the rule of `torch.chunk`."""
    rank, world = group.rank(), group.size()
    if sizes is None:
        each = -(-n // world)
        return min(n, rank * each), min(n, (rank + 1) * each)
    return sum(sizes[:rank]), sum(sizes[: rank + 1])


def part(x: torch.Tensor, group, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
    start, end = bounds(group, x.shape[dim], sizes)
    return x.narrow(dim, start, end - start).clone(memory_format=torch.contiguous_format)


def near(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        actual.double(), expected.double(), atol=tolerance, rtol=tolerance, equal_nan=True
    )


def same_bits(group, *tensors: torch.Tensor) -> None:
    """Every rank holds the same."""
    for each in tensors:
        raw = each.detach().contiguous().flatten().view(torch.uint8)
        all_of_them = [torch.empty_like(raw) for _ in range(group.size())]
        dist.all_gather(all_of_them, raw, group=group)
        assert all(torch.equal(raw, other) for other in all_of_them)


def normalized(group, name, shape, dim, dtype, by_kernels=True, sizes=None, values=None) -> None:
    """Softmax or log-softmax of shards, and its gradient, is that of the whole."""
    x = drawn(shape, dtype) if values is None else torch.tensor(values, dtype=dtype)
    dy = drawn(x.shape, dtype, seed=1)
    whole = x.double().clone().requires_grad_()
    expected = getattr(torch, name)(whole, dim)
    (gradient,) = torch.autograd.grad(expected, whole, dy.double())
    mine = part(x, group, dim, sizes).requires_grad_()
    with computed(by_kernels):
        NORMALIZED[name](mine, dim, group=group)  # they agree
        with Messages() as messages:
            y = NORMALIZED[name](mine, dim, group=group)
        with Messages() as backward:
            y.backward(part(dy, group, dim, sizes))
    assert y.is_contiguous() and y.dtype == dtype and y.shape == mine.shape
    near(y, part(expected.detach(), group, dim, sizes), dtype)
    near(mine.grad, part(gradient, group, dim, sizes), dtype)
    assert mine.grad.dtype == dtype
    rows = x.numel() // max(1, x.shape[dim]) if x.numel() else 0
    word = 8 if dtype == torch.float64 else 4
    one = group.size() > 1 and rows > 0
    assert messages == ([2 * word * (rows + 1)] if one else [])
    assert backward == ([word * (rows + 2)] if one else [])


def summed_up(group, shape, dims, dtype, keepdim=False, by_kernels=True, values=None) -> None:
    """Log-sum-exp of shards, on every rank, with its gradient."""
    x = drawn(shape, dtype) if values is None else torch.tensor(values, dtype=dtype)
    last = dims if isinstance(dims, int) else dims[-1]
    whole = x.double().clone().requires_grad_()
    expected = torch.logsumexp(whole, dims, keepdim)
    g = drawn(expected.shape, dtype, seed=1)
    (gradient,) = torch.autograd.grad(expected, whole, g.double())
    mine = part(x, group, last).requires_grad_()
    with computed(by_kernels):
        logsumexp(mine, dims, keepdim, group=group)
        with Messages() as messages:
            lse = logsumexp(mine, dims, keepdim, group=group)
            lse.backward(g)
    near(lse, expected.detach(), dtype)
    if values is None:
        near(mine.grad, part(gradient, group, last), dtype)
    same_bits(group, lse)
    assert lse.shape == expected.shape and lse.dtype == dtype
    assert len(messages) == (group.size() > 1)


def loss(
    group,
    shape,
    dtype=torch.float64,
    by_kernels=True,
    weight=False,
    probabilities=False,
    sharded_weight=False,
    sizes=None,
    softcap=None,
    scale=1.0,
    z_loss=0.0,
    in_place=False,
    **more: Any,
) -> None:
    """Cross-entropy of shards is that of the whole, and so is its gradient."""
    dim = 0 if len(shape) == 1 else 1
    x = drawn(shape, dtype)
    n, rows = shape[dim], (*shape[:dim], *shape[dim + 1 :])
    generator = torch.Generator().manual_seed(2)
    target = torch.randint(n, rows, generator=generator)
    if target.numel() > 2:
        target.view(-1)[1] = -100
    if probabilities:
        target = torch.softmax(drawn(shape, torch.float64, seed=3), dim).to(dtype)
    w = drawn((n,), torch.float64, seed=4).abs() + 0.1 if weight else None

    whole = x.double().clone().requires_grad_()
    mapped = whole * scale
    mapped = mapped if softcap is None else softcap * torch.tanh(mapped / softcap)
    reduction = more.get("reduction", "mean")
    expected = F.cross_entropy(
        mapped, target.double() if probabilities else target, w, **more
    )
    kept = torch.ones(rows) if probabilities else (target != -100).double()
    expected_lse = torch.logsumexp(mapped, dim) * kept
    if z_loss:
        squared = z_loss * expected_lse.square()
        sums = {"none": squared, "sum": squared.sum(), "mean": squared.sum() / kept.sum()}
        expected = expected + sums[reduction]
    g = drawn(expected.shape, torch.float64, seed=5)
    (gradient,) = torch.autograd.grad(expected, whole, g)

    leaf = part(x, group, dim, sizes).requires_grad_()
    mine = leaf * 1 if in_place else leaf
    p = part(target, group, dim, sizes) if probabilities else target
    given = w if not sharded_weight or w is None else part(w, group, 0, sizes)
    arguments = {
        "softcap": softcap,
        "scale": scale,
        "z_loss": z_loss,
        "return_lse": True,
        "inplace_backward": in_place,
        **more,
    }
    if sizes is not None:
        arguments |= {"vocab_start": bounds(group, n, sizes)[0], "vocab_size": n}
    with computed(by_kernels):
        cross_entropy(mine, p, given, group=group, **arguments)
        with Messages() as messages:
            found, lse = cross_entropy(mine, p, given, group=group, **arguments)
        with Messages() as backward:
            found.backward(g.to(found.dtype))
    near(found, expected.detach(), dtype)
    near(lse, expected_lse.detach(), torch.float32 if dtype != torch.float64 else dtype)
    near(leaf.grad, part(gradient, group, dim, sizes), dtype)
    same_bits(group, found, lse)
    word, n_rows = 8 if dtype == torch.float64 else 4, kept.numel()
    assert len(messages) == (group.size() > 1) and backward == []
    five = weight and sharded_weight and more.get("label_smoothing")
    assert all(each <= (20 if five else 16) * n_rows * word // 4 + 64 for each in messages)
    if in_place and mine.numel() and softcap is None:
        assert torch.equal(mine.detach(), leaf.grad)


def tokens(
    group, shape, dtype, k=None, entropy=True, temperature=1.0, by_kernels=True, in_place=False
) -> None:
    """Log-probabilities and entropies of shards are those of the whole."""
    x = drawn(shape, dtype)
    rows = shape[:-1]
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(shape[-1], rows if k is None else (*rows, k), generator=generator)
    whole = x.double().clone().requires_grad_()
    y = torch.log_softmax(whole / temperature, -1)
    expected = y.gather(-1, index.unsqueeze(-1) if k is None else index)
    expected = expected.squeeze(-1) if k is None else expected
    entropies = -(y.exp() * y).sum(-1)
    g, g_entropy = drawn(expected.shape, seed=3), drawn(rows, seed=4)
    total = (expected * g).sum() + (entropies * g_entropy).sum() * entropy
    (gradient,) = torch.autograd.grad(total, whole)
    leaf = part(x, group).requires_grad_()
    mine = leaf * 1 if in_place else leaf
    more = {"return_entropy": entropy, "temperature": temperature, "inplace_backward": in_place}
    with computed(by_kernels):
        triton_softmax.token_logprobs(mine, index, group=group, **more)
        with Messages() as messages:
            found = triton_softmax.token_logprobs(mine, index, group=group, **more)
            found, h = found if entropy else (found, None)
            total = (found * g).sum() + ((h * g_entropy).sum() if entropy else 0.0)
            total.backward()
    wide = torch.promote_types(dtype, torch.float32)
    assert found.dtype == wide
    near(found, expected.detach(), wide)
    near(leaf.grad, part(gradient, group), dtype)
    if entropy:
        near(h, entropies.detach(), wide)
        same_bits(group, found, h)
    assert len(messages) == (group.size() > 1)
    bytes_of_row = (8 + 4 * (k or 1) + 4 * entropy) * wide.itemsize // 4
    assert all(each <= bytes_of_row * entropies.numel() + 64 for each in messages)
