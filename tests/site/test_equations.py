"""Both sides of every display equation of the site, under its label.

A function writes out equations in float64 for what is drawn: random data of several sizes, the
worked example among them. It yields the label and the sides, which have to be equal; or the label
and what has to be true. Nothing here uses a kernel or the references of the library: an equation is
tested against its own text, against a derivative taken numerically, or against PyTorch.

Derivatives are complex steps: for an analytic f, Im f(x + i·h) / h is f'(x) up to h², and there is
no difference that could cancel, so h = 1e-30 gives all digits.
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from site_build import ROOT
from softmax_site import equations

X = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
DY = np.array([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])
SIZES = (1, 2, 3, 8, 33, 100)
SHAPES = ((1, 1), (1, 5), (2, 3), (7, 1), (5, 33))
U = 2.0**-24
H = 1e-30
INF = math.inf


# --- what is drawn --------------------------------------------------------------------------------


def rows(n_min=1):
    """Rows of several lengths and spreads, within the range of exp without a shift; first those of
    the worked example."""
    random = np.random.default_rng(11)
    yield from X
    for n, spread in itertools.product(SIZES, (1.0, 6.0)):
        if n >= n_min:
            yield spread * random.normal(size=n) + 5 * random.normal()


def outputs(n_min=1):
    """Each row with its maximum, its denominator and its softmax."""
    for x in rows(n_min):
        yield x, x.max(), np.exp(x - x.max()).sum(), softmax_of(x)


def rows_with(count, n_min=1):
    """Each row and its softmax with `count` random vectors of its length."""
    random = np.random.default_rng(12)
    for x in rows(n_min):
        yield x, softmax_of(x), *random.normal(size=(count, len(x)))


def losses():
    """x, dy and dx of a loss that is not linear in y: L = sum(w · sin(3 y) · y)."""
    for x, y, w in rows_with(1):

        def loss(y, w=w):
            return (torch.from_numpy(w) * torch.sin(3 * y) * y).sum()

        yield x, y, gradient(loss, y), gradient(lambda t: loss(torch.softmax(t, dim=0)), x)


def matrices():
    """A batch X of shape (M, N) and a gradient of that shape; first the worked example."""
    random = np.random.default_rng(13)
    yield X, DY
    for shape in SHAPES:
        yield 3 * random.normal(size=shape), random.normal(size=shape)


def pairs(count):
    """`count` pairs (m, d), the identity of the monoid among them."""
    random = np.random.default_rng(14)
    for _ in range(50):
        drawn = [(float(10 * random.normal()), float(9 * random.random())) for _ in range(count)]
        yield drawn
        at = random.integers(count)
        yield drawn[:at] + [(-INF, 0.0)] + drawn[at + 1 :]


def pairs_that_are_sums():
    """Three pairs, none of them the identity."""
    return itertools.islice(pairs(3), 0, None, 2)


def collections():
    """Pairs of collections of numbers, empty ones among them."""
    random = np.random.default_rng(17)
    for n, k in itertools.product((0, 1, 2, 9, 40), repeat=2):
        yield list(8 * random.normal(size=n)), list(8 * random.normal(size=k) + 5)


def prefixes():
    """Each row, how many of its entries there are by now, and their maximum and denominator now and
    one entry before."""
    for x in rows(n_min=2):
        for i in range(2, len(x) + 1):
            before, now = ((x[:k].max(), np.exp(x[:k] - x[:k].max()).sum()) for k in (i - 1, i))
            yield x, i, before, now


def queries():
    """A query q, and keys k and values v, all numbers; first keys whose scores are the worked
    example."""
    random = np.random.default_rng(23)
    yield 2.0, X[0] / 2, np.array([0.0, 4.0, 2.0])
    for n in SIZES:
        yield float(random.normal()), 3 * random.normal(size=n), random.normal(size=n)


def keys():
    """Scores and values, how many keys are read, and (m, d, o) then and one key before."""
    for q, k, v in queries():
        for i in range(2, len(k) + 1):
            yield q * k, v, i, attended(q * k, v, i - 1), attended(q * k, v, i)


def offset_rows():
    """float32 rows far from zero, with c = log2 e in float32 and exp(x - m) exactly."""
    random = np.random.default_rng(20)
    for offset, spread in itertools.product((0.0, 100.0, 3e4, -3e4, 1e6), (1.0, 5.0)):
        x = (offset + spread * random.normal(size=2048)).astype(np.float32)
        exact = np.exp(x.astype(np.float64) - float(x.max()))
        yield offset, x, x.max(), np.float32(math.log2(math.e)), exact


def float32_rows():
    """float32 rows whose length is a power of two."""
    random = np.random.default_rng(21)
    for n, spread in itertools.product((2, 16, 256, 4096), (0.5, 3.0, 8.0)):
        yield (spread * random.normal(size=n) + 20 * random.normal()).astype(np.float32)


def once():
    yield ()


# --- what is evaluated ----------------------------------------------------------------------------


def softmax(x):
    """The definition, also for complex x."""
    e = np.exp(x)
    return e / e.sum()


def lse(x):
    """log(sum(exp(x))), also for complex x."""
    return np.log(np.exp(x).sum())


def entropy(x):
    """−Σ y·log y, also for complex x."""
    y = softmax(x)
    return -(y * np.log(y)).sum()


def softmax_of(x):
    """PyTorch's softmax."""
    return torch.softmax(torch.from_numpy(x), dim=-1).numpy()


def log_softmax_of(x):
    """PyTorch's log-softmax."""
    return torch.log_softmax(torch.from_numpy(x), dim=-1).numpy()


def derivative(f, x):
    """∂f_i/∂x_j by complex steps; for a scalar f a row of ∂f/∂x_j."""
    return np.stack([along(f, x, unit) for unit in np.eye(len(x))], axis=-1)


def along(f, x, w):
    """The derivative of f at x in the direction w."""
    return np.imag(f(x + 1j * H * w)) / H


def gradient(f, x):
    """The gradient of the scalar f at x by autograd."""
    leaf = torch.tensor(x, requires_grad=True)
    (g,) = torch.autograd.grad(f(leaf), leaf)
    return g.numpy()


def logarithm(x):
    return np.log(softmax(x))


def merge(p1, p2):
    """The merge of two pairs, with the corner guarded."""
    (m1, d1), (m2, d2) = p1, p2
    m = max(m1, m2)
    shift = 0.0 if m == -INF else m
    return m, d1 * math.exp(m1 - shift) + d2 * math.exp(m2 - shift)


def pair(collection):
    """(max, sum of exp(x - max)) of a collection of numbers."""
    if len(collection) == 0:
        return -INF, 0.0
    m = max(collection)
    return float(m), float(sum(math.exp(x - m) for x in collection))


def triple(x):
    """(m, d, a) of a part of a row."""
    e = np.exp(x - x.max())
    return x.max(), e.sum(), (e * (x - x.max())).sum()


