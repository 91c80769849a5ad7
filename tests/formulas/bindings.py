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

from formulas.evaluator import INDICES, Check, Env
from formulas.reader import FormulaError
from softmax_site.computed import worked

U, U16 = 2.0**-32, 2.0**-29
"""Unit roundoffs so small that their squares do not count."""


# --- one row --------------------------------------------------------------------------------------


def softmax(x):
    """Of a row, or of each row of a matrix."""
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def lse(x):
    return np.log(np.sum(np.exp(x)))


def top(x):
    """The maximum, of complex numbers by their real part."""
    return max(x, key=np.real, default=-math.inf)


def prefixes(of: Callable, first) -> Callable[[Env], dict]:
    """What a function makes of each beginning of the row, and of nothing."""
    return lambda e: {0: first} | {i: of(e, slice(i)) for i in range(1, e["N"] + 1)}


def sum_of(e: Env, part=slice(None)):
    """The denominator of a part of the row, relative to its maximum."""
    x = e["x"][part]
    return np.sum(np.exp(x)) / np.exp(top(x))


def mean_of(e: Env, part=slice(None)):
    return softmax(e["x"][part]) @ e["v"][part]


def cross_entropy(e: Env, pi):
    return sum(p * lse(e["x"] - x) for p, x in zip(pi, e["x"]))


def one_hot(e: Env):
    return np.eye(e["N"])[e["t"] - 1]


def smoothed(e: Env):
    return e["psi"] / e["N"] + (1 - e["psi"]) * one_hot(e)


def slope(of: str, by: str) -> Callable[[Env], object]:
    return lambda e: e.slope(lambda moved: moved[of], by)


def loss(of: str) -> Callable[[Env], object]:
    """A loss that is not linear in what it is a loss of."""
    return lambda e: np.sum(np.sin(3 * e[of] + np.arange(np.size(e[of])).reshape(np.shape(e[of]))))


OPERATORS = {
    "e": lambda e: math.e,
    "infty": lambda e: math.inf,
    "softmax": lambda e: softmax,
    "lse": lambda e: lse,
    "kappa": lambda e: 1 / math.log(2),
    "I": lambda e: np.eye(e["N"]),
    "delta": lambda e: lambda i, j: 1.0 if i == j else 0.0,
    "diag": lambda e: np.diag,
    "bold_1": lambda e: np.ones(e["N"]),
    "bold_1_": lambda e: np.ones,
    "rowmax": lambda e: lambda x: np.array([top(row) for row in x]),
    "lambda": lambda e: 0.0,
}
ROW = OPERATORS | {
    "N": lambda e: len(e["x"]),
    "y": lambda e: softmax(e["x"]),
    "z": lambda e: np.log(softmax(e["x"])),
    "m": lambda e: top(e["x"]),
    "d": sum_of,
    "Z": lambda e: np.sum(np.exp(e["x"])),
    "ell": lambda e: lse(e["x"]),
    "m_": prefixes(lambda e, part: top(e["x"][part]), -math.inf),
    "d_": prefixes(sum_of, 0.0),
    "o_": prefixes(mean_of, 0.0),
    "a_": prefixes(lambda e, part: sum_of(e, part) * mean_of(e, part), 0.0),
    "J": slope("y", "x"),
    "L": loss("y"),
    "dy": slope("L", "y"),
    "dz": slope("L", "z"),
    "dx": slope("L", "x"),
    "dl": slope("L", "ell"),
    "varphi": lambda e: e["g"] @ (e["dy"] @ e["J"]),
    "H": lambda e: e["ell"] - e["y"] @ e["x"],
}


