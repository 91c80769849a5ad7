"""How far the library's choices are from the best that can be found: `python -m softmax_bench
tune`.

Cells are those of a run that the file holds, drawn from a seed as in the suite `random`, named
(`--shapes`), or of the kinds that are known to be [slow][softmax_bench.slow] (`--kinds`). Each is
launched as the library would, as a [model][softmax_bench.cost] of the time would, and in `--wide`
more of the [possible ways][softmax_bench.possible], spread over the order that the model gives
them; of the slow kinds in the ways that their list names.

Every choice is checked and timed for a moment. The fastest are then timed in turn, twice: the first
time says which is best, the second how fast it is, so that luck is not taken for speed.

The file keeps choices with their times, and is written after each cell; a run that stops goes on
where it was. So `--report` needs no GPU, and judges the library as it is today.
"""

from __future__ import annotations

import fnmatch
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from softmax_bench import measure, possible, providers, results, slow, tuned, warmup
from softmax_bench.case import Case
from softmax_bench.inputs import Inputs, Tensors
from softmax_bench.random_shapes import draw
from softmax_bench.recording import Unread
from softmax_bench.report import geometric_mean, means
from softmax_bench.roster import COPY
from softmax_bench.runner import describe, judged
from softmax_bench.schema import DataError, add_run
from softmax_bench.tuned import LISTED
from triton_softmax import plan
from triton_softmax.config import Choice, Device, Traits, constants, splitting
from triton_softmax.config import choose as chooser
from triton_softmax.config.calls import Columns, Rows, ceil_div

FIELDS = ("shape", "dtype", "direction", "op", "dim", "layout", "inputs", "seed")
ABOUT = ("gpu", "multiprocessors", "driver", "torch", "triton", "commit", "started")

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
        dim %= len(case.shape)
        plan._plan_launches(op, inputs, (out,), dim, is_invariant(case), part=None, kernel=None)
    return seen[0]


INVARIANT = "invariant"
"""The inputs of a case whose call is batch-invariant."""


def is_invariant(case: Case) -> bool:
    """Whether the results of a case must be the same in every batch."""
    return case.inputs == INVARIANT


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
        field = "inputs" if each == INVARIANT else "layout"
        case = replace(case, **({field: each} if dim == each else {"dim": int(dim)}))
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


MOST_TILES = 20
"""So many ways to hold whole rows are tried, the fastest by what the model says."""

MOST_POLLS = 8
"""Words that a thread polls at once; of more it would run out of registers."""


def ways(problem: Problem, lines: list[str]) -> list[Choice]:
    """The choices that lines of `slow.txt` name, where they are possible, each once."""
    split = split_columns if isinstance(problem.facts, Columns) else split_rows
    found: list[Choice | None] = []
    for line in lines:
        if line == "tiles":
            whole = [each for each in problem.possible() if each.n_chunks == 1]
            found += whole[:MOST_TILES]
        else:
            found.append(split(problem, *map(int, line.split())))
    few = [each for each in found if each and getattr(each.how, "polls", 0) <= MOST_POLLS]
    return list(dict.fromkeys(few))


def split_columns(problem: Problem, tall: int, wide: int, warps: int, *tiles: int) -> Choice | None:
    """Columns cut into chunks, None if these would not run at once; with a number of tiles in a
    step, columns read in loops."""
    facts: Any = problem.facts
    if tiles:
        tile = {"tall": tall, "wide": wide, "warps": warps, "tiles": tiles[0]}
        return chooser.two_pass(facts, problem.traits, problem.device, tile)
    if tall >= 2 * facts.n_cols:
        return None
    one = facts._replace(n_outer=1) if problem.traits.any_order else facts
    return splitting.split_strided(tall, wide, warps, one, problem.device)


