"""What each symbol of the notation table means, in numbers; `tests/site/test_notation.py` compares
the two, but for names that begin with an underscore. A letter is bound by its definition, never by
an equation that is to be checked: softmax by exponentials that are not shifted, a gradient by a
derivative of a loss.

`m_` and the like are families: `m_i` is taken from `m_`, and `m` stands alone.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator

import numpy as np

from formulas.evaluator import INDICES, Check, Env, largest
from formulas.reader import FormulaError
from softmax_site.computed import worked

U, U16 = 2.0**-32, 2.0**-29
"""Unit roundoffs so small that their squares do not count."""


def table(text: str) -> dict[str, str]:
    """Definitions, `name = Python`, by name."""
    return dict(re.findall(r"(\S+) = (.+?)\s*(?:;\s|$)", text, re.M))


def soft(x):
    """Softmax of a row, or of each row of a matrix."""
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def log_sum(x):
    return np.log(np.sum(np.exp(x)))


def total(x):
    """The denominator of numbers, relative to the largest."""
    return np.sum(np.exp(x)) / np.exp(largest(x)) if len(x) else 0.0


def loss(of):
    """A loss that is not linear in what it is a loss of."""
    return np.sum(np.sin(3 * of + np.arange(np.size(of)).reshape(np.shape(of))))


def family(values) -> dict:
    """Values by their number, from 1."""
    return dict(enumerate(values, 1))


OPERATORS = table("""
    e = math.e; infty = math.inf; kappa = 1 / math.log(2); lambda = 0.0; softmax = soft
    I = np.eye(N); delta = lambda i, j: float(i == j); diag = np.diag; lse = log_sum
    bold_1 = np.ones(N); bold_1_ = np.ones; rowmax = lambda x: np.array([*map(largest, x)])
""")
ROW = OPERATORS | table("""
    N = len(x); y = soft(x); z = np.log(soft(x)); m = largest(x); d = total(x); ell = log_sum(x)
    Z = np.sum(np.exp(x)); H = ell - y @ x; J = gradient('y', 'x'); L = loss(y)
    dx = gradient('L', 'x'); dy = gradient('L', 'y'); dz = gradient('L', 'z')
    dl = gradient('L', 'ell'); varphi = g @ (dy @ J)
    m_ = {i: largest(x[:i]) for i in range(N + 1)}; d_ = {i: total(x[:i]) for i in range(N + 1)}
    o_ = {0: 0.0} | {i: soft(x[:i]) @ v[:i] for i in range(1, N + 1)}
    a_ = {i: d_[i] * o_[i] for i in o_}
    _one_hot = np.eye(N)[t - 1]; _smoothed = psi / N + (1 - psi) * _one_hot
    _cross_entropy = lambda p: sum(q * log_sum(x - one) for q, one in zip(p, x))
    _of_output = lambda y: y * (dy - np.sum(y * dy))
""")
MODIFIED = table("""
    xi = beta + chi * (1 - 2 / (1 + np.exp(2 * alpha * x / chi))); _e = np.exp(xi) * _kept
    _kept = np.isin(np.arange(1, N + 1), A); m = largest(xi[_kept]); d = np.sum(_e) / np.exp(m)
    y = _e / np.sum(_e)
""")
SUNK = MODIFIED | table("""
    _all = np.append(_e, np.exp(sigma)) / (np.sum(_e) + np.exp(sigma)); y = _all[:-1]
    y_sigma = _all[-1]; m = largest([*xi[_kept], sigma]); d = np.exp(sigma - m) / y_sigma
