"""How far the choice of constants is from the best that can be found: `python -m softmax_bench
tune`.

Cells are drawn from a seed as in the suite `random`, and for each all `candidates` are launched,
compared with the library's answer, and timed with a cold cache, in two rounds: the first says which
is best, the second how fast it is, so that luck is not taken for speed. The file keeps every choice
with its times, and the numbers that a choice depends on. So `--report` needs no GPU, and judges the
constants as they are today.

`--shapes` names shapes in place of a seed, and `--wide` tries choices from everywhere in place of
those near the library's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import candidates, tuned, wide
from softmax_bench.candidates import Problem, class_of
from softmax_bench.case import Case
from softmax_bench.report import geometric_mean
from softmax_bench.tuned import FORMAT, KEPT, LISTED, SMALL_MICROSECONDS, DataError
from triton_softmax.choose import Choice, Device, Traits
from triton_softmax.choose.row_tiles import Rows
from triton_softmax.choose.strided import Columns

FIELDS = ("shape", "dtype", "direction", "op", "dim", "layout", "seed")
ENVIRONMENT = ("gpu", "multiprocessors", "driver", "torch", "triton", "commit", "started")


# --- the file


def device_of(multiprocessors: int) -> Device:
    """The device of a run; without multiprocessors it was the interpreter."""
    return Device(multiprocessors, nvidia=True) if multiprocessors else Device()


def encoded(choice: Choice) -> list:
    """A choice as JSON holds it."""
    return [choice.kernel, list(choice.how), *choice[2:]]


def decoded(values: list) -> Choice:
    """A choice from what `encoded` made of it."""
    kernel, how, *rest = values
    return Choice(kernel, candidates.CONSTANTS[kernel](*how), *rest)


class Timed(NamedTuple):
    """A choice and its median time in each round, in microseconds; None if it failed."""

    choice: Choice
    first: float | None
    second: float | None


class Cell(NamedTuple):
    """What was measured of a case."""

    case: Case
    problem: Problem
    copy: float
    timed: list[Timed]
    chosen: dict[str, int | None]
    """Which of the choices the library and the model made when they were measured."""

    def time(self, choice: Choice) -> float | None:
        """The time of a choice in the second round; None if it was not measured."""
        return next((each.second for each in self.timed if each.choice == choice), None)

    @property
    def best(self) -> Timed:
        """The choice that was fastest in the first round."""
        return self.timed[tuned.best(self.timed)]

    def reached(self, choice: Choice) -> float | None:
        """The best choice's time over that of this one; at most 1, but for chance."""
        time, best = self.time(choice), self.best
        return best.second / time if time and best.second else None


def line_of(cell: Cell) -> dict:
    """A cell as a line of the file."""
    kind = "rows" if isinstance(cell.problem.facts, Rows) else "columns"
    return {
        **{name: getattr(cell.case, name) for name in FIELDS},
        kind: list(cell.problem.facts),
        "traits": list(cell.problem.traits),
        "copy": cell.copy,
        **cell.chosen,
        "timed": [[encoded(choice), *times] for choice, *times in cell.timed],
    }


def cell_of(line: dict, device: Device) -> Cell:
    """A cell from its line."""
    case = Case(
        "random", tuple(line["shape"]), *(line[name] for name in FIELDS[1:-1]), seed=line["seed"]
    )
    facts = Rows(*line["rows"]) if "rows" in line else Columns(*line["columns"])
    problem = Problem(facts, Traits(*line["traits"]), device)
    timed = [Timed(decoded(choice), *times) for choice, *times in line["timed"]]
    chosen = {who: line[who] for who in tuned.CHOOSERS}
    return Cell(case, problem, line["copy"], timed, chosen)


class Run(NamedTuple):
    """The cells of one seed, measured in one place."""

    seed: int
    unseen: bool
    """Whether no constant was chosen by it."""
    environment: dict
    cells: list[Cell]


