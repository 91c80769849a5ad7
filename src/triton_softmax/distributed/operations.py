"""What a rank computes for its part of a row: the library's operations, cut where the ranks meet.

Before the message an operation ends with its summary, which is written as numbers of the row. After
it a result follows from a summary that is given (`finishing`).
"""

from __future__ import annotations

from dataclasses import replace

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter asks for it where a function is

from ..operations.cross_entropy import CROSS_ENTROPY_SMOOTHED
from ..operations.log_softmax import LOG_SOFTMAX_VJP
from ..operations.logsumexp import LOGSUMEXP
from ..operations.operation import Operation
from ..operations.softmax import SOFTMAX, SOFTMAX_VJP
from ..operations.tokens import ENTROPY


# --8<-- [start:summaries]
@triton.jit
def _summary(m, totals, numbers):
    """The summary itself, as the numbers of the row."""
    return (m,) + totals


@triton.jit
def _totals(m, totals, numbers):
    """The sums alone, of an operation without a maximum."""
    return totals


def _as_numbers(op: Operation, name: str) -> Operation:
    """The operation that ends with its summary."""
    return replace(
        op,
        name=name,
        finish=None,
        finish_terms=None,
        finish_at=None,
        adjust=None,
        numbers=0,
        finish_row=_summary if op.shifted else _totals,
        row_results=op.sums + op.shifted,
    )


SUMMARY = _as_numbers(SOFTMAX, "rank_summary")
SUMMARY_OF_INFINITIES = _as_numbers(LOGSUMEXP, "rank_summary_of_infinities")
SUMMARY_AND_SUM = _as_numbers(CROSS_ENTROPY_SMOOTHED, "rank_summary_and_sum")
SUMMARY_AND_ENTROPY = _as_numbers(ENTROPY, "rank_summary_and_entropy")
PRODUCTS = _as_numbers(SOFTMAX_VJP, "rank_products")
GRADIENTS = _as_numbers(LOG_SOFTMAX_VJP, "rank_gradients")
"""(m, d); the same where +inf is a result and no NaN; m, d and the sum of x; m, d and the sum of
exp(x − m)·(x − m); the sums of y·dy, and of dy."""
# --8<-- [end:summaries]

SUMMARIES = {
    str(each): each
    for each in (
        SUMMARY,
        SUMMARY_OF_INFINITIES,
        SUMMARY_AND_SUM,
        SUMMARY_AND_ENTROPY,
        PRODUCTS,
        GRADIENTS,
    )
}
"""What a rank sends, by name."""