def rows() -> Iterator[dict]:
    """A row, with vectors of its length and numbers that go with it."""
    random = np.random.default_rng(1)
    ones, lone = np.ones(3), [3.0, 1.5, 1.5, 1.5, 1.5]
    drawn = [2 * random.normal(size=n) + random.normal() for n in (1, 2, 2, 3, 5)]
    spread = [0.0, -60.0]
    given = [*worked.X, ones, [0.0, 0.0], spread, lone, *drawn]
    for number, x in enumerate(map(np.asarray, given)):
        n = len(x)
        w, g, v, beta = random.normal(size=(4, n))
        if number in (2, 3):  # where bounds are attained
            w = np.ones(n) if number == 2 else np.array([1.0, -1.0])
        yield {
            "x": x.astype(float),
            "w": w,
            "g": g,
            "v": v,
            "beta": beta,
            "pi": random.random(n),
            "t": int(random.integers(1, n + 1)),
            "c": float(random.normal()),
            "tau": float(random.uniform(0.5, 2)),
            "psi": float(random.uniform(0.1, 0.9)),
            "zeta": float(random.uniform(0.1, 1)),
            "alpha": float(random.uniform(0.5, 2)),
            "chi": float(random.uniform(1, 3)),
            "sigma": float(random.normal()),
            "A": sorted({1, n, int(random.integers(1, n + 1))}),
        }


def of_row(**rules) -> Callable[[], Iterator[Env]]:
    """Rows, with rules of their own."""

    def drawn() -> Iterator[Env]:
        for given in rows():
            yield Env({k: v for k, v in given.items() if k not in rules}, ROW | rules)

    return drawn


def two_entries() -> Iterator[Env]:
    return (env for env in of_row()() if env["N"] == 2)


def spread() -> Iterator[Env]:
    """Rows; where one entry counts alone, the lower bound is attained."""
    return (env.but(_attained=int(np.ptp(env["x"]) > 20)) for env in of_row()())


def tiles() -> Iterator[Env]:
    """A row of which a beginning was read, and now a tile."""
    for env in of_row()():
        for cut in range(1, env["N"]):
            old, new = (sum_of(env, slice(end)) for end in (cut, None))
            known = {"m_old": top(env["x"][:cut]), "m_new": top(env["x"]), "d_old": old}
            yield env.but(**known, d_new=new, A=[*env["x"][cut:]])


MODIFIED = {
    "xi": lambda e: (
        e["beta"] + e["chi"] * (1 - 2 / (1 + np.exp(2 * e["alpha"] * e["x"] / e["chi"])))
    ),
    "_kept": lambda e: np.isin(np.arange(1, e["N"] + 1), e["A"]),
    "m": lambda e: top(e["xi"][e["_kept"]]),
    "d": lambda e: np.sum(np.exp(e["xi"][e["_kept"]])) / np.exp(e["m"]),
    "y": lambda e: e["_kept"] * np.exp(e["xi"]) / np.sum(np.exp(e["xi"][e["_kept"]])),
}


def with_sink(e: Env):
    """Softmax of what is kept, and of the sink behind it."""
    x = np.append(np.where(e["_kept"], e["xi"], -math.inf), e["sigma"])
    return np.exp(x) / np.sum(np.exp(x))


SUNK = MODIFIED | {
    "m": lambda e: top([*e["xi"][e["_kept"]], e["sigma"]]),
    "d": lambda e: np.exp(e["sigma"] - e["m"]) / with_sink(e)[-1],
    "y": lambda e: with_sink(e)[:-1],
    "y_sigma": lambda e: with_sink(e)[-1],
}
DISTRIBUTION = {
    "nu": lambda e: sum(e["pi"]),
    "a": lambda e: e["pi"] @ e["x"] - e["nu"] * e["m"],
}
ENTROPY = {"a": lambda e: e["d"] * (e["y"] @ e["x"] - e["m"])}


# --- parts ----------------------------------------------------------------------------------------


def summary(x) -> tuple:
    """(m, d) of a collection of numbers."""
    m = top(x)
    return m, sum(np.exp(x - m) for x in x)


def value(m, d):
    return d * np.exp(m) if np.real(m) > -math.inf else 0.0


def merged(p: tuple, q: tuple) -> tuple:
    """(m, d, …) of two parts, by what they stand for."""
    m = max(p[0], q[0])
    scale = math.exp(-m) if m > -math.inf else 1.0
    return m, *(scale * (value(p[0], a) + value(q[0], b)) for a, b in zip(p[1:], q[1:]))