def load(path: Path) -> list[Run]:
    """The runs of a file.

    Raises:
        DataError: as `tuned.read`; or a cell is not described by the numbers beside it.
    """
    runs = []
    for data in tuned.read(path):
        try:
            environment = {name: data["environment"][name] for name in ENVIRONMENT}
            device = device_of(environment["multiprocessors"])
            cells = [cell_of(line, device) for line in data["cells"]]
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: {type(error).__name__}: {error}") from error
        for cell in cells:
            if cell.problem != candidates.problem_of(cell.case, device):
                raise DataError(f"{path}: {cell.case.id} is not described by its own numbers")
        runs.append(Run(data["seed"], data["unseen"], environment, cells))
    return runs


def write(path: Path, runs: list[Run]) -> None:
    """Write a file whole, a cell on each line."""
    parts = []
    for run in runs:
        head = json.dumps({**run._asdict(), "cells": 0}).removesuffix("0}")
        lines = [json.dumps(line_of(cell), separators=(",", ":")) for cell in run.cells]
        parts.append(head + "[\n" + ",\n".join(lines) + "\n]}")
    beside = path.with_suffix(".part")
    beside.write_text(f'{{"format": {FORMAT}, "runs": [\n' + ",\n".join(parts) + "\n]}\n", "utf-8")
    beside.replace(path)


def pruned(cell: Cell) -> Cell:
    """The cell with its fastest choices, and those of the library and the model."""
    order = sorted(range(len(cell.timed)), key=lambda at: cell.timed[at].first or float("inf"))
    kept = sorted({*order[:KEPT], *(at for at in cell.chosen.values() if at is not None)})
    chosen = {who: None if at is None else kept.index(at) for who, at in cell.chosen.items()}
    return cell._replace(timed=[cell.timed[at] for at in kept], chosen=chosen)


def listed(path: Path) -> list[Case]:
    """The cases that a file names, one in a line, such as softmax/backward/float32/7500x4500/dim0.

    Raises:
        ValueError: a line is no such name.
    """
    found = []
    for line in path.read_text(encoding="utf-8").split():
        op, direction, dtype, shape, *rest = line.split("/")
        case = Case("random", tuple(map(int, shape.split("x"))), dtype, direction, op, seed=LISTED)
        for each in rest:
            dim = each.removeprefix("dim")
            case = replace(case, **({"layout": each} if dim == each else {"dim": int(dim)}))
        found.append(case)
    return found


# --- measuring


class Bench:
    """Launches choices on the tensors of cases."""

    def __init__(self, device: str):
        from softmax_bench import runner

        self.device = device
        results = runner.Results(Path(os.devnull), {"sources": {}})
        self.runner = runner.Runner(results, device, lambda call, cold=True: [], seed=0)

    def call(self, case: Case, tensors: Any, choice: Choice | None):
        """A call without arguments that launches a choice; None is the library's."""
        from softmax_bench import providers
        from triton_softmax import plan

        operation, inputs, dim, dtype, _ = providers._call(case, tensors, None)
        if choice is None:
            made = plan.make_plan(operation, inputs, dim, dtype, None)
        else:
            with (
                candidates.replaced(plan, "choose_rows", lambda *_, **__: choice),
                candidates.replaced(plan, "choose_strided", lambda *_, **__: choice),
            ):
                made = plan.make_plan(operation, inputs, dim, dtype, None)
        return lambda: made(*inputs)

    def timed(self, case: Case, problem: Problem, choices: list[Choice], timer) -> Cell:
        """Check and time a case."""
        from softmax_bench import measure, providers

        tensors = self.runner.tensors(case)
        copy = providers.PREPARE["copy"](case, tensors)
        expected = self.call(case, tensors, None)()
        calls, times = [], []
        for choice in choices:
            try:
                call = self.call(case, tensors, choice)
                _, error = measure.errors(call(), expected, case.dim, floor=0.01)
                good = error <= measure.TOLERANCE[case.dtype]
            except Exception as error:
                good = False
                print(f"{case.id}: {choice}: {' '.join(str(error).split())[:200]}", flush=True)
            calls.append(call if good else None)
            times.append([])
        copies = []
        for _ in range(2):
            copies.append(_median(timer, copy))
            for call, of in zip(calls, times, strict=True):
                of.append(_median(timer, call) if call else None)
        timed = [Timed(choice, *of) for choice, of in zip(choices, times, strict=True)]
        chosen = {"library": problem.library(), "model": problem.modelled()}
        return Cell(
            case, problem, min(copies), timed, {who: choices.index(chosen[who]) for who in chosen}
        )


