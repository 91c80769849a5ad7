"""Fill in. Attention with one number per query, key and value, in one loop over the keys."""

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, n, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """n queries, keys and values. o[i] is the mean of v, weighted by softmax over j of
    q[i] * k[j]. A program takes QUERIES queries and walks along the keys, KEYS at a time."""
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
        d = ...
        o = ...
        m = m_new
    tl.store(o_ptr + queries, o / d, mask=queries < n)
