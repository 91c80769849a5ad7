"""Evaluates what `reader` reads, strictly: shapes have to fit as they would on paper.

A number is a float, a row (or a column, `N × 1`) an array of one axis, a matrix one of two, a
collection a list, a pair a tuple. Derivatives are complex steps: for an analytic f, Im f(x + i·h) /
h is f'(x) up to h², and no difference cancels.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from formulas.reader import FormulaError, Statement, read

H = 1e-30
INDICES = {"i": "N", "j": "N", "r": "M", "b": "B"}
"""Letters that count, and how far."""
NEAR = 0.02
"""How near to a bound some case has to come."""


class Env:
    """What letters mean: values that are given, and rules that make others of them."""

    def __init__(self, given: Mapping, rules: Mapping[str, Callable], moving: bool = False):
        self.given, self.rules, self.moving = dict(given), rules, moving
        self.made: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.given or name in self.rules

    def __getitem__(self, name: str) -> Any:
        if name in self.given:
            return self.given[name]
        if name not in self.made:
            if name not in self.rules:
                raise FormulaError(f"nothing is bound to {name}")
            self.made[name] = self.rules[name](self)
        return self.made[name]

    def but(self, moving: bool = False, **given: Any) -> "Env":
        """The same with other values; what follows from them is made again."""
        return Env(self.given | given, self.rules, self.moving or moving)

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
            step = np.zeros(np.shape(value), complex)
            step[() if at is None else at] = 1j * H
            moved = value + step if np.ndim(value) else value + 1j * H
        return np.imag(of(self.but(moving=True, **{name: moved}))) / H


class Lying(np.ndarray):
    """A transposed column, `1 × N`."""


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex, np.number)) or (
        isinstance(value, np.ndarray) and not value.ndim
    )


def number(value: Any) -> Any:
    if not is_number(value):
        raise FormulaError(f"no number: {value!r}")
    return value


def row(value: Any) -> np.ndarray:
    if not (isinstance(value, np.ndarray) and value.ndim == 1):
        raise FormulaError(f"no row: {value!r}")
    return value


def shape_of(value: Any) -> tuple:
    """As on paper: a row beside a matrix is a column."""
    return np.shape(value) if np.ndim(value) != 1 else (len(value), 1)


def same_shape(a: Any, b: Any) -> tuple:
    if isinstance(a, np.ndarray) and np.shape(a) == np.shape(b):
        return a, b
    raise FormulaError(f"shapes {shape_of(a)} and {shape_of(b)}")


def plus(a: Any, b: Any) -> Any:
    """Numbers, or arrays of one shape; a number is added to each entry of a row."""
    if {np.ndim(a), np.ndim(b)} - {0, 1} or np.ndim(a) == np.ndim(b) == 1:
        a, b = same_shape(a, b)
    return a + b


def times(a: Any, b: Any) -> Any:
    """A number and anything, or a product of matrices, in which a row is a column."""
    if is_number(a) or is_number(b):
        return a * b
    if np.ndim(a) == np.ndim(b) == 1:
        raise FormulaError("a product of two rows without ⊙")
    left, right = (each.reshape(shape_of(each)) for each in (a, b))
    if left.shape[1] != right.shape[0]:
        raise FormulaError(f"a product of shapes {left.shape} and {right.shape}")
    product = np.asarray(left @ right)
    if np.ndim(b) == 1:
        return product[0, 0] if isinstance(a, Lying) else product[:, 0]
    return product.view(Lying) if isinstance(a, Lying) else product


def by_real(values: list) -> Any:
    return max(values, key=lambda each: np.real(each), default=-math.inf)


def size(value: Any) -> Any:
    return value if np.real(number(value)) >= 0 else -value


def integer(value: Any) -> int:
    if not is_number(value) or value != int(np.real(value)):
        raise FormulaError(f"no index: {value!r}")
    return int(np.real(value))


def entry(owner: Any, at: list[int]) -> Any:
    """An entry of a row or a matrix, counted from 1, or of a family by its key."""
    if callable(owner):
        return owner(*at)
    if isinstance(owner, dict):
        if len(at) != 1 or at[0] not in owner:
            raise FormulaError(f"no entry {at}")
        return owner[at[0]]
    if len(at) != np.ndim(owner) or not all(1 <= i <= n for i, n in zip(at, np.shape(owner))):
        raise FormulaError(f"no entry {at} of shape {np.shape(owner)}")
    return owner[tuple(i - 1 for i in at)]


def free(tree: Any) -> set[str]:
    """The indices of a tree that nothing in it binds."""
    match tree:
        case ("name", letter):
            return {letter} & INDICES.keys()
        case ("big", _, letter, over, body):
            return (free(body) - {letter}) | free(over)
        case tuple():
            return set().union(*map(free, tree))
    return set()


def occurs(letter: str, tree: Any) -> bool:
    return isinstance(tree, tuple) and (
        tree == ("name", letter) or any(occurs(letter, part) for part in tree)
    )


OPERATIONS: dict[str, Callable] = {
    "add": plus,
    "sub": lambda a, b: plus(a, -b),
    "neg": lambda a: -a,
    "mul": times,
    "dot": lambda a, b: number(a) * b,
    "odot": lambda a, b: np.multiply(*same_shape(a, b)),
    "oslash": lambda a, b: np.divide(*same_shape(a, b)),
    "div": lambda a, b: a / number(b),
    "pow": lambda a, b: number(a) ** number(b),
    "exp": lambda e, a: np.exp(a if is_number(a) else row(a)),
    "T": lambda a: a.reshape(-1, 1).T.view(Lying) if np.ndim(a) == 1 else a.T,
    "abs": size,
    "norm": lambda a: np.sqrt(np.sum(row(a) ** 2)),
    "inner": lambda a, b: np.sum(np.multiply(*same_shape(row(a), row(b)))),
    "bracket": lambda a: a,
    "tuple": lambda *parts: parts,
    "uplus2": lambda a, b: [*a, *b],
    "max": lambda *values: by_real([number(each) for each in values]),
    "min": lambda *values: -by_real([-number(each) for each in values]),
}
FUNCTIONS: dict[str, Callable] = {
    "log": lambda a: np.log(a if is_number(a) else row(a)),
    "tanh": lambda a: np.tanh(number(a)),
    "sqrt": lambda a: np.sqrt(number(a)),
    "exp": np.exp,
    "max": by_real,
    "rank": lambda a: np.linalg.matrix_rank(a, rtol=1e-9),
    "null": lambda a: projector(np.linalg.svd(a)[2][FUNCTIONS["rank"](a) :].T),
}


def projector(basis: np.ndarray) -> np.ndarray:
    """What stands for the space of some columns."""
    return basis @ np.linalg.pinv(basis)


class Evaluator:
    """Evaluates trees, and notes which cases of a `cases` were taken."""

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def __call__(self, tree: tuple, env: Env) -> Any:
        match tree:
            case ("number", digits):
                return float(digits)
            case ("name", name):
                return env[name]
            case ("sub", ("name", base), key, at):
                if f"{base}_{key}" in env:
                    return env[f"{base}_{key}"]
                owner = env[f"{base}_"] if f"{base}_" in env else env[base]
                return entry(owner, [integer(self(each, env)) for each in at])
            case ("sub", owner, _, at):
                return entry(self(owner, env), [integer(self(each, env)) for each in at])
            case ("call", name, *arguments):
                return env[name](*(self(each, env) for each in arguments))
            case ("fn", name, argument):
                return FUNCTIONS[name](self(argument, env))
            case ("oplus2", a, b):
                return env["_merge"](self(a, env), self(b, env))
            case ("big", kind, letter, over, body):
                return self.big(kind, letter, over, body, env)
            case ("partial", letters, body):
                return self.partial(letters, body, env)
            case ("at", letter, value, body):
                return self(body, env.but(**{letter: self(value, env)}))
            case ("cases", *rows):
                return self.cases(rows, env)
            case ("pmatrix", *rows):
                return np.array([[self(each, env) for each in of] for of in rows])
            case ("shaped", sizes, body):
                value = self(body, env)
                wanted = tuple(self(each, env) for each in sizes)
                if shape_of(value) != wanted:
                    raise FormulaError(f"a shape {shape_of(value)} under which {wanted} stands")
                return value
            case ("span", ("name", letter), body):
                return projector(self(body, env.but(**{letter: 1.0})).reshape(-1, 1))
            case (kind, *parts) if kind in OPERATIONS:
                return OPERATIONS[kind](*(self(each, env) for each in parts))
        raise FormulaError(f"nothing evaluates {tree[0]}")

    def big(self, kind: str, letter: str, over: tuple, body: tuple, env: Env) -> Any:
        if not occurs(letter, body):
            raise FormulaError(f"{letter} is bound and does not occur")
        if letter in INDICES and letter in env.given:
            raise FormulaError(f"{letter} is bound twice")
        if letter not in INDICES and over[0] != "in":
            raise FormulaError(f"{letter} does not count")
        ends = [self(each, env) for each in over[1:]]
        match over[0]:
            case "in":
                values = ends[0]
            case "range":
                values = range(integer(ends[0]), integer(ends[1]) + 1)
            case "below":
                values = range(1, integer(ends[0]) + 1)
            case _:
                values = range(1, env[INDICES[letter]] + 1)
        found = [self(body, env.but(**{letter: each})) for each in values]
        match kind:
            case "sum":
                return functools.reduce(plus, found) if found else 0.0
            case "oplus":
                return functools.reduce(env["_merge"], found)
            case "uplus":
                return [each for of in found for each in of]
        return OPERATIONS[kind](*found)

    def partial(self, letters: tuple, body: tuple, env: Env) -> Any:
        """By an entry, by a letter, or by a function of one: then the ratio of both changes."""
        outer, inner = letters[:-1], letters[-1]
        if outer:
            ((_, (_, base), _, at),) = outer
            step = np.zeros(len(env[base]))
            step[integer(self(at[0], env)) - 1] = 1e-5
            ends = (env.but(**{base: env[base] + sign * step}) for sign in (1, -1))
            return np.subtract(*(self.partial((inner,), body, end) for end in ends)) / 2e-5
        match inner:
            case ("name", name):
                return env.slope(lambda moved: self(body, moved), name)
            case ("sub", ("name", name), _, at):
                place = tuple(integer(self(each, env)) - 1 for each in at)
                entry(env[name], [i + 1 for i in place])
                return env.slope(lambda moved: self(body, moved), name, place)
            case ("call", _, ("sub", ("name", base), key, _)):
                changes = (
                    env.slope(lambda moved, of=of: self(of, moved), f"{base}_{key}")
                    for of in (body, inner)
                )
                return np.divide(*changes)
        raise FormulaError(f"no derivative by {inner}")

    def holds(self, condition: tuple, env: Env) -> bool:
        relation, left, right = condition
        value = self(left, env)
        if relation == "∈":
            if right == ("reals",):
                return is_number(value) and bool(np.isfinite(value))
            if right[0] == "matrices":
                return shape_of(value) == tuple(self(each, env) for each in right[1:])
            return value in self(right, env)
        if right[0] == "pm":
            return (relation == "=") == (abs(value) == self(right[1], env))
        equal = relation in "=≤≥" and agree(value, self(right, env))
        match relation:
            case "=":
                return equal
            case "≠":
                return value != self(right, env)
            case "≈":
                return shown(value, self(right, env), right)
        low, high = (value, self(right, env)) if relation == "≤" else (self(right, env), value)
        return equal or bool(number(low) < number(high))

    def cases(self, rows: list, env: Env) -> Any:
        found = [of for of in rows if of[1] is None or self.holds(of[1], env)]
        ifs = [of for of in found if of[1] is not None]
        if len(ifs) > 1 or not found:
            raise FormulaError("cases that do not exclude each other, or leave one out")
        self.taken.add(id(found[0]))
        return self(found[0][0], env)


def agree(a: Any, b: Any, near: float = 1e-9) -> bool:
    """Whether two sides are equal up to rounding; 0 is what is 0 in every entry."""
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        if type(a) is not type(b) or len(a) != len(b):
            raise FormulaError(f"{a!r} and {b!r} are not of one kind")
        if isinstance(a, list):
            a, b = sorted(a), sorted(b)
        return all(map(functools.partial(agree, near=near), a, b))
    if is_number(b) and b == 0 and np.ndim(a):
        b = np.zeros(np.shape(a))
    if np.shape(a) != np.shape(b):
        raise FormulaError(f"shapes {shape_of(a)} and {shape_of(b)}")
    with np.errstate(invalid="ignore"):
        return bool(np.allclose(a, b, rtol=near, atol=near / 10)) and not np.iscomplexobj(a)


def shown(value: Any, wanted: Any, tree: tuple) -> bool:
    """Whether numbers are those that stand there, to their last digit."""
    if np.shape(value) != np.shape(wanted):
        raise FormulaError(f"shapes {shape_of(value)} and {shape_of(wanted)}")
    digits = [each for each in flat(tree) if isinstance(each, str) and each[0].isdigit()]
    if len(digits) != np.size(wanted):
        raise FormulaError("only numbers that stand there are approximate")
    places = np.reshape([len(each.partition(".")[2]) for each in digits], np.shape(wanted))
    return bool((np.abs(value - wanted) <= 0.5000001 * 10.0**-places).all())


def flat(tree: Any) -> Iterator:
    if isinstance(tree, tuple):
        for part in tree:
            yield from flat(part)
    else:
        yield tree


def branches(tree: Any) -> Iterator[tuple]:
    """The rows of all `cases` in a tree."""
    if isinstance(tree, tuple):
        if tree[:1] == ("cases",):
            yield from tree[1:]
        for part in tree:
            yield from branches(part)


class Check:
    """One equation over all its cases."""

    def __init__(self, latex: str, functions: frozenset[str], near: float = NEAR):
        self.statements = read(latex, functions)
        self.near, self.evaluate, self.evaluated = near, Evaluator(), 0
        self.gaps: dict[tuple, float] = {}
        for statement in self.statements:
            for sides, _ in statement.chains:
                self.same_indices(sides)

    @staticmethod
    def same_indices(sides: list) -> None:
        found = [free(side) for side in sides if side[0] not in ("number", "reals", "matrices")]
        if any(each != found[0] for each in found):
            raise FormulaError(f"sides with different indices: {found}")

    def over(self, cases: Iterator[Env]) -> None:
        """Evaluate it for each case.

        Raises:
            FormulaError: it cannot be evaluated, a relation does not hold, a bound is loose, or a
                case of `cases` never comes.
        """
        with np.errstate(all="ignore"):
            for env in cases:
                gaps, self.gaps = self.gaps, {}
                for number, statement in enumerate(self.statements):
                    self.statement(number, statement, env)
                attained = env["_attained"] if "_attained" in env else 0
                if any(gap > 1e-5 for (*_, k), gap in self.gaps.items() if k < attained):
                    raise FormulaError("a bound that this case should attain")
                self.gaps |= {at: min(gap, self.gaps.get(at, 1)) for at, gap in gaps.items()}
        loose = {at: gap for at, gap in self.gaps.items() if gap > self.near}
        missed = [of for of in branches(tuple(flatten(self.statements)))]
        missed = [of for of in missed if id(of) not in self.evaluate.taken]
        if loose or missed or not self.evaluated:
            raise FormulaError(f"loose bounds {loose}, cases that never come {missed}")

    def statement(self, number: int, statement: Statement, env: Env) -> None:
        letters = sorted(
            set().union(*(free(side) for sides, _ in statement.chains for side in sides))
            | free(statement.condition)
        )
        for at in itertools.product(*(range(1, env[INDICES[each]] + 1) for each in letters)):
            here = env.but(**dict(zip(letters, at)))
            if statement.condition and not self.evaluate.holds(statement.condition, here):
                continue
            self.evaluated += 1
            truths = []
            for place, (sides, relations) in enumerate(statement.chains):
                found = [
                    self.relation((number, place, k), sides[k : k + 2], relation, here)
                    for k, relation in enumerate(relations)
                ]
                truths.append(all(found))
            if len(truths) == 1 and not truths[0]:
                raise FormulaError(f"statement {number + 1} does not hold at {at or 'all'}")
            if len(set(truths)) != 1:
                raise FormulaError(f"only one side of ⟺ holds in statement {number + 1}")
            if statement.shape:
                value = self.evaluate(statement.chains[0][0][0], here)
                wanted = tuple(self.evaluate(each, here) for each in statement.shape)
                if shape_of(value) != wanted:
                    raise FormulaError(f"a shape {shape_of(value)} beside which {wanted} stands")

    def relation(self, place: tuple, sides: list, relation: str, env: Env) -> bool:
        left, right = sides
        if relation == "=" and any(twice(side) for side in sides):
            return agree(self.evaluate(left, env), self.evaluate(right, env), near=1e-6)
        if relation in "≤≥":
            ends = [self.evaluate(side, env) for side in sides]
            gap = abs(ends[0] - ends[1]) / (abs(ends[0]) + abs(ends[1]) + 1e-9)
            self.gaps[place] = min(self.gaps.get(place, 1.0), gap)
            low, high = ends if relation == "≤" else ends[::-1]
            return bool(low <= high + 1e-6 * abs(high) + 1e-12)
        return self.evaluate.holds((relation, left, right), env)


def twice(tree: Any) -> bool:
    """Whether a derivative of a derivative is in it, which is known to fewer digits."""
    if not isinstance(tree, tuple):
        return False
    return (tree[:1] == ("partial",) and len(tree[1]) == 2) or any(map(twice, tree))


def flatten(statements: list[Statement]) -> Iterator[tuple]:
    for statement in statements:
        for sides, _ in statement.chains:
            yield from sides