""")
DISTRIBUTION = table("nu = sum(pi); a = pi @ x - nu * m")
ENTROPY = table("a = d * (y @ x - m)")


def rows() -> Iterator[dict]:
    """A row, with vectors of its length and numbers that go with it."""
    random = np.random.default_rng(1)
    drawn = [2 * random.normal(size=n) + random.normal() for n in (1, 2, 2, 3, 5)]
    fixed = [*worked.X, [1, 1, 1], [0, 0], [0, -60], [3, 1.5, 1.5, 1.5, 1.5]]
    for number, x in enumerate(np.array(x, float) for x in (*fixed, *drawn)):
        given = dict(zip(("w", "g", "v", "beta"), random.normal(size=(4, len(x)))))
        if number in (2, 3):  # where bounds are attained
            given["w"] = np.array([1.0, 1.0, 1.0] if number == 2 else [1.0, -1.0])
        names = ("tau", "psi", "zeta", "alpha", "chi", "sigma", "c")
        given |= dict(
            zip(names, map(float, random.uniform(0.2, 0.9, size=7) * (1, 1, 1, 2, 3, 1, 1)))
        )
        t, at = (int(random.integers(1, len(x) + 1)) for _ in range(2))
        yield given | {"x": x, "pi": random.random(len(x)), "t": t, "A": sorted({1, len(x), at})}


def of_row(rules: str | dict = "", holds: Callable = lambda e: True) -> Iterator[Env]:
    """Rows for which something holds, with definitions of their own."""
    own = table(rules) if isinstance(rules, str) else rules
    envs = (Env({k: v for k, v in given.items() if k not in own}, ROW | own) for given in rows())
    yield from filter(holds, envs)


def spread() -> Iterator[Env]:
    """Rows; where one entry counts alone, the lower bound is attained."""
    return (env.but(_attained=int(np.ptp(env["x"]) > 20)) for env in of_row())


def tiles() -> Iterator[Env]:
    """A row of which a beginning was read, and now a tile."""
    for env in of_row():
        for cut in range(1, env["N"]):
            known = {"m_old": env["m_"][cut], "d_old": env["d_"][cut], "A": [*env["x"][cut:]]}
            yield env.but(**known, m_new=env["m"], d_new=env["d"])


# --- parts ----------------------------------------------------------------------------------------


def summary(x) -> tuple:
    """(m, d) of a collection of numbers."""
    return largest(x), sum(np.exp(each - largest(x)) for each in x)


def value(m, d):
    return d * np.exp(m) if np.real(m) > -math.inf else 0.0


def merged(p: tuple, q: tuple) -> tuple:
    """(m, d, …) of two parts, by what they stand for."""
    m = max(p[0], q[0])
    scale = math.exp(-m) if m > -math.inf else 1.0
    return m, *(scale * (value(p[0], a) + value(q[0], b)) for a, b in zip(p[1:], q[1:]))


PAIRS = OPERATORS | table("""
    _merge = merged; m = max(p[0] for p in _pairs); m_12 = max(m_1, m_2); m_23 = max(m_2, m_3)
    d = sum(value(*p) for p in _pairs) / np.exp(m); P = summary; B = len(A_); m_A = largest(A)
    d_A = summary(A)[1]; Z = lambda *pair: value(*(pair if len(pair) > 1 else pair[0]))
    tilde_m = m if m > -math.inf else 0.0