def latest(e: Env):
    """The maximum of the pairs that there are."""
    return max(e[f"m_{k}"] for k in (1, 2, 3) if f"m_{k}" in e)


def total(e: Env):
    found = [value(e[f"m_{k}"], e[f"d_{k}"]) for k in (1, 2, 3) if f"m_{k}" in e]
    return sum(found) / np.exp(e["m"]) if e["m"] > -math.inf else 0.0


PAIRS = OPERATORS | {
    "_merge": lambda e: merged,
    "m": latest,
    "d": total,
    "m_12": lambda e: max(e["m_1"], e["m_2"]),
    "m_23": lambda e: max(e["m_2"], e["m_3"]),
    "Z": lambda e: lambda *pair: value(*(pair[0] if len(pair) == 1 else pair)),
}
SETS = PAIRS | {
    "P": lambda e: summary,
    "m_A": lambda e: top(e["A"]),
    "d_A": lambda e: summary(e["A"])[1],
    "B": lambda e: len(e["A_"]),
    "tilde_m": lambda e: e["m"] if e["m"] > -math.inf else 0.0,
}


def pairs(count: int) -> Callable[[], Iterator[Env]]:
    """`count` pairs, the identity of the monoid among them where there are one or two."""

    def drawn() -> Iterator[Env]:
        random = np.random.default_rng(2)
        for number in range(8):
            given = {}
            for k in range(1, count + 1):
                pair = float(3 * random.normal()), float(1 + random.random())
                if number == 7 and k == 1 and count < 3:
                    pair = -math.inf, 0.0
                given |= {f"m_{k}": pair[0], f"d_{k}": pair[1], f"P_{k}": pair}
            if count == 1:
                given |= {"m": given["m_1"], "d": given["d_1"]}
            yield Env(given, PAIRS)

    return drawn


def collections(*sizes: int) -> Callable[[], Iterator[Env]]:
    """Collections of numbers, with repetitions."""

    def drawn() -> Iterator[Env]:
        random = np.random.default_rng(3)
        for many in itertools.product(sizes, repeat=3):
            parts = [list(map(float, random.integers(-3, 4, size=n) / 2)) for n in many]
            given = {"A": parts[0], "A_1": parts[0], "A_2": parts[1]}
            yield Env(given | {"A_": dict(enumerate(parts, 1))}, SETS)

    return drawn


def extremes() -> Iterator[Env]:
    """Collections whose maximum is infinite, too."""
    yield from collections(0, 1, 3)()
    yield Env({"A": [-math.inf, -math.inf]}, SETS)
    yield Env({"A": [1.0, math.inf]}, SETS)


def corners() -> Iterator[Env]:
    for m, x in ((2.0, 1.0), (2.0, -math.inf), (-math.inf, -math.inf), (0.5, 0.5)):
        yield Env({"m": m, "x": x}, SETS)


def parts() -> Iterator[Env]:
    """A row with values and a target, cut into parts that are not empty: what is known of each, and
    of all."""
    for given in rows():
        env, n = Env(given, ROW), len(given["x"])
        for count in {1, min(2, n), min(3, n)}:
            cut = np.array_split(np.arange(n), count)
            x, v, pi = ([given[name][each] for each in cut] for name in ("x", "v", "pi"))
            m, d = [top(each) for each in x], [sum_of(env, each) for each in cut]
            entropy = [np.exp(each - k) @ (each - k) for each, k in zip(x, m)]
            targets = [q @ (each - k) for q, each, k in zip(pi, x, m)]
            of_parts = {
                "m": m,
                "d": d,
                "ell": [lse(each) for each in x],
                "o": [softmax(each) @ of for each, of in zip(x, v)],
                "nu": [q.sum() for q in pi],
            }
            found = {f"{name}_": dict(enumerate(each, 1)) for name, each in of_parts.items()}
            found |= {"_entropy": dict(enumerate(entropy, 1))}
            found |= {"_targets": dict(enumerate(targets, 1))}
            triples = {}
            for k in range(min(count, 2)):
                a = d[k] * of_parts["o"][k]
                triples |= {f"m_{k + 1}": m[k], f"d_{k + 1}": d[k], f"a_{k + 1}": a}
            yield env.but(B=count, **found, **triples)


