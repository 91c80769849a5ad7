"""One test for every display equation of the site, named after its label.

Each test writes out both sides of its equation in float64 and compares them on random data of
several sizes, the worked example among them. The first line of its docstring is shown in the
equation index. Nothing here uses a kernel or the references of the library: an equation is tested
against its own text, against a derivative taken numerically, or against PyTorch.

Derivatives are complex steps: for an analytic f, Im f(x + i·h) / h is f'(x) up to h², and there is
no difference that could cancel, so h = 1e-30 gives all digits.
"""

import itertools
import math

import numpy as np
import torch

X = np.array([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]])
DY = np.array([[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])
SIZES = (1, 2, 3, 8, 33, 100)
SHAPES = ((1, 1), (1, 5), (2, 3), (7, 1), (5, 33))


def rows(n_min=1):
    """Rows of several lengths and spreads, within the range of exp without a shift; first those of
    the worked example."""
    random = np.random.default_rng(11)
    yield from X
    for n, spread in itertools.product(SIZES, (1.0, 6.0)):
        if n >= n_min:
            yield spread * random.normal(size=n) + 5 * random.normal()


def rows_with(count, n_min=1):
    """Each row with `count` random vectors of its length."""
    random = np.random.default_rng(12)
    for x in rows(n_min):
        yield x, *random.normal(size=(count, len(x)))


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
        yield drawn[:at] + [(-math.inf, 0.0)] + drawn[at + 1 :]


def close(a, b, rtol=1e-11, atol=1e-13):
    """Assert that both sides are equal up to float64 rounding, and finite."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.isfinite(a).all()
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def softmax(x):
    """The definition, also for complex x."""
    e = np.exp(x)
    return e / e.sum()


def lse(x):
    """log(sum(exp(x))), also for complex x."""
    return np.log(np.exp(x).sum())


def derivative(f, x, h=1e-30):
    """∂f_i/∂x_j by complex steps; for a scalar f a row of ∂f/∂x_j."""
    columns = [np.imag(f(x + 1j * h * unit)) / h for unit in np.eye(len(x))]
    return np.stack(columns, axis=-1)


def softmax_of(x):
    """PyTorch's softmax."""
    return torch.softmax(torch.from_numpy(x), dim=-1).numpy()


def gradient(f, x):
    """The gradient of the scalar f at x by autograd."""
    leaf = torch.tensor(x, requires_grad=True)
    (g,) = torch.autograd.grad(f(leaf), leaf)
    return g.numpy()


def merge(p1, p2):
    """The merge of two pairs, with the corner guarded."""
    (m1, d1), (m2, d2) = p1, p2
    m = max(m1, m2)
    shift = 0.0 if m == -math.inf else m
    return m, d1 * math.exp(m1 - shift) + d2 * math.exp(m2 - shift)


def pair(collection):
    """(max, sum of exp(x - max)) of a collection of numbers."""
    if len(collection) == 0:
        return -math.inf, 0.0
    m = max(collection)
    return float(m), float(sum(math.exp(x - m) for x in collection))


def same_pair(p, q):
    """Equal maxima, and denominators equal up to rounding."""
    assert p[0] == q[0]
    close(p[1], q[1])


def tree_sum(t):
    """The sum in a balanced tree, every addition rounded to the type of t; the length is a power of
    two."""
    while len(t) > 1:
        t = t[0::2] + t[1::2]
    return t[0]


def rounded_exp(t):
    """exp rounded once to the type of t: its relative error is at most 1 unit u."""
    return np.exp(t.astype(np.float64)).astype(t.dtype)


U = 2.0**-24


# --- softmax --------------------------------------------------------------------------------------


def test_softmax_definition():
    """The quotient, entry by entry, is what PyTorch computes."""
    for x in rows():
        y = [math.exp(x[i]) / sum(math.exp(x[j]) for j in range(len(x))) for i in range(len(x))]
        close(softmax_of(x), y)


def test_softmax_sums_to_one():
    """Outputs of softmax add up to 1."""
    for x in rows():
        close(softmax_of(x).sum(), np.exp(x).sum() / np.exp(x).sum())
        close(softmax_of(x).sum(), 1.0)


def test_softmax_ratio():
    """The ratio of two outputs is the exponential of the difference of their inputs."""
    for x in rows():
        y = softmax_of(x)
        close(y[:, None] / y[None, :], np.exp(x[:, None] - x[None, :]))


def test_softmax_sigmoid():
    """For two entries, softmax is the sigmoid of their difference."""
    random = np.random.default_rng(10)
    for x in 5 * random.normal(size=(50, 2)):
        close(softmax_of(x)[0], math.exp(x[0]) / (math.exp(x[0]) + math.exp(x[1])))
        close(softmax_of(x)[0], torch.sigmoid(torch.tensor(x[0] - x[1])).item())


def test_softmax_temperature():
    """Dividing the row by τ raises each ratio of outputs to the power 1/τ."""
    for x in rows():
        y = softmax_of(x)
        for tau in (0.5, 1.0, 3.0):
            heated = softmax_of(x / tau)
            close(heated[:, None] / heated[None, :], (y[:, None] / y[None, :]) ** (1 / tau))


def test_softmax_shift_invariance():
    """Each step of the chain, for shifts of either sign."""
    for x in rows():
        for c in (-30.0, -1.0, 0.5, 25.0):
            close(softmax_of(x + c), np.exp(x + c) / np.exp(x + c).sum())
            close(
                np.exp(x + c) / np.exp(x + c).sum(),
                math.exp(c) * np.exp(x) / (math.exp(c) * np.exp(x).sum()),
            )
            close(softmax_of(x + c), softmax_of(x))


def test_softmax_safe():
    """The shifted quotient is softmax, also where exp(x) itself overflows or vanishes."""
    for x in rows():
        for offset in (0.0, 5000.0, -5000.0):
            shifted = x + offset
            m = np.max(shifted)
            d = np.exp(shifted - m).sum()
            close(np.exp(shifted - m) / d, softmax_of(shifted))
        close(np.exp(x - x.max()) / np.exp(x - x.max()).sum(), np.exp(x) / np.exp(x).sum())


def test_softmax_denominator_bounds():
    """1 ≤ d ≤ N, and both bounds are attained."""
    for x in rows():
        d = np.exp(x - x.max()).sum()
        assert 1 <= d <= len(x)
    assert np.exp(np.array([0.0, -1000.0])).sum() == 1
    assert np.exp(np.zeros(7)).sum() == 7


def test_sum_of_exponentials():
    """The sum of the exponentials is the denominator times the exponential of the maximum."""
    for x in rows():
        close(sum(math.exp(value) for value in x), np.exp(x - x.max()).sum() * math.exp(x.max()))


def test_lse_definition():
    """The logarithm of the sum, its shifted form, and PyTorch's logsumexp agree."""
    for x in rows():
        m = x.max()
        d = np.exp(x - m).sum()
        close(np.log(np.exp(x).sum()), m + np.log(d))
        close(torch.logsumexp(torch.from_numpy(x), dim=0).item(), m + np.log(d))


def test_lse_bounds():
    """max(x) ≤ lse(x) ≤ max(x) + log(N), with equality on the right for constant rows."""
    for x in rows():
        assert x.max() <= lse(x) + 1e-13
        assert lse(x) <= x.max() + np.log(len(x)) + 1e-13
        constant = np.full(len(x), x[0])
        close(lse(constant), constant.max() + np.log(len(x)))


def test_lse_shift():
    """A constant passes through lse."""
    for x in rows():
        for c in (-20.0, 3.0):
            close(lse(x + c), np.log(math.exp(c) * np.exp(x).sum()))
            close(lse(x + c), lse(x) + c)


def test_softmax_from_lse():
    """exp(x - lse(x)) is softmax."""
    for x in rows():
        close(softmax_of(x), np.exp(x) / np.exp(lse(x)))
        close(softmax_of(x), np.exp(x - lse(x)))


def test_log_softmax_definition():
    """log y, x - lse(x) and (x - m) - log d are PyTorch's log_softmax."""
    for x in rows():
        z = torch.log_softmax(torch.from_numpy(x), dim=0).numpy()
        m = x.max()
        d = np.exp(x - m).sum()
        close(z, np.log(softmax_of(x)))
        close(z, x - lse(x))
        close(z, (x - m) - np.log(d))


def test_softmax_batch():
    """The four matrix lines, with every shape, give softmax of each row."""
    for x, _ in matrices():
        n_rows, n_cols = x.shape
        ones = np.ones((n_cols, 1))
        m = x.max(axis=1).reshape(n_rows, 1)
        e = np.exp(x - m @ ones.T)
        assert (e.max(axis=1) == 1).all()
        d = e @ ones
        y = e / (d @ ones.T)
        assert (m.shape, e.shape, d.shape, y.shape) == ((n_rows, 1), x.shape, (n_rows, 1), x.shape)
        close(y, np.stack([softmax(row) for row in x]))


# --- the Jacobian ---------------------------------------------------------------------------------


def test_softmax_jacobian_definition():
    """Row i is the output, column j the input: complex steps and autograd agree on it."""
    for x in rows():
        by_autograd = torch.autograd.functional.jacobian(
            lambda t: torch.softmax(t, dim=0), torch.from_numpy(x)
        ).numpy()
        assert by_autograd.shape == (len(x), len(x))
        close(derivative(softmax, x), by_autograd)


def test_softmax_quotient_rule():
    """The derivative of the quotient from the derivatives of its two parts."""
    for x in rows():
        e, s = np.exp(x), np.exp(x).sum()
        numerator = derivative(np.exp, x)  # ∂e^{x_i}/∂x_j
        close(derivative(lambda t: np.exp(t).sum(), x), e)
        close(derivative(softmax, x), (numerator * s - np.outer(e, e)) / s**2)


def test_softmax_jacobian_diagonal():
    """∂y_i/∂x_i = y_i (1 - y_i), and the steps that lead to it."""
    for x in rows():
        e, s, y = np.exp(x), np.exp(x).sum(), softmax_of(x)
        diagonal = np.diag(derivative(softmax, x))
        close(diagonal, (e * s - e * e) / s**2)
        close(diagonal, e / s * ((s - e) / s))
        close(diagonal, y * (1 - y))


def test_softmax_jacobian_off_diagonal():
    """∂y_i/∂x_j = -y_i y_j for i ≠ j, and the steps that lead to it."""
    for x in rows(n_min=2):
        e, s, y, jacobian = np.exp(x), np.exp(x).sum(), softmax_of(x), derivative(softmax, x)
        for i, j in itertools.permutations(range(min(len(x), 12)), 2):
            close(jacobian[i, j], (0 * s - e[i] * e[j]) / s**2)
            close(jacobian[i, j], -(e[i] / s) * (e[j] / s))
            close(jacobian[i, j], -y[i] * y[j])


def test_softmax_jacobian_cases():
    """Both cases, entry by entry, against the derivative."""
    for x in rows():
        y, n = softmax_of(x), len(x)
        cases = [
            [y[i] * (1 - y[i]) if i == j else -y[i] * y[j] for j in range(n)] for i in range(n)
        ]
        close(derivative(softmax, x), cases)


def test_softmax_jacobian_delta():
    """y_i (δ_ij - y_j) is the derivative."""
    for x in rows():
        y = softmax_of(x)
        close(derivative(softmax, x), y[:, None] * (np.eye(len(x)) - y[None, :]))


def test_softmax_jacobian_matrix():
    """diag(y) - y yᵀ is the derivative."""
    for x in rows():
        y = softmax_of(x).reshape(-1, 1)
        close(derivative(softmax, x), np.diag(y[:, 0]) - y @ y.T)


def test_logsumexp_gradient():
    """The gradient of lse is softmax."""
    for x in rows():
        close(derivative(lse, x), np.exp(x) / np.exp(x).sum())
        close(derivative(lse, x), softmax_of(x))


def test_softmax_log_derivative():
    """∂log y_i/∂x_j = δ_ij - ∂lse/∂x_j = δ_ij - y_j."""
    for x in rows():
        left = derivative(lambda t: np.log(softmax(t)), x)
        close(left, derivative(lambda t: t, x) - derivative(lse, x)[None, :])
        close(left, np.eye(len(x)) - softmax_of(x)[None, :])


def test_log_derivative_identity():
    """∂y_i/∂x_j is y_i times the derivative of log y_i."""
    for x in rows():
        y = softmax_of(x)
        left = derivative(softmax, x)
        close(left, y[:, None] * derivative(lambda t: np.log(softmax(t)), x))
        close(left, y[:, None] * (np.eye(len(x)) - y[None, :]))


def test_log_softmax_jacobian():
    """I - 1 yᵀ is the Jacobian of log-softmax."""
    for x in rows():
        z = torch.autograd.functional.jacobian(
            lambda t: torch.log_softmax(t, dim=0), torch.from_numpy(x)
        ).numpy()
        ones, y = np.ones((len(x), 1)), softmax_of(x).reshape(-1, 1)
        close(z, np.eye(len(x)) - ones @ y.T)


def test_jacobian_symmetric():
    """The derivative of softmax is a symmetric matrix."""
    for x in rows():
        jacobian = derivative(softmax, x)
        close(jacobian, jacobian.T)


def test_jacobian_row_sums():
    """Rows and columns of the derivative sum to zero."""
    for x in rows():
        jacobian, ones = derivative(softmax, x), np.ones(len(x))
        close(jacobian @ ones, np.zeros(len(x)))
        close(ones @ jacobian, np.zeros(len(x)))


def test_jacobian_variance():
    """wᵀ J w is the variance of w under the probabilities y, and not negative."""
    for x, v in rows_with(1):
        y = softmax_of(x)
        left = v @ derivative(softmax, x) @ v
        close(left, (y * v**2).sum() - (y * v).sum() ** 2)
        variance = (y * (v - (y * v).sum()) ** 2).sum()
        close(left, variance)
        assert variance >= 0


def test_jacobian_rank():
    """The rank is N - 1, and the one direction sent to zero is the constant one."""
    random = np.random.default_rng(3)
    for n in SIZES:
        jacobian = derivative(softmax, random.normal(size=n))
        assert np.linalg.matrix_rank(jacobian, tol=1e-9) == n - 1
        _, singular, right = np.linalg.svd(jacobian)
        close(np.abs(right[-1]), np.full(n, 1 / math.sqrt(n)))  # the kernel, up to its sign
        close(right[-1] / right[-1][0], np.ones(n))
        assert n == 1 or singular[-2] > 1e-6 > singular[-1]


def test_jacobian_eigenvalue_bound():
    """0 ≤ wᵀ J w ≤ (max w - min w)²/4 ≤ ‖w‖²/2, with equality at y = (1/2, 1/2)."""

    def chain(x, v):
        return 0.0, v @ derivative(softmax, x) @ v, (v.max() - v.min()) ** 2 / 4, (v**2).sum() / 2

    for x, v in rows_with(1, n_min=2):
        terms = chain(x, v)
        assert all(low <= high + 1e-14 for low, high in itertools.pairwise(terms))
    _, form, spread, norm = chain(np.zeros(2), np.array([1.0, -1.0]))
    close([form, form], [spread, norm])
    _, form, spread, _ = chain(np.array([0.3, 0.3]), np.array([5.0, 2.0]))
    close(form, spread)


def test_lse_hessian():
    """The second derivatives of lse are the Jacobian of softmax."""
    for x in rows():
        hessian = torch.autograd.functional.hessian(
            lambda t: torch.logsumexp(t, dim=0), torch.from_numpy(x)
        ).numpy()
        close(hessian, derivative(softmax, x))


# --- the vector-Jacobian product ------------------------------------------------------------------


def losses():
    """x, dy and dx of a loss that is not linear in y: L = sum(w · sin(3 y) · y)."""
    for x, w in rows_with(1):

        def loss(y, w=w):
            return (torch.from_numpy(w) * torch.sin(3 * y) * y).sum()

        yield x, gradient(loss, softmax_of(x)), gradient(lambda t: loss(torch.softmax(t, dim=0)), x)


def test_vjp_chain_rule():
    """The gradient at x is the sum over outputs i of dy_i · ∂y_i/∂x_j."""
    for x, dy, dx in losses():
        jacobian = derivative(softmax, x)
        close(dx, [sum(dy[i] * jacobian[i, j] for i in range(len(x))) for j in range(len(x))])


def test_vjp_transpose():
    """The gradient at x is Jᵀ dy, for the shapes stated."""
    for x, dy, dx in losses():
        n = len(x)
        product = derivative(softmax, x).T @ dy.reshape(n, 1)
        assert product.shape == (n, 1)
        close(dx.reshape(n, 1), product)
    for x, dz in rows_with(
        1, n_min=2
    ):  # a Jacobian that is not symmetric shows that the transpose is meant
        jacobian = derivative(lambda t: np.log(softmax(t)), x)
        dx = gradient(
            lambda t, dz=dz: (torch.log_softmax(t, dim=0) * torch.from_numpy(dz)).sum(), x
        )
        close(dx, jacobian.T @ dz)
        assert not np.allclose(dx, jacobian @ dz)


def test_softmax_vjp_derivation():
    """Both steps of the sum over i, against Jᵀ dy."""
    for x, dy in rows_with(1):
        y, eye = softmax_of(x), np.eye(len(x))
        left = derivative(softmax, x).T @ dy
        close(
            left,
            (dy[:, None] * y[:, None] * eye).sum(axis=0)
            - (dy[:, None] * np.outer(y, y)).sum(axis=0),
        )
        close(left, dy * y - y * (y * dy).sum())


def test_softmax_vjp():
    """y ⊙ (dy - ⟨y, dy⟩) is Jᵀ dy, and what autograd finds."""
    for x, dy in rows_with(1):
        y = softmax_of(x)
        right = y * (dy - sum(y[i] * dy[i] for i in range(len(x))))
        close(derivative(softmax, x).T @ dy, right)
    for x, dy, dx in losses():
        y = softmax_of(x)
        close(dx, y * (dy - (y * dy).sum()))


def test_softmax_vjp_batch():
    """The matrix form, with every shape, is autograd's gradient of a batch."""
    for x, dy in matrices():
        leaf = torch.tensor(x, requires_grad=True)
        (dx,) = torch.autograd.grad(torch.softmax(leaf, dim=1), leaf, torch.from_numpy(dy))
        y, ones = softmax_of(x), np.ones((x.shape[1], 1))
        s = (y * dy) @ ones
        assert s.shape == (x.shape[0], 1)
        close(dx.numpy(), y * (dy - s @ ones.T))


def test_vjp_sum_zero():
    """The gradient of each row sums to zero."""
    for x, dy, dx in losses():
        y = softmax_of(x)
        close(dx.sum(), (y * dy).sum() - (y * dy).sum() * y.sum())
        close(dx.sum(), 0.0)


def test_vjp_shift_invariance():
    """A constant added to dy does not change dx."""
    for x, dy in rows_with(1):
        y = softmax_of(x)
        for c in (-7.0, 0.25, 40.0):
            shifted = y * (dy + c - (y * (dy + c)).sum())
            close(shifted, y * (dy - (y * dy).sum()), atol=1e-12)
            close(shifted, derivative(softmax, x).T @ (dy + c), atol=1e-12)


def test_softmax_jvp():
    """The derivative in the direction w is J w, the same expression as the VJP."""
    for x, v in rows_with(1):
        y, h = softmax_of(x), 1e-30
        left = np.imag(softmax(x + 1j * h * v)) / h
        close(left, derivative(softmax, x) @ v)
        close(left, y * (v - (y * v).sum()))


def test_logsumexp_vjp():
    """The gradient at x is the gradient that arrives times softmax."""
    for x in rows():
        for dl in (-2.5, 0.3):
            dx = gradient(lambda t, dl=dl: dl * torch.logsumexp(t, dim=0), x)
            close(dx, dl * np.exp(x - lse(x)))


def test_logsumexp_jvp():
    """The derivative of lse in the direction w is ⟨y, w⟩."""
    for x, v in rows_with(1):
        h = 1e-30
        close(np.imag(lse(x + 1j * h * v)) / h, (softmax_of(x) * v).sum())


def test_log_softmax_vjp():
    """dz_j - y_j · sum(dz) is the transposed Jacobian times dz, and what autograd finds."""
    for x, dz in rows_with(1):
        z = torch.log_softmax(torch.from_numpy(x), dim=0).numpy()
        dx = gradient(
            lambda t, dz=dz: (torch.log_softmax(t, dim=0) * torch.from_numpy(dz)).sum(), x
        )
        y = np.exp(z)
        close(dx, (dz[:, None] * (np.eye(len(x)) - y[None, :])).sum(axis=0))
        close(dx, dz - y * dz.sum())


def test_log_softmax_jvp():
    """The derivative of log-softmax in the direction w is w - ⟨y, w⟩."""
    for x, v in rows_with(1):
        h = 1e-30
        close(np.imag(np.log(softmax(x + 1j * h * v))) / h, v - (softmax_of(x) * v).sum())


def test_cross_entropy_definition():
    """-log y_t, -z_t and lse(x) - x_t are PyTorch's cross-entropy."""
    for x in rows():
        for t in {0, len(x) // 2, len(x) - 1}:
            loss = torch.nn.functional.cross_entropy(
                torch.from_numpy(x)[None], torch.tensor([t])
            ).item()
            z = torch.log_softmax(torch.from_numpy(x), dim=0).numpy()
            close(loss, -np.log(softmax_of(x)[t]))
            close(loss, -z[t])
            close(loss, lse(x) - x[t])


def test_cross_entropy_gradient():
    """The gradient of cross-entropy is softmax minus the unit vector of the target."""
    for x in rows():
        for t in {0, len(x) // 2, len(x) - 1}:
            dx = gradient(
                lambda leaf, t=t: torch.nn.functional.cross_entropy(leaf[None], torch.tensor([t])),
                x,
            )
            y, unit = softmax_of(x), np.eye(len(x))[t]
            close(dx, [-(j == t) + y[j] for j in range(len(x))])
            close(dx, y - unit)


def test_cross_entropy_gradient_batch():
    """The mean over M rows has the gradient (Y - Π)/M."""
    random = np.random.default_rng(15)
    for x, _ in matrices():
        n_rows, n_cols = x.shape
        t = random.integers(n_cols, size=n_rows)
        y = softmax_of(x)
        loss = torch.nn.functional.cross_entropy(torch.from_numpy(x), torch.from_numpy(t)).item()
        close(loss, -1 / n_rows * sum(np.log(y[r, t[r]]) for r in range(n_rows)))
        dx = gradient(
            lambda leaf, t=t: torch.nn.functional.cross_entropy(leaf, torch.from_numpy(t)), x
        )
        close(dx, 1 / n_rows * (y - np.eye(n_cols)[t]))


def test_cross_entropy_soft_gradient():
    """With a distribution π as the target, the gradient is y - π."""
    random = np.random.default_rng(16)
    for x in rows():
        p = random.dirichlet(np.ones(len(x)))
        target = torch.from_numpy(p)[None]
        loss = torch.nn.functional.cross_entropy(torch.from_numpy(x)[None], target).item()
        close(loss, -sum(p[i] * (x[i] - lse(x)) for i in range(len(x))))
        dx = gradient(
            lambda t, target=target: torch.nn.functional.cross_entropy(t[None], target), x
        )
        close(dx, softmax_of(x) - p)


def test_softmax_backward_form():
    """⟨g, dx⟩ is the difference of a triple sum and a product of two inner products."""
    for x, dy, g in rows_with(2):
        y = softmax_of(x)
        close(g @ (derivative(softmax, x).T @ dy), (g * y * dy).sum() - (g @ y) * (y @ dy))


def _phi(y, dy, g):
    """⟨g, y ⊙ (dy - ⟨y, dy⟩)⟩ as a function of y and dy that need not be real."""
    return (g * y * (dy - (y * dy).sum())).sum()


def test_softmax_backward_wrt_grad():
    """The derivative of ⟨g, dx⟩ with respect to dy."""
    for x, dy, g in rows_with(2):
        y = softmax_of(x)
        close(derivative(lambda t, y=y, g=g: _phi(y, t, g), dy), y * (g - (y * g).sum()))


def test_softmax_backward_wrt_output():
    """The derivative of ⟨g, dx⟩ with respect to y; carried back to x it is autograd's second
    derivative."""
    for x, dy, g in rows_with(2):
        y = softmax_of(x)
        right = g * (dy - (y * dy).sum()) - (y * g).sum() * dy
        close(derivative(lambda t, dy=dy, g=g: _phi(t, dy, g), y), right)
        leaf = torch.tensor(x, requires_grad=True)
        (dx,) = torch.autograd.grad(
            torch.softmax(leaf, dim=0), leaf, torch.from_numpy(dy), create_graph=True
        )
        (second,) = torch.autograd.grad(dx, leaf, torch.from_numpy(g))
        close(second.numpy(), y * (right - (y * right).sum()))


def test_softmax_backward_along_output():
    """The derivative of dx when y moves in the direction w."""
    for x, dy, w in rows_with(2):
        y, h = softmax_of(x), 1e-30
        moved = y + 1j * h * w
        left = np.imag(moved * (dy - (moved * dy).sum())) / h
        close(left, w * (dy - (y * dy).sum()) - y * (w * dy).sum())


def test_log_softmax_backward_wrt_output():
    """The derivative of ⟨g, dz - exp(z)·sum(dz)⟩ with respect to z."""
    for x, dz, g in rows_with(2):
        z = np.log(softmax_of(x))
        left = derivative(lambda t, dz=dz, g=g: (g * (dz - np.exp(t) * dz.sum())).sum(), z)
        close(left, -dz.sum() * (g * np.exp(z)))


def test_logsumexp_backward_wrt_inputs():
    """The two derivatives of ⟨g, dl·softmax(x)⟩."""
    dl = 1.7
    for x, g in rows_with(1):
        y = softmax_of(x)
        by_dl = derivative(lambda t, y=y, g=g: (g * (t * y)).sum(), np.array([dl]))
        by_x = derivative(lambda t, g=g: (g * (dl * softmax(t))).sum(), x)
        close(by_dl, [(g * y).sum()])
        close(by_x, dl * y * (g - (g * y).sum()))
        close(by_x, dl * derivative(softmax, x) @ g)


# --- the worked example ---------------------------------------------------------------------------


def test_worked_input():
    """The matrices on the page are those of the module."""
    from softmax_site.computed import worked

    assert np.array_equal(worked.X, [[1, 2, 3], [1, 3, 5]])
    assert np.array_equal(worked.DY, [[0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])


def test_worked_output():
    """The four digits on the page are softmax of X."""
    close(softmax_of(X).round(4), [[0.0900, 0.2447, 0.6652], [0.0159, 0.1173, 0.8668]])


def test_worked_gradient():
    """The formula and the four digits on the page are autograd's gradient."""
    leaf = torch.tensor(X, requires_grad=True)
    torch.softmax(leaf, dim=1).backward(torch.tensor(DY))
    y = softmax_of(X)
    s = (y * DY).sum(axis=1, keepdims=True)
    close(leaf.grad.numpy(), y * (DY - s @ np.ones((1, 3))))
    close(leaf.grad.numpy().round(4), [[-0.0381, -0.0792, 0.1173], [-0.0043, -0.0202, 0.0245]])


# --- the online recurrence ------------------------------------------------------------------------


def recurrence(x):
    """The states (m_i, d_i) for i = 0 … N of the recurrence as the page writes it."""
    states = [(-math.inf, 0.0)]
    for x_i in map(float, x):
        m_before, d_before = states[-1]
        m = max(m_before, x_i)
        states.append((m, d_before * math.exp(m_before - m) + math.exp(x_i - m)))
    return states


def test_online_invariant():
    """After i entries the recurrence holds their maximum and their denominator."""
    for x in rows():
        for i, (m, d) in enumerate(recurrence(x)[1:], 1):
            assert m == x[:i].max()
            close(d, sum(math.exp(x[j] - x[:i].max()) for j in range(i)))


def test_online_start():
    """(-∞, 0) is the maximum of nothing and a sum of no terms, and leads to (x_1, 1)."""
    nothing = np.zeros(0)
    m0, d0 = nothing.max(initial=-np.inf), np.exp(nothing).sum()
    assert (m0, d0) == (-np.inf, 0) == recurrence(nothing)[0]
    for x in rows():
        m1 = max(m0, x[0])
        assert (m1, d0 * np.exp(m0 - m1) + np.exp(x[0] - m1)) == (x[0], 1)


def test_online_m():
    """The maximum of i entries is that of i - 1 of them and the last."""
    for x in rows():
        for i in range(2, len(x) + 1):
            assert x[:i].max() == max(x[: i - 1].max(), x[i - 1])


def test_online_derivation():
    """Each step from the sum over i terms to the sum over i - 1 terms."""
    for x in rows(n_min=2):
        for i in range(2, len(x) + 1):
            m_before, m, last = x[: i - 1].max(), x[:i].max(), x[i - 1]
            left = np.exp(x[:i] - m).sum()
            close(
                left,
                (np.exp(x[: i - 1] - m_before) * np.exp(m_before - m)).sum() + np.exp(last - m),
            )
            close(
                left, np.exp(m_before - m) * np.exp(x[: i - 1] - m_before).sum() + np.exp(last - m)
            )


def test_online_d():
    """The denominator of i entries from that of i - 1 of them."""
    for x in rows(n_min=2):
        for i in range(2, len(x) + 1):
            m_before, m = x[: i - 1].max(), x[:i].max()
            d_before, d = np.exp(x[: i - 1] - m_before).sum(), np.exp(x[:i] - m).sum()
            close(d, d_before * np.exp(m_before - m) + np.exp(x[i - 1] - m))


def test_online_output():
    """The last state of the recurrence normalises the row to softmax."""
    for x in rows():
        m, d = recurrence(x)[-1]
        close(softmax_of(x), np.exp(x - m) / d)


def test_online_tile():
    """One step per tile, whatever the size of the tiles, ends at the maximum and denominator of the
    row."""
    for x in rows():
        for size in (1, 2, 5, 64):
            m, d = -np.inf, 0.0
            for begin in range(0, len(x), size):
                tile = x[begin : begin + size]
                m_new = max(m, tile.max())
                m, d = m_new, d * np.exp(m - m_new) + np.exp(tile - m_new).sum()
            assert m == x.max()
            close(d, np.exp(x - x.max()).sum())


# --- the monoid -----------------------------------------------------------------------------------


def collections():
    """Pairs of collections of numbers, empty ones among them."""
    random = np.random.default_rng(17)
    for n, k in itertools.product((0, 1, 2, 9, 40), repeat=2):
        yield list(8 * random.normal(size=n)), list(8 * random.normal(size=k) + 5)


def exp_times(d, m):
    """Z(m, d) = d·exp(m), with exp(-∞) = 0."""
    return d * math.exp(m)


def test_pair_of_set():
    """Maximum and shifted sum, for collections with repetitions; a single number is (x, 1)."""
    for a, b in collections():
        for each in (a, b, a + a):
            if each:
                m, d = pair(each)
                assert m == max(each)
                close(d * math.exp(m), sum(math.exp(x) for x in each))
    assert pair([2.5]) == (2.5, 1.0)
    assert pair([2.5, 2.5]) == (2.5, 2.0)


def test_pair_value():
    """d·exp(m) is the sum of exponentials, 0 for the empty collection."""
    for a, _ in collections():
        m, d = pair(a)
        close(exp_times(d, m), float(sum(math.exp(x) for x in a)))


def test_merge():
    """The formula, for real maxima: its sum of exponentials is that of both."""
    for (m1, d1), (m2, d2) in pairs(2):
        m = max(m1, m2)
        d = d1 * math.exp(m1 - m) + d2 * math.exp(m2 - m)
        assert m in (m1, m2)
        close(d * math.exp(m), d1 * math.exp(m1) + d2 * math.exp(m2))


def test_merge_union():
    """Merging the pairs of two collections gives the pair of both together."""
    for a, b in collections():
        same_pair(merge(pair(a), pair(b)), pair(a + b))


def test_merge_value():
    """Z of a merge is the sum of both."""
    for p1, p2 in pairs(2):
        (m1, d1), (m2, d2) = p1, p2
        m, d = merge(p1, p2)
        close(exp_times(d, m), (d1 * math.exp(m1 - m) + d2 * math.exp(m2 - m)) * math.exp(m))
        close(exp_times(d, m), exp_times(d1, m1) + exp_times(d2, m2))


def test_online_as_merge():
    """A step of the online recurrence is a merge with (x_i, 1)."""
    for x in rows():
        states = recurrence(x)
        for i, x_i in enumerate(map(float, x), 1):
            same_pair(states[i], merge(states[i - 1], (x_i, 1.0)))


def test_merge_associative():
    """Both groupings of three pairs agree, the identity included."""
    for p1, p2, p3 in pairs(3):
        same_pair(merge(merge(p1, p2), p3), merge(p1, merge(p2, p3)))


def _three_terms(p1, p2, p3):
    m = max(p1[0], p2[0], p3[0])
    return m, sum(d_k * math.exp(m_k - m) for m_k, d_k in (p1, p2, p3))


def test_merge_associative_left():
    """The left grouping is the sum of three terms, with no trace of the maximum in between."""
    for (m1, d1), (m2, d2), (m3, d3) in itertools.islice(pairs(3), 0, None, 2):
        m12, (m, right) = max(m1, m2), _three_terms((m1, d1), (m2, d2), (m3, d3))
        left = (d1 * math.exp(m1 - m12) + d2 * math.exp(m2 - m12)) * math.exp(
            m12 - m
        ) + d3 * math.exp(m3 - m)
        close(left, right)


def test_merge_associative_right():
    """The right grouping is the same sum of three terms."""
    for (m1, d1), (m2, d2), (m3, d3) in itertools.islice(pairs(3), 0, None, 2):
        m23, (m, right) = max(m2, m3), _three_terms((m1, d1), (m2, d2), (m3, d3))
        left = d1 * math.exp(m1 - m) + (
            d2 * math.exp(m2 - m23) + d3 * math.exp(m3 - m23)
        ) * math.exp(m23 - m)
        close(left, right)


def test_merge_commutative():
    """The order of two pairs does not matter, not even to the last bit."""
    for p1, p2 in pairs(2):
        assert merge(p1, p2) == merge(p2, p1)


def test_merge_identity():
    """(-∞, 0) changes nothing on either side, itself included, to the last bit."""
    identity = (-math.inf, 0.0)
    for (p,) in pairs(1):
        assert merge(identity, p) == p == merge(p, identity)
        m, d = p
        if m > -math.inf:  # the formula needs no guard here
            assert (max(-math.inf, m), 0.0 * math.exp(-math.inf - m) + d * math.exp(m - m)) == p
    assert merge(identity, identity) == identity


def test_merge_any_order():
    """Many pairs, merged in random order and grouping, give the pair of the union."""
    random = np.random.default_rng(18)
    for x in rows():
        cuts = np.sort(random.integers(0, len(x) + 1, size=4))
        heap = [pair(piece) for piece in np.split(x, cuts)]
        while len(heap) > 1:
            p = heap.pop(random.integers(len(heap)))
            q = heap.pop(random.integers(len(heap)))
            heap.insert(random.integers(len(heap) + 1), merge(p, q))
        same_pair(heap[0], pair(x))


def test_merge_corner():
    """Without the guard -∞ - (-∞) is NaN; with it the exponential is 0, and all else is
    unchanged."""

    def guarded(x, m):
        return np.exp(x - np.where(m == -np.inf, 0.0, m))

    with np.errstate(invalid="ignore"):
        assert np.isnan(np.exp(np.float64(-np.inf) - np.float64(-np.inf)))
    assert guarded(np.float64(-np.inf), -np.inf) == 0
    for x in rows():
        assert np.array_equal(guarded(x, x.max()), np.exp(x - x.max()))
        assert np.array_equal(guarded(np.full(3, -np.inf), x.max()), np.zeros(3))
    with np.errstate(invalid="ignore"):
        assert np.isnan(guarded(np.float64(np.inf), np.inf))


def test_lse_from_summary():
    """m + log d where m is finite and m where it is not: the logarithm of the sum, and PyTorch's
    logsumexp."""

    def from_pair(collection):
        m, d = pair(collection)
        return m + math.log(d) if math.isfinite(m) else m

    for a, b in collections():
        if a or b:
            close(from_pair(a + b), math.log(sum(math.exp(x) for x in a + b)))
    for x in ([-math.inf, 3.0], [1.0, -math.inf, 2.0]):
        close(torch.logsumexp(torch.tensor(x, dtype=torch.float64), dim=0).item(), from_pair(x))
    for infinite in (-math.inf, math.inf):
        m = max([infinite, -math.inf])
        assert torch.logsumexp(torch.tensor([infinite, -math.inf]), dim=0).item() == m


def test_lse_merge():
    """The log-sum-exp of two collections together from that of each, as that of two numbers."""
    for a, b in collections():
        if a and b:
            both = lse(np.array(a + b))
            parts = np.array([lse(np.array(a)), lse(np.array(b))])
            close(both, np.log(np.exp(parts).sum()))
            close(both, torch.logsumexp(torch.tensor(parts), dim=0).item())


def test_lse_merge_gradient():
    """The derivative with respect to the part's log-sum-exp is the part's share of the softmax."""
    for a, b in collections():
        if a and b:
            parts = np.array([lse(np.array(a)), lse(np.array(b))])
            left = derivative(lambda t: np.log(np.exp(t).sum()), parts)[0]
            close(left, np.exp(parts[0] - lse(np.array(a + b))))
            close(left, softmax_of(np.array(a + b))[: len(a)].sum())


# --- numerics -------------------------------------------------------------------------------------


def test_exp_range():
    """In each type, exp of the last number at or below log Ω is finite, and exp of a number just
    above overflows."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        info = torch.finfo(dtype)
        limit = math.log(info.max)
        x = torch.tensor(limit, dtype=torch.float64).to(dtype)
        while x.double() > limit:
            x = torch.nextafter(x, torch.zeros((), dtype=dtype))
        assert torch.exp(x).isfinite()
        above = torch.tensor(limit + 2 * max(info.eps, info.eps * limit), dtype=torch.float64).to(
            dtype
        )
        assert above.double() > limit
        assert torch.exp(above).isinf()
    close(
        [round(math.log(torch.finfo(t).max), 2) for t in (torch.float16, torch.float32)],
        [11.09, 88.72],
    )


def test_round_once():
    """Rounding a float32 result to a 16-bit type stays within the bound, and comes within a factor
    of two of it."""
    random = np.random.default_rng(19)
    for dtype, smallest in ((torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-133)):
        u16 = torch.finfo(dtype).eps / 2
        worst = 0.0
        for spread in (1.0, 4.0, 12.0):
            y = softmax_of(spread * random.normal(size=512))
            y_hat = torch.from_numpy(y).float()
            eps = float((y_hat.double() / torch.from_numpy(y) - 1).abs().max())
            error = np.abs(y_hat.to(dtype).double().numpy() - y)
            bound = (u16 + eps + u16 * eps) * y + smallest / 2
            assert (error <= bound).all()
            worst = max(worst, (error / bound).max())
            if dtype == torch.float16 and spread == 12.0:
                tiny = y < torch.finfo(dtype).tiny  # where η matters
                assert (error / bound)[tiny].max() > 0.5
        assert worst > 0.5


def test_exp2_identity():
    """exp(x - m) = 2^(κ (x - m)), and the printed digits of κ = log2 e."""
    t = np.linspace(-100, 5, 1001)
    close(np.exp(t), 2.0 ** (t * math.log2(math.e)))
    assert abs(math.log2(math.e) - 1.442695) < 1e-6


def offset_rows():
    """float32 rows far from zero, with c = log2 e in float32 and exp(x - m) exactly."""
    random = np.random.default_rng(20)
    for offset, spread in itertools.product((0.0, 100.0, 3e4, -3e4, 1e6), (1.0, 5.0)):
        x = (offset + spread * random.normal(size=2048)).astype(np.float32)
        yield (
            offset,
            x,
            x.max(),
            np.float32(math.log2(math.e)),
            np.exp(x.astype(np.float64) - float(x.max())),
        )


def rounded_exp2(t):
    return np.exp2(t.astype(np.float64)).astype(np.float32)


def test_exp2_scale_first_error():
    """The bound holds, and a large offset comes within a factor of ten of it."""
    for offset, x, m, c, exact in offset_rows():
        error = np.abs(rounded_exp2(x * c - m * c) / exact - 1)
        distance = np.abs(x.astype(np.float64) - float(m))
        bound = U * (np.abs(x.astype(np.float64)) + abs(float(m)) + 2 * distance + 1)
        assert (error <= bound * (1 + 1e-3) + bound**2).all()
        if abs(offset) >= 3e4:
            assert error.max() > bound.max() / 10


def test_exp2_subtract_first_error():
    """The bound holds without the offset in it, and is met within a factor of ten."""
    for _, x, m, c, exact in offset_rows():
        error = np.abs(rounded_exp2((x - m) * c) / exact - 1)
        distance = np.abs(x.astype(np.float64) - float(m))
        bound = U * (3 * distance + 1)
        assert (error <= bound * (1 + 1e-5)).all()
        assert error.max() > bound.max() / 10


def float32_rows():
    """float32 rows whose length is a power of two."""
    random = np.random.default_rng(21)
    for n, spread in itertools.product((2, 16, 256, 4096), (0.5, 3.0, 8.0)):
        yield (spread * random.normal(size=n) + 20 * random.normal()).astype(np.float32)


def test_softmax_error_bound():
    """The bound for float32 softmax holds with exp and with exp2, for a tree and for a sum from
    left to right."""
    for x in float32_rows():
        n, wide = len(x), x.astype(np.float64)
        t, distance = x - x.max(), wide.max() - wide
        exact = np.exp(-distance) / np.exp(-distance).sum()
        c = np.float32(math.log2(math.e))
        for p, e in ((1, rounded_exp(t)), (3, rounded_exp2(t * c))):
            for h, d in (
                (math.log2(n), tree_sum(e)),
                (n - 1, np.add.accumulate(e, dtype=np.float32)[-1]),
            ):
                error = np.abs((e / d) / exact - 1)
                bound = U * (p * distance + p * (exact * distance).sum() + 2 * 1 + h + 1)
                assert (error <= bound * (1 + 1e-4)).all()
                if h == math.log2(n):
                    assert error.max() > bound.max() / 30


def test_entropy_identity():
    """The weighted distance from the maximum is the entropy less log d, and at most log N."""
    for x in rows():
        y, m = softmax_of(x), x.max()
        d = np.exp(x - m).sum()
        left = (y * np.abs(x - m)).sum()
        entropy = -(y * np.log(y)).sum()
        close(left, entropy - np.log(d))
        assert left <= np.log(len(x)) + 1e-13


def test_online_error_bound():
    """The bound holds for the recurrence in float32, entry by entry and tile by tile, on random and
    on rising rows."""
    worst = 0.0
    for drawn, rising in itertools.product(float32_rows(), (False, True)):
        x = np.sort(drawn) if rising else drawn
        wide = x.astype(np.float64)
        distance = wide.max() - wide
        exact = np.exp(-distance).sum()
        y = np.exp(-distance) / exact
        for size in (1, 16):
            if size > len(x):
                continue
            m, d = x[0], np.float32(0)
            for tile in x.reshape(-1, size):
                m_new = max(m, tile.max())
                d = d * rounded_exp(m - m_new) + tree_sum(rounded_exp(tile - m_new))
                m = m_new
            error, r, h = abs(float(d) / exact - 1), len(x) // size, math.log2(size)
            tight = U * ((y * distance).sum() + 1 + h + r * (1 + 2))
            loose = U * (math.log(len(x)) + 1 + h + r * (1 + 2))
            assert error <= tight <= loose
            worst = max(worst, error / tight)
    assert worst > 0.02


def test_vjp_error_bound():
    """The bound for the float32 backward pass holds, and is met within a factor of ten."""
    random = np.random.default_rng(22)
    for n in (2, 16, 256, 4096):
        y = random.dirichlet(np.ones(n)).astype(np.float32)
        dy = (random.normal(size=n) + 1).astype(np.float32)
        dx = y * (dy - tree_sum(y * dy))
        wide_y, wide_dy = y.astype(np.float64), dy.astype(np.float64)
        s, h = (wide_y * wide_dy).sum(), math.log2(n)
        error = np.abs(dx - wide_y * (wide_dy - s))
        bound = U * wide_y * ((h + 1) * (wide_y * np.abs(wide_dy)).sum() + 2 * np.abs(wide_dy - s))
        assert (error <= bound * (1 + 1e-5)).all()
        assert (error / bound).max() > 0.1


# --- attention ------------------------------------------------------------------------------------


def queries():
    """A query q, and keys k and values v, all numbers; first keys whose scores are the worked
    example."""
    random = np.random.default_rng(23)
    yield 2.0, X[0] / 2, np.array([0.0, 4.0, 2.0])
    for n in SIZES:
        yield float(random.normal()), 3 * random.normal(size=n), random.normal(size=n)


def prefix(x, v, i):
    """m_i, d_i and o_i straight from their meaning: maximum, denominator and attention over the
    first i keys."""
    m = x[:i].max()
    d = np.exp(x[:i] - m).sum()
    return m, d, (softmax_of(x[:i]) * v[:i]).sum()


def test_attention_definition():
    """Both sums over the keys are PyTorch's scaled_dot_product_attention."""
    for q, k, v in queries():
        x = q * k
        m = x.max()
        d = np.exp(x - m).sum()
        tensors = [torch.tensor(t, dtype=torch.float64).reshape(1, -1, 1) for t in (q, k, v)]
        o = torch.nn.functional.scaled_dot_product_attention(*tensors, scale=1.0).item()
        close(o, sum(softmax_of(x)[j] * v[j] for j in range(len(x))))
        close(o, (np.exp(x - m) / d * v).sum())


def test_attention_matrix():
    """softmax(QKᵀ/√D) V is PyTorch's attention, for the shapes stated."""
    random = np.random.default_rng(24)
    for n_queries, n_keys, depth in ((1, 1, 1), (2, 3, 4), (7, 33, 8)):
        q = random.normal(size=(n_queries, depth))
        k, v = random.normal(size=(2, n_keys, depth))
        o = softmax_of(1 / math.sqrt(depth) * q @ k.T) @ v
        assert o.shape == (n_queries, depth)
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(torch.from_numpy(t)[None] for t in (q, k, v))
        )[0]
        close(o, expected.numpy())


def test_attention_m():
    """The maximum over i scores from that over i - 1."""
    for q, k, v in queries():
        x = q * k
        for i in range(2, len(x) + 1):
            assert prefix(x, v, i)[0] == max(prefix(x, v, i - 1)[0], x[i - 1])
        assert prefix(x, v, 1)[0] == max(-np.inf, x[0])


def test_attention_d():
    """The denominator over i scores from that over i - 1."""
    for q, k, v in queries():
        x = q * k
        for i in range(2, len(x) + 1):
            (m_before, d_before, _), (m, d, _) = prefix(x, v, i - 1), prefix(x, v, i)
            close(d, d_before * np.exp(m_before - m) + np.exp(x[i - 1] - m))


def test_attention_invariant():
    """The recurrence in m, d and o is the attention over the first i keys at every step."""
    for q, k, v in queries():
        x = q * k
        m_before, d_before, o = -np.inf, 0.0, 0.0
        for i in range(1, len(x) + 1):
            m = max(m_before, x[i - 1])
            d = d_before * np.exp(m_before - m) + np.exp(x[i - 1] - m)
            o = o * (d_before * np.exp(m_before - m) / d) + np.exp(x[i - 1] - m) / d * v[i - 1]
            close(o, sum(np.exp(x[j] - m) / d * v[j] for j in range(i)))
            close(o, prefix(x, v, i)[2])
            m_before, d_before = m, d


def test_attention_derivation():
    """Both lines are the attention over the first i keys."""
    for q, k, v in queries():
        x = q * k
        for i in range(2, len(x) + 1):
            (m_before, d_before, _), (m, d, o) = prefix(x, v, i - 1), prefix(x, v, i)
            last = np.exp(x[i - 1] - m) / d * v[i - 1]
            old = slice(0, i - 1)
            close(o, (np.exp(x[old] - m) / d * v[old]).sum() + last)
            weights = np.exp(x[old] - m_before) / d_before * (d_before * np.exp(m_before - m) / d)
            close(o, (weights * v[old]).sum() + last)


def test_attention_o():
    """The attention over i keys from that over i - 1; the two coefficients sum to one."""
    for q, k, v in queries():
        x = q * k
        for i in range(2, len(x) + 1):
            (m_before, d_before, o_before), (m, d, o) = prefix(x, v, i - 1), prefix(x, v, i)
            old, new = d_before * np.exp(m_before - m) / d, np.exp(x[i - 1] - m) / d
            close(o, o_before * old + new * v[i - 1])
            close(old + new, 1.0)


def test_attention_accumulator():
    """The numerator obeys its recurrence, and divided by d it is o at every step."""
    for q, k, v in queries():
        x = q * k
        m_before, a = -np.inf, 0.0
        for i in range(1, len(x) + 1):
            m, d, o = prefix(x, v, i)
            a = a * np.exp(m_before - m) + np.exp(x[i - 1] - m) * v[i - 1]
            close(a, d * o)
            close(o, a / d)
            m_before = m


def test_attention_merge():
    """Triples of two sets of keys merge into the triple of both, whose quotient is the attention
    over all."""
    for q, k, v in queries():
        x = q * k
        for cut in range(1, len(x)):
            (m1, d1, o1), (m2, d2, o2) = prefix(x, v, cut), prefix(x[cut:], v[cut:], len(x) - cut)
            m = max(m1, m2)
            d = d1 * np.exp(m1 - m) + d2 * np.exp(m2 - m)
            a = d1 * o1 * np.exp(m1 - m) + d2 * o2 * np.exp(m2 - m)
            assert m == x.max()
            close(d, np.exp(x - m).sum())
            close(a, (np.exp(x - m) * v).sum())
            close(a / d, (softmax_of(x) * v).sum())


def test_attention_delta():
    """⟨y, dy⟩ over the keys is ⟨do, o⟩, for values that are vectors."""
    random = np.random.default_rng(25)
    for x in rows():
        v, do = random.normal(size=(len(x), 6)), random.normal(size=6)
        y = softmax_of(x)
        dy = gradient(lambda w, v=v, do=do: (w @ torch.from_numpy(v)) @ torch.from_numpy(do), y)
        close(y @ dy, sum(y[j] * (do @ v[j]) for j in range(len(x))))
        close(y @ dy, do @ (y[:, None] * v).sum(axis=0))
        close(y @ dy, do @ (y @ v))


# --- more accumulators, cross-entropy


def entropy(x):
    """−Σ y·log y, also for complex x."""
    y = softmax(x)
    return -(y * np.log(y)).sum()


def triple(x):
    """(m, d, a) of a part of a row."""
    m = x.max()
    e = np.exp(x - m)
    return m, e.sum(), (e * (x - m)).sum()


def test_entropy_definition():
    """Entropy is 0 or more and at most log N, which equal elements have."""
    for x in rows():
        y = softmax(x)
        h = -(y * np.log(y)).sum()
        assert -1e-12 <= h <= math.log(len(x)) + 1e-12
        close(entropy(0 * x), math.log(len(x)))
        torch_x = torch.distributions.Categorical(logits=torch.tensor(x))
        close(h, torch_x.entropy().item(), atol=1e-11)


def test_entropy_terms():
    """The second sum over its denominator is the mean distance from the maximum."""
    for x in rows():
        m, d, a = triple(x)
        close(a / d, softmax(x) @ (x - m))


def test_entropy_from_summary():
    """Entropy is log d less the mean distance from the maximum."""
    for x in rows():
        m, d, a = triple(x)
        close(entropy(x), np.log(d) - a / d, atol=1e-11)


def test_entropy_merge():
    """The second sum of a row from those of its parts."""
    for x in rows(2):
        for cut in {1, len(x) // 2, len(x) - 1}:
            m, _, a = triple(x)
            merged = 0.0
            for m_part, d_part, a_part in (triple(x[:cut]), triple(x[cut:])):
                delta = m_part - m
                merged += np.exp(delta) * (a_part + delta * d_part)
            close(a, merged)


def test_log_probability():
    """The log-probability of an element from the summary, never above 0."""
    for x in rows():
        m, d, _ = triple(x)
        value = (x - m) - np.log(d)
        assert (value <= 0).all()
        close(value, np.log(softmax(x)))


def test_log_probability_gradient():
    """The gradient of a log-probability is 1 at its element, less softmax."""
    for x in rows():
        t = len(x) // 2
        found = derivative(lambda z, t=t: np.log(softmax(z)[t : t + 1]), x)[0]
        close(found, np.eye(len(x))[t] - softmax(x))


def test_entropy_gradient():
    """The gradient of the entropy, in both forms."""
    for x in rows():
        m, d, a = triple(x)
        y = softmax(x)
        found = derivative(lambda z: np.array([entropy(z)]), x)[0]
        close(found, -y * (np.log(y) + entropy(x)), atol=1e-11)
        close(found, -y * (x - m - a / d), atol=1e-11)


def test_cross_entropy_from_summary():
    """Cross-entropy from the summary and the target's logit: two numbers of 0 or more."""
    for x in rows():
        m, d, _ = triple(x)
        for t in (0, len(x) - 1):
            assert m - x[t] >= 0 and np.log(d) >= 0
            close((m - x[t]) + np.log(d), lse(x) - x[t])


def test_cross_entropy_smoothed():
    """Cross-entropy with label smoothing, by the sum of the elements."""
    for x in rows():
        m, d, _ = triple(x)
        n, t, epsilon = len(x), len(x) // 2, 0.1
        given = torch.nn.functional.cross_entropy(
            torch.tensor(x), torch.tensor(t), label_smoothing=epsilon
        )
        spread = epsilon / n * (n * m - x.sum())
        close(np.log(d) + (1 - epsilon) * (m - x[t]) + spread, given.item())


def test_cross_entropy_smoothed_gradient():
    """Its gradient: softmax less the smoothed target."""
    for x in rows():
        n, t, epsilon = len(x), len(x) // 2, 0.1
        target = epsilon / n + (1 - epsilon) * np.eye(n)[t]
        found = derivative(lambda z, target=target: np.array([lse(z) - target @ z]), x)[0]
        close(found, softmax(x) - (1 - epsilon) * np.eye(n)[t] - epsilon / n)


def test_z_loss_gradient():
    """The gradient of the squared log-sum-exp is softmax times a number."""
    for x in rows():
        found = derivative(lambda z: np.array([0.3 * lse(z) ** 2]), x)[0]
        close(found, 2 * 0.3 * lse(x) * softmax(x))


# --- maps before the monoid, and distributions as targets -----------------------------------------


def maps_of(x, scale=0.7, cap=2.0):
    """The mapped elements without a bias, also for complex x."""
    return cap * np.tanh(scale * x / cap)


def test_modifiers_definition():
    """The cap bends what is large, and leaves what is small; without one there is only the
    scale."""
    for x, bias in rows_with(1):
        mapped = maps_of(x) + bias
        assert (np.abs(mapped - bias) <= 2.0).all()
        close(maps_of(1e-6 * x), 0.7e-6 * x, rtol=1e-9)
        close(maps_of(x, cap=1e9), 0.7 * x, rtol=1e-9)
        probabilities = torch.softmax(
            2.0 * torch.tanh(0.7 * torch.tensor(x) / 2.0) + torch.tensor(bias), 0
        )
        close(softmax(mapped), probabilities.numpy())


def test_modifiers_masked():
    """Softmax of what is kept, and 0 elsewhere, is softmax with −∞ in the other places."""
    for x, random in rows_with(1, n_min=2):
        kept = random > np.median(random)
        m = x[kept].max()
        d = np.exp(x[kept] - m).sum()
        y = np.where(kept, np.exp(x - m) / d, 0.0)
        close(softmax_of(np.where(kept, x, -math.inf)), y)


def test_modifiers_sink():
    """The pair with the sink merged in is that of the row with one more element."""
    for x in rows():
        for sink in (-3.0, 0.0, x.max() + 1.0):
            m = max(sink, x.max())
            d = math.exp(sink - m) + np.exp(x - m).sum()
            same_pair((m, d), pair([*x, sink]))
            same_pair((m, d), merge((sink, 1.0), pair(x)))


def test_modifiers_sink_share():
    """The share of the sink is what the others leave."""
    for x in rows():
        for sink in (-3.0, 0.0, x.max()):
            m = max(sink, x.max())
            d = math.exp(sink - m) + np.exp(x - m).sum()
            y = np.exp(x - m) / d
            close(math.exp(sink - m) / d, 1 - y.sum(), atol=1e-12)
            close(math.exp(sink - m) / d, softmax_of(np.append(x, sink))[-1])


def test_softcap_derivative():
    """Both forms are the derivative of the map."""
    for x in rows():
        by_steps = np.diag(derivative(maps_of, x))
        close(0.7 * (1 - np.tanh(0.7 * x / 2.0) ** 2), by_steps, rtol=1e-9)
        e = np.exp(-2 * np.abs(0.7 * x / 2.0))
        close(4 * 0.7 * e / (1 + e) ** 2, by_steps)


def test_modifiers_scale_gradient():
    """The gradient at the scale is a sum over the row."""
    for x, dy in rows_with(1):
        dz = gradient(lambda z, dy=dy: (torch.softmax(z, 0) * torch.tensor(dy)).sum(), maps_of(x))
        wanted = gradient(
            lambda a, x=x, dy=dy: (
                torch.softmax(2.0 * torch.tanh(a * torch.tensor(x) / 2.0), 0) * torch.tensor(dy)
            ).sum(),
            np.float64(0.7),
        )
        close(np.sum(dz * (1 - np.tanh(0.7 * x / 2.0) ** 2) * x), wanted, atol=1e-12)


def test_modifiers_sink_gradient():
    """Minus the sink's share of the inner product."""
    for x, dy in rows_with(1):
        y = softmax_of(np.append(x, 0.3))
        wanted = gradient(
            lambda s, x=x, dy=dy: (
                torch.softmax(torch.cat([torch.tensor(x), s[None]]), 0)[:-1] * torch.tensor(dy)
            ).sum(),
            np.float64(0.3),
        )
        close(-y[-1] * np.sum(y[:-1] * dy), wanted)


def test_distribution_terms():
    """Relative to the maximum or not, the sums say the same."""
    for x, random in rows_with(1):
        target = np.abs(random)
        m = x.max()
        nu, a = target.sum(), (target * (x - m)).sum()
        close(a + nu * m, (target * x).sum())


def test_cross_entropy_distribution():
    """The loss from the summary is PyTorch's; the target need not add up to 1."""
    for x, random in rows_with(1):
        target = np.abs(random)
        m = x.max()
        d = np.exp(x - m).sum()
        loss = target.sum() * np.log(d) - (target * (x - m)).sum()
        close(loss, (target * (lse(x) - x)).sum())
        wanted = torch.nn.functional.cross_entropy(torch.tensor(x), torch.tensor(target))
        close(loss, wanted.item())


def test_distribution_merge():
    """The sum of two parts, brought to the larger maximum."""
    for x, random in rows_with(1, n_min=2):
        m = x.max()
        merged = 0.0
        for part in (slice(0, 1), slice(1, None)):
            q, m_b = np.abs(random)[part], x[part].max()
            merged += (q * (x[part] - m_b)).sum() + q.sum() * (m_b - m)
        close(merged, (np.abs(random) * (x - m)).sum())


def test_cross_entropy_distribution_gradient():
    """The sum of the target times softmax, less the target."""
    for x, random in rows_with(1):
        q = np.abs(random)
        by_steps = derivative(lambda t, q=q: (q * (lse(t) - t)).sum(), x)
        close(q.sum() * softmax_of(x) - q, by_steps)
