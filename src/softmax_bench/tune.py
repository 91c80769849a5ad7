"""How far the library's choices are from the best that can be found: `python -m softmax_bench
tune`.

Cells are those of a run that the file holds, drawn from a seed as in the suite `random`, or named
(`--shapes`). Each is launched as the library would, as a [model][softmax_bench.cost] of the time
would, and in `--wide` more of the [possible ways][softmax_bench.possible], spread over the order
that the model gives them. They are measured like other providers, each twice: the first time says
which is best, the second how fast it is, so that luck is not taken for speed.

The file keeps choices with their times. So `--report` needs no GPU, and judges the library as it is
today.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from softmax_bench import possible, providers, tuned
from softmax_bench.case import Case
from softmax_bench.inputs import Tensors
from softmax_bench.random_shapes import draw
from softmax_bench.recording import Unread
from softmax_bench.report import by_case, means
from softmax_bench.report import timed as time_of
from softmax_bench.roster import COPY
from softmax_bench.schema import DataError
from softmax_bench.tuned import LISTED
from triton_softmax import plan
from triton_softmax.config import Choice, Device, Traits, constants
from triton_softmax.config import choose as chooser
from triton_softmax.config.calls import Columns, Rows, ceil_div

FIELDS = ("shape", "dtype", "direction", "op", "dim", "layout", "seed")
ENVIRONMENT = ("gpu", "multiprocessors", "driver", "torch", "triton", "commit", "started")

CONSTANTS = {
    "packed_rows": constants.RowTile,
    "aligned_rows": constants.RowTile,
    "split_rows": constants.SplitRows,
    "strided": constants.StridedTile,
    "split_strided": constants.SplitStrided,
    "two_pass": constants.TwoPass,
}
"""The class of a kernel's constants."""


# --- what the library chooses between


class Problem(NamedTuple):
    """All that a choice depends on."""

    facts: Rows | Columns
    traits: Traits
    device: Device

    def library(self) -> Choice:
        """What the library chooses."""
        return chooser.chosen(*self)

    def programs(self, choice: Choice) -> int:
        """Return the programs of each launch of a choice."""
        how: Any = choice.how
        if isinstance(self.facts, Columns):
            groups = self.facts.groups(how.block_inner)
        else:
            groups = ceil_div(self.facts.n_rows, getattr(how, "block_rows", 1))
        return choice.programs(groups)

    def possible(self) -> list[Choice]:
        """All between which the model chooses, the fastest first by what it says."""
        return [choice for _, choice in sorted(possible.timed(*self), key=lambda each: each[0])]


def device_of(multiprocessors: int) -> Device:
    """An NVIDIA GPU; without multiprocessors the interpreter."""
    return Device(multiprocessors, nvidia=True) if multiprocessors else Device()


def problem_of(case: Case, device: Device) -> Problem:
    """The problem that a case puts on a device: what the planner asks of tensors without data."""
    op, inputs, dim, _ = providers.arguments(case, Unread("meta").tensors(case))
    out = torch.empty(case.shape, dtype=inputs[0].dtype, device="meta")
    seen: list[Problem] = []

    def asked(facts: Rows | Columns, traits: Traits, *_: object) -> Choice:
        seen.append(Problem(facts, traits, device))
        return seen[-1].library()

    with providers.choosing(asked):
        out = out.select(dim, 0).contiguous() if op.reduces else out
        plan._plan_launches(op, inputs, (out,), dim % len(case.shape))
    return seen[0]


# --- the cells


def named(name: str) -> Case:
    """The case of a name such as softmax/backward/float32/7500x4500/dim0.

    Raises:
        ValueError: this is no such name.
    """
    op, direction, dtype, shape, *rest = name.split("/")
    case = Case("random", tuple(map(int, shape.split("x"))), dtype, direction, op, seed=LISTED)
    for each in rest:
        dim = each.removeprefix("dim")
        case = replace(case, **({"layout": each} if dim == each else {"dim": int(dim)}))
    return case


def chosen(runs: list[dict], seed: int, cells: int, device: Device) -> list[Case]:
    """The cells of the run of a seed, if it is among these; or else so many that the seed draws, in
    turn of every kernel."""
    if again := [Case.of(line) for run in runs if run["seed"] == seed for line in run["cells"]]:
        return again
    of_kernels: dict[str, list[Case]] = {}
    for case in draw(seed):
        kernel = problem_of(case, device).library().kernel
        of_kernels.setdefault(kernel, []).append(case)
    turns = itertools.zip_longest(*of_kernels.values())
    return [case for turn in turns for case in turn if case][:cells]


