"""Evaluates what `reader` reads, strictly: shapes have to fit as they would on paper.

A number is a float, a row (or a column, `N × 1`) an array of one axis, a matrix one of two, a
collection a list, a pair a tuple. Derivatives are complex steps: for an analytic f, Im f(x + i·h) /
h is f'(x) up to h², and no difference cancels.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from formulas.reader import FormulaError, Statement, read

H = 1e-30
INDICES = {"i": "N", "j": "N", "r": "M", "b": "B"}
"""Letters that count, and how far."""


class Unbound(FormulaError, KeyError):
    """A letter that nothing is bound to."""


class Env(dict):
    """What letters mean: values that are given, and definitions in Python that make others of them.
    In a definition other letters are names, as are the `helpers`; `gradient(of, by)` is that of
    one letter by another."""

    helpers: ClassVar[dict] = {}

    def __init__(self, given: Mapping, rules: Mapping[str, str], moving: bool = False):
        super().__init__(given)
        self.rules, self.moving, self.made = rules, moving, {"here": self}
        self.made["gradient"] = lambda of, by: self.slope(lambda moved: moved[of], by)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.rules

    def __missing__(self, name: str) -> Any:
        if name not in self.made:
            if name not in self.rules and name not in self.helpers:
                raise Unbound(f"nothing is bound to {name}")
            code = compiled(self.rules[name]) if name in self.rules else None
            try:
                self.made[name] = eval(code, self) if code else self.helpers[name]
            except NameError as error:
                raise Unbound(f"{name} needs a letter that has no binding: {error}") from error
        return self.made[name]

    def but(self, moving: bool = False, **given: Any) -> "Env":
        """The same with other values; what follows from them is made again."""
        return Env(dict(self) | given, self.rules, self.moving or moving)

    def slope(self, of: Callable[["Env"], Any], name: str, at: tuple | None = None) -> Any:
        """The derivative of a function of this environment by a letter: by an entry of it, or by
        all, along axes that come last."""
        if self.moving:
            raise FormulaError("a complex step within a complex step")
        value = self[name]
        if isinstance(value, list):
            moved = [each + 1j * H for each in value]
        elif np.ndim(value) and at is None:
            steps = [self.slope(of, name, each) for each in np.ndindex(np.shape(value))]
            return np.stack(steps, -1).reshape(*np.shape(steps[0]), *np.shape(value))
        else:
            moved = np.array(value, complex)
            moved[() if at is None else at] += 1j * H
        return np.imag(of(self.but(moving=True, **{name: moved}))) / H


@functools.cache
def compiled(code: str) -> CodeType:
    return compile(code, "<letters>", "eval")


class Lying(np.ndarray):
    """A transposed column, `1 × N`."""


def is_number(value: Any) -> bool:
    kinds = (int, float, complex, np.number)
    return isinstance(value, kinds) or (isinstance(value, np.ndarray) and not value.ndim)


def number(value: Any, row: bool = False) -> Any:
    """A number, or, if that will do, a row."""
    if not is_number(value) and not (row and isinstance(value, np.ndarray) and value.ndim == 1):
        raise FormulaError(f"neither a number nor what may stand for one: {value!r}")
    return value


def shape_of(value: Any) -> tuple:
    """As on paper: a row beside a matrix is a column."""
    return np.shape(value) if np.ndim(value) != 1 else (len(value), 1)


def alike(a: Any, b: Any) -> tuple:
    """Two arrays of one shape."""
    if isinstance(a, np.ndarray) and np.shape(a) == np.shape(b):
        return a, b
    raise FormulaError(f"shapes {shape_of(a)} and {shape_of(b)}")


def plus(a: Any, b: Any) -> Any:
    """Numbers, or arrays of one shape; a number is added to each entry of a row."""
    if {np.ndim(a), np.ndim(b)} - {0, 1} or np.ndim(a) == np.ndim(b) == 1:
        a, b = alike(a, b)
    return a + b


def times(a: Any, b: Any) -> Any:
    """A number and anything, or a product of matrices, in which a row is a column."""
    if is_number(a) or is_number(b):
        return a * b
    left, right = (each.reshape(shape_of(each)) for each in (a, b))
    if np.ndim(a) == np.ndim(b) == 1 or left.shape[1] != right.shape[0]:
        raise FormulaError(f"a product of shapes {left.shape} and {right.shape}, without ⊙")
    product = np.asarray(left @ right)
    if np.ndim(b) == 1:
        return product[0, 0] if isinstance(a, Lying) else product[:, 0]
    return product.view(Lying) if isinstance(a, Lying) else product


def largest(values: Any) -> Any:
    """The maximum, of complex numbers by their real part."""
    return max(values, key=np.real, default=-math.inf)


def integer(value: Any) -> int:
    if not is_number(value) or value != int(np.real(value)):
        raise FormulaError(f"no index: {value!r}")
    return int(np.real(value))


def entry(owner: Any, at: list[int]) -> Any:
    """An entry of a row or a matrix, counted from 1, or of a family by its key."""
    if callable(owner):
        return owner(*at)
    if isinstance(owner, dict):
        found = len(at) == 1 and at[0] in owner
    else:
        found = len(at) == np.ndim(owner) and all(1 <= i <= n for i, n in zip(at, np.shape(owner)))
    if not found:
        raise FormulaError(f"no entry {at}")
    return owner[at[0]] if isinstance(owner, dict) else owner[tuple(i - 1 for i in at)]


def projector(basis: np.ndarray) -> np.ndarray:
    """What stands for the space of some columns."""
    return basis @ np.linalg.pinv(basis)


OPERATIONS: dict[str, Callable] = {"add": plus, "sub": lambda a, b: plus(a, -b), "mul": times}
OPERATIONS |= {"neg": lambda a: -a, "dot": lambda a, b: number(a) * b, "bracket": lambda a: a}
OPERATIONS |= {"div": lambda a, b: a / number(b), "pow": lambda a, b: number(a) ** number(b)}
OPERATIONS |= {"tuple": lambda *parts: parts, "shape": lambda *sizes: sizes}
OPERATIONS |= {
    "odot": lambda a, b: np.multiply(*alike(a, b)),
    "oslash": lambda a, b: np.divide(*alike(a, b)),
    "exp": lambda e, a: np.exp(number(a, row=True)),
    "T": lambda a: a.reshape(-1, 1).T.view(Lying) if np.ndim(a) == 1 else a.T,
    "abs": lambda a: a if np.real(number(a)) >= 0 else -a,
    "norm": lambda a: np.sqrt(np.sum(a**2)),
    "inner": lambda a, b: np.sum(np.multiply(*alike(number(a, row=True), b))),
    "uplus": lambda *parts: [each for part in parts for each in part],
    "sum": lambda *terms: functools.reduce(plus, terms) if terms else 0.0,
    "max": lambda *values: largest([number(each) for each in values]),
    "min": lambda *values: -largest([-number(each) for each in values]),
}
FUNCTIONS: dict[str, Callable] = {"log": lambda a: np.log(number(a, row=True)), "exp": np.exp}
FUNCTIONS |= {"tanh": lambda a: np.tanh(number(a)), "sqrt": lambda a: np.sqrt(number(a))}
FUNCTIONS |= {"max": largest, "rank": lambda a: np.linalg.matrix_rank(a, rtol=1e-9)}
FUNCTIONS |= {"null": lambda a: projector(np.linalg.svd(a)[2][FUNCTIONS["rank"](a) :].T)}


def free(tree: Any) -> set[str]:
    """The indices of a tree that nothing in it binds."""
    match tree:
        case ("name", letter):
            return {letter} & INDICES.keys()
        case ("big", _, letter, over, body):
            return (free(body) - {letter}) | free(over)
    return set().union(*map(free, tree)) if isinstance(tree, tuple) else set()


def within(tree: Any, kind: str) -> list[tuple]:
    """The trees of one kind in a tree."""
    if not isinstance(tree, tuple | list):
        return []
    inside = [each for part in tree for each in within(part, kind)]
    return [tree, *inside] if tree[:1] == (kind,) else inside


def evaluate(tree: tuple, env: Env) -> Any:
    """The value of a tree.

    Raises:
        FormulaError: it has none.
    """

    def value(of: tuple) -> Any:
        return evaluate(of, env)

    match tree:
        case ("number", digits):
            return float(digits)
        case ("name", name):
            return env[name]
        case ("sub", ("name", base), key, _) if f"{base}_{key}" in env:
            return env[f"{base}_{key}"]
        case ("sub", owner, _, at):
            family = f"{owner[1]}_" if owner[0] == "name" else ""
            owner = env[family] if family in env else value(owner)
            return entry(owner, [integer(value(each)) for each in at])
        case ("call", name, *arguments):
            return env[name](*map(value, arguments))
        case ("fn", name, argument):
            return FUNCTIONS[name](value(argument))
        case ("oplus2", a, b):
            return env["_merge"](value(a), value(b))
        case ("big", kind, letter, over, body):
            over = counted(letter, over, body, env)
            found = [evaluate(body, env.but(**{letter: each})) for each in over]
            if kind == "oplus":
                return functools.reduce(env["_merge"], found)
            return OPERATIONS[kind](*found)
        case ("partial", letters, body):
            return partial(letters, body, env)
        case ("at", body, ("=", ("name", letter), at)):
            return evaluate(body, env.but(**{letter: value(at)}))
        case ("cases", *rows):
            found = [row for row in rows if row[1] is None or holds(row[1], env)]
            if len([row for row in found if row[1]]) > 1 or not found:
                raise FormulaError("cases that do not exclude each other, or leave one out")
            env["_taken"].add(id(found[0]))
            return value(found[0][0])
        case ("pmatrix", *rows):
            return np.array([[*map(value, row)] for row in rows])
        case ("shaped", sizes, body):
            return shaped(value(body), value(sizes))
        case ("span", ("name", letter), body, ("name", "bb_R")):
            return projector(evaluate(body, env.but(**{letter: 1.0})).reshape(-1, 1))
        case (kind, *operands) if kind in OPERATIONS:
            return OPERATIONS[kind](*map(value, operands))
    raise FormulaError(f"nothing evaluates {tree[:1]}")


def shaped(value: Any, wanted: tuple) -> Any:
    if shape_of(value) != wanted:
        raise FormulaError(f"a shape {shape_of(value)} where {wanted} is written")
    return value


def counted(letter: str, over: tuple, body: tuple, env: Env) -> Any:
    """What a bound letter runs over."""
    counts = letter in INDICES and not dict.__contains__(env, letter)
    if ("name", letter) not in within(body, "name") or not (counts or over[0] == r"\in"):
        raise FormulaError(f"{letter} does not occur, does not count, or is bound twice")
    ends = [evaluate(each, env) for each in over[1:]]
    match over[0]:
        case r"\in":
            return ends[0]
        case "=":
            return range(integer(ends[0]), integer(ends[1]) + 1)
    return range(1, (integer(ends[0]) if ends else env[INDICES[letter]]) + 1)


def partial(letters: tuple, body: tuple, env: Env) -> Any:
    """By an entry, by a letter, or by a function of one: then the ratio of both changes."""
    *outer, inner = letters
    if outer:
        ((_, (_, base), _, (at,)),) = outer
        step = 1e-5 * np.eye(len(env[base]))[integer(evaluate(at, env)) - 1]
        ends = (env.but(**{base: env[base] + sign * step}) for sign in (1, -1))
        return np.subtract(*(partial((inner,), body, end) for end in ends)) / 2e-5
    match inner:
        case ("name", name):
            return env.slope(functools.partial(evaluate, body), name)
        case ("sub", ("name", name), _, at):
            place = [integer(evaluate(each, env)) for each in at]
            entry(env[name], place)
            by = tuple(i - 1 for i in place)
            return env.slope(functools.partial(evaluate, body), name, by)
        case ("call", _, ("sub", ("name", base), key, _)):
            name = f"{base}_{key}"
            changes = (env.slope(functools.partial(evaluate, of), name) for of in (body, inner))
            return np.divide(*changes)
    raise FormulaError(f"no derivative by {inner}")


def agree(a: Any, b: Any, near: float = 1e-9) -> bool:
    """Whether two sides are equal up to rounding; 0 is what is 0 in every entry."""
    if isinstance(a, tuple | list) or isinstance(b, tuple | list):
        if type(a) is not type(b) or len(a) != len(b):
            raise FormulaError(f"{a!r} and {b!r} are not of one kind")
        a, b = (sorted(each) if isinstance(each, list) else each for each in (a, b))
        return all(map(functools.partial(agree, near=near), a, b))
    if is_number(b) and b == 0 and np.ndim(a):
        b = np.zeros(np.shape(a))
    if np.shape(a) != np.shape(b):
        raise FormulaError(f"shapes {shape_of(a)} and {shape_of(b)}")
    return bool(np.allclose(a, b, rtol=near, atol=near / 10)) and not np.iscomplexobj(a)


def shown(value: Any, wanted: Any, tree: tuple) -> bool:
    """Whether numbers are those that stand there, to their last digit."""
    digits = [digits for _, digits in within(tree, "number")]
    if np.shape(value) != np.shape(wanted) or len(digits) != np.size(wanted):
        raise FormulaError("only numbers that stand there are approximate")
    places = np.reshape([len(each.partition(".")[2]) for each in digits], np.shape(wanted))
    return bool((np.abs(value - wanted) <= 0.5000001 * 10.0**-places).all())


def holds(condition: tuple, env: Env) -> bool:
    """Whether a relation does."""
    relation, left, right = condition
    value = evaluate(left, env)
    match relation, right:
        case "∈", ("name", "bb_R"):
            return is_number(value) and bool(np.isfinite(value))
        case "∈", ("pow", ("name", "bb_R"), sizes):
            return shape_of(value) == evaluate(sizes, env)
        case _, ("pm", size):
            return (relation == "=") == (abs(value) == evaluate(size, env))
    wanted = evaluate(right, env)
    match relation:
        case "∈":
            return value in wanted
        case "≠":
            return value != wanted
        case "≈":
            return shown(value, wanted, right)
        case "=":
            twice = any(len(letters) > 1 for _, letters, _ in within(condition, "partial"))
            return agree(value, wanted, 1e-6 if twice else 1e-9)
    low, high = (value, wanted) if relation == "≤" else (wanted, value)
    return bool(number(low) <= number(high) + 1e-6 * abs(high) + 1e-12)


class Check:
    """One equation over all its cases; `near` is how near to a bound some case has to come."""

    def __init__(self, latex: str, functions: frozenset[str], near: float = 0.02):
        self.statements, self.near = read(latex, functions), near
        self.gaps: dict[tuple, float] = {}
        self.taken: set[int] = set()
        for statement in self.statements:
            for sides, _ in statement.chains:
                said = [s for s in sides if s[0] != "number" and "bb_R" not in str(s)]
                found = [free(side) for side in said]
                if any(each != found[0] for each in found):
                    raise FormulaError(f"sides with different indices: {found}")

    def over(self, cases: Iterator[Env]) -> None:
        """Evaluate it for each case.

        Raises:
            FormulaError: it cannot be evaluated, a relation does not hold, a bound is loose, or a
                case of `cases` never comes.
        """
        said = set()
        with np.errstate(all="ignore"):
            for env in cases:
                gaps, self.gaps = self.gaps, {}
                for place, statement in enumerate(self.statements):
                    said |= {place} if self.statement(place, statement, env) else set()
                attained = env["_attained"] if "_attained" in env else 0
                if any(gap > 1e-5 for (_, _, k), gap in self.gaps.items() if k < attained):
                    raise FormulaError("a bound that this case should attain")
                self.gaps |= {at: min(gap, self.gaps.get(at, 1)) for at, gap in gaps.items()}
        rows = [row for _, *rows in within(self.statements, "cases") for row in rows]
        missed = [row for row in rows if id(row) not in self.taken]
        loose = [gap for gap in self.gaps.values() if gap > self.near]
        if loose or missed or len(said) < len(self.statements):
            raise FormulaError(f"loose bounds {loose}, cases that never come {missed}")

    def statement(self, place: int, statement: Statement, env: Env) -> int:
        """How often a statement is said in a case, for all its indices."""
        count = 0
        letters = sorted(free(tuple(s for sides, _ in statement.chains for s in sides)))
        letters += sorted(free(statement.condition) - {*letters})
        for at in itertools.product(*(range(1, env[INDICES[each]] + 1) for each in letters)):
            here = env.but(_taken=self.taken, **dict(zip(letters, at)))
            if statement.condition and not holds(statement.condition, here):
                continue
            count += 1
            truths = {
                all([self.relation((place, n, k), (relation, *sides[k : k + 2]), here)
                     for k, relation in enumerate(relations)])
                for n, (sides, relations) in enumerate(statement.chains)
            }  # fmt: skip
            if len(truths) > 1 or (truths == {False} and len(statement.chains) == 1):
                raise FormulaError(f"statement {place + 1} does not hold at {at or 'all'}")
            if statement.shape:
                shaped(evaluate(statement.chains[0][0][0], here), evaluate(statement.shape, here))
        return count

    def relation(self, place: tuple, condition: tuple, env: Env) -> bool:
        if condition[0] in "≤≥":
            low, high = (evaluate(side, env) for side in condition[1:])
            gap = abs(low - high) / (abs(low) + abs(high) + 1e-9)
            self.gaps[place] = min(self.gaps.get(place, 1.0), gap)
        return holds(condition, env)
