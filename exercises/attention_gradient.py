"""The gradient of the queries

kind: blank page
level: 3
minutes: 25
teaches: attention's backward pass, without a stored weight

q, k, v, do and dq are n × DIM matrices, whose rows lie one after the other. Forward left `lse`, the
log-sum-exp of each query's scores, and a small kernel `delta`, the inner product of each row of do
with that of the output. Program p takes QUERIES queries and walks along the keys, once:
[dq](../math/attention.md#the-gradient) is `scale` times the sum over j of dx[i, j] · k[j].

hint: A score is `scale` times an inner product; a weight is exp(score − lse), without a maximum,
and 0 past the last key.

hint: dy[i, j] is the inner product of do[i] and v[j], and dx = y · (dy − delta).

hint: What is a sum over DIM, `tl.sum(a[:, None, :] * b[None, :, :], axis=2)`, is `tl.dot(a,
tl.trans(b))` on a GPU. A tile adds `tl.sum(dx[:, :, None] * k[None, :, :], axis=1)`.
"""

import triton
import triton.language as tl


@triton.jit
def dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
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
    q_at, inside = queries[:, None] * DIM + dims[None, :], queries < n
    q = tl.load(q_ptr + q_at, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptr + q_at, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + queries, mask=inside, other=0.0)
    delta = tl.load(delta_ptr + queries, mask=inside, other=0.0)
    dq = tl.zeros((QUERIES, DIM), tl.float32)
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        at = keys[:, None] * DIM + dims[None, :]
        k = tl.load(k_ptr + at, mask=(keys < n)[:, None], other=0.0)
        v = tl.load(v_ptr + at, mask=(keys < n)[:, None], other=0.0)
        scores = scale * tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        y = tl.where((keys < n)[None, :], tl.exp(scores - lse[:, None]), 0.0)
        dy = tl.sum(do[:, None, :] * v[None, :, :], axis=2)
        dx = y * (dy - delta[:, None])
        dq += tl.sum(dx[:, :, None] * k[None, :, :], axis=1)
    tl.store(dq_ptr + q_at, scale * dq, mask=inside[:, None])
    # end


# ---- check ----
from softmax_playground.checker.judge import needs
from softmax_playground.checker.rows import at_most, random_row
from softmax_playground.small_triton.right import logsumexp, softmax, softmax_backward

ABOVE = "All scores of this run are far above 0: exp overflows unless lse is subtracted before it."
FAR = "All scores of this run are far below 0, and a key past the end is not: is its weight 0?"


def check(names, lab):
    kernel = needs(names, "dq_kernel")
    for n, dim, queries, keys, scale in (
        (5, 4, 2, 4, 0.5),
        (4, 2, 4, 2, 1.0),
        (3, 1, 1, 2, 2.0),
        (5, 2, 4, 4, 2000.0),
        (5, 2, 4, 4, -2000.0),
    ):
        q, k, v, do = [
            [random_row(dim, 20 * i + 7 * s, -2.0, 2.0) for i in range(n)] for s in (1, 2, 3, 4)
        ]
        if abs(scale) > 3.0:
            q = [[1.0] * dim for _ in range(n)]
            k = [[0.5 + i % 2 * 2.0**-12] * dim for i in range(n)]
        scores = [[scale * sum([x * y for x, y in zip(a, b)]) for b in k] for a in q]
        weights = softmax(scores)
        dy = [[sum([x * y for x, y in zip(a, b)]) for b in v] for a in do]
        delta = [sum([y * g for y, g in zip(*rows)]) for rows in zip(weights, dy)]
        dx = softmax_backward(weights, dy)
        right = [
            [scale * sum([g * row[c] for g, row in zip(each, k)]) for c in range(dim)]
            for each in dx
        ]
        dq = lab.empty((n, dim), "dq")
        matrices = zip((q, k, v, do), ("q", "k", "v", "do"))
        inputs = [lab.tensor(values, name) for values, name in matrices]
        inputs += [lab.tensor([logsumexp(row) for row in scores], "lse")]
        inputs += [lab.tensor(delta, "delta")]
        grid = (-(-n // queries),)
        lab.launch(kernel, grid, *inputs, dq, scale, n, DIM=dim, QUERIES=queries, KEYS=keys)
        why = FAR if scale < 0 else ABOVE if scale > 3.0 else None
        lab.compare(dq, right, [why] * n, digits=2e-3, least=1e-4 * max(1.0, abs(scale)))
        at_most(lab, "q", n * dim)
        at_most(lab, "do", n * dim)
        at_most(lab, "k", n * dim * grid[0])
        at_most(lab, "v", n * dim * grid[0])
    return "Right: dk and dv are the same loop, with the roles of queries and keys exchanged."


Y, DX = "tl.exp(scores - lse[:, None])", "y * (dy - delta[:, None])"
WRONG = [
    (Y, "tl.exp(scores)", "A weight is relative to the row's log-sum-exp: exp(score − lse)."),
    (Y, "tl.exp(lse[:, None] - scores)", "The exponent is upside down: score − lse."),
    (
        f"tl.where((keys < n)[None, :], {Y}, 0.0)",
        Y,
        "A key past the end has the score 0, whose weight overflows where lse is far below 0.",
    ),
    (DX, "y * dy", "The weighted mean of dy is missing: subtract delta."),
    (DX, "dy - y * delta[:, None]", "dx is y · (dy − delta): y multiplies both."),
    (DX, "y * (dy + delta[:, None])", "The mean is subtracted from dy."),
    ("scale * dq, ", "dq, ", "The scores were scaled, so their gradient is too: scale · dx · k."),
    (
        "scale * tl.sum(q[:",
        "tl.sum(q[:",
        "The scores are not multiplied by scale, so the weights do not fit lse.",
    ),
    (
        "dq += tl.sum(dx[:, :, None] * k[None",
        "dq += tl.sum(dx[:, :, None] * v[None",
        "The gradient of q is a sum of keys.",
    ),
    (
        "do[:, None, :] * v[None",
        "do[:, None, :] * k[None",
        "dy is the inner product of do with the values.",
    ),
]
