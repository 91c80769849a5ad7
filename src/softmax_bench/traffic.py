"""The memory traffic of every rung: how many elements it reads and writes for a matrix of M rows
and N columns.

Softmax computes little and moves much, so on a GPU its time is the time of its memory traffic.
These are the elements that the code asks for; a cache may answer a second read of the same row,
which is why a measurement can come out ahead of the count, never behind it for a lack of traffic.
Nothing here is measured in time, and nothing typed: tests count the accesses of the real code with
`count_elements`.

The naive softmax in PyTorch, line by line:

>>> for line, traffic in NAIVE_LINES.items():
...     print(f"{line:<55}{traffic}")
x_max = x.amax(dim=-1, keepdim=True)                   reads MN, writes M
z = x - x_max                                          reads MN + M, writes MN
numerator = z.exp()                                    reads MN, writes MN
denominator = numerator.sum(dim=-1, keepdim=True)      reads MN, writes M
y = numerator / denominator                            reads MN + M, writes MN
>>> print(FORWARD["naive"])
reads 5MN + 2M, writes 3MN + 2M

A kernel that reads x once and writes y once is what it can be measured against. The gain is a
little over 4 at best:

>>> print(FORWARD["single_block"])
reads MN, writes MN
>>> round(best_gain(4096, 1024), 3)
4.002
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch


class Traffic(NamedTuple):
    """Elements read and written for M rows and N columns: multiples of MN, for matrices, and of M,
    for columns of row statistics."""

    reads_mn: int = 0
    writes_mn: int = 0
    reads_m: int = 0
    writes_m: int = 0

    def reads(self, M: int, N: int) -> int:
        """Elements read."""
        return self.reads_mn * M * N + self.reads_m * M

    def writes(self, M: int, N: int) -> int:
        """Elements written."""
        return self.writes_mn * M * N + self.writes_m * M

    def elements(self, M: int, N: int) -> int:
        """Elements read and written."""
        return self.reads(M, N) + self.writes(M, N)

    def __str__(self) -> str:
        """As a sentence: reads 5MN + 2M, writes 3MN + 2M."""
        reads = _linear(self.reads_mn, self.reads_m)
        return f"reads {reads}, writes {_linear(self.writes_mn, self.writes_m)}"

    @property
    def formula(self) -> str:
        """Reads and writes together.

        >>> FORWARD["naive"].formula, BACKWARD["two_loops"].formula
        ('8MN + 4M', '5MN')
        """
        return _linear(self.reads_mn + self.writes_mn, self.reads_m + self.writes_m)


def _linear(mn: int, m: int) -> str:
    terms = [
        f"{count if count > 1 else ''}{unit}" for count, unit in ((mn, "MN"), (m, "M")) if count
    ]
    return " + ".join(terms) or "nothing"


def _total(lines: dict[str, Traffic]) -> Traffic:
    return Traffic(*map(sum, zip(*lines.values(), strict=True)))


NAIVE_LINES = {
    "x_max = x.amax(dim=-1, keepdim=True)": Traffic(reads_mn=1, writes_m=1),
    "z = x - x_max": Traffic(reads_mn=1, reads_m=1, writes_mn=1),
    "numerator = z.exp()": Traffic(reads_mn=1, writes_mn=1),
    "denominator = numerator.sum(dim=-1, keepdim=True)": Traffic(reads_mn=1, writes_m=1),
    "y = numerator / denominator": Traffic(reads_mn=1, reads_m=1, writes_mn=1),
}
"""The forward pass of [`softmax_naive_torch`][softmax_tutorial.reference.softmax_naive_torch]: each
line with the traffic of the kernel that it launches."""

NAIVE_BACKWARD_LINES = {
    "product = y * dy": Traffic(reads_mn=2, writes_mn=1),
    "s = product.sum(dim=-1, keepdim=True)": Traffic(reads_mn=1, writes_m=1),
    "difference = dy - s": Traffic(reads_mn=1, reads_m=1, writes_mn=1),
    "dx = y * difference": Traffic(reads_mn=2, writes_mn=1),
}
"""The backward pass, [`softmax_vjp_torch`][softmax_tutorial.reference.softmax_vjp_torch], line by
line."""

LIBRARY = ("packed_rows", "aligned_rows", "split_rows", "strided")
"""The library's kernels, which read each element once, as the single block does."""

