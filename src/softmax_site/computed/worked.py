"""The worked example: a 2 × 3 matrix carried through forward, Jacobian, backward and the online
recurrence.

Every number that the site prints about this example is the output of a doctest here. The matrices
are those of a page "from math to implementation" (blog), whose printed row sums this module
corrects; see `backward`.

The input, and the gradient that arrives at the output:

>>> X
array([[1., 2., 3.],
       [1., 3., 5.]])
>>> DY
array([[0.1, 0.2, 0.7],
       [0.2, 0.3, 0.5]])
"""

from __future__ import annotations

import numpy as np

from softmax_tutorial import reference

X = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
DY = np.array([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])


def forward(x: np.ndarray = X) -> dict[str, np.ndarray]:
    """Every intermediate of the forward pass, for a batch of shape (n_rows, n_cols).

    The maximum of each row, a column of shape (2, 1), and what is left when it is subtracted:

    >>> step = forward()
    >>> step["m"]
    array([[3.],
           [5.]])
    >>> step["x - m"]
    array([[-2., -1.,  0.],
           [-4., -2.,  0.]])

    The exponentials, none above 1, and their row sums, again a column:

    >>> step["e"].round(4)
    array([[0.1353, 0.3679, 1.    ],
           [0.0183, 0.1353, 1.    ]])
    >>> step["d"].round(4)
    array([[1.5032],
           [1.1537]])

    The softmax, whose rows add up to 1:

    >>> step["y"].round(4)
    array([[0.09  , 0.2447, 0.6652],
           [0.0159, 0.1173, 0.8668]])
    >>> step["y"].sum(axis=1).round(12)
    array([1., 1.])

    Its logarithm, computed without it:

    >>> step["log y"].round(4)
    array([[-2.4076, -1.4076, -0.4076],
           [-4.1429, -2.1429, -0.1429]])
    """
    m = x.max(axis=1, keepdims=True)
    shifted = x - m
    e = np.exp(shifted)
    d = e.sum(axis=1, keepdims=True)
    return {"m": m, "x - m": shifted, "e": e, "d": d, "y": e / d, "log y": shifted - np.log(d)}


def jacobian(x: np.ndarray = X) -> np.ndarray:
    """One 3 × 3 Jacobian per row, diag(y) - y yᵀ, of shape (2, 3, 3) together.

    >>> J = jacobian()
    >>> J[0].round(4)
    array([[ 0.0819, -0.022 , -0.0599],
           [-0.022 ,  0.1848, -0.1628],
           [-0.0599, -0.1628,  0.2227]])
    >>> J[1].round(4)
    array([[ 0.0156, -0.0019, -0.0138],
           [-0.0019,  0.1035, -0.1017],
           [-0.0138, -0.1017,  0.1154]])

    Each is symmetric, its rows add up to 0, and its rank is 2:

    >>> np.allclose(J, J.transpose(0, 2, 1)), np.allclose(J.sum(axis=2), 0)
    (True, True)
    >>> np.linalg.matrix_rank(J).tolist()
    [2, 2]

    Multiplied by the gradient that arrives, it gives what `backward` finds without building it:

    >>> np.einsum("nij,nj->ni", J, DY).round(4)
    array([[-0.0381, -0.0792,  0.1173],
           [-0.0043, -0.0202,  0.0245]])
    """
    return reference.softmax_jacobian(reference.softmax_naive_numpy(x))


def backward(x: np.ndarray = X, dy: np.ndarray = DY) -> dict[str, np.ndarray]:
    """Every intermediate of the backward pass, for a batch of shape (n_rows, n_cols).

    The products y ⊙ dy:

    >>> step = backward()
    >>> step["y dy"].round(4)
    array([[0.009 , 0.0489, 0.4657],
           [0.0032, 0.0352, 0.4334]])

    Their row sums s = ⟨y, dy⟩, a column of shape (2, 1). The blog prints (0.2036, 0.2597) here,
    which is not what its own products add up to:

    >>> step["s"].round(4)
    array([[0.5236],
           [0.4718]])
    >>> step["s"].round(10).ravel().tolist()
    [0.5236174206, 0.4717750424]

    What is left of dy when s is subtracted (the blog prints another matrix; see
    `from_printed_sums`):

    >>> step["dy - s"].round(4)
    array([[-0.4236, -0.3236,  0.1764],
           [-0.2718, -0.1718,  0.0282]])

    And the gradient at the input. The blog prints these numbers, which are right and do not follow
    from the ones it prints before them:

    >>> step["dx"].round(4)
    array([[-0.0381, -0.0792,  0.1173],
           [-0.0043, -0.0202,  0.0245]])

    Each row adds up to 0, since adding a constant to a row of x does not change y:

    >>> np.allclose(step["dx"].sum(axis=1), 0)
    True
    """
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
    """What dx would be if the printed row sums were right.

    The printed dx is ours to the last digit:

    >>> bool(np.abs(backward()["dx"] - PRINTED["dx"]).max() < 5e-5)
    True

    The printed sums lead elsewhere, to rows that do not even add up to 0:

    >>> from_printed_sums().round(4)
    array([[-0.0093, -0.0009,  0.3302],
           [-0.0009,  0.0047,  0.2083]])
    """
    return reference.softmax_naive_numpy(x) * (dy - PRINTED["s"])


def online(row: int = 0) -> list[reference.OnlineStep]:
    """The online recurrence over one row of X.

    Both rows grow from left to right, the worst case: every step rescales.

    >>> for step in online(0):
    ...     print(f"read {step.x}: m = {step.m}, "
    ...           f"d = d·{step.scale:.4f} + {step.term:.4f} = {step.d:.4f}")
    read 1.0: m = 1.0, d = d·0.0000 + 1.0000 = 1.0000
    read 2.0: m = 2.0, d = d·0.3679 + 1.0000 = 1.3679
    read 3.0: m = 3.0, d = d·0.3679 + 1.0000 = 1.5032
    >>> for step in online(1):
    ...     print(f"read {step.x}: m = {step.m}, "
    ...           f"d = d·{step.scale:.4f} + {step.term:.4f} = {step.d:.4f}")
    read 1.0: m = 1.0, d = d·0.0000 + 1.0000 = 1.0000
    read 3.0: m = 3.0, d = d·0.1353 + 1.0000 = 1.1353
    read 5.0: m = 5.0, d = d·0.1353 + 1.0000 = 1.1537

    The last pair is the maximum and the denominator that `forward` found in two passes:

    >>> [bool(np.isclose(online(row)[-1].d, forward()["d"][row, 0])) for row in (0, 1)]
    [True, True]
    """
    return reference.online_steps(X[row])