""")


def pairs(count: int) -> Iterator[Env]:
    """`count` pairs, the identity of the monoid among them where there are one or two."""
    random = np.random.default_rng(2)
    for number in range(8):
        found = [(float(3 * random.normal()), 1 + random.random()) for _ in range(count)]
        if number == 7 and count < 3:
            found[0] = -math.inf, 0.0
        given = {"_pairs": found}
        for k, (m, d) in enumerate(found, 1):
            given |= {f"m_{k}": m, f"d_{k}": d, f"P_{k}": (m, d)}
        yield Env(given | ({"m": m, "d": d} if count == 1 else {}), PAIRS)


def collections(*sizes: int, more: tuple = ()) -> Iterator[Env]:
    """Collections of numbers, with repetitions."""
    random = np.random.default_rng(3)
    for many in itertools.product(sizes, repeat=3):
        a, b, c = ([*map(float, random.integers(-3, 4, size=n) / 2)] for n in many)
        given = {"A": a, "A_1": a, "A_2": b, "A_": family((a, b, c)), "m": 1.5, "d": 2.5}
        yield Env(given, PAIRS)
    yield from (Env({"A": each}, PAIRS) for each in more)


def corners() -> Iterator[Env]:
    for m, x in ((2.0, 1.0), (2.0, -math.inf), (-math.inf, -math.inf), (0.5, 0.5)):
        yield Env({"m": m, "x": x}, PAIRS)


def whole(rules: str, count: int | None = None) -> Iterator[Env]:
    """A row with values and a target, cut into parts that are not empty: what is known of each, and
    of all."""
    for env in of_row(table(f"{rules}; _merge = merged")):
        for parts in {1, min(2, env["N"]), min(3, env["N"])} & ({count} if count else {1, 2, 3}):
            cut = [*map(np.array, np.array_split(np.arange(env["N"]), parts))]
            x, v, pi = ([env[name][at] for at in cut] for name in ("x", "v", "pi"))
            known = {"m_": map(largest, x), "d_": map(total, x), "ell_": map(log_sum, x)}
            known |= {"o_": (soft(a) @ b for a, b in zip(x, v)), "nu_": map(sum, pi)}
            known |= {"_entropies": (np.exp(a - max(a)) @ (a - max(a)) for a in x)}
            known |= {"_targets": (q @ (a - max(a)) for q, a in zip(pi, x))}
            yield env.but(B=parts, **{name: family(each) for name, each in known.items()})


def of_two_parts() -> Iterator[Env]:
    for env in whole("a = d * o; o = soft(x) @ v", 2):
        for k in (1, 2):
            env |= {f"{name}_{k}": env[f"{name}_"][k] for name in "md"}
            env |= {f"a_{k}": env["d_"][k] * env["o_"][k]}
        yield env


def one_part() -> Iterator[Env]:
    """Some of the keys."""
    for env in of_row("a = d * (soft(x[_at]) @ v[_at]); _at = np.array(A) - 1"):
        x = env["x"][env["_at"]]
        yield env.but(m=largest(x), d=total(x))


# --- batches, attention ---------------------------------------------------------------------------

BATCH = OPERATORS | table("""
    M = X.shape[0]; N = X.shape[1]; Y = soft(X); bold_m = np.array([*map(largest, X)]); L = loss(Y)
    E = np.array([np.exp(row) / np.exp(largest(row)) for row in X]); ell_ = family(map(log_sum, X))
    bold_d = np.array([*map(sum, E)]); dY = gradient('L', 'Y'); dX = gradient('L', 'X')
    bold_s = np.array([y @ dy for y, dy in zip(Y, dY)]); Pi = np.eye(N)[[t_[r] - 1 for r in t_]]
""")
ATTENTION = BATCH | table("""
    M = len(Q); N = len(K); D = K.shape[1]; X = alpha * np.array([[q @ k for k in K] for q in Q])
    O = np.array([y @ V for y in Y]); L = loss(O); dO = gradient('L', 'O'); dQ = gradient('L', 'Q')
    dK = gradient('L', 'K'); dV = gradient('L', 'V')
""")
QUERY = table("""
    D = v.shape[1]; v_ = family(v); o = y @ v; L = loss(o) + np.sin(ell); do = gradient('L', 'o')
    s = y @ dy
