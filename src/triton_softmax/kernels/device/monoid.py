"""The softmax monoid: merge running maxima `m` and running denominators `d`.

A set of numbers x has the summary

    m = max(x)            d = sum(exp(x - m))

and two summaries merge into the summary of the union without rereading the numbers. The merge is
associative and commutative, with the empty set's summary (-inf, 0) as identity. So a kernel may
read a row in pieces, in any order, on any number of threads or programs.

These are device functions: kernels call them, and `merge` is also a combine function for
`tl.reduce` and `tl.associative_scan`. The same functions in NumPy are in
[`softmax_tutorial.reference`][].

The corner case is m = -inf: a set that is empty or holds only -inf. There x - m would be
-inf - (-inf) = NaN, but exp(-inf) = 0 is right, so the subtraction uses 0 in place of m. For
m = +inf there is deliberately no guard: PyTorch also returns +inf - (+inf) = NaN, and NaN for a row
that holds a NaN.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
"""log2(e), so that exp(t) = 2 ** (t * LOG2E). It takes the type of the tensor it multiplies, with
full precision for float64."""

LOWEST = tl.constexpr(-1e30)
"""Finite, and below every distance from the maximum whose exponential is not 0."""


@triton.jit
def exp_shifted(x, m):
    """exp(x - m), and 0 (not NaN) where x = m = -inf.

    `x` and `m` are float32 or float64 and broadcast. The subtraction comes before the scaling by
    log2(e), because x·c - m·c would lose the digits that x and m share.
    """
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    # eq: exp2-identity
    return tl.exp2((x - m_safe) * LOG2E)


@triton.jit
def merge(m1, d1, m2, d2):
    """The summary of a union, m = max(m1, m2) and d = d1·exp(m1 - m) + d2·exp(m2 - m).

    Identity (-inf, 0). A NaN or +inf on either side leaves d = NaN. Usable as the combine function
    of `tl.reduce((m, d), axis, merge)`.
    """
    # eq: merge
    m = tl.maximum(m1, m2)
    d = d1 * exp_shifted(m1, m) + d2 * exp_shifted(m2, m)
    return m, d
