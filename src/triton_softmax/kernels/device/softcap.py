"""Soft-cap logits to c·tanh(u/c), and compute the derivative, both to the last digits.

For small t, (1 − e⁻²ᵗ) / (1 + e⁻²ᵗ) loses digits in its numerator, so tanh is a rational function
there. Its coefficients are those of `tanh` in the Cephes library (S. L. Moshier,
https://www.netlib.org/cephes/), accurate in float64.
"""

import triton
import triton.language as tl

from .monoid import LOG2E


@triton.jit
def tanh(t):
    """tanh(t) for float32 and float64, to a few units in the last place everywhere."""
    size = tl.abs(t)
    e = tl.exp2(-2.0 * size * LOG2E)
    large = (1.0 - e) / (1.0 + e)
    z = t * t
    above = (z * -0.964399179425052238628 - 99.2877231001918586564) * z - 1614.68768441708447952
    below = ((z + 112.811678491632931402) * z + 2235.48839060100448583) * z + 4844.06305325125486048
    return tl.where(size < 0.625, t + t * z * (above / below), tl.where(t < 0.0, -large, large))


@triton.jit
def softcapped(u, CAP: tl.constexpr):
    """c·tanh(u/c), between −c and c."""
    return CAP * tanh(u / CAP)


@triton.jit
def softcap_derivative(u, CAP: tl.constexpr):
    """1 − tanh²(u/c), without the subtraction, which would cancel all digits of a small result."""
    # eq: softcap-derivative
    e = tl.exp2(-2.0 * tl.abs(u / CAP) * LOG2E)
    return 4.0 * e / ((1.0 + e) * (1.0 + e))
