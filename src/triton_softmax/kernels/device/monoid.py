"""The monoid that every kernel shares: running maximum `m` and running denominator `d`.

A set of numbers x is summarised by the pair

    m = max(x)            d = sum(exp(x - m))

and two summaries combine into the summary of the union without looking at the numbers again. The
operation is associative and commutative, and its identity is the summary of nothing, (-inf, 0).
That is all a kernel needs in order to read a row in pieces, in any order, on any number of threads
or programs.

These are device functions: kernels call them, and `merge` is also a combine function for
`tl.reduce` and `tl.associative_scan`. The same functions in NumPy are in
[`softmax_tutorial.reference`][].

The corner of the definition is m = -inf: a set that is empty, or holds nothing but -inf. Then x - m
would be -inf - (-inf) = NaN where the right answer is exp(-inf) = 0, so the subtraction uses 0 in
place of such an m. For m = +inf nothing is guarded on purpose: +inf - (+inf) = NaN is what PyTorch
answers, and so is NaN for a row that holds a NaN.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
"""log2(e), by which exp(t) = 2 ** (t * LOG2E). Takes the type of the tensor it meets: full
precision for float64."""


@triton.jit
def exp_shifted(x, m):
    """exp(x - m), and 0 (not NaN) where x = m = -inf.

    `x` and `m` are float32 or float64 and broadcast against each other. The maximum is subtracted
    before the scaling by log2(e): x·c - m·c would lose the digits that x and m have in common.
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
