"""`batch_invariant`: the same bits for a row in every batch, wherever it lies.

By default the number of rows and the place of a row decide how its sum is taken, and a sum in
another order may round otherwise. Batch-invariant calls take sums that no order changes, or that
are always cut alike.
"""

from __future__ import annotations

import contextlib

from .checks import BATCH_INVARIANT

_depth = 0


class batch_invariant(contextlib.ContextDecorator):  # noqa: N801
    """Within this context, or in a function decorated with it, every call of this library is
    `batch_invariant`, in all threads.

    The backward pass of a call is what the call was, wherever it is run.

    Examples:
        >>> import torch
        >>> from triton_softmax import batch_invariant, softmax
        >>> x = torch.randn(5, 1001)
        >>> with batch_invariant():
        ...     alone, together = softmax(x[3:4]), softmax(x)
        >>> torch.equal(alone[0], together[3])
        True
    """

    def __enter__(self) -> batch_invariant:
        global _depth
        _depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        global _depth
        _depth -= 1


def chosen(implementation: str | None, asked: bool) -> str | None:
    """What is handed on as the implementation of a call.

    Args:
        implementation: of the call.
        asked: whether it asks to be batch-invariant; if not, a context may.

    Raises:
        ValueError: the call names a kernel, which the choice of a batch-invariant one excludes.
    """
    if not (asked or _depth):
        return implementation
    if implementation not in (None, BATCH_INVARIANT):
        raise ValueError(
            f"implementation={implementation!r} names a kernel, and a batch-invariant call chooses "
            "its own"
        )
    return BATCH_INVARIANT
