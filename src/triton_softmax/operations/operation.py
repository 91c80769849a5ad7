"""The form of an operation: what a part of a row contributes, how parts merge, what is written.

All operations have the same shape. A row is summarised by two numbers, its largest element m (where
the operation asks for it) and a sum of terms, one for each element, taken relative to m. Two parts
of a row merge by bringing both sums to the larger m and adding them. Then every element of the
result follows from the element and the summary.

| | term of an element | element of the result |
| --- | --- | --- |
| softmax | exp(x − m) | term / sum |
| log-softmax | exp(x − m) | (x − m) − log(sum) |
| log-sum-exp | exp(x − m) | m + log(sum), one for the row |
| backward of softmax | y·dy | y·(dy − sum) |
| backward of log-softmax | dy | dy − exp(y)·sum |
| backward of log-sum-exp | exp(x − m) | term / (sum / dl), dl a number for the row |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import triton


# --8<-- [start:operation]
@dataclass(frozen=True, eq=False, repr=False)
class Operation(str):
    """An operation along a row, handed to a kernel as one compile-time constant.

    It is a string, its name, because Triton writes constants as JSON for its hooks on compilation,
    and knows no other way to write functions. Two operations are equal if they are one object.

    The functions are jitted. `values` is a tuple with a block of each input, in the type that is
    computed with; m and total broadcast against it.

    Attributes:
        name: for profilers and error messages.
        inputs: how many tensors are read element by element: x, or y and dy.
        padding: what an element outside the row is read as. It contributes nothing.
        shifted: whether terms are relative to the largest element of the first input; else m is 0.
        terms: (values, m, EXACT) → a term for each element. EXACT forbids the compiler to fuse a
            multiplication with the addition that follows.
        rescale: (total, m_part, m) → a sum of terms relative to m_part, as terms relative to m.
        finish: (values, terms, m, total) → an element of the result for each element; None if the
            operation reduces.
        finish_terms: (terms, m_part, m, total) → the same from terms relative to m_part, for
            kernels that keep these and not the elements; None if there is no such way.
        finish_row: (m, total) → the one number that is written for a row; None if the operation
            does not reduce.
        exp_in_finish: whether `finish` needs an exponential that `terms` has not computed.
        weighted: whether one more input has a number for each row, by which the total is divided
            before `finish`.
        any_order: whether terms are summed in such a way that no order changes the sum.
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
    weighted: bool = False
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
        """Whether one number is written for a row."""
        return self.finish_row is not None

    @property
    def cache_key(self) -> str:
        """What Triton's cache on disk knows a constant by.

        It would print a function by its name, and take a kernel compiled from an older text of it.
        The key of a function follows its text, and that of all functions it calls.
        """
        return "-".join(str(getattr(each, "cache_key", each)) for each in vars(self).values())


# --8<-- [end:operation]


def in_any_order(op: Operation) -> Operation:
    """The operation with sums that no order changes, and results that follow from the sum alone.

    >>> from triton_softmax.operations.softmax import SOFTMAX
    >>> str(in_any_order(SOFTMAX)), in_any_order(SOFTMAX).finish_terms
    ('softmax_in_any_order', None)
    """
    return replace(op, name=f"{op.name}_in_any_order", finish_terms=None, any_order=True)


@triton.jit
def same(total, m_part, m):
    """`rescale` of sums that are not relative to a maximum."""
    return total