""")
SIZES = ((1, 1, 1), (1, 3, 2), (2, 3, 4), (3, 2, 1), (2, 1, 3))


def batches(rules: str = "", alone: bool = False) -> Iterator[Env]:
    """Matrices of rows, with targets; the worked example, or others too."""
    random = np.random.default_rng(4)
    for x in (worked.X, *(() if alone else (random.normal(size=size[:2]) for size in SIZES))):
        targets = family(map(int, random.integers(1, x.shape[1] + 1, size=len(x))))
        given = {"X": x, "t_": targets} | ({"dY": worked.DY} if alone else {})
        yield Env(given, BATCH | table(rules))


def attention(scaled: bool) -> Iterator[Env]:
    """Queries, keys and values; scores by 1/√D, or by a factor of any size."""
    random = np.random.default_rng(5)
    for n_queries, n_keys, depth in SIZES:
        q, (k, v) = (random.normal(size=(n_queries, depth)), random.normal(size=(2, n_keys, depth)))
        alpha = 1 / math.sqrt(depth) if scaled else random.uniform(0.5, 2)
        yield Env({"Q": q, "K": k, "V": v, "alpha": float(alpha)}, ATTENTION)


def queries(rules: str = "s = y @ dy") -> Iterator[Env]:
    """Values of several components."""
    random = np.random.default_rng(6)
    for env in of_row(QUERY | table(rules)):
        yield env.but(v=random.normal(size=(env["N"], int(random.integers(1, 4)))))


# --- rounding: each error as large as it may be, in the direction that adds up --------------------


def largest_error(computed: Callable, exact: float, count: int) -> float:
    """Of what is computed with `count` roundings, each up or down, what is furthest off."""
    found = [computed(*signs) for signs in itertools.product((-U, U), repeat=count)]
    return max(found, key=lambda each: abs(each - exact))


NUMBERS = OPERATORS | {"f": "np.exp(x - m)"}
ROUNDED = ROW | table("""
    _e = lambda up, more: np.exp((x - m) * (1 - up * rho * U)) * (1 + up * (gamma + more) * U)
    _more = h + mu * (gamma + 2); hat_d = np.sum(_e(1, _more)); f = np.exp(x - m); o = soft(x) @ v
    hat_y = _e(1, 0) / np.sum(_e(-1, h)) * (1 + U); dx = dy @ J
    _sum = lambda up: np.sum(y * (dy + up * np.abs(dy) * (h + 1) * U))
    hat_dx = y * (dy - np.where(dy >= y @ dy, _sum(-1), _sum(1))) * (1 + U) ** 2
    _up = np.sign(v) * np.sign(o); _p = np.where(_up > 0, _e(1, _more), _e(-1, _more))
    hat_o = np.sum(_p * v * (1 + _up * (U16 + U))) / np.sum(_e(-1, _more)) * (1 + U)
