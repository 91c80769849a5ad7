"""What each rank does in the tests of `triton_softmax.distributed`: functions that are asked for by
name, with the group as first argument. They assert, and what they return is compared."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import math
import os
import re
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch._dynamo.backends.debugging import aot_eager
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

import interpreted  # noqa: F401
import probe
import triton_softmax
from in_float64 import cross_entropy_of, softmax_of, tokens_of
from triton_softmax import (
    arguments,
    batch_invariant,
    cross_entropy,
    log_softmax,
    logsumexp,
    plan,
    softmax,
)
from triton_softmax.distributed import process_group
from triton_softmax.plan import launch, losses
from triton_softmax.plan import tokens as plan_tokens

NORMALIZED = {"softmax": softmax, "log_softmax": log_softmax}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
INF = float("inf")


@contextlib.contextmanager
def replaced(*places: tuple[Any, str, Any]):
    """Something else in the place of attributes: (of what, name, what)."""
    with pytest.MonkeyPatch.context() as patch:
        for place in places:
            patch.setattr(*place)
        yield


@contextlib.contextmanager
def computed(by_kernels: bool):
    """By kernels in Triton's interpreter, or by PyTorch's operators."""
    with replaced((arguments, "INTERPRETED", by_kernels and arguments.INTERPRETED)):
        probe.forget()
        try:
            yield
        finally:
            probe.forget()


@contextlib.contextmanager
def messages():
    """The bytes of every message that this rank sends meanwhile, in a list; without the lines on
    which ranks agree first."""
    found, shipped = [], (process_group._all_gather, dist.all_reduce)

    def gather(out, words, **more):
        found.append(words.nbytes)
        return shipped[0](out, words, **more)

    def reduce(tensor, **more):
        found.append(tensor.nbytes)
        return shipped[1](tensor, **more)

    with replaced((process_group, "_all_gather", gather), (dist, "all_reduce", reduce)):
        yield found


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


def near(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, times=1) -> None:
    tolerance = times * TOLERANCE[dtype]
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


def of_the_whole(function, x, dtype=torch.float64, seed=1) -> tuple[torch.Tensor, ...]:
    """The result of a function in float64, what arrives there as its gradient, of the dtype, and
    the gradient at x."""
    whole = x.double().clone().requires_grad_()
    y = function(whole)
    dy = drawn(y.shape, dtype, seed)
    (dx,) = torch.autograd.grad(y, whole, dy.double())
    return y.detach(), dy, dx


class Told(NamedTuple):
    """What a rank got and sent in a call and in its backward pass."""

    results: tuple[torch.Tensor, ...]
    given: torch.Tensor
    gradient: Any
    sent: list[int]
    backward: list[int]


def compared(
    group, call, of, x, dim=-1, sizes=None, cut=False, by_kernels=True, in_place=False,
    differentiable=True, times=1,
) -> Told:  # fmt: skip
    """Results and gradient of a call on parts of x are those `of` the whole in float64. Results
    that are `cut` are parts too, and others the same on all ranks."""
    mine = functools.partial(part, group=group, dim=dim, sizes=sizes)
    whole, leaf = x.double().clone().requires_grad_(), mine(x).requires_grad_()
    given = leaf * 1 if in_place else leaf
    with computed(by_kernels):
        call(leaf * 1)  # they agree
        with messages() as sent:
            found = as_tuple(call(given))
        expected = as_tuple(of(whole))
        assert len(found) == len(expected)
        dys = [drawn(w.shape, y.dtype, seed=5) for y, w in zip(found, expected)]
        which = [i for i, y in enumerate(found) if y.requires_grad]
        with messages() as backward:
            arriving = [mine(dys[i]) if cut else dys[i] for i in which]
            torch.autograd.backward([found[i] for i in which], arriving)
    wanted = [expected[i] for i in which], whole, [dys[i].double() for i in which]
    (gradient,) = torch.autograd.grad(*wanted)
    for y, of_all in zip(found, expected):
        of_all = mine(of_all) if cut else of_all
        assert y.is_contiguous() and y.shape == of_all.shape
        near(y.detach(), of_all.detach(), y.dtype, times)
    if differentiable:
        near(leaf.grad, mine(gradient), x.dtype, times)
    assert leaf.grad.dtype == x.dtype
    if not cut:
        same_bits(group, *found)
    return Told(found, given, leaf.grad, sent, backward)


def as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def normalized(group, name, shape, dim, dtype, by_kernels=True, sizes=None, values=None) -> None:
    """Softmax or log-softmax takes one message each way. Kernels send m and a sum for each row, or
    for each chunk of a long one; operators all elements."""
    x = drawn(shape, dtype) if values is None else torch.tensor(values, dtype=dtype)
    call, of = (lambda x: NORMALIZED[name](x, dim, group=group)), getattr(torch, name)
    told = compared(group, call, lambda x: of(x, dim), x, dim, sizes, True, by_kernels)
    assert told.results[0].dtype == dtype
    rows = math.prod(x.movedim(dim, -1).shape[:-1])
    word, n = 8 if dtype == torch.float64 else 4, x.shape[dim]
    widest = max(sizes or [bounds(group, n)[1] if group.rank() == 0 else -(-n // group.size())])
    of_row = 2 * word if by_kernels else widest * dtype.itemsize
    if by_kernels and widest >= plan.SHORTEST_PART and word == 4:
        of_row *= -(-widest // 8192)
    one = group.size() > 1 and x.numel() > 0
    assert told.sent == told.backward == ([of_row * rows] if one else [])


def summed_up(group, shape, dims, dtype, keepdim=False, by_kernels=True, values=None) -> None:
    """Log-sum-exp takes one message, and its gradient none, unless operators compute."""
    x = drawn(shape, dtype) if values is None else torch.tensor(values, dtype=dtype)
    told = compared(
        group,
        lambda x: logsumexp(x, dims, keepdim, group=group),
        lambda x: torch.logsumexp(x, dims, keepdim),
        x,
        dims if isinstance(dims, int) else dims[-1],
        by_kernels=by_kernels,
        differentiable=values is None,
    )
    assert told.results[0].dtype == dtype
    assert len(told.sent) == (group.size() > 1) and not told.backward


def loss(
    group, shape, dtype=torch.float64, by_kernels=True, weight=False, probabilities=False,
    sharded_weight=False, sizes=None, softcap=None, scale=1.0, z_loss=0.0, in_place=False,
    loss_dtype=None, small_targets=False, **more: Any,
) -> None:  # fmt: skip
    """Cross-entropy takes one message forward, and none backward."""
    dim = 0 if len(shape) == 1 else 1
    x = drawn(shape, dtype)
    n, rows = shape[dim], (*shape[:dim], *shape[dim + 1 :])
    target = torch.randint(n, rows, generator=torch.Generator().manual_seed(2))
    if small_targets:  # -100 would be 156 among them
        target = (target % 256).index_fill(0, torch.tensor([1]), 156)
    elif target.numel() > 2:
        target.view(-1)[1] = -100
        if x.dim() == 2 and not probabilities:
            x[1] = math.nan  # whatever an ignored row holds
    if probabilities:
        target = torch.softmax(drawn(shape, torch.float64, seed=3), dim).to(dtype)
    w = (drawn((n,), torch.float64, seed=4).abs() + 0.1).to(dtype) if weight else None
    arguments = {"softcap": softcap, "scale": scale, "z_loss": z_loss, "return_lse": True, **more}
    of = functools.partial(
        cross_entropy_of,
        target=target.double() if probabilities else target,
        weight=None if w is None else w.double(),
        **arguments,
    )
    p = part(target, group, dim, sizes) if probabilities else target
    p = p.to(torch.uint8) if small_targets else p
    given = w if not sharded_weight or w is None else part(w, group, 0, sizes)
    arguments |= {"inplace_backward": in_place, "loss_dtype": loss_dtype}
    if sizes is not None:
        arguments |= {"vocab_start": bounds(group, n, sizes)[0], "vocab_size": n}
    call = functools.partial(cross_entropy, target=p, weight=given, group=group, **arguments)
    told = compared(
        group, call, lambda x: of(x.nan_to_num()), x, dim, sizes, False, by_kernels, in_place
    )
    found, lse = told.results
    assert found.dtype == (loss_dtype or dtype)
    assert lse.dtype == (dtype if dtype == torch.float64 else torch.float32)
    unknown = sharded_weight or n in (sizes or ())  # whether all ranks have all weights
    further = (weight and unknown) + (probabilities and not by_kernels)
    assert len(told.sent) == (1 + further) * (group.size() > 1) and not told.backward
    # m, the target logit, and up to three sums
    most = 5 * lse.numel() * lse.itemsize
    assert not by_kernels or all(each <= most for each in told.sent[further:])
    if in_place and told.given.numel() and by_kernels:
        assert torch.equal(told.given.detach(), told.gradient)


def sends_what_is_promised(group) -> None:
    """A loss with class weights is a line and one message, at the first call and at later ones; and
    one of all weights if ranks have parts of them."""
    x, target = drawn((7, 13), torch.float32), torch.arange(7)
    weight, mesh = drawn((13,), torch.float32, seed=4).abs(), mesh_of((group.size(),))
    placed = distribute_tensor(x, mesh, [Shard(1)])
    mine = part(x, group)
    for epsilon in (0.0, 0.1):
        more = {"label_smoothing": epsilon}
        forms = [(False, mine, weight), (False, placed, weight)]
        forms += [(True, mine, part(weight, group))]
        forms += [(False, placed, distribute_tensor(weight, mesh, [Replicate()]))]
        forms += [(True, placed, distribute_tensor(weight, mesh, [Shard(0)]))]
        for cut, logits, each in forms:
            where = {"group": group} if logits is mine else {}
            with messages() as first:
                cross_entropy(logits, target, each, **where, **more)
            with CommDebugMode() as counted, messages() as later:
                cross_entropy(logits, target, each, **where, **more)
            assert later == [4 * 13] * cut + [4 * 7 * (5 if epsilon else 3)], (cut, epsilon, later)
            assert first == later and counted.get_total_counts() == 2 + cut  # with the line


def tokens(
    group, shape, dtype, k=None, entropy=True, temperature=1.0, by_kernels=True, in_place=False
) -> None:
    """Log-probabilities and entropies take one message forward, and none backward."""
    x, rows = drawn(shape, dtype), shape[:-1]
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(shape[-1], rows if k is None else (*rows, k), generator=generator)
    of = {"index": index, "return_entropy": entropy, "temperature": temperature}
    more = {**of, "inplace_backward": in_place, "group": group}
    told = compared(
        group,
        functools.partial(triton_softmax.token_logprobs, **more),
        functools.partial(tokens_of, **of),
        x,
        by_kernels=by_kernels,
        in_place=in_place,
    )
    wide = torch.promote_types(dtype, torch.float32)
    assert all(each.dtype == wide for each in told.results)
    assert len(told.sent) == (group.size() > 1) and not told.backward
    most = (3 + (k or 1)) * wide.itemsize * math.prod(rows) + 64
    assert not by_kernels or all(each <= most for each in told.sent)


def selective(group) -> None:
    """Both results of one token per row, in which masked rows may hold anything; as the whole."""
    x, index, mask = drawn((2, 3, 11)), torch.tensor([[0, 10, 4], [3, -100, 7]]), torch.ones(2, 3)
    mask = mask.long()
    mask[1, 1], x[1, 1] = 0, torch.nan
    given = {"index": index, "temperature": 0.7, "row_mask": mask}
    both = functools.partial(triton_softmax.selective_log_softmax_and_entropy, **given)
    of = functools.partial(tokens_of, return_entropy=True, **given)
    for by_kernels in (True, False):
        compared(group, functools.partial(both, group=group), of, x, by_kernels=by_kernels)
    compared_on_mesh(both, of, x, (group.size(),), [Shard(2)])


def lying_apart(group) -> None:
    """Tensors whose elements do not lie side by side, or are one: the same as for their copies."""
    x, (start, end) = drawn((13, 6)).T, bounds(group, 13)
    mine = x[:, start:end]
    assert not mine.is_contiguous()
    target = torch.randint(13, (12,), generator=torch.Generator().manual_seed(2))[::2]
    weight = drawn((26,), seed=4).abs()[::2] + 0.1
    index = target.unsqueeze(1).expand(6, 3)
    where = {"group": group, "vocab_start": start, "vocab_size": 13}

    def call(x, target, weight, index):
        leaf = x.detach().requires_grad_()
        each = cross_entropy(leaf, target, weight, reduction="none", **where)
        mean = cross_entropy(leaf, target, part(weight, group, 0), **where)
        found = triton_softmax.token_logprobs(leaf, index, return_entropy=True, **where)
        each.sum().backward()  # the gradient of each is one number, as are those that follow
        cross_entropy(leaf, target, inplace_backward=True, **where).backward()
        assert torch.equal(leaf, x)  # a leaf is not overwritten
        (mean + sum(out.sum() for out in found)).backward()
        return each, mean, *found, leaf.grad

    for by_kernels in (True, False):
        with computed(by_kernels):
            apart = call(mine, target, weight, index)
            copies = [each.clone(memory_format=torch.contiguous_format) for each in (mine, target)]
            beside = call(*copies, weight.clone(), index.clone())
        for one, other in zip(apart, beside, strict=True):
            near(one, other.detach(), torch.float64)
    expected = F.cross_entropy(x, target, weight, reduction="none")
    near(apart[0], expected, torch.float64)


def in_a_mode(group) -> None:
    """A mode is handed all arguments of a call, and so the result is that without it."""
    (start, end), target = bounds(group, 9), torch.tensor([0, 8, 4, 2])
    where = {"group": group, "vocab_start": start, "vocab_size": 9}
    mine = drawn((4, 9))[:, start:end].contiguous()
    for function in (cross_entropy, triton_softmax.token_logprobs):
        expected = function(mine, target, **where)
        with torch.device("cpu"):
            assert torch.equal(function(mine, target, **where), expected)


def launches_little(group) -> None:
    """A loss with its gradient is four kernels, and little else on its way between them."""
    start, end = bounds(group, 8)
    mine = drawn((4, 8), torch.float32)[:, start:end].contiguous().requires_grad_()
    target = torch.tensor([0, 7, -100, 3])
    where = {"group": group, "vocab_start": start, "vocab_size": 8}
    names: list[str] = []
    run = launch.Launch.run

    def counted(self, *tensors):
        names.append(self.kernel.__name__)
        with torch._C._DisableTorchDispatch():  # what the interpreter does is not counted
            run(self, *tensors)

    def call():
        cross_entropy(mine, target, **where).backward()

    with replaced((launch.Launch, "run", counted)), computed(True):
        call()
        names.clear()
        call()
        launched = [*names]
        with probe.Operators() as operators:
            call()
    kernels = "targets modified_rows modified_rows scale_rows".split()
    assert launched == [f"{each}_kernel" for each in kernels]
    assert sum("c10d" in name for name in operators.names) == 2  # a line, and a message
    assert len(operators.names) < 45  # half of them look at targets, on a CPU


@contextlib.contextmanager
def by_addresses():
    """Launches are repeated with addresses, as on a GPU: kernels in the interpreter get tensors
    that lie there, of the dtypes and sizes of the first launch."""
    run, repeated = launch.Launch.run, []

    def extent(t: torch.Tensor) -> int:
        return 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride())) if t.numel() else 0

    def there(address: int, like: torch.Tensor) -> torch.Tensor:
        n = extent(like)
        if not n or not address:
            return like.new_empty(0)
        # A kernel is compiled for pointers that lie as those of its first launch.
        assert like.data_ptr() % 16 or not address % 16
        memory = (ctypes.c_byte * (n * like.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=like.dtype)

    def first(self, inputs, outs, *more):
        run(self, inputs, outs, *more)
        likes = inputs, outs, more

        def at(addresses, results, *further):
            repeated.append(self.kernel.__name__)
            given = [
                tuple(map(there, each, like)) for each, like in zip((addresses, results), likes)
            ]
            words = [
                there(each, like) if isinstance(like, torch.Tensor) else each
                for each, like in zip(further, more)
            ]
            self.launch_at = None
            run(self, *given, *words)
            self.launch_at = at

        if self.launch_at is None:
            self.launch_at = at

    with replaced((launch.Launch, "run", first), (losses, "current_device", lambda: -1)):
        yield repeated


def loss_by_addresses(group, rows: int, n: int, dtype=torch.float32, **more: Any) -> None:
    """A loss whose kernels share memory by address is the same, call after call. Behind an odd
    number of words scalars would not be aligned: then calls go on by tensors."""
    x, target = drawn((rows, n), dtype), torch.arange(rows).mul(7 * n // 5) % n
    target[1] = -100
    with computed(True):
        mine = part(x, group)
        leaf = mine.clone().requires_grad_()
        call = functools.partial(cross_entropy, target=target, group=group, **more)
        expected = call(mine, return_lse=True)
        call(leaf).sum().backward()
        with by_addresses() as repeated:
            for _ in range(3):
                again = mine.clone().requires_grad_()
                for one, other in zip(call(mine, return_lse=True), expected, strict=True):
                    assert torch.equal(one, other)
                call(again).sum().backward()
                assert torch.equal(again.grad, leaf.grad)
        assert rows % 2 or {"split_rows_kernel", "modified_rows_kernel"} & {*repeated}


def enters_few_functions(group, name: str, most: int, files: int) -> None:
    """A later call with `group=` enters few functions of the library; see `test_way.py`."""
    mine, target = drawn((4, 8), torch.float32), torch.tensor([0, 7, 3, 4])
    calls = {
        "softmax": lambda: softmax(mine, group=group),
        "logsumexp": lambda: logsumexp(mine, group=group),
        "cross_entropy": lambda: cross_entropy(mine, target, group=group),
        "token_logprobs": lambda: triton_softmax.token_logprobs(mine, target, group=group),
    }
    with computed(True):
        way = probe.way_of(calls[name])
    assert 0 < len(way.frames) <= most, (len(way.frames), len(way.files), way.frames)
    assert len(way.files) <= files, sorted(way.files)


@functools.cache
def mesh_of(shape: tuple[int, ...]) -> DeviceMesh:
    """The first ranks as a mesh, with the softmax dimension along its last dimension."""
    names = ("rows", "classes")[-len(shape) :]
    return DeviceMesh("cpu", torch.arange(math.prod(shape)).view(shape), mesh_dim_names=names)


def compared_on_mesh(call, of, x, mesh_shape, placements, backward=0) -> tuple[Any, int]:
    """Results and gradient of a DTensor are those `of` the whole, without a message of a tensor's
    size: backward so many collectives. Return the results, and how many a call takes forward."""
    whole = x.clone().requires_grad_()
    given = distribute_tensor(x, mesh_of(mesh_shape), placements).requires_grad_()
    call(given)
    with CommDebugMode() as counted:
        found = as_tuple(call(given))
    expected, forward = as_tuple(of(whole)), counted.get_total_counts()
    dys = [drawn(each.shape, seed=5) for each in expected]
    gs = [distribute_tensor(dy, y.device_mesh, y.placements) for dy, y in zip(dys, found)]
    (gradient,) = torch.autograd.grad(expected, whole, dys)
    with CommDebugMode() as counted:
        torch.autograd.backward(found, gs)
    assert counted.get_total_counts() == backward, counted.get_comm_counts()
    for y, wanted in zip(found, expected, strict=True):
        assert isinstance(y, DTensor) and y.shape == wanted.shape and y.dtype == x.dtype
        near(y.full_tensor().detach(), wanted.detach(), x.dtype)
    assert given.grad.placements == given.placements
    near(given.grad.full_tensor(), gradient, x.dtype)
    return found, forward


def placed(group, name, mesh_shape, placements, shape, dim) -> None:
    """Softmax of a DTensor is placed as the DTensor is. A call takes a line and a message for each
    dimension of the mesh that cuts rows."""
    x, over, moved = drawn(shape), Shard(dim % len(shape)), {}
    ours, theirs, cuts = getattr(triton_softmax, name), getattr(torch, name), placements.count(over)
    kinds = [{}]
    if name == "logsumexp":
        moved = {over: Replicate()} | {Shard(i): Shard(i - 1) for i in range(over.dim + 1, x.dim())}
        kinds += [{"keepdim": True}]
    for more in kinds:
        call = functools.partial(ours, dim=dim, **more)
        of = functools.partial(theirs, dim=dim, **more)
        backward = 0 if moved else 2 * cuts
        (y,), forward = compared_on_mesh(call, of, x, mesh_shape, placements, backward)
        assert forward == 2 * cuts
        expected = [moved.get(each, each) for each in placements]
        assert more or list(y.placements) == expected


def placed_loss(group, mesh_shape, placements, shape, plain=True, **more: Any) -> None:
    """Cross-entropy of a DTensor is over all rows on the mesh."""
    mesh, n = mesh_of(mesh_shape), shape[1]
    generator = torch.Generator().manual_seed(2)
    target = torch.randint(n, (shape[0], *shape[2:]), generator=generator)
    target.view(-1)[::3] = -100
    weight = more.pop("weight", None) and drawn((n,), seed=4).abs() + 0.1
    of = functools.partial(F.cross_entropy, target=target, weight=weight, **more)
    if not plain:
        of_rows = [each if each == Shard(0) else Replicate() for each in placements]
        target = distribute_tensor(target, mesh, of_rows)
        if weight is not None:
            of_classes = [Shard(0) if each == Shard(1) else Replicate() for each in placements]
            weight = distribute_tensor(weight, mesh, of_classes)

    def call(x):
        found, lse = cross_entropy(x, target, weight, return_lse=True, **more)
        assert lse.shape == target.shape
        return found

    (found,), _ = compared_on_mesh(call, of, drawn(shape), mesh_shape, placements)
    if more.get("reduction") != "none":
        assert all(each.is_replicate() for each in found.placements)
        same_bits(group, found.to_local())


def placed_probabilities(group) -> None:
    """The targets of a DTensor have a gradient of their own."""
    mesh, placements = mesh_of((2, 2)), [Shard(0), Shard(1)]
    tensors = drawn((4, 6)), torch.softmax(drawn((4, 6), seed=3), -1)
    for reduction in ("mean", "sum"):
        leaves = [each.clone().requires_grad_() for each in tensors]
        gradients = torch.autograd.grad(F.cross_entropy(*leaves, reduction=reduction), leaves)
        given = [distribute_tensor(each, mesh, placements).requires_grad_() for each in tensors]
        cross_entropy(*given, reduction=reduction).backward()
        for leaf, gradient in zip(given, gradients, strict=True):
            near(leaf.grad.full_tensor(), gradient, torch.float64)


def placed_tokens(group) -> None:
    """Tokens and entropies of a DTensor."""
    index = torch.randint(13, (5,), generator=torch.Generator().manual_seed(2))
    given = {"index": index, "return_entropy": True}
    ours, theirs = (
        functools.partial(f, **given) for f in (triton_softmax.token_logprobs, tokens_of)
    )
    compared_on_mesh(ours, theirs, drawn((5, 13)), (2, 2), [Shard(0), Shard(1)])


def placed_out_of_order(group) -> None:
    """The gradients of a DTensor and of a bias, whose columns are adjacent and in uneven parts, are
    placed as they are, without a message of their own."""
    mesh, over = mesh_of((2,)), [Shard(1)]
    x, bias = drawn((13, 5)).T, drawn((13, 5), seed=3).T
    whole = x.clone().requires_grad_(), bias.clone().requires_grad_()
    expected = torch.softmax(sum(whole), 1)
    dy = drawn((5, 13), seed=1)
    gradients = torch.autograd.grad(expected, whole, dy)
    given, more = (distribute_tensor(each, mesh, over).requires_grad_() for each in (x, bias))
    assert given.stride() == more.stride() == (1, 5)
    y, dy = softmax(given, 1, bias=more), distribute_tensor(dy, mesh, over)
    with CommDebugMode() as counted:
        y.backward(dy)
    assert counted.get_total_counts() == 2, counted.get_comm_counts()
    for each, gradient in zip((given, more), gradients):
        assert each.grad.placements == each.placements
        near(each.grad.full_tensor(), gradient, torch.float64)


def partial(group) -> None:
    """Partial placements are reduced first."""
    mesh = mesh_of((group.size(),))
    x = drawn((4, 6))
    each = x * (group.rank() + 1)
    given = DTensor.from_local(each, mesh, [Partial()])
    y = softmax(given, -1)
    assert y.placements == (Replicate(),)
    n = group.size()
    near(y.full_tensor(), torch.softmax(x * n * (n + 1) / 2, -1), torch.float64)


def compiled_as_on_one(group, name: str) -> None:
    """Under `torch.compile` too; parts that differ in size are refused on every rank."""
    function, options = INVARIANT[name]
    more: dict[str, Any] = {"batch_invariant": True, **options}
    if function is cross_entropy:
        more["target"] = torch.tensor([0, 7, -100])
    x, g = drawn((3, 8 * group.size()), torch.float32), {"group": group}
    torch.compiler.reset()
    one, mine = x.clone().requires_grad_(), part(x, group).requires_grad_()
    wanted = function(one, **more)
    found = torch.compile(lambda x: function(x, **more, **g), backend="aot_eager", fullgraph=True)(
        mine
    )
    (wanted if function is cross_entropy else wanted.square()).sum().backward()
    (found if function is cross_entropy else found.square()).sum().backward()
    assert torch.equal(found, part(wanted, group) if function is softmax else wanted)
    assert torch.equal(mine.grad, part(one.grad, group))
    if function is cross_entropy:
        g |= {"vocab_start": 0, "vocab_size": 8 * group.size() + 1}
        call = torch.compile(
            lambda x: function(x, **more, **g), backend="aot_eager", fullgraph=True
        )
        raises(Exception, "of the same size", call, mine.detach())


def columns_as_on_one(group) -> None:
    """Rows along another dimension than the last, which one rank cuts as columns, and capped logits
    of tokens, which PyTorch would cap, have the bits of whole rows."""
    x = drawn((16384, 2), torch.float32)
    found = softmax(part(x, group, 0), 0, batch_invariant=True, group=group)
    assert torch.equal(found, part(softmax(x, 0, batch_invariant=True), group, 0))
    x, given = drawn((12, 16384), torch.float32), {"softcap": 2.0, "batch_invariant": True}
    index = 1200 * torch.arange(12)
    found = triton_softmax.token_logprobs(part(x, group), index, group=group, **given)
    assert torch.equal(found, triton_softmax.token_logprobs(x, index, **given))


def in_any_company(group, name: str) -> None:
    """A row has the same bits alone and among others: of parts of rows, and of a DTensor wherever
    its rows lie."""
    target = torch.tensor([0, 299, 5, 7, 150, 4])

    def function(x, rows, **more):
        if name == "cross_entropy":
            return cross_entropy(x, target[rows], reduction="none", **more)
        target_too = (target[rows],) if name == "token_logprobs" else ()
        return getattr(triton_softmax, name)(x, *target_too, **more)

    asked, planners = [], {"make_plan": plan, "_plan_tokens": plan_tokens}
    planned = {which: getattr(module, which) for which, module in planners.items()}

    def noted(which, *given):
        asked.append([each for each in given if isinstance(each, bool)][-1])
        return planned[which](*given)

    x, dy = drawn((6, 300), torch.float32), drawn((6, 300), torch.float32, seed=1)
    both = [Replicate(), Replicate()], [Shard(0), Replicate()], [Shard(0), Shard(1)]
    for placements in (*both, [Shard(1)]):
        found, mesh = [], mesh_of((4,) if len(placements) == 1 else (2, 2))
        for rows in (slice(None), slice(3, 4)):
            given = distribute_tensor(x[rows], mesh, placements).requires_grad_()
            places = [(m, which, functools.partial(noted, which)) for which, m in planners.items()]
            with replaced(*places), computed(True):
                asked.clear()
                if mesh.ndim == 1:  # as parts of the rows
                    y = function(given.to_local(), rows, batch_invariant=True, group=group)
                    y = DTensor.from_local(y, mesh, placements if y.dim() == 2 else [Replicate()])
                else:
                    y = function(given, rows, batch_invariant=True)
                assert all(asked) and (asked or not given.to_local().numel())
            g = dy[rows] if y.dim() == 2 else dy[rows, 0]
            y.backward(distribute_tensor(g.contiguous(), y.device_mesh, y.placements))
            at = 3 if len(x[rows]) > 1 else 0
            found.append((y.full_tensor()[at], given.grad.full_tensor()[at]))
        assert all(map(torch.equal, *found))
        whole = distribute_tensor(x, mesh_of((2, 2)), [Shard(0), Replicate()])
        if y.dim() == 2:
            with computed(True):
                one = x[:1] if dist.get_rank() < 2 else x[3:4]
                alone = function(one, None, batch_invariant=True)
            rows = function(whole, None, batch_invariant=True).to_local()
            assert torch.equal(rows[:1], alone)


def refused(group) -> None:
    """What cannot be done is said, on every rank."""
    whole, mesh, both = drawn((4, 8)), mesh_of((2, 2)), [Shard(0), Shard(1)]
    x = distribute_tensor(whole, mesh, [Shard(1), Shard(1)])
    raises(NotImplementedError, "'rows', 'classes'", softmax, x, 1)
    for placements in ([Shard(0), Replicate()], both):
        x = distribute_tensor(whole, mesh, placements)
        raises(NotImplementedError, "causal, sink and out", softmax, x, 1, causal=True)
    raises(ValueError, "leave out group=", softmax, x, 1, group=group)
    raises(IndexError, "out of range", softmax, x, 2)
    raises(TypeError, "int64", softmax, distribute_tensor(whole.long(), mesh, both), 1)
    first = dist.get_rank() < 2  # has the row with a target that is none
    words = "Target 8 is out of bounds" if first else "on a rank that has other rows"
    raises(IndexError, words, cross_entropy, x, torch.tensor([1, 8, 2, 3]))
    mine = part(drawn((4, 9)), group)
    raises(IndexError, "out of range", softmax, mine, 2, group=group)
    raises(TypeError, "int64", softmax, mine.long(), 1, group=group)
    raises(TypeError, "ProcessGroup", softmax, mine, 1, group="classes")
    target = torch.tensor([0, 8, 9, 1])
    raises(IndexError, "Target 9 is out of bounds", cross_entropy, mine, target, group=group)
    raises(
        ValueError, "vocab_size as well", cross_entropy, mine, target, group=group, vocab_start=3
    )
    raises(IndexError, "index 9", triton_softmax.token_logprobs, mine, target, group=group)
    for function in (cross_entropy, triton_softmax.token_logprobs):  # by itself it is a check
        checked = {"group": group, "vocab_size": 9}
        assert torch.equal(
            function(mine, target % 9, **checked), function(mine, target % 9, group=group)
        )
        raises(ValueError, "together not 9", function, drawn((4, 9)), target % 9, **checked)
    # Nobody is left waiting.
    dist.barrier(group)


def refuses_lists(group) -> None:
    """What is no tensor is named, of a part of the rows and of a DTensor."""
    target, tokens = torch.tensor([0, 8, 0, 1]), triton_softmax.token_logprobs
    mine, mesh = part(drawn((4, 9)), group), mesh_of((group.size(),))
    for bad in ([1.0, 2.0], None, 3, drawn((4, 9)).numpy()):
        for function in (softmax, log_softmax, logsumexp):
            for more in ({}, {"dim": (0, 1)}):
                raises(TypeError, "input must be", function, bad, group=group, **more)
        raises(TypeError, "input must be", softmax, bad, group=group, scale=2.0)
        raises(TypeError, "input must be", cross_entropy, bad, target, group=group)
        for temperature in (1.0, 0.5, torch.tensor(0.5)):
            more = {"temperature": temperature, "group": group}
            raises(TypeError, "input must be", tokens, bad, target, **more)
        for x in (mine, *[distribute_tensor(drawn((4, 9)), mesh, [Shard(i)]) for i in (0, 1)]):
            more = {"group": group} if x is mine else {}
            raises(TypeError, "target must be", cross_entropy, x, bad, **more)
            raises(TypeError, "index must be", tokens, x, bad, **more)
            if bad is None:
                continue
            raises(TypeError, "weight must be", cross_entropy, x, target, bad, **more)
            raises(TypeError, "where must be", softmax, x, where=bad, **more)
            raises(TypeError, "dtype must be", softmax, x, dtype=bad, **more)
            if not isinstance(bad, int):
                raises(TypeError, "temperature must be", tokens, x, target, temperature=bad, **more)
                raises(TypeError, "dim must be", softmax, x, bad, **more)


def with_maps(group, name: str, on_mesh: bool = False) -> None:
    """Scale, soft cap, bias, masks and safe are those of the whole."""
    x, dy = drawn((5, 7)), drawn((5, 7), seed=1)
    where = torch.rand(5, 7, generator=torch.Generator().manual_seed(3)) > 0.3
    where[2] = False
    where[3, :4] = False
    scale = 0.7 if on_mesh else drawn((5, 1), seed=4).abs() + 0.5
    more = {"scale": scale, "softcap": 4.0, "safe": True}
    bias, whole = drawn((5, 7), seed=2), x.clone().requires_grad_()
    with computed(False):
        expected = NORMALIZED[name](whole, where=where, bias=bias, **more)
        dy = torch.where(expected.isfinite(), dy, 0.0)
        (gradient,) = torch.autograd.grad(expected, whole, dy)
    mesh = mesh_of((group.size(),))
    given = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    if on_mesh:
        y = NORMALIZED[name](given, where=where, bias=bias, **more)
    else:
        maps = {"where": part(where, group), "bias": part(bias, group)}
        y = NORMALIZED[name](given.to_local(), group=group, **maps, **more)
        raises(NotImplementedError, "causal", softmax, y, group=group, sink=0.0)
        y = DTensor.from_local(y, mesh, [Shard(1)], shape=x.shape, stride=x.stride())
    near(y.full_tensor().detach(), expected.detach(), torch.float64)
    dy = distribute_tensor(dy, mesh, [Shard(1)])
    for again in (True, False):  # a graph of the gradient changes no number
        (found,) = torch.autograd.grad(y, given, dy, retain_graph=again, create_graph=again)
        near(found.full_tensor().detach(), gradient, torch.float64)


INVARIANT = {
    "softmax": (softmax, {}),
    "tempered": (softmax, {"scale": 0.7, "softcap": 20.0}),
    "log_softmax": (log_softmax, {}),
    "logsumexp": (logsumexp, {}),
    "mean": (cross_entropy, {"label_smoothing": 0.1, "z_loss": 1e-3}),
    "sum": (cross_entropy, {"reduction": "sum", "return_lse": True}),
    "none": (cross_entropy, {"reduction": "none", "softcap": 5.0}),
    "weighted": (cross_entropy, {"weight": True}),
    "both": (cross_entropy, {"weight": True, "label_smoothing": 0.1}),
    "tokens": (triton_softmax.token_logprobs, {"return_entropy": True}),
    "several": (triton_softmax.token_logprobs, {"index": 3}),
    "cooled": (triton_softmax.token_logprobs, {"temperature": 0.7, "return_entropy": True}),
    "by-rows": (triton_softmax.token_logprobs, {"temperature": True, "return_entropy": True}),
}
"""Functions that give a row the same bits on one rank and on several, and options of theirs."""


def slice_of(group, x: torch.Tensor) -> torch.Tensor:
    """This rank's part where it lies, with rows that do not begin on vectors."""
    start, end = bounds(group, x.shape[-1])
    return F.pad(x, (1, 0)).narrow(-1, 1 + start, end - start)