def whole(**rules) -> Callable[[], Iterator[Env]]:
    return lambda: (Env(env.given, ROW | {"_merge": lambda e: merged} | rules) for env in parts())


def of_two_parts() -> Iterator[Env]:
    rules = {"a": lambda e: e["d"] * mean_of(e), "o": mean_of}
    return (env for env in whole(**rules)() if env["B"] == 2)


def one_part() -> Iterator[Env]:
    """Some of the keys."""
    for env in of_row()():
        at = np.array(env["A"]) - 1
        m, d = top(env["x"][at]), sum_of(env, at)
        yield env.but(m=m, d=d, a=d * mean_of(env, at))


# --- batches, attention ---------------------------------------------------------------------------

BATCH = OPERATORS | {
    "M": lambda e: e["X"].shape[0],
    "N": lambda e: e["X"].shape[1],
    "Y": lambda e: softmax(e["X"]),
    "bold_m": lambda e: np.array([top(row) for row in e["X"]]),
    "E": lambda e: np.array([np.exp(row) / np.exp(top(row)) for row in e["X"]]),
    "bold_d": lambda e: np.array([sum(row) for row in e["E"]]),
    "L": loss("Y"),
    "dY": slope("L", "Y"),
    "dX": slope("L", "X"),
    "bold_s": lambda e: np.array([y @ dy for y, dy in zip(e["Y"], e["dY"])]),
    "ell_": lambda e: {r: lse(row) for r, row in enumerate(e["X"], 1)},
    "Pi": lambda e: np.array([np.eye(e["N"])[t - 1] for t in e["t_"].values()]),
}
ATTENTION = BATCH | {
    "M": lambda e: e["Q"].shape[0],
    "N": lambda e: e["K"].shape[0],
    "D": lambda e: e["K"].shape[1],
    "X": lambda e: e["alpha"] * np.array([[q @ k for k in e["K"]] for q in e["Q"]]),
    "O": lambda e: np.array([y @ e["V"] for y in e["Y"]]),
    "L": loss("O"),
    "dO": slope("L", "O"),
    "dQ": slope("L", "Q"),
    "dK": slope("L", "K"),
    "dV": slope("L", "V"),
}
QUERY = {
    "D": lambda e: e["v"].shape[1],
    "v_": lambda e: dict(enumerate(e["v"], 1)),
    "o": mean_of,
    "L": lambda e: loss("o")(e) + np.sin(e["ell"]),
    "do": slope("L", "o"),
    "dy": lambda e: e.slope(
        lambda moved: loss("o")(Env(moved.given | {"y": moved["y"]}, moved.rules | OF_Y)), "y"
    ),
    "s": lambda e: e["y"] @ e["dy"],
}
OF_Y = {"o": lambda e: e["y"] @ e["v"]}
SIZES = ((1, 1, 1), (1, 3, 2), (2, 3, 4), (3, 2, 1), (2, 1, 3))


def batches(**rules) -> Callable[[], Iterator[Env]]:
    def drawn() -> Iterator[Env]:
        random = np.random.default_rng(4)
        for x in (worked.X, *(random.normal(size=size[:2]) for size in SIZES)):
            targets = random.integers(1, x.shape[1] + 1, size=len(x))
            yield Env({"X": x, "t_": dict(enumerate(map(int, targets), 1))}, BATCH | rules)

    return drawn


def mean_cross_entropy(e: Env):
    return sum(lse(row - row[e["t_"][r] - 1]) for r, row in enumerate(e["X"], 1)) / e["M"]


def the_worked_example() -> Iterator[Env]:
    yield Env({"X": worked.X, "dY": worked.DY}, BATCH | {"dX": worked_gradient})


def worked_gradient(e: Env):
    """The gradient of the loss whose gradient at Y is dY."""
    return e.slope(lambda moved: np.sum(e["dY"] * moved["Y"]), "X")


