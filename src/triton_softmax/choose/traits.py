"""What a choice has to know of the operation."""

from __future__ import annotations

from typing import NamedTuple


class Traits(NamedTuple):
    """What an operation asks of the registers; more than this no choice depends on.

    >>> softmax, log_softmax = Traits(inputs=1, keeps_terms=True), Traits(inputs=1)
    >>> softmax_vjp = Traits(inputs=2)
    >>> log_softmax_vjp = Traits(inputs=2, exp_in_finish=True)
    >>> logsumexp = Traits(inputs=1, reduces=True)
    """

    inputs: int
    """Tensors read: 1 forward, 2 for a vector-Jacobian product, which holds an element of each."""

    keeps_terms: bool = False
    """The result follows from the terms that were summed. So a program that waits may keep those,
    and need not compute them again from the elements. True of softmax alone."""

    exp_in_finish: bool = False
    """Writing an element takes an exponential that summing has not, and registers for it."""

    reduces: bool = False
    """Only numbers of the row are written, and no elements, so nothing is kept until then."""

    any_order: bool = False
    """No order of summing may change the result, and none does as long as the terms of a sum are in
    one program. So a choice must not depend on the number of rows where there are several."""

    numbers: bool = False
    """Numbers of the row go in or come out beside the elements, and take registers."""