def attended(x, v, i):
    """m_i, d_i and o_i straight from their meaning: maximum, denominator and attention over the
    first i keys."""
    m = x[:i].max()
    return m, np.exp(x[:i] - m).sum(), (softmax_of(x[:i]) * v[:i]).sum()


def recurrence(x):
    """The states (m_i, d_i) for i = 0 … N of the recurrence as the page writes it."""
    states = [(-INF, 0.0)]
    for x_i in map(float, x):
        m_before, d_before = states[-1]
        m = max(m_before, x_i)
        states.append((m, d_before * math.exp(m_before - m) + math.exp(x_i - m)))
    return states


def tree_sum(t):
    """The sum in a balanced tree, every addition rounded to the type of t; the length is a power of
    two."""
    while len(t) > 1:
        t = t[0::2] + t[1::2]
    return t[0]


def rounded(f, t):
    """f rounded once to the type of t: of exp, the relative error is at most 1 unit u."""
    return f(t.astype(np.float64)).astype(t.dtype)


FAMILIES: list[tuple[Callable, Callable, tuple]] = []


def over(drawn, *arguments):
    """Evaluate the equations of a function for each of what is drawn."""

    def add(family):
        FAMILIES.append((family, drawn, arguments))
        return family

    return add


# --- softmax --------------------------------------------------------------------------------------


@over(outputs)
def of_softmax(x, m, d, y):
    n, e, s, z = len(x), np.exp(x), np.exp(x).sum(), log_softmax_of(x)
    entries = [math.exp(x[i]) / sum(math.exp(x[j]) for j in range(n)) for i in range(n)]
    yield "softmax-definition", y, entries
    yield "softmax-sums-to-one", y.sum(), e.sum() / e.sum(), 1.0
    ratios = y[:, None] / y[None, :]
    yield "softmax-ratio", ratios, np.exp(x[:, None] - x[None, :])
    for tau in (0.5, 1.0, 3.0):
        heated = softmax_of(x / tau)
        yield "softmax-temperature", heated[:, None] / heated[None, :], ratios ** (1 / tau)
    for c in (-30.0, -1.0, 0.5, 25.0):
        of_moved, factor = np.exp(x + c), math.exp(c)
        steps = of_moved / of_moved.sum(), factor * e / (factor * s), y
        yield "softmax-shift-invariance", softmax_of(x + c), *steps
    for offset in (0.0, 5000.0, -5000.0):  # where exp(x) itself overflows or vanishes
        moved = x + offset
        of_moved = np.exp(moved - np.max(moved))
        yield "softmax-safe", softmax_of(moved), of_moved / of_moved.sum()
    yield "softmax-safe", np.exp(x - m) / np.exp(x - m).sum(), e / s
    yield "softmax-denominator-bounds", 1 <= d <= n
    yield "sum-of-exponentials", sum(math.exp(value) for value in x), d * math.exp(m)
    yield "softmax-from-lse", y, e / np.exp(lse(x)), np.exp(x - lse(x))
    yield "log-softmax-definition", z, np.log(y), x - lse(x), (x - m) - np.log(d)


@over(outputs)
def of_log_sum_exp(x, m, d, y):
    n = len(x)
    by_torch = torch.logsumexp(torch.from_numpy(x), dim=0).item()
    yield "lse-definition", m + np.log(d), np.log(np.exp(x).sum()), by_torch
    yield "lse-bounds", m <= lse(x) + 1e-13 and lse(x) <= m + np.log(n) + 1e-13
    yield "lse-bounds", lse(np.full(n, x[0])), x[0] + np.log(n)
    for c in (-20.0, 3.0):
        yield "lse-shift", lse(x + c), np.log(math.exp(c) * np.exp(x).sum()), lse(x) + c


@over(once)
def both_bounds_are_attained():
    yield "softmax-denominator-bounds", np.exp(np.array([0.0, -1000.0])).sum() == 1
    yield "softmax-denominator-bounds", np.exp(np.zeros(7)).sum() == 7


@over(lambda: zip(5 * np.random.default_rng(10).normal(size=(50, 2))))
def of_two_entries(x):
    quotient = math.exp(x[0]) / (math.exp(x[0]) + math.exp(x[1]))
    sigmoid = torch.sigmoid(torch.tensor(x[0] - x[1])).item()
    yield "softmax-sigmoid", softmax_of(x)[0], quotient, sigmoid


@over(matrices)
def of_matrices(x, dy):
    n_rows, n_cols = x.shape
    ones = np.ones((n_cols, 1))
    m = x.max(axis=1).reshape(n_rows, 1)
    e = np.exp(x - m @ ones.T)
    d = e @ ones
    y = e / (d @ ones.T)
    shapes = (n_rows, 1), x.shape, (n_rows, 1), x.shape
    yield "softmax-batch", (e.max(axis=1) == 1).all()
    yield "softmax-batch", (m.shape, e.shape, d.shape, y.shape) == shapes
    yield "softmax-batch", y, np.stack([softmax(row) for row in x])
    leaf = torch.tensor(x, requires_grad=True)
    (dx,) = torch.autograd.grad(torch.softmax(leaf, dim=1), leaf, torch.from_numpy(dy))
    s = (softmax_of(x) * dy) @ ones
    yield "softmax-vjp-batch", s.shape == (n_rows, 1)
    yield "softmax-vjp-batch", dx.numpy(), softmax_of(x) * (dy - s @ ones.T)
    t = np.random.default_rng(15).integers(n_cols, size=n_rows)
    mean, y = functools.partial(cross_entropy, target=torch.from_numpy(t)), softmax_of(x)
    loss = -1 / n_rows * sum(np.log(y[r, t[r]]) for r in range(n_rows))
    yield "cross-entropy-gradient-batch", mean(torch.from_numpy(x)).item(), loss
    yield "cross-entropy-gradient-batch", gradient(mean, x), 1 / n_rows * (y - np.eye(n_cols)[t])


# --- the Jacobian ---------------------------------------------------------------------------------