FORWARD = {
    "naive": _total(NAIVE_LINES),
    "single_block": Traffic(reads_mn=1, writes_mn=1),
    "three_loops": Traffic(reads_mn=3, writes_mn=1),
    "two_loops": Traffic(reads_mn=2, writes_mn=1),
    **dict.fromkeys(LIBRARY, Traffic(reads_mn=1, writes_mn=1)),
}
"""Elements moved by the forward pass of each kernel. `split_rows` exchanges a few words per
program besides."""

BACKWARD = {
    "naive": _total(NAIVE_BACKWARD_LINES),
    "single_block": Traffic(reads_mn=2, writes_mn=1),
    "three_loops": Traffic(reads_mn=4, writes_mn=1),
    "two_loops": Traffic(reads_mn=4, writes_mn=1),
    **dict.fromkeys(LIBRARY, Traffic(reads_mn=2, writes_mn=1)),
}
"""Elements moved by the backward pass of each kernel, for softmax. Both `three_loops` and
`two_loops` run it in two loops."""


def best_gain(M: int, N: int) -> float:
    """How many times less the best possible forward pass moves than the naive one: (8MN + 4M) /
    2MN.

    >>> best_gain(4096, 8)
    4.25
    """
    return FORWARD["naive"].elements(M, N) / FORWARD["single_block"].elements(M, N)


def attention_elements(n_queries: int, n_keys: int, block_queries: int) -> int:
    """Elements moved by scalar attention in one loop: each program reads its queries, and all keys
    and values.

    >>> attention_elements(n_queries=256, n_keys=256, block_queries=64)
    2560
    """
    programs = -(-n_queries // block_queries)
    return n_queries + programs * 2 * n_keys + n_queries


@dataclass
class Count:
    """Elements counted so far."""

    reads: int = 0
    writes: int = 0


@contextlib.contextmanager
def count_elements() -> Iterator[Count]:
    """Count what is read and written in this block, by PyTorch operations and by interpreted
    kernels.

    An operation reads each of its tensors once and writes its result once; views move nothing. A
    kernel, which must run in the interpreter (TRITON_INTERPRET=1), moves the elements that its
    loads and stores do not mask out.

    >>> import torch
    >>> from softmax_tutorial.reference import softmax_naive_torch
    >>> x = torch.randn(10, 100)
    >>> with count_elements() as count:
    ...     _ = softmax_naive_torch(x)
    >>> count, FORWARD["naive"].reads(10, 100), FORWARD["naive"].writes(10, 100)
    (Count(reads=5020, writes=3020), 5020, 3020)
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_leaves
    from triton.runtime import interpreter

    count = Count()

    def elements(tree) -> int:
        return sum(t.numel() for t in tree_leaves(tree) if isinstance(t, torch.Tensor))

    class CountOperations(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), kwargs=None):
            result = function(*arguments, **(kwargs or {}))
            if not (function.is_view or "empty" in function.__name__):  # these move nothing
                count.reads += elements((arguments, kwargs))
                count.writes += elements(result)
            return result

    executor_class: Any = interpreter.GridExecutor
    builder: Any = interpreter.interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store
    original_launch = executor_class.__call__

    def counted_load(pointers, mask, *rest):
        count.reads += int(mask.data.sum())
        return load(pointers, mask, *rest)

    def counted_store(pointers, value, mask, *rest):
        count.writes += int(mask.data.sum())
        return store(pointers, value, mask, *rest)

    def launch(executor, *arguments, **kwargs):
        with _disable_current_modes():  # a kernel's arguments are copied to the host and back
            return original_launch(executor, *arguments, **kwargs)

    with (
        patch.object(executor_class, "__call__", launch),
        patch.object(builder, "create_masked_load", counted_load),
        patch.object(builder, "create_masked_store", counted_store),
        CountOperations(),
    ):
        yield count
