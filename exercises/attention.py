"""Simple attention

kind: blank page
level: 3
minutes: 20
teaches: FlashAttention's loop, with numbers for vectors

Attention with one number per query, key and value: o[i] is the mean of v, weighted by softmax over
j of q[i] · k[j], for n of each. Program p takes QUERIES queries and walks along the keys, KEYS at a
time, in one loop: the scores stay in registers. After puzzle 9 of the [Triton
Puzzles](../reference/sources.md#triton-puzzles).

hint: Carry m, d and o, each with a number per query. o is a sum like d, with one more factor per
term: v.

hint: `scores = q[:, None] * k[None, :]`, and −∞ for keys past the end.

hint: When the maximum rises, every sum so far shrinks by `factor = tl.exp(m - m_new)`, o too.

hint: `o = o * factor + tl.sum(p * v[None, :], axis=1)`, and o / d is stored at the end.
"""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, n, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    # start
    ...
    # solved
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    q = tl.load(q_ptr + queries, mask=queries < n, other=0.0)
    m = tl.full((QUERIES,), -float("inf"), tl.float32)
    d = tl.zeros((QUERIES,), tl.float32)
    o = tl.zeros((QUERIES,), tl.float32)
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        k = tl.load(k_ptr + keys, mask=keys < n, other=0.0)
        v = tl.load(v_ptr + keys, mask=keys < n, other=0.0)
        scores = tl.where((keys < n)[None, :], q[:, None] * k[None, :], -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - m_new[:, None])
        factor = tl.exp(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        o = o * factor + tl.sum(p * v[None, :], axis=1)
        m = m_new
    tl.store(o_ptr + queries, o / d, mask=queries < n)
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, random_row
from softmax_playground.small_triton.right import softmax

FAR = "All scores of this run are far below 0: only −∞ is below them all."
ABOVE = "All scores of this run are far above 0: exp overflows without the maximum."
WHY = {
    -40.0: ABOVE,
    40.0: FAR,
    2000.0: FAR,
    1.0e19: FAR,
    0.0: "The scores fall from tile to tile in this run.",
}


def check(names, lab):
    kernel = needs(names, "attention_kernel")
    runs = [(11, 8, 2, 1.0), (11, 4, 4, 1.0), (11, 1, 16, 1.0), (8, 8, 8, 3.0), (1, 2, 2, 1.0)]
    runs += [
        (9, 4, 2, -40.0),
        (12, 4, 4, 40.0),
        (11, 4, 4, 2000.0),
        (5, 4, 4, 1.0e19),
        (9, 4, 2, 0.0),
    ]
    for n, queries, keys, size in runs:
        q, k = random_row(n, 1, -size, size), random_row(n, 2, -size, size)
        if not size:
            q, k = [3.0] * n, [-40.0 * j for j in range(n)]
        if abs(size) > 10:
            q, k = [abs(size) + i % 2 for i in range(n)], [-size - 0.5 * (i % 3) for i in range(n)]
        v = random_row(n, 3, -2.0, 5.0)
        right = []
        for each in q:
            weights = softmax([each * key for key in k])
            right.append(sum([w * value for w, value in zip(weights, v)]))
        o = lab.empty((n,), "o")
        inputs = lab.tensor(q, "q"), lab.tensor(k, "k"), lab.tensor(v, "v")
        grid = (-(-n // queries),)
        lab.launch(kernel, grid, *inputs, o, n, QUERIES=queries, KEYS=keys)
        lab.compare(o, right, WHY.get(size), digits=1e-3, least=1e-5)
        at_most(lab, "q", n)
        at_most(lab, "k", n * grid[0])
        at_most(lab, "v", n * grid[0])
    return "Right: FlashAttention is this loop, with vectors for numbers."


NO_SHIFT = "Where scores are large, exp(scores) overflows: subtract the maximum so far, m_new."
FIRST_TILE = (
    "At the first tile m is −∞: the exponents are scores − m_new for p, m − m_new for factor."
)
SCORES = 'tl.where((keys < n)[None, :], q[:, None] * k[None, :], -float("inf"))'
P, FACTOR = "tl.exp(scores - m_new[:, None])", "factor = tl.exp(m - m_new)"
WRONG = [
    (f"p = {P}\n        {FACTOR}", "p = tl.exp(scores)\n        factor = 1.0", NO_SHIFT),
    (P, "tl.exp(scores)", "The weights p are relative to m_new, as d is: scores − m_new."),
    (P, "tl.exp(scores - m[:, None])", FIRST_TILE),
    (
        "tl.maximum(m, tl.max(scores, axis=1))",
        "tl.max(scores, axis=1)",
        "m must not fall: where a later tile has a smaller maximum, exp(m − m_new) overflows.",
    ),
    (SCORES, "q[:, None] * k[None, :]", "Keys past the end need the score −∞, not 0."),
    (SCORES, SCORES.replace('-float("inf")', "0.0"), "Keys past the end need the score −∞, not 0."),
    (
        SCORES,
        SCORES.replace('-float("inf")', "-1e6"),
        "Some queries' scores are lower than that: use −∞.",
    ),
    (
        'm = tl.full((QUERIES,), -float("inf"), tl.float32)',
        "m = tl.zeros((QUERIES,), tl.float32)",
        "A maximum that starts at 0 is larger than negative scores.",
    ),
    (
        'm = tl.full((QUERIES,), -float("inf"), tl.float32)',
        "m = tl.full((QUERIES,), -1e6, tl.float32)",
        "Some queries' maximum is lower than that: start at −∞.",
    ),
    ("o = o * factor + ", "o = o + ", "o is relative to the old maximum too: multiply by factor."),
    ("d = d * factor + ", "d = d + ", "d is relative to the old maximum: multiply by factor."),
    ("p * v[None, :]", "p", "The terms of o are weighted with v."),
    ("tl.exp(m - m_new)", "tl.exp(m_new - m)", FIRST_TILE),
    ("o / d", "o", "The weights have to add up to one: divide by d at the end."),
]