def attention(scaled: bool) -> Callable[[], Iterator[Env]]:
    """Queries, keys and values; scores by 1/√D, or by a factor of any size."""

    def drawn() -> Iterator[Env]:
        random = np.random.default_rng(5)
        for n_queries, n_keys, depth in SIZES:
            q, (k, v) = (
                random.normal(size=(n_queries, depth)),
                random.normal(size=(2, n_keys, depth)),
            )
            alpha = 1 / math.sqrt(depth) if scaled else float(random.uniform(0.5, 2))
            yield Env({"Q": q, "K": k, "V": v, "alpha": alpha}, ATTENTION)

    return drawn


def queries() -> Iterator[Env]:
    """Values of several components."""
    random = np.random.default_rng(6)
    for given in rows():
        v = random.normal(size=(len(given["x"]), int(random.integers(1, 4))))
        yield Env(given | {"v": v}, ROW | QUERY)


def one_query() -> Iterator[Env]:
    """A query and keys that are numbers."""
    for given in rows():
        q = 1.0 + abs(given["c"])
        rules = {"x": lambda e: e["q"] * e["k"], "o": mean_of}
        yield Env({"q": q, "k": given["x"] / q, "v": given["v"]}, ROW | rules)


# --- rounding: each error as large as it may be, in the direction that adds up --------------------


def analysed() -> Iterator[dict]:
    random = np.random.default_rng(7)
    for given in rows():
        names = ("rho", "gamma", "h", "mu")
        numbers = dict(zip(names, map(float, random.uniform(0.2, 4, size=4))))
        if len(given["x"]) == 5:
            numbers |= {"gamma": 0.1, "mu": 0.0, "h": 0.0}
        yield given | numbers | {"u": U, "u_16": U16, "_attained": 2 if len(given["x"]) == 1 else 1}
        yield given | numbers | {"u": 2 * U, "u_16": 2 * U16}


def exponentials(e: Env, up: int, more: float = 0.0):
    """Those of the row, all rounded up or down, with `more` roundings."""
    t = e["x"] - e["m"]
    return np.exp(t * (1 - up * e["rho"] * U)) * (1 + up * (e["gamma"] + more) * U)


def largest_error(computed: Callable, exact: float, count: int) -> float:
    """Of what is computed with `count` roundings, each up or down, what is furthest off."""
    found = [computed(*signs) for signs in itertools.product((-U, U), repeat=count)]
    return max(found, key=lambda each: abs(each - exact))


def scaled_first(e: Env):
    x, m, kappa = e["x"], e["m"], e["kappa"]

    def computed(a, b, c, d, of_exp):
        exponent = (x * kappa * (1 + a) * (1 + b) - m * kappa * (1 + a) * (1 + c)) * (1 + d)
        return 2.0**exponent * (1 + e["gamma"] * of_exp)

    return largest_error(computed, e["f"], 5)


def subtracted_first(e: Env):
    exponent = e["kappa"] * (e["x"] - e["m"])

    def computed(a, b, c, of_exp):
        return 2.0 ** (exponent * (1 + a) * (1 + b) * (1 + c)) * (1 + e["gamma"] * of_exp)

    return largest_error(computed, e["f"], 4)


def computed_gradient(e: Env):
    y, dy = e["y"], e["dy"]
    out = []
    for each, of in zip(y, dy):
        sign = -1 if of >= y @ dy else 1
        s = np.sum(y * (dy + sign * np.abs(dy) * (e["h"] + 1) * U))
        out.append(each * (of - s) * (1 + U) ** 2)
    return np.array(out)


def computed_output(e: Env):
    sign = 1 if e["o"] >= 0 else -1
    more = e["h"] + e["mu"] * (e["gamma"] + 2)
    v = e["v"] * (1 + np.sign(e["v"]) * sign * (U16 + U))
    ups = np.where(np.sign(e["v"]) * sign > 0, 1, -1)
    above = sum(exponentials(e, up, more)[k] * v[k] for k, up in enumerate(ups))
    return above / np.sum(exponentials(e, -1, more)) * (1 + U)


