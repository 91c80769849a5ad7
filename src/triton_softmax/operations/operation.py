"""The form of an operation: what a part of a row contributes, how parts merge, what is written.

All operations have the same shape. A row is summarised by its largest element m (where the
operation asks for it) and by sums of terms, one term for each element and sum, taken relative to m.
Most have one sum. Two parts of a row merge by bringing the sums of both to the larger m and adding
them. Then every element of the result follows from the element and the summary, and what there is
one of for the row follows from the summary alone.

| | terms of an element | element of the result | of the row |
| --- | --- | --- | --- |
| softmax | exp(x − m) | term / sum | |
| log-softmax | exp(x − m) | (x − m) − log(sum) | |
| log-sum-exp | exp(x − m) | | m + log(sum) |
| backward of softmax | y·dy | y·(dy − sum) | |
| backward of log-softmax | dy | dy − exp(y)·sum | |
| backward of log-sum-exp | exp(x − m) | term / (sum / dl) | |
| cross-entropy | exp(x − m), x | its gradient | the loss, log-sum-exp |
| entropy | exp(x − m), exp(x − m)·(x − m) | its gradient | log-sum-exp, the entropy |

A number of the row may also go in: dl of log-sum-exp, or the target of cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl


@dataclass(frozen=True, eq=False, repr=False)
class Operation(str):
    """An operation along a row, handed to a kernel as one compile-time constant.

    It is a string, its name, because Triton writes constants as JSON for its hooks on compilation,
    and knows no other way to write functions. Two operations are equal if they are one object.

    The functions are jitted. `values`, `terms`, `totals` and `numbers` are tuples: a block of each
    input, in the type that is computed with; a block of terms for each sum; the sums; and what the
    row's own inputs hold, as loaded. m, totals and numbers broadcast against the blocks.

    Attributes:
        name: for profilers and error messages.
        inputs: how many tensors are read element by element: x, or y and dy.
        padding: what an element outside the row is read as. It contributes nothing.
        shifted: whether terms are relative to the largest element of the first input; else m is 0.
        terms: (values, m, EXACT) → terms. EXACT forbids the compiler to fuse a multiplication with
            the addition that follows.
        rescale: (totals, m_part, m) → sums of terms relative to m_part, as terms relative to m.
        finish: (values, terms, m, totals) → an element of the result for each element; None if
            nothing of that size is written.
        finish_terms: (terms, m_part, m, totals) → the same from terms relative to m_part, for
            kernels that keep these and not the elements; None if there is no such way.
        finish_row: (m, totals, numbers) → a tuple of the numbers that are written for a row; None
            if there are none.
        exp_in_finish: whether `finish` needs an exponential that `terms` has not computed.
        sums: how many.
        numbers: how many more inputs have a number for each row.
        adjust: (m, totals, numbers) → what `finish` gets in place of the totals; None if just
            these.
        finish_at: (m, totals, numbers) → (column, number): the one element of a row that `finish`
            does not get right, written last; a column of −1 is none. `totals` are as for `finish`.
        placed: whether `values` ends with a block of the elements' columns, −1 outside the row.
        row_results: how many numbers `finish_row` returns.
        any_order: whether terms are summed in such a way that no order changes the sums.
    """

    name: str
    inputs: int
    padding: float
    shifted: bool
    terms: Any
    rescale: Any
    finish: Any = None
    finish_terms: Any = None
    finish_row: Any = None
    exp_in_finish: bool = False
    sums: int = 1
    numbers: int = 0
    adjust: Any = None
    finish_at: Any = None
    placed: bool = False
    row_results: int = 0
    any_order: bool = False

    def __new__(cls, name: str, *args: Any, **kwargs: Any):
        return super().__new__(cls, name)

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<operation {self.name} {self.cache_key}>"  # Triton's key in memory

    @property
    def reduces(self) -> bool:
        """Whether only numbers of the row are written."""
        return self.finish is None

    @property
    def results(self) -> int:
        """How many tensors are written: the elements of the result, if there are any, and then the
        numbers of the row."""
        return self.row_results + (not self.reduces)

    @property
    def cache_key(self) -> str:
        """What Triton's cache on disk knows a constant by.

        It would print a function by its name, and take a kernel compiled from an older text of it.
        The key of a function follows its text, and that of all functions it calls.
        """
        return "-".join(str(getattr(each, "cache_key", each)) for each in vars(self).values())


_in_any_order: dict[Operation, Operation] = {}


def in_any_order(op: Operation) -> Operation:
    """The operation with sums that no order changes, and results that follow from the sums alone;
    always the same one.

    >>> from triton_softmax.operations.softmax import SOFTMAX
    >>> str(in_any_order(SOFTMAX)), in_any_order(SOFTMAX).finish_terms
    ('softmax_in_any_order', None)
    """
    if op not in _in_any_order:
        name = f"{op.name}_in_any_order"
        _in_any_order[op] = replace(op, name=name, finish_terms=None, any_order=True)
    return _in_any_order[op]


@triton.jit
def same(totals, m_part, m):
    """`rescale` of sums that are not relative to a maximum."""
    return totals


@triton.jit
def product(a, b, EXACT: tl.constexpr):
    """a·b. EXACT: rounded by itself, which in float32 takes an instruction that is not fused."""
    if EXACT:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return b * a
