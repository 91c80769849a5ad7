"""The worked example: a 2 × 3 matrix carried through forward, Jacobian, backward and the online
recurrence. Its page shows the numbers step by step; sessions there compute them again.

The matrices are those of a page "from math to implementation" (blog), whose printed row sums are
wrong; see `from_printed_sums`.
"""

from __future__ import annotations

import numpy as np

from softmax_tutorial import reference

X = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
DY = np.array([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])


def forward(x: np.ndarray = X) -> dict[str, np.ndarray]:
    """Every intermediate of the forward pass, for a batch of shape (n_rows, n_cols): maxima,
    exponentials and their sums as columns of shape (n_rows, 1), softmax and its logarithm.

    >>> forward()["e"].round(4)
    array([[0.1353, 0.3679, 1.    ],
           [0.0183, 0.1353, 1.    ]])
    """
    m = x.max(axis=1, keepdims=True)
    shifted = x - m
    e = np.exp(shifted)
    d = e.sum(axis=1, keepdims=True)
    return {"m": m, "x - m": shifted, "e": e, "d": d, "y": e / d, "log y": shifted - np.log(d)}


def jacobian(x: np.ndarray = X) -> np.ndarray:
    """One 3 × 3 Jacobian per row, diag(y) - y yᵀ, of shape (2, 3, 3) together; symmetric, with
    rows that add up to 0, and of rank 2.

    >>> J = jacobian()
    >>> np.allclose(J, J.transpose(0, 2, 1)), np.allclose(J.sum(axis=2), 0)
    (True, True)
    >>> np.linalg.matrix_rank(J).tolist()
    [2, 2]
    """
    return reference.softmax_jacobian(reference.softmax_naive_numpy(x))


def backward(x: np.ndarray = X, dy: np.ndarray = DY) -> dict[str, np.ndarray]:
    """Every intermediate of the backward pass, for a batch of shape (n_rows, n_cols): the
    products y ⊙ dy, their row sums s of shape (n_rows, 1), what is left of dy without them, dx."""
    y = reference.softmax_naive_numpy(x)
    product = y * dy
    s = product.sum(axis=1, keepdims=True)
    difference = dy - s
    return {"y dy": product, "s": s, "dy - s": difference, "dx": y * difference}


PRINTED = {
    "y dy": np.array([[0.0090, 0.0489, 0.4656], [0.0032, 0.0352, 0.4334]]),
    "s": np.array([[0.2036], [0.2597]]),
    "dx": np.array([[-0.0381, -0.0792, 0.1173], [-0.0043, -0.0202, 0.0245]]),
}
"""The products, the row sums and the gradient that the blog prints."""


def from_printed_sums(x: np.ndarray = X, dy: np.ndarray = DY) -> np.ndarray:
    """What dx would be if the printed row sums were right: rows that do not even add up to 0."""
    return reference.softmax_naive_numpy(x) * (dy - PRINTED["s"])


def online(row: int = 0) -> list[reference.OnlineStep]:
    """The online recurrence over one row of X. Both rows grow from left to right, the worst case:
    every step rescales. The last pair is the maximum and the denominator of `forward`.

    >>> [bool(np.isclose(online(row)[-1].d, forward()["d"][row, 0])) for row in (0, 1)]
    [True, True]
    """
    return reference.online_steps(X[row])