def same_as_on_one(
    group, name, shape, dtype=torch.float32, sizes=None, context=False, mesh=(), where=False,
    apart=False,
) -> None:  # fmt: skip
    """Results and gradients are, to the bit, those of whole rows. A result takes one message,
    of less than a twelfth of this rank's elements, if rows are long; with weights and smoothing
    of all of them. `apart`: parts are slices of the whole, whose rows do not lie on vectors."""
    mine_of = functools.partial(part, group=group, sizes=sizes)
    if apart:
        mine_of = functools.partial(slice_of, group)
    function, options = INVARIANT[name]
    x, n_rows = drawn(shape, dtype), math.prod(shape[:-1])
    more: dict[str, Any] = {}
    if function in (cross_entropy, triton_softmax.token_logprobs):
        target = torch.arange(n_rows).mul(7).add(5 * shape[-1] // 8 + 3) % shape[-1]
        if function is cross_entropy:
            target[n_rows // 2] = -100
            more = {"vocab_start": bounds(group, shape[-1], sizes)[0], "vocab_size": shape[-1]}
        k, weight = options.get("index"), options.get("weight")
        target = target.unsqueeze(1).repeat(1, k) if k else target
        options = {**options, "target" if function is cross_entropy else "index": target}
        if weight:
            options["weight"] = drawn(shape[-1:], dtype, seed=2).abs()
        if options.get("temperature") is True:
            options["temperature"] = drawn((n_rows, 1), torch.float32, seed=2).abs() + 0.5
    more = more if where else {}
    invariant = {} if context else {"batch_invariant": True}
    with batch_invariant() if context else contextlib.nullcontext():
        one = x.clone().requires_grad_()
        mine = mine_of(x).requires_grad_()
        if mesh:
            placements = [Shard(0), Shard(1)][-len(mesh) :]
            mine = distribute_tensor(x, mesh_of(mesh), placements).requires_grad_()
        else:
            more["group"] = group
        wanted = function(one, **options, **invariant)
        function(mine, **options, **invariant, **more)  # they agree
        with messages() as sent:
            found = function(mine, **options, **invariant, **more)
        assert len(sent) == 1
        if shape[-1] >= 16384:
            assert (12 * sent[0] < x.nbytes // group.size()) == (name != "both")
    several = isinstance(wanted, tuple)
    for w, f in zip(wanted if several else [wanted], found if several else [found], strict=True):
        f = f.full_tensor() if mesh else f
        cut = not mesh and name in ("softmax", "tempered", "log_softmax")
        assert torch.equal(part(w, group, -1, sizes) if cut else w, f)
    w, f = (wanted[0], found[0]) if several else (wanted, found)
    dy = drawn(w.shape, w.dtype, seed=1)
    if mesh:
        kinds = f.placements
        g = distribute_tensor(dy, f.device_mesh, kinds)
    else:
        g = mine_of(dy) if w.shape == x.shape else dy
    (wanted,) = torch.autograd.grad(w, one, dy)
    (found,) = torch.autograd.grad(f, mine, g)
    if mesh:
        assert torch.equal(found.full_tensor(), wanted)
    else:
        assert torch.equal(found, part(wanted, group, -1, sizes))


PARTS = {
    "softmax": (softmax, {}),
    "log_softmax": (log_softmax, {}),
    "modified": (softmax, {"scale": 0.7, "softcap": 5.0}),
    "logsumexp": (logsumexp, {}),
    "mean": (cross_entropy, {"z_loss": 1e-3}),
    "none": (cross_entropy, {"reduction": "none"}),
    "smoothed": (cross_entropy, {"label_smoothing": 0.1, "reduction": "sum"}),
    "in place": (cross_entropy, {"inplace_backward": True}),
    "capped": (cross_entropy, {"softcap": 5.0, "scale": 0.7}),
    "weighted": (cross_entropy, {"weight": True}),
    "both": (cross_entropy, {"weight": True, "label_smoothing": 0.1}),
    "probabilities": (cross_entropy, {"probabilities": True}),
    "tokens": (triton_softmax.token_logprobs, {"return_entropy": True}),
    "several": (triton_softmax.token_logprobs, {"k": 3, "temperature": 0.6}),
}
"""Functions of long rows, and options."""


def in_parts(group, name: str, sizes: list[int], dtype=torch.float32, n_rows=3) -> None:
    """A rank is a chunk: results and gradients are those of whole rows, whatever the sizes of
    parts. A call sends one message, of at most 192 bytes for a row of 65,536 columns, and backward
    one if its gradient has a sum of its own."""
    function, options = PARTS[name]
    options, n = {**options}, sum(sizes)
    x, generator = drawn((n_rows, n), dtype), torch.Generator().manual_seed(2)
    target = torch.randint(n, (n_rows,), generator=generator)
    for row, at in enumerate((sizes[0] - 1, sizes[0], n - 1)):  # beside the borders of parts
        target[row] = min(max(at, 0), n - 1)
    more, weight, cut = {}, None, function in (softmax, log_softmax)
    if cut:
        of = functools.partial(
            softmax_of, dim=-1, log=function is log_softmax, safe=False, **options
        )
    elif function is logsumexp:
        of = functools.partial(torch.logsumexp, dim=-1)
    elif function is cross_entropy:
        target[1] = -100
        weight = drawn((n,), dtype, seed=4).abs() + 0.1 if options.pop("weight", None) else None
        if options.pop("probabilities", False):
            target = torch.softmax(drawn((n_rows, n), seed=3), -1)
            more["target"] = part(target.to(dtype), group, -1, sizes)
        wide = None if weight is None else weight.double()
        of = functools.partial(cross_entropy_of, target=target, weight=wide, **options)
        more = {"target": target, "weight": weight, **more}
    else:
        k = options.pop("k", None)
        more = {"index": target if k is None else target.unsqueeze(1).repeat(1, k)}
        of = functools.partial(tokens_of, **more, **options)
    call = functools.partial(function, **options, **more, group=group)
    told = compared(group, call, of, x, -1, sizes, cut, in_place=True, times=10)
    most = n_rows * 192 * max(1, -(-max(sizes) // 65_536))
    *of_weights, of_words = told.sent  # which travel if one rank may have all classes
    assert len(of_weights) == (weight is not None and n in sizes) and of_words <= most, told.sent
    assert len(told.backward) == cut and sum(told.backward) <= most, told.backward


def raises(kind: type[Exception], words: str, function, *arguments, **more) -> None:
    with pytest.raises(kind, match=re.escape(words) or None):
        function(*arguments, **more)


def checked_by_differences(group, name: str) -> None:
    """`gradcheck` of the whole, of which each rank has a part: all ranks take the same steps."""
    start, end = bounds(group, 5)

    def summed(t):
        """Of all ranks."""
        total = t.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    def given(x):
        """The part that this rank has of the whole; the gradient of the whole is that of all."""
        whole = x.clone()
        whole.register_hook(summed)
        return part(whole, group)

    def put(y):
        """The whole of which each rank has a part, and this one its gradient."""
        mine = F.pad(y, (start, 5 - end))
        return mine + (summed(mine) - mine.detach())

    target = torch.tensor([0, 4, -100])
    functions = {
        "softmax": lambda x: put(softmax(given(x), group=group)),
        "log_softmax": lambda x: put(log_softmax(given(x), group=group)),
        "logsumexp": lambda x: logsumexp(given(x), group=group),
        "cross_entropy": lambda x: cross_entropy(
            given(x), target, group=group, label_smoothing=0.1, z_loss=0.01
        ),
        "token_logprobs": lambda x: triton_softmax.token_logprobs(
            given(x), target.clamp(min=0), group=group, return_entropy=True
        ),
    }
    x = drawn((3, 5)).requires_grad_()
    with computed(False):
        assert torch.autograd.gradcheck(functions[name], (x,))


def in_blocks(group) -> None:
    """Many rows are several messages, with the same result; each begins on a vector, whatever the
    length of rows."""
    for n, dtype in ((14, torch.float32), (4101, torch.bfloat16)):
        x = drawn((21, n), dtype)
        expected, dy, gradient = of_the_whole(lambda x: torch.softmax(x, 1), x, dtype)
        mine = part(x, group).requires_grad_()
        small = (process_group, "BLOCK_BYTES", 1), (process_group, "ROWS", 10)
        with replaced(*small), computed(True):
            softmax(mine, group=group)
            with messages() as sent:
                y = softmax(mine, group=group)
                y.backward(part(dy, group))
        assert sent == [8 * 8, 8 * 13] * 2
        near(y, part(expected, group), dtype)
        near(mine.grad, part(gradient, group), dtype)


def refused_whenever(group) -> None:
    """What a part may not be is refused in later calls, too, as in the first; and a batch of
    gradients of a part with score modifiers, whose sums are over this rank's columns alone."""
    x = drawn((4, 6), torch.float32)
    for _ in range(2):
        softmax(x, group=group)
        logsumexp(x, 1, group=group)
        raises(TypeError, "sparse", softmax, x.to_sparse(), group=group)
        raises(TypeError, "sparse", logsumexp, x.to_sparse(), 1, group=group)
    y = softmax(x.requires_grad_(), scale=0.5, group=group)
    dys = torch.ones(3, *y.shape)
    raises(RuntimeError, "", torch.autograd.grad, y, x, dys, is_grads_batched=True)


def compiled(group, name: str, placements: Any = None, apart: bool = False) -> None:
    """Under `torch.compile`, without a break of the graph, through a functional collective: of a
    part of the rows, whose elements may lie apart, or of a DTensor."""
    x, target = drawn((5, 9), torch.float32), torch.tensor([0, 7, 3, 8, -100])
    start, _ = bounds(group, 9)
    more: dict[str, Any] = {"group": group}
    if name == "cross_entropy":
        weight = part(drawn((9,), torch.float32, seed=4).abs(), group)
        more |= {"target": target, "vocab_start": start, "vocab_size": 9, "weight": weight}
    if name == "token_logprobs":
        index = target.clamp(min=0)
        more |= {"index": index, "vocab_start": start, "vocab_size": 9, "temperature": 0.7}
    if name == "modified":
        where = drawn((5, 9), seed=2) > -2
        where[3] = False
        x = x.masked_fill(~where, math.nan)  # whatever a masked element holds
        bias = part(drawn((5, 9), torch.float32, seed=3), group)
        more |= {"scale": 0.7, "softcap": 2.0, "bias": bias}
        more |= {"where": part(where, group), "safe": True}
    if placements is not None:
        more = {"target": target} if name == "cross_entropy" else {}

    def call(x):
        return getattr(triton_softmax, "softmax" if name == "modified" else name)(x, **more)

    def given() -> torch.Tensor:
        if placements is None:
            mine = part(x, group)
            return (mine.mT.contiguous().mT if apart else mine).requires_grad_()
        return distribute_tensor(x, mesh_of((2,)), placements).requires_grad_()

    graphs = []
    torch.compiler.reset()  # it compiles one function so often only

    def backend(graph, inputs):
        graphs.append(graph.print_readable(print_output=False))
        return aot_eager(graph, inputs)

    one, other = given(), given()
    expected = call(one)
    expected.square().sum().backward()
    found = torch.compile(call, backend=backend, fullgraph=True)(other)
    found.square().sum().backward()
    # Rows that are whole are sent nowhere; but a mean is over all rows.
    cut = placements is None or placements == [Shard(1)]
    cut |= name == "cross_entropy" and placements == [Shard(0)]
    assert len(graphs) == 1 and ("all_gather" in graphs[0]) == cut, graphs
    for actual, wanted in ((found.detach(), expected.detach()), (other.grad, one.grad)):
        if placements is not None:
            assert actual.placements == wanted.placements
            actual, wanted = actual.full_tensor(), wanted.full_tensor()
        near(actual, wanted, torch.float32)


def without_processors(group) -> None:
    """A group without a backend for CPUs, as one of NCCL: its lines travel over another, although
    its ranks are in different numbers of groups."""
    with replaced((dist, "get_backend_config", lambda group: "cuda:nccl")):
        process_group.agreements.pop(group, None)
        for n in (7, 8):
            x = drawn((2, n))
            y = softmax(part(x, group), group=group)
            near(y, part(torch.softmax(x, 1), group), torch.float64)
        assert process_group.agreements.pop(group).channel is not group


def dies(group, seconds: float) -> None:
    """The others get an error when a rank is gone, within the time-out of the group."""
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=seconds), group)
    x = drawn((4, 5), torch.float32)
    softmax(x, group=group)
    if group.rank() == 1:
        os._exit(1)
    raises(RuntimeError, "", softmax, x, group=group)
