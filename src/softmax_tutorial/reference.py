"""The mathematics of softmax in NumPy and PyTorch, written to be read and to be tested against.

Nothing here is fast. Each function is the shortest true form of one equation, works along the last
axis, accepts any leading shape, and keeps the dtype it is given. Argument names are those of the
kernels: `x` the input, `y` the output, `dy` the gradient that arrives at `y`, `dx` the gradient
that leaves at `x`, `m` a maximum, `d` a denominator.

Values that are not finite follow PyTorch: a row that holds NaN or +inf gives NaN throughout, a row
of nothing but -inf as well, and a -inf beside finite numbers gives 0.

PyTorch is imported only by the functions that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

IDENTITY = (-np.inf, 0.0)
"""The (m, d) of an empty set: what `merge` leaves unchanged."""


# --- forward --------------------------------------------------------------------------------------


# --8<-- [start:softmax-naive-numpy]
def softmax_naive_numpy(x: np.ndarray) -> np.ndarray:
    """Softmax in three passes over each row: maximum, sum of exponentials, division.

    Args:
        x: floating-point array of shape (..., n_cols), n_cols ≥ 1.

    Returns:
        y of the same shape and dtype; each row of finite numbers adds up to 1.

    Source: "Learning Triton One Kernel at a Time: Softmax".

    >>> softmax_naive_numpy(np.array([1.0, 2.0, 3.0])).round(4)
    array([0.09  , 0.2447, 0.6652])
    >>> softmax_naive_numpy(np.array([-1000.0, -1001.0])).round(4)
    array([0.7311, 0.2689])
    >>> softmax_naive_numpy(np.array([0.0, -np.inf]))
    array([1., 0.])
    >>> softmax_naive_numpy(np.array([-np.inf, -np.inf]))
    array([nan, nan])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        # eq: softmax-safe
        m = x.max(axis=-1, keepdims=True)  # pass 1
        d = np.exp(x - m).sum(axis=-1, keepdims=True)  # pass 2
        return np.exp(x - m) / d  # pass 3


# --8<-- [end:softmax-naive-numpy]


