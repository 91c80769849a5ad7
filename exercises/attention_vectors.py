"""Attention with vectors

kind: blank page
level: 3
minutes: 30
teaches: FlashAttention's forward pass

Now q, k, v and o are n × DIM matrices, whose rows lie one after the other; DIM is a power of two.
The score of query i and key j is `scale` times the inner product of their rows. One loop over the
keys; o[i] is the weighted mean of the rows of v. Carry m, d and o.

hint: `at = rows[:, None] * DIM + tl.arange(0, DIM)[None, :]` addresses some rows of a matrix.

hint: A score is a sum over DIM: `tl.sum(q[:, None, :] * k[None, :, :], axis=2)` has an axis for
queries and one for keys. On a GPU that is `tl.dot`; here the sum does.

hint: o has the shape (QUERIES, DIM), so it is rescaled by `factor[:, None]`, and a tile adds
`tl.sum(p[:, :, None] * v[None, :, :], axis=1)`.
"""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    scale,
    n,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    # start
    ...
    # solved
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    dims = tl.arange(0, DIM)
    q_at = queries[:, None] * DIM + dims[None, :]
    q = tl.load(q_ptr + q_at, mask=(queries < n)[:, None], other=0.0)
    m = tl.full((QUERIES,), -float("inf"), tl.float32)
    d = tl.zeros((QUERIES,), tl.float32)
    o = tl.zeros((QUERIES, DIM), tl.float32)
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        at = keys[:, None] * DIM + dims[None, :]
        k = tl.load(k_ptr + at, mask=(keys < n)[:, None], other=0.0)
        v = tl.load(v_ptr + at, mask=(keys < n)[:, None], other=0.0)
        scores = scale * tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        scores = tl.where((keys < n)[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - m_new[:, None])
        factor = tl.exp(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        o = o * factor[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        m = m_new
    tl.store(o_ptr + q_at, o / d[:, None], mask=(queries < n)[:, None])
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, random_row
from softmax_playground.small_triton.right import softmax

FAR = "All scores of this run are far below 0: only −∞ is below them all."
ABOVE = "All scores of this run are far above 0: exp overflows without the maximum."


def check(names, lab):
    kernel = needs(names, "attention_kernel")
    for n, dim, queries, keys, scale in (
        (5, 4, 2, 4, 0.5),
        (4, 2, 4, 2, 1.0),
        (3, 1, 1, 2, 2.0),
        (1, 2, 2, 2, 1.0),
        (4, 2, 2, 4, 2000.0),
        (4, 2, 2, 4, -2000.0),
        (5, 2, 4, 4, -4.0e6),
        (5, 2, 4, 4, -1.0e38),
        (5, 2, 2, 2, 3.0),
    ):
        q, k, v = [
            [random_row(dim, 20 * i + 7 * s, -2.0, 2.0) for i in range(n)] for s in (1, 2, 3)
        ]
        if scale == 3.0:
            q, k = [[1.0] * dim for _ in range(n)], [[-20.0 * j] * dim for j in range(n)]
        if abs(scale) > 3.0:
            q = [[1.0] * dim for _ in range(n)]
            k = [[0.5 + i % 2 * 2.0**-20] * dim for i in range(n)]
        right = []
        for a in q:
            scores = [scale * sum([x * y for x, y in zip(a, b)]) for b in k]
            weights = softmax(scores)
            right.append([sum([w * row[c] for w, row in zip(weights, v)]) for c in range(dim)])
        o = lab.empty((n, dim), "o")
        inputs = lab.tensor(q, "q"), lab.tensor(k, "k"), lab.tensor(v, "v")
        grid = (-(-n // queries),)
        lab.launch(kernel, grid, *inputs, o, scale, n, DIM=dim, QUERIES=queries, KEYS=keys)
        lab.compare(
            o,
            right,
            [FAR if scale < 0 else ABOVE if scale > 3.0 else None] * n,
            digits=1e-3,
            least=1e-5,
        )
        at_most(lab, "q", n * dim)
        at_most(lab, "k", n * dim * grid[0])
        at_most(lab, "v", n * dim * grid[0])
    return "Right: what FlashAttention adds is tensor cores and memory order."


P, FACTOR = "tl.exp(scores - m_new[:, None])", "factor = tl.exp(m - m_new)"
FIRST_TILE = (
    "At the first tile m is −∞: the exponents are scores − m_new for p, m − m_new for factor."
)
WRONG = [
    (
        f"p = {P}\n        {FACTOR}",
        "p = tl.exp(scores)\n        factor = tl.full((QUERIES,), 1.0, tl.float32)",
        "Where scores are large, exp(scores) overflows: subtract the maximum so far, m_new.",
    ),
    (P, "tl.exp(scores)", "The weights p are relative to m_new, as d is: scores − m_new."),
    (P, "tl.exp(scores - m[:, None])", FIRST_TILE),
    (
        "tl.maximum(m, tl.max(scores, axis=1))",
        "tl.max(scores, axis=1)",
        "m must not fall: where a later tile has a smaller maximum, exp(m − m_new) overflows.",
    ),
    ("scale * tl.sum(q", "tl.sum(q", "The scores are not multiplied by scale."),
    (
        '        scores = tl.where((keys < n)[None, :], scores, -float("inf"))\n',
        "",
        "Keys past the end have the score 0: they need −∞.",
    ),
    (
        'scores, -float("inf"))',
        "scores, -1e6)",
        "Some queries' scores are lower than that: use −∞.",
    ),
    ("o = o * factor[:, None] + ", "o = o + ", "o is relative to the old maximum: rescale it too."),
    ("d = d * factor + ", "d = d + ", "d is relative to the old maximum: multiply by factor."),
    (
        "tl.sum(p[:, :, None] * v[None, :, :], axis=1)",
        "tl.sum(v[None, :, :] + 0.0 * p[:, :, None], axis=1)",
        "The rows of v are weighted with p.",
    ),
    ("o / d[:, None]", "o", "The weights have to add up to one: divide by d at the end."),
    ("tl.exp(m - m_new)", "tl.exp(m_new - m)", FIRST_TILE),
    (
        'm = tl.full((QUERIES,), -float("inf"), tl.float32)',
        "m = tl.full((QUERIES,), -1e6, tl.float32)",
        "Some queries' maximum is lower than that: start at −∞.",
    ),
    (
        'm = tl.full((QUERIES,), -float("inf"), tl.float32)',
        "m = tl.zeros((QUERIES,), tl.float32)",
        "A maximum that starts at 0 is larger than negative scores.",
    ),
]