def split_rows(problem: Problem, *numbers: int) -> Choice | None:
    """Whole rows in tiles of so many columns, by so many warps, or several rows with accesses of so
    many elements; or rows cut as a line of the tables says, and None if the chunks would not run at
    once."""
    facts: Any = problem.facts
    rows = facts.in_whole()
    if len(numbers) == 4:
        n_rows, cols, vector, warps = numbers
        edges = rows.edges and vector > 1
        tiles = ceil_div(rows.n_cols // vector * vector, cols)
        how = constants.RowTile(n_rows, cols, vector, False, tiles, edges)
        exact = edges or rows.divisor % vector == 0
        return Choice(constants.TILE_KERNELS[edges], how, warps) if exact else None
    if len(numbers) == 2:
        cols, warps = numbers
        how = constants.RowTile(1, cols, rows.vector, True, ceil_div(rows.n_cols, cols), rows.edges)
        few = 8 * warps * 32 <= how.tiles * cols and how.tiles != 7 and how.tiles <= 8
        return Choice(constants.TILE_KERNELS[rows.edges], how, warps) if few else None
    taken = splitting.Candidate._make(numbers)
    _, traits, device = problem
    parts = splitting.parts_of(rows.n_cols) if traits.any_order else 1
    at_once = splitting.runs_at_once(rows.n_cols, taken, device, parts)
    if not at_once or taken.block >= 2 * rows.n_cols:
        return None
    return splitting.split_as(taken, rows, traits, device)


def encoded(choice: Choice) -> list:
    """A choice as a file has it."""
    return [choice.kernel, list(choice.how), *choice[2:]]


def choice_of(encoded: list) -> Choice:
    """A choice as a file has it."""
    kernel, how, *rest = encoded
    return Choice(kernel, CONSTANTS[kernel](*how), *rest)


def prepare(case: Case, choice: Choice | None, t: Tensors) -> Callable[[], Any]:
    """The call of a case as a choice has it, or as it is without batch invariance."""
    op, inputs, dim, dtype = providers.arguments(case, t)
    if choice is None:
        made = plan.make_plan(op, inputs, dim, dtype)
    else:
        with providers.choosing(lambda *_: choice):
            made = plan.make_plan(op, inputs, dim, dtype, invariant=is_invariant(case))
    return lambda: made(*inputs)


Cases = dict[Case, list[Choice]]
"""What is tried of each case, the library's choice first."""


def slow_cases(kinds: list[str], device: Device) -> Cases:
    """The cases of slow kinds, of which patterns are given; each with the library's choice and what
    else is tried.

    Raises:
        DataError: no kind fits.
    """
    found: Cases = {}
    for name, (search, check, lines) in slow.KINDS.items():
        asked = any(fnmatch.fnmatch(name, each) for each in kinds)
        for case in map(named, search + check if asked else ()):
            problem = problem_of(case, device)
            found[case] = list(dict.fromkeys([problem.library(), *ways(problem, lines)]))
    if not found:
        raise DataError(f"the slow kinds are {', '.join(slow.KINDS)}")
    return found


# --- what was measured


class Cell(NamedTuple):
    """What was measured of a case."""

    line: dict  # as the file holds it
    case: Case
    problem: Problem
    choices: list[Choice]

    def place(self, choice: Choice) -> int | None:
        """Which of those that were tried a choice is; None if it was not."""
        return self.choices.index(choice) if choice in self.choices else None

    def time(self, choice: Choice) -> float | None:
        """The time of a choice in the second round; None if it was not measured."""
        at = self.place(choice)
        return None if at is None else self.line["timed"][at][2]

    def reached(self, choice: Choice) -> float | None:
        """The best choice's time over that of this one; at most 1, but for chance."""
        return tuned.share(self.line["timed"], self.place(choice))


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


NEAR, MOST = 1.15, 8
"""A choice is timed in turn if a moment's timing is so near to the fastest, and there are not so
many before it; the library's is in any case."""


def measured(
    case: Case, choices: list[Choice], timer: Callable, inputs: Inputs, say: Callable = print
) -> dict:
    """The times of a case: those of the copy, of the plain call beside a batch-invariant one, and
    of each choice in two rounds. The library's is the first; what is wrong or fails has no times,
    what is slow those of a moment.

    Raises:
        DataError: every choice failed.
    """
    t = inputs.tensors(case)
    expected = providers.reference(case, t)
    calls: dict[int, Callable] = {}
    for at, choice in enumerate(choices):
        try:
            calls[at] = prepare(case, choice, t)
            verdict = judged(case, calls[at](), expected)
            if "status" not in verdict:
                continue
            reason = verdict["reason"]
        except Exception as error:
            reason = describe(error)
        calls.pop(at, None)
        say(f"{case.id}: {short(choice)}: {reason}")
    beside = {COPY: providers.copy(case, t)}
    if is_invariant(case):
        beside["plain"] = prepare(case, None, t)
    for call in beside.values():
        call()
    times: list[list[Any]] = [[None, None] for _ in choices]
    for at, samples in measure.in_turn(lambda at: timer(calls[at]), calls, 1).items():
        times[at] = [round(median(samples[0]), 3)] * 2
    order = sorted(calls, key=lambda at: times[at][0])
    if not order:
        raise DataError(f"{case.id}: everything failed")
    near = [at for at in order[:MOST] if times[at][0] <= NEAR * times[order[0]][0]]
    again: dict[Any, Callable] = {at: calls[at] for at in {*near, 0} & {*calls}} | beside
    found: dict[Any, list[float]] = {}
    for _ in ("first", "second"):
        for at, turns in measure.in_turn(lambda at: timer(again[at]), again).items():
            found.setdefault(at, []).append(round(median(measure.flat(turns)), 3))
    for at in again.keys() - beside.keys():
        times[at] = found[at]
    line = {name: case.fields[name] for name in FIELDS if name in case.fields}
    line |= {name: min(found[name]) for name in beside}
    return line | {"timed": [[encoded(each), *us] for each, us in zip(choices, times, strict=True)]}


def run(
    out: Path, device: str, commit: str | None, processes: int, seconds: float, unseen: bool,
    seed: int, cells: int, shapes: list[str], kinds: list[str], wide: int,
) -> str:  # fmt: skip
    """Measure what the run of a file lacks, which is written after each case, and report on it.
    After so many seconds the rest is left for another time."""
    timer, inputs = measure.timer_of(device, 12.0), Inputs(device)
    runs, on = tuned.read(out) if out.is_file() else [], plan.device_of(inputs.numbers("float32"))
    if kinds:
        cases = slow_cases(kinds, on)
    else:
        found = list(map(named, shapes)) or chosen(runs, seed, cells, on)
        cases = {case: tried(problem_of(case, on), wide) for case in found}
    about, seed = results.environment(device, commit, timer), next(iter(cases)).seed or LISTED
    head = {"seed": seed, "unseen": unseen, "environment": {name: about[name] for name in ABOUT}}
    run = next((each for each in runs if each["seed"] == seed), {**head, "cells": []})
    known, begin = {Case.of(cell).id for cell in run["cells"]}, time.monotonic()
    todo = {case: choices for case, choices in cases.items() if case.id not in known}
    if device == "cuda" and processes > 1:
        pairs = [(case, each) for case, choices in todo.items() for each in choices]
        pairs += [(case, None) for case in todo if is_invariant(case)]
        warmup.compile_ahead(prepare, pairs, processes)
    for number, (case, choices) in enumerate(todo.items(), start=1):
        spent = time.monotonic() - begin
        if spent > seconds:
            print(f"{len(todo) - number + 1} cases are left for another time")
            break
        try:
            line = measured(case, choices, timer, inputs)
        except Exception as error:
            print(f"{case.id}: {type(error).__name__}: {error}", flush=True)
            continue
        cell = cell_of(line, on)
        places = map(cell.place, (cell.problem.library(), cell.problem.possible()[0]))
        line |= dict(zip(tuned.CHOOSERS, places, strict=True))
        run["cells"].append(tuned.pruned(line) if line["seed"] == LISTED else line)
        add_run(out, run, "seed", tuned.FORMAT)
        best = cell.choices[tuned.best(line["timed"])]
        words = f"{line['copy']:.2f} copy, {cell.time(cell.choices[0])} library, "
        words += f"{cell.time(best)} {short(best)}"
        print(f"[{spent:4.0f} s {number}/{len(todo)}] {case.id}: {words}", flush=True)
    return reports([run])


# --- the report


def reports(runs: list[dict]) -> str:
    """For the terminal: all that there is to say of runs."""
    lines = []
    for run in runs:
        cells = cells_of(run)
        lines += [f"seed {run['seed']}, {'unseen' if run['unseen'] else 'tuned on'}"]
        lines += [report(cells), report_of_kinds(cells)]
    return "\n".join(lines)


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


def report_of_kinds(cells: list[Cell]) -> str:
    """For the terminal: of each slow kind its ways, the fastest on the cells to search on first,
    with the library's time over theirs on these, on those that are held out and at worst, and the
    share of a copy's speed, or of the plain call's beside a batch-invariant one."""
    by_name, lines = {cell.case.id: cell for cell in cells}, []
    for kind, (*both, text) in slow.KINDS.items():
        found = [[by_name.get(named(name).id) for name in of] for of in both]
        rows: dict[str, list[list[tuple[float, float]]]] = {}
        for at, of in enumerate(found):
            for cell in filter(None, of):
                own = cell.line["timed"][cell.line["library"]][2]
                limit = cell.line.get("plain", cell.line["copy"])
                if own:
                    lines.append(f"{kind}: {cell.case.id}: the library {limit / own:.3f}")
                tried = [(way, each) for way in text for each in ways(cell.problem, [way])]
                for line, choice in tried:
                    if own and (time := cell.time(choice)):
                        name = short(choice) if line == "tiles" else line
                        rows.setdefault(name, [[], []])[at].append((own / time, limit / time))
        everywhere = [name for name, of in rows.items() if len(of[0]) == len(found[0])]
        for name in sorted(everywhere, key=lambda name: -sum(each for each, _ in rows[name][0])):
            search, check = ([gain for gain, _ in of] for of in rows[name])
            share = geometric_mean([limit for of in rows[name] for _, limit in of])
            lines.append(
                f"  × {geometric_mean(search):.3f}  held out × {geometric_mean(check) or 0:.3f}"
                f"  least × {min(search + check):.3f}  of the limit {share:.3f}   {name}"
            )
    return "\n".join(lines)


def short(choice: Choice) -> str:
    """A choice in a few characters."""
    how = " ".join(f"{name}={int(value)}" for name, value in choice.how._asdict().items() if value)
    rest = f" registers={choice.max_registers}" if choice.max_registers else ""
    return f"{choice.kernel} {how} warps={choice.num_warps}{rest}"