def _median(timer: Any, call: Any) -> float:
    """Microseconds."""
    from softmax_bench.measure import percentile

    return round(percentile(timer(call), 0.5), 3)


def compile_part(pairs: list[tuple[Case, Choice]], part: int, parts: int, device: str) -> None:
    """Launch a share of (case, choice) once, so that what is compiled lies in the cache on disk."""
    bench, made = Bench(device), {}
    for case, choice in pairs[part::parts]:
        try:
            if case.id not in made:
                made = {case.id: bench.runner.tensors(case)}
            bench.call(case, made[case.id], choice)()
            bench.runner.synchronize()
        except Exception as error:  # it fails again when it is measured
            if "CUDA error" in str(error):
                return


def distinct(plans: list[tuple[Case, Problem, list[Choice]]]) -> list[tuple[Case, Choice]]:
    """What has to be compiled, each kernel once."""
    found: dict[tuple, tuple[Case, Choice]] = {}
    for case, _, choices in plans:
        for choice in choices:
            kind = case.op, case.direction, case.dtype, choice.kernel, choice.how
            key = (*kind, choice.num_warps, choice.max_registers)
            if "strided" in choice.kernel:
                key += tuple(size % 16 == 0 for size in case.shape) + (1 in case.shape,)
            found.setdefault(key, (case, choice))
    return list(found.values())


def run(options: Any) -> int:
    """Measure what the options ask for and is not in the file yet."""
    begin = time.monotonic()
    import torch

    from softmax_bench import measure, runner

    on_gpu = options.device == "cuda"
    count = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 0
    device = device_of(count)
    if options.shapes:
        options.seed, cases = LISTED, listed(Path(options.shapes))
    else:
        cases = candidates.select(
            options.seed, options.cells, options.geometry, options.dtypes, options.small, device
        )
    if options.most_bytes:
        cases = [case for case in cases if case.bytes <= options.most_bytes]
    plans = []
    for case in cases:
        problem = candidates.problem_of(case, device)
        if options.wide:
            choices = [problem.library(), problem.modelled(), *wide.drawn(problem, options.wide)]
        else:
            choices = candidates.tried(problem, options.explore)
        plans.append((case, problem, list(dict.fromkeys(choices))))
    if options.part:
        part, parts = map(int, options.part.split("/"))
        compile_part(distinct(plans), part, parts, options.device)
        return 0
    out = Path(options.out)
    timer = measure.CudaTimer(options.target_ms) if on_gpu else measure.WallTimer(2)
    found = runner.environment(options.device, options.commit, timer)
    environment = {name: found[name] for name in ENVIRONMENT}
    runs = load(out) if out.is_file() else []
    if not runs or runs[-1].seed != options.seed:
        runs.append(Run(options.seed, options.unseen, environment, []))
    cells = runs[-1].cells
    done = {cell.case.id for cell in cells}
    plans = [each for each in plans if each[0].id not in done]
    total = sum(len(choices) for *_, choices in plans)
    print(f"{len(plans)} cells, {total} choices, {len(distinct(plans))} to compile", flush=True)
    if options.processes > 1:
        limit = options.budget_seconds * (1.0 if options.compile_only else 0.6)
        command = [*sys.argv[1:], "--processes", "0"]
        runner.compile_ahead(command, options.processes, limit)
    if options.compile_only:
        return 0
    bench = Bench(options.device)
    for number, (case, problem, choices) in enumerate(plans, start=1):
        if time.monotonic() - begin > options.budget_seconds:
            print(f"time is up: {len(plans) - number + 1} cells left")
            break
        cell = bench.timed(case, problem, choices, timer)
        cells.append(pruned(cell) if options.wide else cell)
        reached = cell.reached(choices[0])
        shown = f"{reached:.3f} of the best" if reached else "no answer"
        print(f"[{time.monotonic() - begin:5.0f} s {number}/{len(plans)}] {case.id}: {shown}")
        if number % 10 == 0:
            write(out, runs)
    write(out, runs)
    print(report(cells))
    return 0