@over(outputs)
def of_the_jacobian(x, m, d, y):
    n, e, s, column = len(x), np.exp(x), np.exp(x).sum(), y.reshape(-1, 1)
    eye, ones, leaf = np.eye(n), np.ones((n, 1)), torch.from_numpy(x)
    jacobian = derivative(softmax, x)
    by_autograd = torch.autograd.functional.jacobian(lambda t: torch.softmax(t, dim=0), leaf)
    yield "softmax-jacobian-definition", jacobian, by_autograd.numpy()
    yield "softmax-quotient-rule", derivative(lambda t: np.exp(t).sum(), x), e
    yield "softmax-quotient-rule", jacobian, (derivative(np.exp, x) * s - np.outer(e, e)) / s**2
    steps = (e * s - e * e) / s**2, e / s * ((s - e) / s), y * (1 - y)
    yield "softmax-jacobian-diagonal", np.diag(jacobian), *steps
    for i, j in itertools.permutations(range(min(n, 12)), 2):
        steps = (0 * s - e[i] * e[j]) / s**2, -(e[i] / s) * (e[j] / s), -y[i] * y[j]
        yield "softmax-jacobian-off-diagonal", jacobian[i, j], *steps
    cases = [[y[i] * (1 - y[i]) if i == j else -y[i] * y[j] for j in range(n)] for i in range(n)]
    yield "softmax-jacobian-cases", jacobian, cases
    yield "softmax-jacobian-delta", jacobian, column * (eye - y[None, :])
    yield "softmax-jacobian-matrix", jacobian, np.diag(y) - column @ column.T
    yield "jacobian-symmetric", jacobian, jacobian.T
    yield "jacobian-row-sums", np.zeros(n), jacobian @ np.ones(n), np.ones(n) @ jacobian
    of_log, of_lse = derivative(logarithm, x), derivative(lse, x)
    yield "logsumexp-gradient", of_lse, e / s, y
    steps = derivative(lambda t: t, x) - of_lse[None, :], eye - y[None, :]
    yield "softmax-log-derivative", of_log, *steps
    yield "log-derivative-identity", jacobian, column * of_log, column * (eye - y[None, :])
    by_autograd = torch.autograd.functional.jacobian(lambda t: torch.log_softmax(t, dim=0), leaf)
    yield "log-softmax-jacobian", by_autograd.numpy(), eye - ones @ column.T
    hessian = torch.autograd.functional.hessian(lambda t: torch.logsumexp(t, dim=0), leaf)
    yield "lse-hessian", hessian.numpy(), jacobian


@over(rows_with, 1)
def of_the_variance(x, y, w):
    variance = (y * (w - (y * w).sum()) ** 2).sum()
    form = w @ derivative(softmax, x) @ w
    yield "jacobian-variance", form, (y * w**2).sum() - (y * w).sum() ** 2, variance
    yield "jacobian-variance", variance >= 0


def chain(x, w):
    """What lies between 0 and ‖w‖²/2, in its order."""
    return 0.0, w @ derivative(softmax, x) @ w, (w.max() - w.min()) ** 2 / 4, (w**2).sum() / 2


@over(rows_with, 1, 2)
def of_eigenvalues(x, y, w):
    in_order = all(low <= high + 1e-14 for low, high in itertools.pairwise(chain(x, w)))
    yield "jacobian-eigenvalue-bound", in_order


@over(once)
def where_eigenvalues_are_largest():
    _, form, spread, norm = chain(np.zeros(2), np.array([1.0, -1.0]))
    yield "jacobian-eigenvalue-bound", form, spread, norm
    _, form, spread, _ = chain(np.array([0.3, 0.3]), np.array([5.0, 2.0]))
    yield "jacobian-eigenvalue-bound", form, spread
    random = np.random.default_rng(3)
    for n in SIZES:
        jacobian = derivative(softmax, random.normal(size=n))
        yield "jacobian-rank", np.linalg.matrix_rank(jacobian, tol=1e-9) == n - 1
        _, singular, right = np.linalg.svd(jacobian)
        yield "jacobian-rank", np.abs(right[-1]), np.full(n, 1 / math.sqrt(n))  # up to its sign
        yield "jacobian-rank", right[-1] / right[-1][0], np.ones(n)
        yield "jacobian-rank", n == 1 or singular[-2] > 1e-6 > singular[-1]


# --- the vector-Jacobian product ------------------------------------------------------------------


@over(losses)
def of_a_loss(x, y, dy, dx):
    n, s, jacobian = len(x), (y * dy).sum(), derivative(softmax, x)
    by_outputs = [sum(dy[i] * jacobian[i, j] for i in range(n)) for j in range(n)]
    yield "vjp-chain-rule", dx, by_outputs
    yield "vjp-transpose", dx.reshape(n, 1), jacobian.T @ dy.reshape(n, 1)
    yield "softmax-vjp", dx, y * (dy - s)
    yield "vjp-sum-zero", dx.sum(), s - s * y.sum(), 0.0


@over(rows_with, 1, 2)
def of_a_jacobian_that_is_not_symmetric(x, y, dz):
    """It shows that the transpose is meant."""
    jacobian = derivative(logarithm, x)
    dx = gradient(lambda t: (torch.log_softmax(t, dim=0) * torch.from_numpy(dz)).sum(), x)
    yield "vjp-transpose", dx, jacobian.T @ dz
    yield "vjp-transpose", not np.allclose(dx, jacobian @ dz)


@over(rows_with, 1)
def of_products(x, y, w):
    eye, s, jacobian = np.eye(len(x)), (y * w).sum(), derivative(softmax, x)
    outputs = (w[:, None] * y[:, None] * eye).sum(axis=0)
    steps = outputs - (w[:, None] * np.outer(y, y)).sum(axis=0), w * y - y * s
    yield "softmax-vjp-derivation", jacobian.T @ w, *steps
    inner = sum(y[i] * w[i] for i in range(len(x)))
    yield "softmax-vjp", jacobian.T @ w, y * (w - inner)
    for c in (-7.0, 0.25, 40.0):
        shifted = y * (w + c - (y * (w + c)).sum())
        sides = y * (w - s), jacobian.T @ (w + c)
        yield "vjp-shift-invariance", shifted, *sides, {"atol": 1e-12}
    yield "softmax-jvp", along(softmax, x, w), jacobian @ w, y * (w - s)
    yield "logsumexp-jvp", along(lse, x, w), s
    yield "log-softmax-jvp", along(logarithm, x, w), w - s
    for dl in (-2.5, 0.3):
        dx = gradient(lambda t, dl=dl: dl * torch.logsumexp(t, dim=0), x)
        yield "logsumexp-vjp", dx, dl * np.exp(x - lse(x))
    dx = gradient(lambda t: (torch.log_softmax(t, dim=0) * torch.from_numpy(w)).sum(), x)
    y = np.exp(log_softmax_of(x))
    transposed = (w[:, None] * (eye - y[None, :])).sum(axis=0)
    yield "log-softmax-vjp", dx, transposed, w - y * w.sum()


