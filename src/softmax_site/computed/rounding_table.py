"""The numbers of a table on the page of numerics: what each choice costs, and its bound.

Errors are relative and measured in float32 beside float64; each is the worst of the numbers tried.
"""

from __future__ import annotations

import json
import math
from typing import NamedTuple

import numpy as np

from softmax_tutorial.reference import softmax_vjp

U = 2.0**-24
"""Unit roundoff of float32."""
U16 = 2.0**-8
"""Unit roundoff of bfloat16."""
OFFSET = 10_000.0
SPACE = "\N{NO-BREAK SPACE}"
GAMMA = 1
"""The exponential is rounded to the nearest number."""


class Error(NamedTuple):
    """What was measured, and what it cannot exceed."""

    measured: float
    bound: float


def power(value: float) -> str:
    """With one digit.

    >>> power(2.4e-7), power(0.74)
    ('2·10⁻⁷', '0.7')
    """
    if value >= 0.05:
        return f"{value:.1g}"
    digit, exponent = f"{value:.0e}".split("e-")
    return f"{digit}·10⁻{str(int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Float32 numbers rounded to bfloat16, halves to even.

    >>> bfloat16(np.float32([257, 1 + 2**-9]))
    array([256.,   1.], dtype=float32)
    """
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def rounded(t: np.ndarray, function: np.ufunc) -> np.ndarray:
    """A function of float32 numbers, rounded once."""
    return function(t.astype(np.float64)).astype(np.float32)


def tree_sum(t: np.ndarray) -> np.ndarray:
    """A sum in a balanced tree; each addition is rounded. The length is a power of two."""
    while len(t) > 1:
        t = t[0::2] + t[1::2]
    return t[0]


def off(result: np.ndarray | np.float32, exact: np.ndarray | float) -> float:
    """The largest relative error."""
    return float(np.max(np.abs(np.asarray(result, dtype=np.float64) / exact - 1)))


def statistics(n: int = 1000) -> tuple[Error, Error]:
    """An output of equal terms, their sum kept in bfloat16, and in float32 and rounded once."""
    d = np.zeros(1, np.float32)
    for _ in range(n):
        d = bfloat16(np.add(d, np.float32(1)))
    sums = d, np.full(1, n, np.float32)
    kept, once = (off(bfloat16(np.reciprocal(each)), 1 / n) for each in sums)
    # eq: round-once
    return Error(kept, n * U16), Error(once, U16 + U + U * U16)


def order() -> tuple[Error, Error]:
    """One exponential of a row with an offset, scaled first and subtracted first."""
    x = (OFFSET + 3 * np.random.default_rng(0).normal(size=4096)).astype(np.float32)
    m, c, wide = x.max(), np.float32(math.log2(math.e)), x.astype(np.float64)
    exact, distance = np.exp(wide - float(m)), float(m) - float(wide.min())
    # eq: exp2-scale-first-error, exp2-subtract-first-error
    first = U * (2 * float(np.abs(wide).max()) + 2 * distance + GAMMA)
    return (
        Error(off(rounded(x * c - m * c, np.exp2), exact), first),
        Error(off(rounded((x - m) * c, np.exp2), exact), U * (3 * distance + GAMMA)),
    )


def summation(n: int = 2**18, trials: int = 8) -> tuple[Error, Error]:
    """The largest output of a row, its denominator summed in order and in a tree."""
    random, found = np.random.default_rng(n), []
    for _ in range(trials):
        x = random.normal(size=n).astype(np.float32)
        e = rounded(x - x.max(), np.exp)
        exact = float(np.exp(x.astype(np.float64) - float(x.max())).sum())
        sums = np.add.accumulate(e, dtype=np.float32)[-1], tree_sum(e)
        found.append([off(np.float32(1) / d, 1 / exact) for d in sums])
    # eq: softmax-error-bound, entropy-identity
    in_order, in_a_tree = (U * (math.log(n) + 2 * GAMMA + h + 1) for h in (n - 1, math.log2(n)))
    worst = np.max(found, axis=0)
    return Error(float(worst[0]), in_order), Error(float(worst[1]), in_a_tree)


def merge32(one: tuple, other: tuple) -> tuple:
    """A merge of pairs in float32."""
    m = np.maximum(one[0], other[0])
    factors = (rounded(each[0] - m, np.exp) for each in (one, other))
    first, second = (each[1] * factor for each, factor in zip((one, other), factors))
    return m, first + second


def online(n: int = 2**14, tile: int = 2**10, rows: int = 8) -> tuple[Error, Error]:
    """The denominator of one pass, a merge for each number, and of tiles merged in a tree."""
    x = np.random.default_rng(1).normal(size=(rows, n)).astype(np.float32)
    top = x.max(axis=1)
    exact = np.exp(x.astype(np.float64) - top[:, None]).sum(axis=1)
    single = (x[:, 0], np.ones(rows, np.float32))
    for i in range(1, n):
        single = merge32(single, (x[:, i], np.ones(rows, np.float32)))
    pairs = []
    for piece in np.split(x, n // tile, axis=1):
        m = piece.max(axis=1)
        pairs.append((m, tree_sum(rounded(piece - m[:, None], np.exp).T)))
    while len(pairs) > 1:
        pairs = [merge32(one, other) for one, other in zip(pairs[::2], pairs[1::2])]
    spread = float((np.exp(x - top[:, None]) / exact[:, None] * (top[:, None] - x)).sum(1).max())

    def bound(h: float, mu: float) -> float:
        # eq: online-error-bound
        return U * (spread + GAMMA + h + mu * (GAMMA + 2))

    return (
        Error(off(single[1], exact), bound(0, n - 1)),
        Error(off(pairs[0][1], exact), bound(math.log2(tile), math.log2(n // tile))),
    )


def gradient(n: int = 1024) -> tuple[Error, Error]:
    """dx with the products rounded to bfloat16 before their sum, and in float32; relative to the
    largest entry."""
    random = np.random.default_rng(2)
    y = random.dirichlet(np.ones(n)).astype(np.float32)
    dy = random.normal(size=n).astype(np.float32)
    Y, DY, h = y.astype(np.float64), dy.astype(np.float64), math.log2(n)
    exact = softmax_vjp(Y, DY)
    scale, size = np.abs(exact).max(), float(Y @ np.abs(DY))

    def error(products: np.ndarray, u: float) -> Error:
        dx = y * (dy - tree_sum(products))
        # eq: vjp-error-bound
        bound = Y * ((U * h + u) * size + 2 * U * np.abs(DY - Y @ DY))
        return Error(float(np.abs(dx - exact).max() / scale), float(bound.max() / scale))

    return error(bfloat16(y * dy), U16), error(y * dy, U)


def logsumexp(n: int = 128) -> tuple[Error, Error]:
    """The gradient of log-sum-exp from the saved output, and from maximum and denominator."""
    x = (OFFSET + np.random.default_rng(3).normal(size=n)).astype(np.float32)
    m = x.max()
    t = x - m
    exact = np.exp(t.astype(np.float64))
    d, exact = tree_sum(rounded(t, np.exp)), exact / exact.sum()
    lse = m + rounded(d, np.log)
    h, far = math.log2(n), np.abs(t).max()
    # eq: softmax-error-bound
    sum_bound = float(exact @ np.abs(t)) + GAMMA + h
    return (
        Error(
            off(rounded(x - lse, np.exp), exact),
            U * (float(lse) + float(np.abs(x - lse).max()) + sum_bound + math.log(n) + GAMMA),
        ),
        Error(off(rounded(t, np.exp) / d, exact), U * (float(far) + sum_bound + GAMMA + 1)),
    )


CHOICES = (statistics, order, summation, online, gradient, logsumexp)
"""Decisions by where rounding enters; each costs (one way, a better way)."""


def generate() -> dict[str, str]:
    """What each choice costs, and its bound, as the page quotes them."""
    found = {
        choice.__name__: [
            f"{power(each.measured)}{SPACE}≤{SPACE}{power(each.bound)}" for each in choice()
        ]
        for choice in CHOICES
    }
    text = json.dumps(found, ensure_ascii=False, indent=1)
    return {"docs/_computed/rounding.json": f"{text}\n"}