def softmax_online_numpy(x: np.ndarray) -> np.ndarray:
    """Softmax in two passes: the maximum and the denominator are found together.

    The first pass visits each column once. Whenever the running maximum `m` grows, the denominator
    `d` collected so far is rescaled to the new maximum.

    Args:
        x: floating-point array of shape (..., n_cols), n_cols ≥ 1.

    Returns:
        y of the same shape and dtype.

    Source: "Learning Triton One Kernel at a Time: Softmax"; the recurrence is from "Online
    normalizer calculation for softmax" (Milakov and Gimelshein, 2018).

    >>> softmax_online_numpy(np.array([1.0, 3.0, 5.0])).round(4)
    array([0.0159, 0.1173, 0.8668])
    >>> x = np.random.default_rng(0).normal(size=(4, 9)) * 100
    >>> np.allclose(softmax_online_numpy(x), softmax_naive_numpy(x), rtol=1e-13)
    True
    >>> softmax_online_numpy(np.array([-np.inf, -np.inf, 2.0]))
    array([0., 0., 1.])
    """
    m, d = (np.full(x.shape[:-1], value, x.dtype) for value in IDENTITY)
    for i in range(x.shape[-1]):  # pass 1
        # eq: online-m, online-d
        m, d = merge(m, d, x[..., i], np.ones_like(d))
    m, d = m[..., None], d[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        # eq: online-output
        return exp_shifted(x, m) / d  # pass 2


def log_softmax_numpy(x: np.ndarray) -> np.ndarray:
    """log(softmax(x)) = x - m - log(d), which never takes the logarithm of a rounded-down zero.

    Args:
        x: floating-point array of shape (..., n_cols), n_cols ≥ 1.

    >>> log_softmax_numpy(np.array([1.0, 2.0, 3.0])).round(4)
    array([-2.4076, -1.4076, -0.4076])
    >>> log_softmax_numpy(np.array([0.0, -2000.0]))
    array([    0., -2000.])
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        m = x.max(axis=-1, keepdims=True)
        d = np.exp(x - m).sum(axis=-1, keepdims=True)
        # eq: log-softmax-definition
        return (x - m) - np.log(d)


def logsumexp_numpy(x: np.ndarray) -> np.ndarray:
    """log(sum(exp(x))) = m + log(d) along the last axis, as `torch.logsumexp`.

    An infinite maximum is the answer itself: +inf gives +inf, and a row of nothing but -inf gives
    -inf.

    Args:
        x: floating-point array of shape (..., n_cols), n_cols ≥ 1.

    Returns:
        An array of shape (...).

    >>> float(logsumexp_numpy(np.array([1000.0, 1000.0])).round(4))
    1000.6931
    >>> logsumexp_numpy(np.array([[np.inf, 0.0], [-np.inf, -np.inf], [np.nan, 0.0]]))
    array([ inf, -inf,  nan])
    """
    m = x.max(axis=-1)
    m_safe = np.where(np.isinf(m), 0, m)
    with np.errstate(divide="ignore", over="ignore"):
        # eq: lse-shift
        return m_safe + np.log(np.exp(x - m_safe[..., None]).sum(axis=-1))


# --- the monoid -----------------------------------------------------------------------------------


def exp_shifted(x: np.ndarray | float, m: np.ndarray | float) -> np.ndarray:
    """exp(x - m), and 0 rather than NaN where x = m = -inf.

    >>> exp_shifted(np.array([-np.inf, -np.inf, 1.0]), np.array([-np.inf, 1.0, 1.0]))
    array([0., 0., 1.])
    """
    x, m = np.asarray(x), np.asarray(m)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.exp(x - np.where(m == -np.inf, np.zeros_like(m), m))


def merge(m1, d1, m2, d2):
    """The (m, d) of a union of two sets, from the (m, d) of each.

    Associative and commutative, with identity (-inf, 0). A set that holds NaN or +inf makes d NaN,
    for good.

    Args:
        m1: maximum of the first set, a number or an array.
        d1: sum of exp(x - m1) over the first set, of the same shape.
        m2: maximum of the second set.
        d2: sum of exp(x - m2) over the second set.

    Returns:
        The pair (m, d).

    >>> m, d = merge(3.0, 1.5, 5.0, 1.25)
    >>> print(m, d.round(4))  # 1.5·exp(-2) + 1.25
    5.0 1.453
    >>> merge(3.0, 1.5, *IDENTITY) == (3.0, 1.5) and merge(*IDENTITY, *IDENTITY) == IDENTITY
    True
    """
    # eq: merge
    m = np.maximum(m1, m2)
    d = d1 * exp_shifted(m1, m) + d2 * exp_shifted(m2, m)
    return m, d


def summary(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The (m, d) of each row, straight from the definition: m = max(x), d = sum(exp(x - m)).

    Args:
        x: floating-point array of shape (..., n_cols); n_cols = 0 gives the identity.

    Returns:
        m and d, each of shape (...).

    >>> summary(np.array([[1.0, 2.0], [-np.inf, -np.inf]]))
    (array([  2., -inf]), array([1.36787944, 0.        ]))
    >>> summary(np.zeros(0)) == IDENTITY
    True
    """
    # eq: pair-of-set
    m = x.max(axis=-1, initial=-np.inf)
    return m, exp_shifted(x, m[..., None]).sum(axis=-1)


class OnlineStep(NamedTuple):
    """One step of the online recurrence: what the running pair is after `x` has been read."""

    i: int
    x: float
    m: float
    d: float
    scale: float
    """exp(m_before - m): what the denominator collected so far was multiplied by."""
    term: float
    """exp(x - m): what was added."""


def online_steps(x: np.ndarray) -> list[OnlineStep]:
    """The online recurrence over one row, one step per element: what the figure on the site shows.

    Args:
        x: array of shape (n_cols,).

    >>> for step in online_steps(np.array([1.0, 3.0, 2.0])):
    ...     print(step.i, step.x, step.m, *(round(v, 4) for v in (step.d, step.scale, step.term)))
    0 1.0 1.0 1.0 0.0 1.0
    1 3.0 3.0 1.1353 0.1353 1.0
    2 2.0 3.0 1.5032 1.0 0.3679
    """
    x = np.asarray(x)
    if x.ndim != 1:
        raise ValueError(f"online_steps takes one row, an array of shape (n_cols,), not {x.shape}")
    steps = []
    m, d = IDENTITY
    for i, x_i in enumerate(map(float, x)):
        m_before = m
        m, d = merge(m, d, x_i, 1.0)
        steps.append(
            OnlineStep(
                i,
                x_i,
                float(m),
                float(d),
                float(exp_shifted(m_before, m)),
                float(exp_shifted(x_i, m)),
            )
        )
    return steps


# --- backward -------------------------------------------------------------------------------------


def softmax_jacobian(y: np.ndarray) -> np.ndarray:
    """The Jacobian ∂y_i/∂x_j = y_i·(δ_ij - y_j) of softmax, in matrix form: diag(y) - y yᵀ.

    Args:
        y: output of softmax, shape (..., n).

    Returns:
        An array of shape (..., n, n).

    Source: a page "from math to implementation" (blog).

    >>> J = softmax_jacobian(np.array([0.2, 0.3, 0.5]))
    >>> J.round(2)
    array([[ 0.16, -0.06, -0.1 ],
           [-0.06,  0.21, -0.15],
           [-0.1 , -0.15,  0.25]])
    >>> np.allclose(J.sum(axis=1), 0)
    True
    """
    # eq: softmax-jacobian-matrix
    return y[..., :, None] * np.eye(y.shape[-1], dtype=y.dtype) - y[..., :, None] * y[..., None, :]


def log_softmax_jacobian(y: np.ndarray) -> np.ndarray:
    """∂log(y_i)/∂x_j = δ_ij - y_j, from which y_i times it is the Jacobian of softmax.

    Args:
        y: output of softmax (not its logarithm), shape (..., n).

    Returns:
        An array of shape (..., n, n).

    Source: "Learning Triton One Kernel at a Time: Softmax".

    >>> y = np.array([0.2, 0.3, 0.5])
    >>> np.allclose(y[:, None] * log_softmax_jacobian(y), softmax_jacobian(y))
    True
    """
    # eq: log-softmax-jacobian
    return np.eye(y.shape[-1], dtype=y.dtype) - y[..., None, :]


def softmax_vjp(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dx = y ⊙ (dy - ⟨y, dy⟩): the Jacobian times dy, without the Jacobian.

    Args:
        y: output of softmax, shape (..., n_cols).
        dy: gradient of the loss with respect to y, same shape. For a batch (n_rows, n_cols) the
            inner products form a column (n_rows, 1).

    Returns:
        dx, same shape.

    >>> y = np.array([0.2, 0.3, 0.5]); dy = np.array([1.0, 0.0, 2.0])
    >>> np.allclose(softmax_vjp(y, dy), softmax_jacobian(y) @ dy)
    True
    """
    # eq: softmax-vjp, softmax-vjp-batch
    s = (y * dy).sum(axis=-1, keepdims=True)
    return y * (dy - s)


def log_softmax_vjp(y: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dx = dy - exp(y)·sum(dy), where y is the output of log_softmax.

    Args:
        y: output of log_softmax, shape (..., n_cols).
        dy: gradient of the loss with respect to y, same shape.

    >>> y = np.log([0.2, 0.3, 0.5]); dy = np.array([0.0, -1.0, 0.0])
    >>> log_softmax_vjp(y, dy).round(4)  # the cross-entropy case: softmax minus one-hot
    array([ 0.2, -0.7,  0.5])
    """
    # eq: log-softmax-vjp
    return dy - np.exp(y) * dy.sum(axis=-1, keepdims=True)


def logsumexp_vjp(x: np.ndarray, dlse: np.ndarray) -> np.ndarray:
    """dx = softmax(x)·dlse: the gradient of logsumexp is softmax.

    Args:
        x: input of logsumexp, shape (..., n_cols).
        dlse: gradient of the loss with respect to logsumexp(x), shape (...).

    >>> logsumexp_vjp(np.array([1.0, 2.0, 3.0]), np.array(2.0)).round(4)
    array([0.1801, 0.4895, 1.3305])
    """
    # eq: logsumexp-vjp
    return softmax_naive_numpy(x) * dlse[..., None]


def cross_entropy(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """-log_softmax(x)[target] of each row.

    Args:
        x: logits of shape (n_rows, n_cols).
        target: n_rows column indices.

    >>> cross_entropy(np.array([[1.0, 2.0, 3.0]]), np.array([2])).round(4)
    array([0.4076])
    """
    return -np.take_along_axis(log_softmax_numpy(x), target[:, None], axis=-1)[:, 0]


def cross_entropy_gradient(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The gradient of `cross_entropy` with respect to the logits: softmax(x) minus one-hot(target).

    >>> cross_entropy_gradient(np.array([[1.0, 2.0, 3.0]]), np.array([2])).round(4)
    array([[ 0.09  ,  0.2447, -0.3348]])
    """
    # eq: cross-entropy-gradient-batch
    dx = softmax_naive_numpy(x)
    dx[np.arange(len(target)), target] -= 1
    return dx


# --- PyTorch --------------------------------------------------------------------------------------


def softmax_naive_torch(x: torch.Tensor) -> torch.Tensor:
    """Softmax along the last dimension, one PyTorch operation per line.

    Each line is a kernel of its own that reads its operands from memory and writes its result back;
    `softmax_bench.traffic` counts them.

    Args:
        x: floating-point tensor of shape (..., n_cols), n_cols ≥ 1.

    Returns:
        A tensor of the same shape and dtype, differentiable by autograd.

    Source: the first version of the Triton tutorial "Fused Softmax", with the exponential taken of
    z where the source takes it of x.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 3.0], [100.0, 100.0, 100.0]])
    >>> torch.allclose(softmax_naive_torch(x), torch.softmax(x, dim=-1))
    True
    """
    # eq: softmax-safe
    x_max = x.amax(dim=-1, keepdim=True)
    z = x - x_max
    numerator = z.exp()
    denominator = numerator.sum(dim=-1, keepdim=True)
    y = numerator / denominator
    return y


def log_softmax_naive_torch(x: torch.Tensor) -> torch.Tensor:
    """log_softmax along the last dimension, one PyTorch operation per line.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 3.0], [0.0, -2000.0, -2000.0]])
    >>> torch.allclose(log_softmax_naive_torch(x), torch.log_softmax(x, dim=-1))
    True
    """
    x_max = x.amax(dim=-1, keepdim=True)
    z = x - x_max
    denominator = z.exp().sum(dim=-1, keepdim=True)
    return z - denominator.log()


def softmax_vjp_torch(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dx = y ⊙ (dy - ⟨y, dy⟩) along the last dimension, one PyTorch operation per line.

    Args:
        y: output of softmax, shape (..., n_cols).
        dy: gradient of the loss with respect to y, same shape.

    Source: a page "from math to implementation" (blog), native PyTorch backward.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    >>> dy = torch.tensor([[0.1, 0.2, 0.7]])
    >>> y = torch.softmax(x, dim=-1)
    >>> torch.allclose(softmax_vjp_torch(y, dy), torch.autograd.grad(y, x, dy)[0])
    True
    """
    # eq: softmax-vjp
    product = y * dy
    s = product.sum(dim=-1, keepdim=True)
    difference = dy - s
    dx = y * difference
    return dx