def tried(problem: Problem, wide: int) -> list[Choice]:
    """All choices to be timed, the library's first, then the model's; and `wide` more of all that
    are possible, spread evenly over the model's order."""
    order = problem.possible()
    spread = order[:: max(1, len(order) // wide)][: wide + 1] if wide else []
    return list(dict.fromkeys([problem.library(), order[0], *spread]))


ROUNDS = ("first", "second")


def with_choices(case: Case, device: Device, wide: int) -> Case:
    """The case with what is tried as its providers."""
    texts = [
        json.dumps([each.kernel, list(each.how), *each[2:]])
        for each in tried(problem_of(case, device), wide)
    ]
    names = [f"{number} {text}" for number in ROUNDS for text in texts]
    return replace(case, suite="choices", providers=(COPY, *names))


def choice_of(encoded: list) -> Choice:
    """A choice as a file has it."""
    kernel, how, *rest = encoded
    return Choice(kernel, CONSTANTS[kernel](*how), *rest)


def prepare(case: Case, name: str, t: Tensors) -> Callable[[], Any]:
    """The call of one of these providers."""
    if name == COPY:
        return providers.copy(case, t)
    given, choice = providers.arguments(case, t), choice_of(json.loads(name.partition(" ")[2]))
    with providers.choosing(lambda *_: choice):
        made = plan.make_plan(*given)
    return lambda: made(*given[1])


# --- what was measured


class Cell(NamedTuple):
    """What was measured of a case."""

    line: dict  # as the file holds it
    case: Case
    problem: Problem
    choices: list[Choice]

    def time(self, choice: Choice) -> float | None:
        """The time of a choice in the second round; None if it was not measured."""
        return self.line["timed"][self.choices.index(choice)][2] if choice in self.choices else None

    def reached(self, choice: Choice) -> float | None:
        """The best choice's time over that of this one; at most 1, but for chance."""
        at = self.choices.index(choice) if choice in self.choices else None
        return tuned.share(self.line["timed"], at)


def cell_of(line: dict, device: Device) -> Cell:
    """A cell from its line."""
    case = Case.of(line)
    choices = [choice_of(encoded) for encoded, *_ in line["timed"]]
    return Cell(line, case, problem_of(case, device), choices)


def cells_of(run: dict) -> list[Cell]:
    """The cells of a run.

    Raises:
        DataError: a cell lacks something, or names constants that no kernel has.
    """
    device = device_of(run["environment"]["multiprocessors"])
    try:
        return [cell_of(line, device) for line in run["cells"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"seed {run['seed']}: {type(error).__name__}: {error}") from error


def run_of(rows: list[dict], environment: dict, unseen: bool) -> dict:
    """What was measured, as the file holds it; without cells in which everything failed."""
    lines, device = [], device_of(environment["multiprocessors"])
    for group in by_case(rows).values():
        line: dict = {name: group[COPY][name] for name in FIELDS}
        texts = [name.partition(" ")[2] for name in group if name.startswith(ROUNDS[0])]
        times = [[time_of(group.get(f"{each} {text}")) for each in ROUNDS] for text in texts]
        line["copy"] = time_of(group[COPY])
        line["timed"] = [[json.loads(text), *us] for text, us in zip(texts, times, strict=True)]
        if line["copy"] and any(map(all, times)):
            cell = cell_of(line, device)
            chosen = cell.problem.library(), cell.problem.possible()[0]
            line |= dict(zip(tuned.CHOOSERS, map(cell.choices.index, chosen), strict=True))
            lines.append(tuned.pruned(line) if line["seed"] == LISTED else line)
    head = {name: environment[name] for name in ENVIRONMENT}
    return {"seed": rows[0]["seed"], "unseen": unseen, "environment": head, "cells": lines}


# --- the report


def report(cells: list[Cell]) -> str:
    """For the terminal: what library and model, as they are today, reach of the best speed; the
    cells in which the library is farthest from it come last."""
    kinds: dict[str, list[tuple[float | None, ...]]] = {}
    lines = []
    for cell in cells:
        choices = cell.problem.library(), cell.problem.possible()[0]
        shares = tuple(map(cell.reached, choices))
        for kind in ("all", ", ".join(tuned.kind(cell.line))):
            kinds.setdefault(kind, []).append(shares)
        best = cell.choices[tuned.best(cell.line["timed"])]
        shown = [f"{short(each)}, {cell.time(each) or 0:.2f} µs" for each in (*choices, best)]
        words = f"{cell.case.id}: {shown[0]}; model {shown[1]}; best {shown[2]}"
        lines.append((shares[0] or 0, words))
    table = means(("the library", "the model"), kinds)
    return "\n".join([table, *(f"{share:7.3f} {words}" for share, words in sorted(lines)[::-1])])


def short(choice: Choice) -> str:
    """A choice in a few characters."""
    how = " ".join(f"{name}={int(value)}" for name, value in choice.how._asdict().items() if value)
    rest = f" registers={choice.max_registers}" if choice.max_registers else ""
    return f"{choice.kernel} {how} warps={choice.num_warps}{rest}"