ROUNDING = {
    "f": lambda e: np.exp(e["x"] - e["m"]),
    "hat_d": lambda e: np.sum(exponentials(e, 1, e["h"] + e["mu"] * (e["gamma"] + 2))),
    "hat_y": lambda e: exponentials(e, 1) / np.sum(exponentials(e, -1, e["h"])) * (1 + U),
    "hat_dx": computed_gradient,
    "dx": lambda e: e["dy"] @ e["J"],
    "o": mean_of,
    "hat_o": computed_output,
}


def rounded() -> Iterator[Env]:
    return (Env(given, ROW | ROUNDING) for given in analysed())


def rounded_once() -> Iterator[Env]:
    """To a float32 result and to 16 bits; the errors as large as they may be, or half."""
    for given, share in itertools.product(rows(), (1, 0.5)):
        of_y = {"bar_y": lambda e, k=share: e["y"] * (1 + k * 0.02) * (1 + k * 0.01) + k * 0.002}
        errors = {"u_16": 0.01, "varepsilon": 0.02, "eta": 0.004}
        yield Env(given | errors | ({"_attained": 1} if share == 1 else {}), ROW | of_y)


def two_numbers(hat: Callable | None = None) -> Callable[[], Iterator[Env]]:
    """An entry and a maximum, each at some distance from 0 and from the other."""

    def drawn() -> Iterator[Env]:
        rules = OPERATORS | {"f": ROUNDING["f"]} | ({"hat_f": hat} if hat else {})
        for m, t, gamma in itertools.product((-3.0, 0.0, 7.0), (0.0, -2.5, -9.0), (0.3, 1.5)):
            numbers = {"x": m + t, "m": m, "gamma": gamma}
            yield Env(numbers | {"u": U, "_attained": 1}, rules)
            yield Env(numbers | {"u": 2 * U}, rules)

    return drawn


def ranges() -> Iterator[Env]:
    """Numbers on both sides of where exp overflows."""
    for largest in (65504.0, 3.4e38):
        for off in (-1.0, -1e-3, 1e-3, 1.0):
            yield Env({"x": math.log(largest) + off, "Omega": largest}, OPERATORS)


# --- by equation ----------------------------------------------------------------------------------


def of_z(t):
    return np.log(softmax(t))


def of_output(e: Env, y):
    """The gradient as a function of the output, which need not add up to 1."""
    return y * (e["dy"] - np.sum(y * e["dy"]))


