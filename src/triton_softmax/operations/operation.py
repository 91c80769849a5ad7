"""Define an operation by its parts: what it sums over a row, how partials merge, what it writes.

All operations have the same form. The summary of a row is its largest element m (if the operation
uses it) and one or more sums of terms, relative to m. Two partials merge by rescaling the sums of
both to the larger m and adding them. Then each element of the result follows from the input element
and the summary (the epilogue), and row scalars follow from the summary alone.

| | terms of an element | element of the result | row scalars |
| --- | --- | --- | --- |
| softmax | exp(x − m) | term / sum | |
| log-softmax | exp(x − m) | (x − m) − log(sum) | |
| log-sum-exp | exp(x − m) | | m + log(sum) |
| backward of softmax | y·dy | y·(dy − sum) | |
| backward of log-softmax | dy | dy − exp(y)·sum | |
| backward of log-sum-exp | exp(x − m) | term / (sum / dl) | |
| cross-entropy | exp(x − m) | its gradient | the loss, log-sum-exp |

Row scalars may also be inputs: dl of log-sum-exp, or the target of cross-entropy.
"""

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl

NAMED: dict[str, "Operation"] = {}
"""Every operation by its name: an operator of PyTorch takes a name in place of the object."""


@dataclass(frozen=True, eq=False, repr=False)
class Operation(str):
    """An operation along a row, passed to a kernel as one compile-time constant.

    It is a string, its name, because Triton serialises constants to JSON for its compilation hooks,
    and cannot serialise functions. Operations compare by identity.

    The functions are jitted. `values`, `terms`, `totals` and `numbers` are tuples: an upcast block
    per input; a block of terms per sum; the sums; and the row scalars, as loaded. m, totals and
    numbers broadcast against the blocks.

    Attributes:
        name: shown by profilers and in error messages.
        inputs: number of tensors read element by element: x, or y and dy.
        padding: the value of elements outside the row, which contributes nothing.
        shifted: whether terms are relative to the largest element of the first input; else m is 0.
        terms: (values, m, EXACT) → terms. EXACT forbids fusing a multiplication with the addition
            that follows.
        rescale: (totals, m_part, m) → the sums, rescaled from m_part to m.
        finish: (values, terms, m, totals) → the elements of the result, the epilogue; None if the
            operation writes no elements.
        finish_terms: (terms, m_part, m, totals) → the elements, from terms relative to m_part, for
            kernels that keep terms instead of values; None if unsupported.
        finish_row: (m, totals, numbers) → a tuple of the row scalars to write; None if there are
            none.
        exp_in_finish: whether `finish` needs an exponential that `terms` has not computed.
        sums: number of sums.
        numbers: number of further inputs, which hold row scalars.
        adjust: (m, totals, numbers) → what `finish` takes in place of the totals; None keeps them.
        finish_at: (m, totals, numbers) → (column, element): overwrites the one element of a row
            that `finish` gets wrong; column −1 is none. `totals` are as for `finish`.
        placed: whether `values` ends with 0s, and −1 outside the row; in `modified_rows`, columns.
        row_results: number of row scalars that `finish_row` returns.
        any_order: 0, or sums are independent of order: of the order of groups of so many adjacent
            terms, which are added in floating point first.
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
    any_order: int = 0

    def __new__(cls, name: str, *args: Any, **kwargs: Any):
        return super().__new__(cls, name)

    def __post_init__(self):
        NAMED.setdefault(self.name, self)

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<operation {self.name} {self.cache_key}>"  # Triton's key in memory

    @property
    def reduces(self) -> bool:
        """Whether the operation writes row scalars only."""
        return self.finish is None

    @property
    def results(self) -> int:
        """How many tensors are written: the elements, if any, then the row scalars."""
        return self.row_results + (not self.reduces)

    @property
    def cache_key(self) -> str:
        """The key of this constant in Triton's disk cache, by the source of its functions and of
        all that they call. By names, Triton would reuse a kernel compiled from older source."""
        return "-".join(str(getattr(each, "cache_key", each)) for each in vars(self).values())


_in_any_order: dict[tuple[Operation, int], Operation] = {}


def in_any_order(op: Operation, group: int = 1) -> Operation:
    """Return the batch-invariant variant of an operation: order-independent sums of groups of so
    many adjacent terms. Cached, so that it is always the same object.

    >>> from triton_softmax.operations.softmax import SOFTMAX
    >>> str(in_any_order(SOFTMAX)), in_any_order(SOFTMAX, 8).any_order
    ('softmax_in_any_order', 8)
    """
    if (op, group) not in _in_any_order:
        name = f"{op.name}_in_any_order"
        _in_any_order[op, group] = replace(op, name=name, finish_terms=None, any_order=group)
    return _in_any_order[op, group]


@triton.jit
def same(totals, m_part, m):
    """The `rescale` of sums that are not relative to a maximum."""
    return totals


@triton.jit
def product(a, b, EXACT: tl.constexpr):
    """a·b. EXACT forces its own rounding, by a float32 instruction the compiler cannot fuse."""
    if EXACT:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return b * a