def log_softmax_vjp_torch(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """dx = dy - exp(y)·sum(dy), where y is the output of log_softmax, one PyTorch operation per
    line.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    >>> dy = torch.tensor([[0.1, 0.2, 0.7]])
    >>> y = torch.log_softmax(x, dim=-1)
    >>> torch.allclose(log_softmax_vjp_torch(y, dy), torch.autograd.grad(y, x, dy)[0])
    True
    """
    probability = y.exp()
    s = dy.sum(dim=-1, keepdim=True)
    scaled = probability * s
    return dy - scaled


# --- attention ------------------------------------------------------------------------------------


def attention_naive(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """o_i = sum_j softmax_j(q_i·k_j)·v_j for numbers q_i, k_j, v_j, with the whole score matrix in
    memory.

    Args:
        q: queries, shape (n_queries,).
        k: keys, shape (n_keys,).
        v: values, shape (n_keys,).

    Returns:
        o, shape (n_queries,).

    >>> attention_naive(np.array([0.0, 10.0]), np.array([1.0, 2.0]), np.array([0.0, 4.0])).round(4)
    array([2.    , 3.9998])
    """
    # eq: attention-definition
    return softmax_naive_numpy(q[:, None] * k[None, :]) @ v


class AttentionStep(NamedTuple):
    """One step of the FlashAttention-1 recurrence, for all queries at once."""

    j: int
    m: np.ndarray
    d: np.ndarray
    o: np.ndarray


def attention_steps(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[AttentionStep]:
    """The FlashAttention-1 recurrence over the keys: after each step `o` is the attention over the
    keys read so far.

    With s = q·k_j, the step from (m, d, o) to (m_new, d_new, o_new) is

        m_new = max(m, s)
        d_new = d·exp(m - m_new) + exp(s - m_new)
        o_new = o·(d·exp(m - m_new) / d_new) + v_j·(exp(s - m_new) / d_new)

    Args:
        q: queries, shape (n_queries,).
        k: keys, shape (n_keys,).
        v: values, shape (n_keys,).

    Source: Triton Puzzles 9 and the FlashAttention paper (Dao and others, 2022).

    >>> q, k, v = np.array([0.0]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0, 2.0])
    >>> [step.o.round(4).tolist() for step in attention_steps(q, k, v)]
    [[0.0], [2.0], [2.0]]
    """
    m, d = (np.full(q.shape, value, q.dtype) for value in IDENTITY)
    o = np.zeros_like(q)
    steps = []
    for j in range(len(k)):
        s = q * k[j]
        # eq: online-m, online-d
        m_new, d_new = merge(m, d, s, np.ones_like(d))
        with np.errstate(invalid="ignore", over="ignore"):
            # eq: attention-o
            o = o * (d * exp_shifted(m, m_new) / d_new) + v[j] * (exp_shifted(s, m_new) / d_new)
        m, d = m_new, d_new
        steps.append(AttentionStep(j, m, d, o))
    return steps


def attention_online(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention with scalar q, k, v in one loop over the keys: the last `o` of `attention_steps`.

    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 12))
    >>> np.allclose(attention_online(q, k, v), attention_naive(q, k, v))
    True
    """
    return attention_steps(q, k, v)[-1].o


def attention_of_parts(o: np.ndarray, lse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The attention over all keys from that over each part of them.

    Args:
        o: outputs of the parts, shape (n_parts, ..., depth).
        lse: log-sum-exp of the scores of each part, shape (n_parts, ...); -inf of an empty one, but
            not of all.

    Returns:
        Output and log-sum-exp over all keys, shapes (..., depth) and (...).

    >>> o, lse = attention_of_parts(np.array([[1.0], [3.0]]), np.log(np.array([2.0, 6.0])))
    >>> o, np.exp(lse).round(4)
    (array([2.5]), np.float64(8.0))
    """
    m = lse.max(axis=0)
    d = exp_shifted(lse, m).sum(axis=0)
    # eq: attention-lse-merge
    return (o * (exp_shifted(lse, m) / d)[..., None]).sum(axis=0), m + np.log(d)


def attention_vjp(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, do: np.ndarray, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of attention, softmax(scale·q·kᵀ)·v, with all weights in memory.

    Args:
        q: queries, shape (n_queries, depth).
        k: keys, shape (n_keys, depth).
        v: values, shape (n_keys, depth).
        do: gradient of the loss with respect to the output, shape (n_queries, depth).
        scale: factor of the scores.

    Returns:
        dq, dk and dv, with the shapes of q, k and v.

    >>> q, k, v, do = np.eye(2), np.eye(2), np.eye(2), np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> [gradient.round(4).tolist() for gradient in attention_vjp(q, k, v, do)[:1]]
    [[[0.1966, -0.1966], [0.0, 0.0]]]
    """
    y = softmax_naive_numpy(scale * q @ k.T)
    s = (do * (y @ v)).sum(axis=1, keepdims=True)
    # eq: attention-vjp
    dv = y.T @ do
    dx = y * (do @ v.T - s)
    return scale * dx @ k, scale * dx.T @ q, dv