@over(outputs)
def of_cross_entropy(x, m, d, y):
    n, z = len(x), log_softmax_of(x)
    for t in {0, n // 2, n - 1}:
        loss = functools.partial(cross_entropy, target=torch.tensor(t))
        sides = -np.log(y[t]), -z[t], lse(x) - x[t]
        yield "cross-entropy-definition", loss(torch.from_numpy(x)).item(), *sides
        sides = [-(j == t) + y[j] for j in range(n)], y - np.eye(n)[t]
        yield "cross-entropy-gradient", gradient(loss, x), *sides
    p = np.random.default_rng(16).dirichlet(np.ones(n))
    loss = functools.partial(cross_entropy, target=torch.from_numpy(p))
    by_sum = -sum(p[i] * (x[i] - lse(x)) for i in range(n))
    yield "cross-entropy-soft-gradient", loss(torch.from_numpy(x)).item(), by_sum
    yield "cross-entropy-soft-gradient", gradient(loss, x), y - p


def phi(y, dy, g):
    """⟨g, y ⊙ (dy - ⟨y, dy⟩)⟩ as a function of y and dy that need not be real."""
    return (g * y * (dy - (y * dy).sum())).sum()


@over(rows_with, 2)
def of_backward(x, y, dy, g):
    s, jacobian, dl = (y * dy).sum(), derivative(softmax, x), 1.7
    triple_sum = (g * y * dy).sum() - (g @ y) * (y @ dy)
    yield "softmax-backward-form", g @ (jacobian.T @ dy), triple_sum
    of_dy, of_y = derivative(lambda t: phi(y, t, g), dy), derivative(lambda t: phi(t, dy, g), y)
    yield "softmax-backward-wrt-grad", of_dy, y * (g - (y * g).sum())
    right = g * (dy - s) - (y * g).sum() * dy
    yield "softmax-backward-wrt-output", of_y, right
    leaf = torch.tensor(x, requires_grad=True)  # carried back to x it is autograd's second one
    (dx,) = torch.autograd.grad(
        torch.softmax(leaf, dim=0), leaf, torch.from_numpy(dy), create_graph=True
    )
    (second,) = torch.autograd.grad(dx, leaf, torch.from_numpy(g))
    yield "softmax-backward-wrt-output", second.numpy(), y * (right - (y * right).sum())
    of_moved = along(lambda t: t * (dy - (t * dy).sum()), y, g)
    yield "softmax-backward-along-output", of_moved, g * (dy - s) - y * (g * dy).sum()
    z = np.log(y)
    of_z = derivative(lambda t: (g * (dy - np.exp(t) * dy.sum())).sum(), z)
    yield "log-softmax-backward-wrt-output", of_z, -dy.sum() * (g * np.exp(z))
    by_dl = derivative(lambda t: (g * (t * y)).sum(), np.array([dl]))
    by_x = derivative(lambda t: (g * (dl * softmax(t))).sum(), x)
    yield "logsumexp-backward-wrt-inputs", by_dl, [(g * y).sum()]
    sides = dl * y * (g - (g * y).sum()), dl * jacobian @ g
    yield "logsumexp-backward-wrt-inputs", by_x, *sides


@over(once)
def of_the_worked_example():
    from softmax_site.computed import worked

    yield "worked-input", np.array_equal(worked.X, [[1, 2, 3], [1, 3, 5]])
    yield "worked-input", np.array_equal(worked.DY, [[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])
    printed = [[0.0900, 0.2447, 0.6652], [0.0159, 0.1173, 0.8668]]
    yield "worked-output", softmax_of(X).round(4), printed
    leaf = torch.tensor(X, requires_grad=True)
    torch.softmax(leaf, dim=1).backward(torch.tensor(DY))
    dx, y = leaf.grad.numpy(), softmax_of(X)
    s = (y * DY).sum(axis=1, keepdims=True)
    yield "worked-gradient", dx, y * (DY - s @ np.ones((1, 3)))
    printed = [[-0.0381, -0.0792, 0.1173], [-0.0043, -0.0202, 0.0245]]
    yield "worked-gradient", dx.round(4), printed


# --- the online recurrence ------------------------------------------------------------------------


@over(prefixes)
def of_the_recurrence(x, i, before, now):
    (m_before, d_before), (m, d), last = before, now, x[i - 1]
    yield "online-m", m == max(m_before, last)
    old = np.exp(x[: i - 1] - m_before)
    steps = (old * np.exp(m_before - m)).sum(), np.exp(m_before - m) * old.sum()
    yield "online-derivation", np.exp(x[:i] - m).sum(), *(each + np.exp(last - m) for each in steps)
    yield "online-d", d, d_before * np.exp(m_before - m) + np.exp(last - m)


@over(outputs)
def of_its_states(x, m, d, y):
    states = recurrence(x)
    for i, (m_i, d_i) in enumerate(states[1:], 1):
        yield "online-invariant", m_i == x[:i].max()
        yield "online-invariant", d_i, sum(math.exp(x[j] - x[:i].max()) for j in range(i))
        merged = merge(states[i - 1], (float(x[i - 1]), 1.0))
        yield "online-as-merge", m_i == merged[0]
        yield "online-as-merge", d_i, merged[1]
    yield "online-output", y, np.exp(x - states[-1][0]) / states[-1][1]
    nothing = np.zeros(0)
    m0, d0 = nothing.max(initial=-np.inf), np.exp(nothing).sum()
    yield "online-start", (m0, d0) == (-np.inf, 0) == recurrence(nothing)[0]
    m1 = max(m0, x[0])
    yield "online-start", (m1, d0 * np.exp(m0 - m1) + np.exp(x[0] - m1)) == (x[0], 1)
    for size in (1, 2, 5, 64):
        m_tile, d_tile = -np.inf, 0.0
        for begin in range(0, len(x), size):
            tile = x[begin : begin + size]
            m_new = max(m_tile, tile.max())
            d_tile = d_tile * np.exp(m_tile - m_new) + np.exp(tile - m_new).sum()
            m_tile = m_new
        yield "online-tile", m_tile == m
        yield "online-tile", d_tile, d


# --- the monoid -----------------------------------------------------------------------------------


@over(collections)
def of_pairs_of_collections(a, b):
    for each in (a, b, a + a):  # with repetitions
        if each:
            m, d = pair(each)
            yield "pair-of-set", m == max(each)
            yield "pair-of-set", d * math.exp(m), sum(math.exp(x) for x in each)
    m, d = pair(a)
    yield "pair-value", d * math.exp(m), float(sum(math.exp(x) for x in a))
    merged, whole = merge(pair(a), pair(b)), pair(a + b)
    yield "merge-union", merged[0] == whole[0]
    yield "merge-union", merged[1], whole[1]
    if a + b:
        m, d = whole
        yield "lse-from-summary", m + math.log(d), math.log(sum(math.exp(x) for x in a + b))
    if a and b:
        of_all, parts = np.array(a + b), np.array([lse(np.array(a)), lse(np.array(b))])
        by_torch = torch.logsumexp(torch.tensor(parts), dim=0).item()
        yield "lse-merge", lse(of_all), np.log(np.exp(parts).sum()), by_torch
        share = np.exp(parts[0] - lse(of_all)), softmax_of(of_all)[: len(a)].sum()
        yield "lse-merge-gradient", derivative(lse, parts)[0], *share


@over(pairs, 1)
def of_one_pair(p):
    identity, (m, d) = (-INF, 0.0), p
    yield "merge-identity", merge(identity, p) == p == merge(p, identity)
    if m > -INF:  # the formula needs no guard here
        yield "merge-identity", (max(-INF, m), 0.0 * math.exp(-INF - m) + d * math.exp(m - m)) == p


@over(pairs, 2)
def of_two_pairs(p1, p2):
    (m1, d1), (m2, d2), (merged, total) = p1, p2, merge(p1, p2)
    m = max(m1, m2)
    d = d1 * math.exp(m1 - m) + d2 * math.exp(m2 - m)
    values = d1 * math.exp(m1) + d2 * math.exp(m2)
    yield "merge", m in (m1, m2)
    yield "merge", d * math.exp(m), values
    yield "merge-value", total * math.exp(merged), d * math.exp(m), values
    yield "merge-commutative", merge(p1, p2) == merge(p2, p1)  # to the last bit


@over(pairs, 3)
def of_three_pairs(p1, p2, p3):
    left, right = merge(merge(p1, p2), p3), merge(p1, merge(p2, p3))
    yield "merge-associative", left[0] == right[0]
    yield "merge-associative", left[1], right[1]


@over(pairs_that_are_sums)
def of_three_terms(p1, p2, p3):
    (m1, d1), (m2, d2), (m3, d3) = p1, p2, p3
    m, m12, m23 = max(m1, m2, m3), max(m1, m2), max(m2, m3)
    terms = sum(d_k * math.exp(m_k - m) for m_k, d_k in (p1, p2, p3))
    of_12 = d1 * math.exp(m1 - m12) + d2 * math.exp(m2 - m12)
    of_23 = d2 * math.exp(m2 - m23) + d3 * math.exp(m3 - m23)
    yield "merge-associative-left", of_12 * math.exp(m12 - m) + d3 * math.exp(m3 - m), terms
    yield "merge-associative-right", d1 * math.exp(m1 - m) + of_23 * math.exp(m23 - m), terms


@over(outputs)
def of_any_order(x, m, d, y):
    random = np.random.default_rng(18)
    heap = [pair(piece) for piece in np.split(x, np.sort(random.integers(0, len(x) + 1, size=4)))]
    while len(heap) > 1:
        p, q = (heap.pop(random.integers(len(heap))) for _ in range(2))
        heap.insert(random.integers(len(heap) + 1), merge(p, q))
    yield "merge-any-order", heap[0][0] == m
    yield "merge-any-order", heap[0][1], d


def guarded(x, m):
    return np.exp(x - np.where(m == -np.inf, 0.0, m))


@over(once)
def of_corners():
    """Without the guard -∞ - (-∞) is NaN; with it the exponential is 0, and all else unchanged."""
    yield "pair-of-set", (pair([2.5]), pair([2.5, 2.5])) == ((2.5, 1.0), (2.5, 2.0))
    yield "merge-identity", merge((-INF, 0.0), (-INF, 0.0)) == (-INF, 0.0)
    low, high = np.float64(-np.inf), np.float64(np.inf)
    with np.errstate(invalid="ignore"):
        yield "merge-corner", np.isnan(np.exp(low - low)) and np.isnan(guarded(high, np.inf))
    yield "merge-corner", guarded(low, -np.inf) == 0
    for x in rows():
        yield "merge-corner", np.array_equal(guarded(x, x.max()), np.exp(x - x.max()))
        yield "merge-corner", np.array_equal(guarded(np.full(3, low), x.max()), np.zeros(3))
    for x in ([-INF, 3.0], [1.0, -INF, 2.0]):
        by_torch = torch.logsumexp(torch.tensor(x, dtype=torch.float64), dim=0).item()
        yield "lse-from-summary", by_torch, pair(x)[0] + math.log(pair(x)[1])
    for m in (-INF, INF):  # where m is not finite it is the answer
        yield "lse-from-summary", torch.logsumexp(torch.tensor([m, -INF]), dim=0).item() == m


# --- numerics -------------------------------------------------------------------------------------


@over(lambda: zip((torch.float16, torch.bfloat16, torch.float32, torch.float64)))
def of_ranges(dtype):
    """exp of the last number at or below log Ω is finite, and exp of one just above overflows."""
    info = torch.finfo(dtype)
    limit = math.log(info.max)
    x = torch.tensor(limit, dtype=torch.float64).to(dtype)
    while x.double() > limit:
        x = torch.nextafter(x, torch.zeros((), dtype=dtype))
    yield "exp-range", torch.exp(x).isfinite()
    above = torch.tensor(limit + 2 * max(info.eps, info.eps * limit), dtype=torch.float64).to(dtype)
    yield "exp-range", above.double() > limit and torch.exp(above).isinf()
    printed = {torch.float16: 11.09, torch.float32: 88.72}
    yield "exp-range", round(limit, 2) == printed.get(dtype, round(limit, 2))


@over(lambda: ((torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-133)))
def of_rounding_once(dtype, smallest):
    """The error stays within the bound, and comes within a factor of two of it."""
    random, u16, worst = np.random.default_rng(19), torch.finfo(dtype).eps / 2, 0.0
    for spread in (1.0, 4.0, 12.0):
        y = softmax_of(spread * random.normal(size=512))
        y_hat = torch.from_numpy(y).float()
        eps = float((y_hat.double() / torch.from_numpy(y) - 1).abs().max())
        error = np.abs(y_hat.to(dtype).double().numpy() - y)
        bound = (u16 + eps + u16 * eps) * y + smallest / 2
        yield "round-once", (error <= bound).all()
        worst = max(worst, (error / bound).max())
        if dtype == torch.float16 and spread == 12.0:
            tiny = y < torch.finfo(dtype).tiny  # where η matters
            yield "round-once", (error / bound)[tiny].max() > 0.5
    yield "round-once", worst > 0.5


@over(once)
def of_exp2():
    t = np.linspace(-100, 5, 1001)
    yield "exp2-identity", np.exp(t), 2.0 ** (t * math.log2(math.e))
    yield "exp2-identity", abs(math.log2(math.e) - 1.442695) < 1e-6


@over(offset_rows)
def of_errors_far_from_zero(offset, x, m, c, exact):
    """The bounds hold, and are met within a factor of ten."""
    distance, size = np.abs(x.astype(np.float64) - float(m)), np.abs(x.astype(np.float64))
    error = np.abs(rounded(np.exp2, x * c - m * c) / exact - 1)
    bound = U * (size + abs(float(m)) + 2 * distance + 1)
    yield "exp2-scale-first-error", (error <= bound * (1 + 1e-3) + bound**2).all()
    yield "exp2-scale-first-error", abs(offset) < 3e4 or error.max() > bound.max() / 10
    error = np.abs(rounded(np.exp2, (x - m) * c) / exact - 1)
    bound = U * (3 * distance + 1)  # without the offset in it
    yield "exp2-subtract-first-error", (error <= bound * (1 + 1e-5)).all()
    yield "exp2-subtract-first-error", error.max() > bound.max() / 10


@over(lambda: zip(float32_rows()))
def of_errors_of_float32(x):
    """With exp and with exp2, for a tree and for a sum from left to right."""
    n, wide = len(x), x.astype(np.float64)
    t, distance = x - x.max(), wide.max() - wide
    exact = np.exp(-distance) / np.exp(-distance).sum()
    scaled = t * np.float32(math.log2(math.e))
    for p, e in ((1, rounded(np.exp, t)), (3, rounded(np.exp2, scaled))):
        in_order = np.add.accumulate(e, dtype=np.float32)[-1]
        for h, d in ((math.log2(n), tree_sum(e)), (n - 1, in_order)):
            error = np.abs((e / d) / exact - 1)
            bound = U * (p * distance + p * (exact * distance).sum() + 2 * 1 + h + 1)
            yield "softmax-error-bound", (error <= bound * (1 + 1e-4)).all()
            yield "softmax-error-bound", h != math.log2(n) or error.max() > bound.max() / 30


@over(once)
def of_errors_of_the_recurrence():
    """Entry by entry and tile by tile, on random and on rising rows."""
    worst = 0.0
    for drawn, rising, size in itertools.product(float32_rows(), (False, True), (1, 16)):
        x = np.sort(drawn) if rising else drawn
        if size > len(x):
            continue
        distance = float(x.max()) - x.astype(np.float64)
        exact = np.exp(-distance).sum()
        y = np.exp(-distance) / exact
        m, d = x[0], np.float32(0)
        for tile in x.reshape(-1, size):
            m_new = max(m, tile.max())
            d = d * rounded(np.exp, m - m_new) + tree_sum(rounded(np.exp, tile - m_new))
            m = m_new
        error, r, h = abs(float(d) / exact - 1), len(x) // size, math.log2(size)
        tight = U * ((y * distance).sum() + 1 + h + r * (1 + 2))
        loose = U * (math.log(len(x)) + 1 + h + r * (1 + 2))
        yield "online-error-bound", error <= tight <= loose
        worst = max(worst, error / tight)
    yield "online-error-bound", worst > 0.02


@over(once)
def of_errors_of_backward():
    random = np.random.default_rng(22)
    for n in (2, 16, 256, 4096):
        y = random.dirichlet(np.ones(n)).astype(np.float32)
        dy = (random.normal(size=n) + 1).astype(np.float32)
        dx = y * (dy - tree_sum(y * dy))
        wide_y, wide_dy = y.astype(np.float64), dy.astype(np.float64)
        s, h = (wide_y * wide_dy).sum(), math.log2(n)
        error = np.abs(dx - wide_y * (wide_dy - s))
        bound = U * wide_y * ((h + 1) * (wide_y * np.abs(wide_dy)).sum() + 2 * np.abs(wide_dy - s))
        yield "vjp-error-bound", (error <= bound * (1 + 1e-5)).all()
        yield "vjp-error-bound", (error / bound).max() > 0.1


# --- attention ------------------------------------------------------------------------------------


@over(queries)
def of_attention(q, k, v):
    x = q * k
    m = x.max()
    d = np.exp(x - m).sum()
    tensors = [torch.tensor(t, dtype=torch.float64).reshape(1, -1, 1) for t in (q, k, v)]
    o = scaled_dot_product_attention(*tensors, scale=1.0).item()
    by_keys = sum(softmax_of(x)[j] * v[j] for j in range(len(x)))
    yield "attention-definition", o, by_keys, (np.exp(x - m) / d * v).sum()
    yield "online-m", attended(x, v, 1)[0] == max(-np.inf, x[0])
    m_before, d_before, o_before, a = -np.inf, 0.0, 0.0, 0.0
    for i in range(1, len(x) + 1):
        m, last = max(m_before, x[i - 1]), x[i - 1]
        d = d_before * np.exp(m_before - m) + np.exp(last - m)
        o = o_before * (d_before * np.exp(m_before - m) / d) + np.exp(last - m) / d * v[i - 1]
        meant = attended(x, v, i)
        sides = sum(np.exp(x[j] - m) / d * v[j] for j in range(i)), meant[2]
        yield "attention-invariant", o, *sides
        a = a * np.exp(m_before - m) + np.exp(last - m) * v[i - 1]
        yield "attention-accumulator", a, meant[1] * meant[2]
        yield "attention-accumulator", meant[2], a / meant[1]
        m_before, d_before, o_before = m, d, o
    for cut in range(1, len(x)):
        first, rest = attended(x, v, cut), attended(x[cut:], v[cut:], len(x) - cut)
        (m1, d1, o1), (m2, d2, o2), m = first, rest, max(first[0], rest[0])
        d = d1 * np.exp(m1 - m) + d2 * np.exp(m2 - m)
        a = d1 * o1 * np.exp(m1 - m) + d2 * o2 * np.exp(m2 - m)
        yield "attention-merge", m == x.max()
        yield "attention-merge", d, np.exp(x - m).sum()
        yield "attention-merge", a, (np.exp(x - m) * v).sum()
        yield "attention-merge", a / d, (softmax_of(x) * v).sum()


@over(keys)
def of_one_more_key(x, v, i, before, now):
    (m_before, d_before, o_before), (m, d, o) = before, now
    weight, old = np.exp(x[i - 1] - m) / d, slice(0, i - 1)
    factor = d_before * np.exp(m_before - m) / d
    yield "online-m", m == max(m_before, x[i - 1])
    yield "online-d", d, d_before * np.exp(m_before - m) + np.exp(x[i - 1] - m)
    weights = np.exp(x[old] - m) / d, np.exp(x[old] - m_before) / d_before * factor
    lines = [(each * v[old]).sum() + weight * v[i - 1] for each in weights]
    yield "attention-derivation", o, *lines
    yield "attention-o", o, o_before * factor + weight * v[i - 1]
    yield "attention-o", factor + weight, 1.0


@over(lambda: ((1, 1, 1), (2, 3, 4), (7, 33, 8)))
def of_attention_of_matrices(n_queries, n_keys, depth):
    random = np.random.default_rng(24)
    q, (k, v) = random.normal(size=(n_queries, depth)), random.normal(size=(2, n_keys, depth))
    expected = scaled_dot_product_attention(*(torch.from_numpy(t)[None] for t in (q, k, v)))[0]
    o = softmax_of(1 / math.sqrt(depth) * q @ k.T) @ v
    yield "attention-matrix", o.shape == (n_queries, depth)
    yield "attention-matrix", o, expected.numpy()


@over(outputs)
def of_values_that_are_vectors(x, m, d, y):
    random = np.random.default_rng(25)
    v, do = random.normal(size=(len(x), 6)), random.normal(size=6)
    o, dy = y @ v, gradient(lambda w: (w @ torch.from_numpy(v)) @ torch.from_numpy(do), y)
    by_keys = sum(y[j] * (do @ v[j]) for j in range(len(x)))
    yield "attention-delta", y @ dy, by_keys, do @ (y[:, None] * v).sum(axis=0), do @ o
    jacobian = np.stack([derivative(lambda t, c=c: (softmax(t) * c).sum(), x) for c in v.T])
    delta = np.eye(len(x)) - y[None, :]
    yield "attention-jacobian", jacobian, np.einsum("ic,i,ij->cj", v, y, delta), ((v - o).T * y)
    dx = gradient(lambda t: torch.softmax(t, 0) @ torch.from_numpy(v) @ torch.from_numpy(do), x)
    yield "attention-score-gradient", dx, y * ((v - o) @ do), y * (v @ do - do @ o)
    dl, leaf = 0.7, torch.tensor(x, requires_grad=True)
    out = torch.softmax(leaf, 0) @ torch.from_numpy(v) @ torch.from_numpy(do)
    (dx,) = torch.autograd.grad(out + dl * torch.logsumexp(leaf, 0), leaf)
    yield "attention-lse-gradient", dx.numpy(), y * (dy - (do @ o - dl))


@over(outputs)
def of_parts_of_the_keys(x, m, d, y):
    """Each part with its own maximum; any cut, into parts that are not empty."""
    random = np.random.default_rng(26)
    v = random.normal(size=(len(x), 3))
    for count in {1, min(2, len(x)), min(5, len(x))}:
        cuts = np.sort(random.choice(np.arange(1, len(x)), size=count - 1, replace=False))
        parts = [*zip(np.split(x, cuts), np.split(v, cuts), strict=True)]
        triples = [(t.max(), *sums_from(t.max(), t, values)) for t, values in parts]
        for (t, values), (m_b, d_b, a_b) in zip(parts, triples, strict=True):
            yield "attention-value", d_b * np.exp(m_b), np.exp(t).sum()
            yield "attention-value", a_b * np.exp(m_b), (np.exp(t)[:, None] * values).sum(axis=0)
        merged = functools.reduce(merge_triples, triples)
        yield "attention-merge", merged[0] == m
        yield "attention-merge", merged[1], d
        yield "attention-merge", merged[2], d * (y @ v)
        lses = np.array([lse(t) for t, _ in parts])
        outs = np.array([softmax_of(t) @ values for t, values in parts])
        whole = np.log(np.exp(lses).sum())
        yield "attention-lse-merge", whole, lse(x)
        yield "attention-lse-merge", (np.exp(lses - whole)[:, None] * outs).sum(axis=0), y @ v


def sums_from(m, x, v):
    """d and a relative to m."""
    e = np.exp(x - m)
    return e.sum(), e @ v


def merge_triples(one, other):
    """The merge of two triples, neither of them empty."""
    m = max(one[0], other[0])
    return (
        m,
        *(p * np.exp(one[0] - m) + q * np.exp(other[0] - m) for p, q in zip(one[1:], other[1:])),
    )


@over(lambda: ((1, 1, 1), (2, 3, 4), (7, 33, 8)))
def of_the_gradients_of_matrices(n_queries, n_keys, depth):
    random = np.random.default_rng(27)
    q, do = random.normal(size=(2, n_queries, depth))
    k, v = random.normal(size=(2, n_keys, depth))
    alpha = 1 / math.sqrt(depth)
    leaves = [torch.tensor(t, requires_grad=True) for t in (q, k, v)]
    out = scaled_dot_product_attention(*(leaf[None] for leaf in leaves))[0]
    gradients = torch.autograd.grad(out, leaves, torch.from_numpy(do))
    scores = alpha * q @ k.T
    lses = torch.logsumexp(torch.from_numpy(scores), 1).numpy()
    y = np.exp(scores - lses[:, None])
    yield "attention-recompute", y, softmax_of(scores)
    o = y @ v
    s, dy = (do * o) @ np.ones((depth, 1)), do @ v.T
    dx = y * (dy - s @ np.ones((1, n_keys)))
    yield "attention-vjp", s[:, 0], (y * dy).sum(axis=1)
    for found, wanted in zip((alpha * dx @ k, alpha * dx.T @ q, y.T @ do), gradients):
        yield "attention-vjp", found, wanted.numpy()


@over(once)
def of_errors_of_attention():
    """Tiles of 16 keys, on random and on rising rows, with weights in float32 and in bfloat16."""
    worst = {0.0: 0.0, 2.0**-8: 0.0}
    random = np.random.default_rng(28)
    for drawn, rising, u16 in itertools.product(float32_rows(), (False, True), worst):
        x = np.sort(drawn) if rising else drawn
        if len(x) < 16:
            continue
        v = random.normal(size=(len(x), 3)).astype(np.float32)
        distance, wide = float(x.max()) - x.astype(np.float64), v.astype(np.float64)
        y = np.exp(-distance) / np.exp(-distance).sum()
        m, d, a = x[0], np.float32(0), np.zeros(3, np.float32)
        for tile, values in zip(x.reshape(-1, 16), v.reshape(-1, 16, 3), strict=True):
            m_new = max(m, tile.max())
            factor, e = rounded(np.exp, m - m_new), rounded(np.exp, tile - m_new)
            p = torch.from_numpy(e).bfloat16().float().numpy() if u16 else e
            d, a, m = d * factor + tree_sum(e), a * factor + tree_sum(p[:, None] * values), m_new
        o, size, merges, h = y @ wide, y @ np.abs(wide), len(x) // 16, 4
        bound = (y * (u16 + U * distance)) @ np.abs(wide) + U * np.abs(o) * (y @ distance)
        bound += U * (1 + h + merges * (1 + 2) + 1) * (np.abs(o) + size)
        error = np.abs(a / d - o)
        yield "attention-error-bound", (error <= bound * (1 + 1e-4)).all()
        worst[u16] = max(worst[u16], (error / bound).max())
    yield "attention-error-bound", min(worst.values()) > 0.01


# --- more accumulators, cross-entropy -------------------------------------------------------------


@over(outputs)
def of_entropy(x, m, d, y):
    n, a, t = len(x), triple(x)[2], len(x) // 2
    eye, more = np.eye(n)[t], {"atol": 1e-11}
    h = -(y * np.log(y)).sum()
    yield "entropy-identity", (y * np.abs(x - m)).sum(), h - np.log(d)
    yield "entropy-identity", (y * np.abs(x - m)).sum() <= np.log(n) + 1e-13
    by_torch = torch.distributions.Categorical(logits=torch.tensor(x)).entropy().item()
    yield "entropy-definition", -1e-12 <= h <= math.log(n) + 1e-12
    yield "entropy-definition", entropy(0 * x), math.log(n)
    yield "entropy-definition", h, by_torch, more
    yield "entropy-terms", a / d, y @ (x - m)
    yield "entropy-from-summary", entropy(x), np.log(d) - a / d, more
    found = derivative(lambda z: np.array([entropy(z)]), x)[0]
    yield "entropy-gradient", found, -y * (np.log(y) + entropy(x)), -y * (x - m - a / d), more
    value = (x - m) - np.log(d)
    yield "log-probability", (value <= 0).all()
    yield "log-probability", value, np.log(softmax(x))
    found = derivative(lambda z: logarithm(z)[t : t + 1], x)[0]
    yield "log-probability-gradient", found, eye - y
    for at in (0, n - 1):
        yield "cross-entropy-from-summary", m - x[at] >= 0 and np.log(d) >= 0
        yield "cross-entropy-from-summary", (m - x[at]) + np.log(d), lse(x) - x[at]
    epsilon = 0.1
    given = cross_entropy(torch.tensor(x), torch.tensor(t), label_smoothing=epsilon).item()
    spread = epsilon / n * (n * m - x.sum())
    yield "cross-entropy-smoothed", np.log(d) + (1 - epsilon) * (m - x[t]) + spread, given
    target = epsilon / n + (1 - epsilon) * eye
    found = derivative(lambda z: np.array([lse(z) - target @ z]), x)[0]
    yield "cross-entropy-smoothed-gradient", found, y - (1 - epsilon) * eye - epsilon / n
    found = derivative(lambda z: np.array([0.3 * lse(z) ** 2]), x)[0]
    yield "z-loss-gradient", found, 2 * 0.3 * lse(x) * y


@over(outputs, 2)
def of_entropy_in_parts(x, m, d, y):
    for cut in {1, len(x) // 2, len(x) - 1}:
        merged = 0.0
        for m_part, d_part, a_part in (triple(x[:cut]), triple(x[cut:])):
            delta = m_part - m
            merged += np.exp(delta) * (a_part + delta * d_part)
        yield "entropy-merge", triple(x)[2], merged


# --- maps before the monoid, and distributions as targets -----------------------------------------


def maps_of(x, scale=0.7, cap=2.0):
    """The mapped elements without a bias, also for complex x."""
    return cap * np.tanh(scale * x / cap)


@over(rows_with, 1)
def of_maps(x, y, w):
    mapped, t = maps_of(x) + w, torch.tensor(x)
    yield "modifiers-definition", (np.abs(mapped - w) <= 2.0).all()
    yield "modifiers-definition", maps_of(1e-6 * x), 0.7e-6 * x, {"rtol": 1e-9}  # what is small
    yield "modifiers-definition", maps_of(x, cap=1e9), 0.7 * x, {"rtol": 1e-9}  # or without a cap
    by_torch = torch.softmax(2.0 * torch.tanh(0.7 * t / 2.0) + torch.tensor(w), 0).numpy()
    yield "modifiers-definition", softmax(mapped), by_torch
    by_steps, e = np.diag(derivative(maps_of, x)), np.exp(-2 * np.abs(0.7 * x / 2.0))
    slope = 1 - np.tanh(0.7 * x / 2.0) ** 2
    yield "softcap-derivative", 0.7 * slope, by_steps, {"rtol": 1e-9}
    yield "softcap-derivative", 4 * 0.7 * e / (1 + e) ** 2, by_steps

    def loss(z):
        return (torch.softmax(z, 0) * torch.tensor(w)).sum()

    dz = gradient(loss, maps_of(x))
    wanted = gradient(lambda a: loss(2.0 * torch.tanh(a * t / 2.0)), np.float64(0.7))
    yield "modifiers-scale-gradient", np.sum(dz * slope * x), wanted, {"atol": 1e-12}
    with_sink = softmax_of(np.append(x, 0.3))
    wanted = gradient(
        lambda s: (torch.softmax(torch.cat([t, s[None]]), 0)[:-1] * torch.tensor(w)).sum(),
        np.float64(0.3),
    )
    yield "modifiers-sink-gradient", -with_sink[-1] * np.sum(with_sink[:-1] * w), wanted


@over(outputs)
def of_sinks(x, m_row, d_row, y):
    for sink in (-3.0, 0.0, m_row, m_row + 1.0):
        m = max(sink, m_row)
        d = math.exp(sink - m) + np.exp(x - m).sum()
        more, merged = pair([*x, sink]), merge((sink, 1.0), pair(x))
        yield "modifiers-sink", m == more[0] == merged[0]
        yield "modifiers-sink", d, more[1], merged[1]
        left, share = 1 - (np.exp(x - m) / d).sum(), softmax_of(np.append(x, sink))[-1]
        yield "modifiers-sink-share", math.exp(sink - m) / d, left, share, {"atol": 1e-12}


@over(rows_with, 1, 2)
def of_rows_in_parts(x, y, w):
    kept, m = w > np.median(w), x.max()
    m_kept = x[kept].max()
    d_kept = np.exp(x[kept] - m_kept).sum()
    masked = np.where(kept, np.exp(x - m_kept) / d_kept, 0.0)
    yield "modifiers-masked", softmax_of(np.where(kept, x, -INF)), masked
    merged = 0.0
    for part in (slice(0, 1), slice(1, None)):
        q, m_b = np.abs(w)[part], x[part].max()
        merged += (q * (x[part] - m_b)).sum() + q.sum() * (m_b - m)
    yield "distribution-merge", merged, (np.abs(w) * (x - m)).sum()


@over(rows_with, 1)
def of_distributions(x, y, w):
    """The target need not add up to 1."""
    q, m = np.abs(w), x.max()
    d, nu, a = np.exp(x - m).sum(), q.sum(), (q * (x - m)).sum()
    yield "distribution-terms", a + nu * m, (q * x).sum()
    wanted = cross_entropy(torch.tensor(x), torch.tensor(q)).item()
    yield "cross-entropy-distribution", nu * np.log(d) - a, (q * (lse(x) - x)).sum(), wanted
    by_steps = derivative(lambda t: (q * (lse(t) - t)).sum(), x)
    yield "cross-entropy-distribution-gradient", nu * y - q, by_steps


# --- every equation -------------------------------------------------------------------------------


@functools.cache
def evaluated() -> dict[str, list[list]]:
    """What is yielded of each equation."""
    found = defaultdict(list)
    for family, drawn, arguments in FAMILIES:
        for given in drawn(*arguments):
            for label, *sides in family(*given):
                found[label].append(sides)
    return found


@pytest.mark.parametrize("label", equations.load(ROOT).equations)
def test_equation(label):
    """All sides are equal up to float64 rounding, and finite."""
    assert evaluated()[label], f"nothing evaluates {label}"
    for first, *others in evaluated()[label]:
        near = {"rtol": 1e-11, "atol": 1e-13}
        if others and isinstance(others[-1], dict):
            near |= others.pop()
        assert others or first
        for other in others:
            assert np.shape(first) == np.shape(other) and np.isfinite(first).all()
            np.testing.assert_allclose(first, other, **near)