# --- the report


def kind_of(cell: Cell) -> tuple[str, ...]:
    """The class of a cell, small where its copy takes less than 10 µs."""
    size = "small" if cell.copy < SMALL_MICROSECONDS else "large"
    return (*class_of(cell.case, cell.problem.library().kernel)[:3], size)


def reached(cells: list[Cell]) -> list[tuple[Cell, float | None, float | None]]:
    """For each cell the share of the best choice's speed that the library and the model reach;
    None for a choice that was not measured."""
    return [
        (cell, cell.reached(cell.problem.library()), cell.reached(cell.problem.modelled()))
        for cell in cells
    ]


def by_label(cells: list[Cell]) -> dict[tuple[str, ...], list[float]]:
    """(change, and its class if it is no constant): speed with the change over the library's, in
    all cells in which it applies."""
    found: dict[tuple[str, ...], list[float]] = {}
    for cell in cells:
        own = cell.time(cell.problem.library())
        constants = candidates.by_constants(cell.problem)
        changes = {(label,): choice for label, choice in constants.items()}
        kind = ", ".join(kind_of(cell))
        changes |= {
            (label, kind): choice for label, choice in candidates.near(cell.problem).items()
        }
        for label, choice in changes.items():
            if (other := cell.time(choice)) and own:
                found.setdefault(label, []).append(own / other)
    return found


def _mean(values: Iterable[float | None]) -> str:
    mean = geometric_mean([value for value in values if value])
    return f"{mean:6.3f}" if mean else "     –"


def report(cells: list[Cell], worst: int = 25) -> str:
    """The tables for the terminal."""
    found = reached(cells)
    classes: dict[tuple[str, ...], list] = {}
    for each in found:
        kind = kind_of(each[0])
        for key in (("all",), kind[:1], kind[3:], kind):
            classes.setdefault(key, []).append(each)
    lines = [f"{'share of the best found':<48} cells library  worst   model  worst"]
    for key in sorted(classes, key=lambda key: (len(key), key)):
        _, ours, model = zip(*classes[key], strict=True)
        low = [min((value for value in of if value), default=0.0) for of in (ours, model)]
        lines.append(
            f"{', '.join(key):<48} {len(ours):5}  {_mean(ours)} {low[0]:6.3f}  {_mean(model)} "
            f"{low[1]:6.3f}"
        )
    for name, at in (("library", 1), ("model", 2)):
        lines.append(f"\nworst {worst} of the {name}")
        for each in sorted(found, key=lambda each: each[at] or 1.0)[:worst]:
            cell = each[0]
            own = cell.problem.library() if at == 1 else cell.problem.modelled()
            time = cell.time(own)
            lines.append(
                f"{each[at] or 0:6.3f} {time or 0:8.2f} µs, best {cell.best.second:8.2f}, copy "
                f"{cell.copy:8.2f} {cell.case.id}\n"
                f"       {short(own)}  →  {short(cell.best.choice)}"
            )
    changes = by_label(cells)
    lines.append("\nother constants: speed over the library's, where it makes a difference")
    for label in sorted(label for label in changes if len(label) == 1):
        values = changes[label]
        lines.append(
            f"{label[0]:<52} {len(values):3} {_mean(values)} {min(values):6.3f} {max(values):6.3f}"
        )
    lines.append("\nother choices, class by class")
    for kind, name in sorted(label[::-1] for label in changes if len(label) == 2):
        label = name, kind
        values = changes[label]
        lines.append(
            f"{label[1]:<44} {label[0]:<26} {len(values):3} {_mean(values)} {min(values):6.3f} "
            f"{max(values):6.3f}"
        )
    return "\n".join(lines)


def short(choice: Choice) -> str:
    """A choice in a few characters."""
    how = " ".join(
        f"{name}={int(value)}"
        for name, value in choice.how._asdict().items()
        if value not in (False, 0)
    )
    rest = f" registers={choice.max_registers}" if choice.max_registers else ""
    return f"{choice.kernel} {how} warps={choice.num_warps}{rest}"