""")
ONCE = ROW | table("bar_y = y * (1 + _share * 0.02) * (1 + _share * 0.01) + _share * 0.002")
SCALED_FIRST = "lambda a, b, c, d, of_exp: (1 + gamma * of_exp) * 2 ** ("
SCALED_FIRST += "(x * kappa * (1 + a) * (1 + b) - m * kappa * (1 + a) * (1 + c)) * (1 + d))"
SUBTRACTED_FIRST = "lambda a, b, c, of_exp: (1 + gamma * of_exp) * 2 ** ("
SUBTRACTED_FIRST += "kappa * (x - m) * (1 + a) * (1 + b) * (1 + c))"


def rounded() -> Iterator[Env]:
    random = np.random.default_rng(7)
    for given in rows():
        names, n = ("rho", "gamma", "h", "mu"), len(given["x"])
        numbers = dict(zip(names, map(float, random.uniform(0.2, 4, size=4))))
        numbers |= {"gamma": 0.1, "mu": 0.0, "h": 0.0} if n == 5 else {}
        both = {"u": U, "u_16": U16, "_attained": 2 if n == 1 else 1}, {"u": 2 * U, "u_16": 2 * U16}
        yield from (Env(given | numbers | units, ROUNDED) for units in both)


def rounded_once() -> Iterator[Env]:
    """To a float32 result and to 16 bits; the errors as large as they may be, or half."""
    for given, share in itertools.product(rows(), (1, 0.5)):
        errors = {"u_16": 0.01, "varepsilon": 0.02, "eta": 0.004, "_share": share}
        yield Env(given | errors | {"_attained": int(share)}, ONCE)


def two_numbers(computed: str = "lambda: f", count: int = 0) -> Iterator[Env]:
    """An entry and a maximum, each at some distance from 0 and from the other."""
    rules = NUMBERS | {"hat_f": f"largest_error({computed}, f, {count})"}
    for m, t, gamma in itertools.product((-3.0, 0.0, 7.0), (0.0, -2.5, -9.0), (0.3, 1.5)):
        for slack in (1, 2):
            numbers = {"x": m + t, "m": m, "gamma": gamma, "u": slack * U}
            yield Env(numbers | {"_attained": slack % 2}, rules)


def ranges() -> Iterator[Env]:
    """Numbers on both sides of where exp overflows."""
    for largest_number, off in itertools.product((65504.0, 3.4e38), (-1.0, -1e-3, 1e-3, 1.0)):
        yield Env({"x": math.log(largest_number) + off, "Omega": largest_number}, OPERATORS)


Env.helpers = globals()
MEAN_LOSS = "L = sum(log_sum(X[r - 1] - X[r - 1][t_[r] - 1]) for r in t_) / M"
EXTREME = ([-math.inf, -math.inf], [1.0, math.inf])
WORKED = "dX = here.slope(lambda moved: np.sum(dY * moved['Y']), 'X')"
# fmt: off
FAMILIES: list[tuple[Callable[[], Iterator[Env]], str]] = [
    (of_row, """
     softmax-definition softmax-sums-to-one softmax-ratio softmax-shift-invariance
     softmax-temperature softmax-safe sum-of-exponentials lse-definition lse-shift
     softmax-from-lse log-softmax-definition online-invariant online-start online-m
     online-derivation online-d online-output softmax-jacobian-definition
     softmax-quotient-rule softmax-jacobian-diagonal softmax-jacobian-off-diagonal
     softmax-jacobian-cases softmax-jacobian-delta softmax-jacobian-matrix logsumexp-gradient
     softmax-log-derivative log-derivative-identity log-softmax-jacobian jacobian-symmetric
     jacobian-row-sums jacobian-variance jacobian-eigenvalue-bound lse-hessian vjp-chain-rule
     vjp-transpose softmax-vjp-derivation softmax-vjp vjp-sum-zero vjp-shift-invariance
     softmax-jvp logsumexp-jvp z-loss-gradient attention-accumulator attention-invariant
     attention-derivation attention-o entropy-definition log-probability
     log-probability-gradient softmax-backward-form"""),
    (lambda: of_row(holds=lambda e: e["N"] == 2), "softmax-sigmoid"),
    (spread, "softmax-denominator-bounds lse-bounds"),
    (lambda: batches(), "softmax-batch softmax-vjp-batch attention-recompute"),
    (tiles, "online-tile"),
    (lambda: collections(0, 1, 3), "pair-of-set pair-value merge-union merge-any-order"),
    (lambda: pairs(2), "merge merge-value merge-commutative"),
    (lambda: of_row("_merge = merged"), "online-as-merge"),
    (lambda: pairs(3), "merge-associative merge-associative-left merge-associative-right"),
    (lambda: pairs(1), "merge-identity"),
    (corners, "merge-corner"),
    (lambda: collections(0, 1, 3, more=EXTREME), "lse-from-summary"),
    (lambda: collections(1, 3), "lse-merge lse-merge-gradient"),
    (lambda: of_row(holds=lambda e: np.ptp(e["x"]) < 20), "jacobian-rank"),
    (lambda: of_row("L = loss(ell)"), "logsumexp-vjp"),
    (lambda: of_row("L = loss(z)"), "log-softmax-vjp"),
    (lambda: of_row("L = _cross_entropy(_one_hot)"), "cross-entropy-definition "
     "cross-entropy-gradient cross-entropy-from-summary"),
    (lambda: of_row("pi = soft(g); L = _cross_entropy(pi)"), "cross-entropy-soft-gradient"),
    (lambda: batches(MEAN_LOSS), "cross-entropy-gradient-batch"),
    (lambda: of_row("z = lambda t: np.log(soft(t))"), "log-softmax-jvp"),
    (ranges, "exp-range"),
    (rounded_once, "round-once"),
    (lambda: two_numbers(), "exp2-identity"),
    (lambda: two_numbers(SCALED_FIRST, 5), "exp2-scale-first-error"),
    (lambda: two_numbers(SUBTRACTED_FIRST, 4), "exp2-subtract-first-error"),
    (rounded, "softmax-error-bound online-error-bound vjp-error-bound attention-error-bound"),
    (lambda: of_row("H = lambda y: np.sum(y * np.log(1 / y))"), "entropy-identity"),
    (lambda: of_row("L = _cross_entropy(_smoothed)"), "cross-entropy-smoothed "
     "cross-entropy-smoothed-gradient"),
    (lambda: of_row("q = 1 + c; k = x / q; o = soft(x) @ v"), "attention-definition"),
    (lambda: attention(scaled=True), "attention-matrix"),
    (one_part, "attention-value"),
    (of_two_parts, "attention-merge"),
    (lambda: whole("o = soft(x) @ v"), "attention-lse-merge"),
    (lambda: queries(), "attention-jacobian attention-delta attention-lse-gradient"),
    (lambda: queries("L = loss(o)"), "attention-score-gradient"),
    (lambda: attention(scaled=False), "attention-vjp"),
    (lambda: of_row(MODIFIED), "modifiers-definition softcap-derivative modifiers-scale-gradient "
     "modifiers-masked"),
    (lambda: of_row(SUNK), "modifiers-sink modifiers-sink-share modifiers-sink-gradient"),
    (lambda: batches(WORKED, alone=True), "worked-input worked-output worked-gradient"),
    (lambda: of_row(ENTROPY), "entropy-terms entropy-from-summary entropy-gradient"),
    (lambda: whole("a = d * (y @ x - m); a_ = _entropies"), "entropy-merge"),
    (lambda: of_row(DISTRIBUTION), "distribution-terms cross-entropy-distribution "
     "cross-entropy-distribution-gradient"),
    (lambda: whole("nu = sum(pi); a = pi @ x - nu * m; a_ = _targets"), "distribution-merge"),
    (lambda: of_row("dy = v; varphi = g @ _of_output(y)"), "softmax-backward-wrt-grad "
     "softmax-backward-wrt-output"),
    (lambda: of_row("dy = v; dx = _of_output"), "softmax-backward-along-output"),
    (lambda: of_row("dz = v; dx = dz - np.exp(z) * np.sum(dz)"), "log-softmax-backward-wrt-output"),
    (lambda: of_row("dl = 1.7; dx = dl * y; varphi = g @ dx"), "logsumexp-backward-wrt-inputs")
]
# fmt: on
"""What letters mean in which equations, named in the order of the pages."""
BRACKETED = {"pair-value": "Z", "merge-value": "Z", "entropy-identity": "H", "log-softmax-jvp": "z"}
BRACKETED |= {"softmax-backward-along-output": "dx"}
"""Letters that a bracket after them applies there, where elsewhere it multiplies."""
NEAR = {"entropy-identity": 0.4, "online-error-bound": 0.4}
"""Bounds that are proved with a step that gives away more than roundings: how near they come."""
FUNCTIONS = frozenset({"softmax", "lse", "exp", "rowmax", "diag", "P"})
"""Names of operators, which a bracket applies everywhere."""
CASES = {label: cases for cases, labels in FAMILIES for label in labels.split()}


def letters() -> set[str]:
    """Every letter that some family binds, without what it wears and what stands below it."""
    envs = (next(iter(cases())) for cases, _ in FAMILIES)
    found = {*INDICES}.union(*({*env, *env.rules} for env in envs))
    bare = r"(?:hat_|bar_|tilde_)?((?:bold_)?[^_]+).*"
    return {re.sub(bare, r"\1", name) for name in found if name[0] != "_"}


def check(label: str, latex: str) -> None:
    """Evaluate an equation.

    Raises:
        FormulaError: it cannot be read or evaluated, does not hold, or no letters are bound to it.
    """
    if label not in CASES:
        raise FormulaError(f"no family binds the letters of {label}")
    functions = FUNCTIONS | {*BRACKETED.get(label, "").split()}
    Check(latex, functions, NEAR.get(label, 0.02)).over(CASES[label]())


def holds_somewhere(latex: str) -> bool:
    """Whether what a formula in a line says holds for the letters of some family; that something is
    a bound, or differs, for those of a row, if it can be said of them. What equals itself says
    nothing."""
    left, _, right = latex.partition("=")
    if left.strip() == right.strip():
        return False
    for cases, labels in FAMILIES:
        functions = FUNCTIONS | {*BRACKETED.get(labels.split()[0], "").split()}
        try:
            Check(latex, functions, near=math.inf).over(cases())
            return r"\ne" not in latex
        except FormulaError as error:
            if "does not hold" in str(error) and re.search(r"\\[lg]e(?![a-z])|\\ne", latex):
                return False
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            pass
    return False