LOG = of_row(L=loss("z"))
CROSS = of_row(L=lambda e: cross_entropy(e, one_hot(e)))
SMOOTHED = of_row(L=lambda e: cross_entropy(e, smoothed(e)))
SECOND = of_row(dy=lambda e: e["v"], varphi=lambda e: e["g"] @ of_output(e, e["y"]))
FAMILIES: list[tuple[Callable[[], Iterator[Env]], str]] = [
    (
        of_row(),
        """
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
        log-probability-gradient softmax-backward-form
        """,
    ),
    (two_entries, "softmax-sigmoid"),
    (spread, "softmax-denominator-bounds lse-bounds"),
    (batches(), "softmax-batch softmax-vjp-batch attention-recompute"),
    (tiles, "online-tile"),
    (collections(0, 1, 3), "pair-of-set merge-union merge-any-order"),
    (lambda: (env.but(m=1.5, d=env["d_A"]) for env in collections(0, 1, 3)()), "pair-value"),
    (pairs(2), "merge merge-value merge-commutative"),
    (of_row(_merge=lambda e: merged), "online-as-merge"),
    (pairs(3), "merge-associative merge-associative-left merge-associative-right"),
    (pairs(1), "merge-identity"),
    (corners, "merge-corner"),
    (extremes, "lse-from-summary"),
    (collections(1, 3), "lse-merge lse-merge-gradient"),
    (lambda: (env for env in of_row()() if np.ptp(env["x"]) < 20), "jacobian-rank"),
    (of_row(L=loss("ell")), "logsumexp-vjp"),
    (LOG, "log-softmax-vjp"),
    (CROSS, "cross-entropy-definition cross-entropy-gradient cross-entropy-from-summary"),
    (
        of_row(pi=lambda e: softmax(e["g"]), L=lambda e: cross_entropy(e, e["pi"])),
        "cross-entropy-soft-gradient",
    ),
    (batches(L=mean_cross_entropy), "cross-entropy-gradient-batch"),
    (of_row(z=lambda e: of_z), "log-softmax-jvp"),
    (ranges, "exp-range"),
    (rounded_once, "round-once"),
    (two_numbers(), "exp2-identity"),
    (two_numbers(scaled_first), "exp2-scale-first-error"),
    (two_numbers(subtracted_first), "exp2-subtract-first-error"),
    (rounded, "softmax-error-bound online-error-bound vjp-error-bound attention-error-bound"),
    (of_row(H=lambda e: lambda y: np.sum(y * np.log(1 / y))), "entropy-identity"),
    (SMOOTHED, "cross-entropy-smoothed cross-entropy-smoothed-gradient"),
    (one_query, "attention-definition"),
    (attention(scaled=True), "attention-matrix"),
    (one_part, "attention-value"),
    (of_two_parts, "attention-merge"),
    (whole(o=mean_of), "attention-lse-merge"),
    (queries, "attention-jacobian attention-delta attention-lse-gradient"),
    (
        lambda: (Env(env.given, env.rules | {"L": loss("o")}) for env in queries()),
        "attention-score-gradient",
    ),
    (attention(scaled=False), "attention-vjp"),
    (
        of_row(**MODIFIED),
        "modifiers-definition softcap-derivative modifiers-scale-gradient modifiers-masked",
    ),
    (of_row(**SUNK), "modifiers-sink modifiers-sink-share modifiers-sink-gradient"),
    (the_worked_example, "worked-input worked-output worked-gradient"),
    (of_row(**ENTROPY), "entropy-terms entropy-from-summary entropy-gradient"),
    (whole(**ENTROPY, a_=lambda e: e["_entropy"]), "entropy-merge"),
    (
        of_row(**DISTRIBUTION),
        "distribution-terms cross-entropy-distribution cross-entropy-distribution-gradient",
    ),
    (whole(**DISTRIBUTION, a_=lambda e: e["_targets"]), "distribution-merge"),
    (SECOND, "softmax-backward-wrt-grad softmax-backward-wrt-output"),
    (
        of_row(dy=lambda e: e["v"], dx=lambda e: lambda y: of_output(e, y)),
        "softmax-backward-along-output",
    ),
    (
        of_row(dz=lambda e: e["v"], dx=lambda e: e["dz"] - np.exp(e["z"]) * np.sum(e["dz"])),
        "log-softmax-backward-wrt-output",
    ),
    (
        of_row(dl=lambda e: 1.7, dx=lambda e: e["dl"] * e["y"], varphi=lambda e: e["g"] @ e["dx"]),
        "logsumexp-backward-wrt-inputs",
    ),
]
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
    """Every letter that some family binds, without what stands below it."""
    found = set(INDICES)
    for cases, _ in FAMILIES:
        env = next(iter(cases()))
        found |= env.given.keys() | env.rules.keys()
    return {
        re.sub(r"(hat_|bar_|tilde_)?((?:bold_)?[^_]+).*", r"\2", name)
        for name in found
        if name[0] != "_"
    }


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
    a bound, or differs, for those of a row, if it can be said of them."""
    for cases, labels in FAMILIES:
        functions = FUNCTIONS | {*BRACKETED.get(labels.split()[0], "").split()}
        try:
            Check(latex, functions, near=math.inf).over(cases())
            return r"\ne" not in latex
        except FormulaError as error:
            if "does not hold" in str(error) and re.search(r"\\[lg]e(?![a-z])|\\ne", latex):
                return False
        except (ArithmeticError, LookupError, TypeError, ValueError):
            pass
    return False
