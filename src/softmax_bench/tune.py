"""How far the choice of constants is from the best that can be found: `python -m softmax_bench
tune`.

Cells are drawn from a seed as in the suite `random`, or named by a file (`--shapes`). Each is
launched as the library would, as its model would, as the library would if one number of its
measured tables were another one, and, with `--wide`, in more of the ways that
[`config.space`][triton_softmax.config.space] allows, spread over the order that the model gives
them. Every answer is compared with the library's and timed with a cold cache, in two rounds: the
first says which is best, the second how fast it is, so that luck is not taken for speed.

The file keeps every choice with its times, and the numbers that a choice depends on. So `--report`
needs no GPU, and judges the constants as they are today.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import tuned
from softmax_bench.case import Case
from softmax_bench.random_shapes import draw, pitch
from softmax_bench.report import geometric_mean
from softmax_bench.schema import DataError
from softmax_bench.tuned import LISTED
from triton_softmax.config import Choice, Device, Traits
from triton_softmax.config import choose as chooser
from triton_softmax.config.measured import ANY, TABLES, Line
from triton_softmax.config.space import (
    Columns,
    Rows,
    RowTile,
    SplitRows,
    SplitStrided,
    StridedTile,
    TwoPass,
    rows_of,
)

FIELDS = ("shape", "dtype", "direction", "op", "dim", "layout", "seed")
ENVIRONMENT = ("gpu", "multiprocessors", "driver", "torch", "triton", "commit", "started")

CONSTANTS = {
    "packed_rows": RowTile,
    "aligned_rows": RowTile,
    "split_rows": SplitRows,
    "strided": StridedTile,
    "split_strided": SplitStrided,
    "two_pass": TwoPass,
}
"""The class of a kernel's constants."""

COUNTED = ("cols", "body", "power", "load", "programs", "load_2048", "load_4096", "load_8192")
"""Numbers of a call of which limits in the tables are measured; all others are of a few kinds."""

SMALL_BYTES = 24 * 2**20
"""Tensors that are copied within 10 µs, about."""


class Problem(NamedTuple):
    """All that a choice depends on."""

    facts: Rows | Columns
    traits: Traits
    device: Device

    def library(self) -> Choice:
        """What the library chooses."""
        if isinstance(self.facts, Rows):
            return chooser.measured_rows(self.facts, self.traits, self.device)
        return chooser.measured_columns(self.facts, self.traits, self.device)

    def possible(self) -> list[Choice]:
        """All between which the model chooses, the fastest first by what it says."""
        return [choice for _, choice in sorted(chooser.timed(*self), key=lambda each: each[0])]


def device_of(multiprocessors: int) -> Device:
    """The device of a run; without multiprocessors it was the interpreter."""
    return Device(multiprocessors, nvidia=True) if multiprocessors else Device()


def problem_of(case: Case, device: Device) -> Problem:
    """The problem that a case puts, found by asking the planner with tensors that have no data."""
    import torch

    from triton_softmax import plan
    from triton_softmax.operations import OPERATIONS

    dtype, seen = getattr(torch, case.dtype), []
    plain = torch.empty(case.shape, dtype=dtype, device="meta")
    x = plain
    if case.layout == "padded":
        step = pitch(case.n_cols)
        x = torch.empty_strided(case.shape, (step, 1), dtype=dtype, device="meta")
    inputs = (plain, x) if case.direction == "backward" else (x,)
    name = f"{case.op}_backward" if case.direction == "backward" else case.op
    dim = case.dim % len(case.shape)
    shape = case.shape if case.op != "logsumexp" else case.shape[:dim] + case.shape[dim + 1 :]
    outs = (torch.empty(shape, dtype=dtype, device="meta"),)

    def of_rows(n_rows, n_cols, itemsize, *, addresses, strides, held, traits, **_):
        facts = rows_of(n_rows, n_cols, itemsize, addresses, strides, held)
        seen.append(Problem(facts, traits, device))
        return seen[0].library()

    def of_columns(columns, traits, _):
        seen.append(Problem(columns, traits, device))
        return own(columns, traits, device)

    own = chooser.measured_columns
    with replaced(plan, "choose_rows", of_rows), replaced(chooser, "measured_columns", of_columns):
        plan._plan_launches(OPERATIONS[name], inputs, outs, dim, None)
    return seen[0]


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """For a while, a module has another value of this name."""
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)


# --- the cells


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


def select(seed: int, cells: int, device: Device) -> list[Case]:
    """So many cells of a seed, in turn of every geometry, size of an element, direction and size of
    the tensor; small tensors twice as often."""
    classes: dict[tuple, list[Case]] = {}
    for case in draw(seed):
        kernel = problem_of(case, device).library().kernel
        geometry = kernel if kernel.endswith("_rows") else "strided"
        size = "small" if case.bytes < SMALL_BYTES else "large"
        classes.setdefault((geometry, case.itemsize, case.direction, size), []).append(case)
    found: list[Case] = []
    while any(classes.values()) and len(found) < cells:
        for kind in sorted(classes):
            for _ in range(2 if kind[3] == "small" else 1):
                if classes[kind] and len(found) < cells:
                    found.append(classes[kind].pop(0))
    return found


# --- what is tried


def others(line: Line) -> Iterator[tuple[str, Line]]:
    """(where, the line with one of its numbers doubled or halved).

    >>> from triton_softmax.config.measured import parsed
    >>> line = parsed("[t]\\ncols | warps\\n..8 | 4")["t"][0]
    >>> [where for where, _ in others(line)]
    ['cols ..16', 'cols ..4', 'warps=8', 'warps=2']
    """
    for at, limits in enumerate(line.limits):
        for field in ("low", "high"):
            value = getattr(limits, field)
            if limits.name in COUNTED and 0 < value < ANY and limits.low != limits.high:
                for other in (2 * value, value // 2):
                    changed = limits._replace(**{field: other})
                    where = f"..{other:.9g}" if field == "high" else f"{other:.9g}.."
                    rest = line.limits[:at] + (changed,) + line.limits[at + 1 :]
                    yield f"{limits.name} {where}", line._replace(limits=rest)
    for name, value in line.values.items():
        for other in (2 * value, value // 2):
            if 0 < value < ANY and other:
                yield f"{name}={other}", line._replace(values=line.values | {name: other})


def by_constants(problem: Problem) -> dict[str, Choice]:
    """What the library would choose if a measured number were another one, where that differs, by
    the number."""
    chosen, found = problem.library(), {}
    of_strands = isinstance(problem.facts, Columns)
    for name, table in TABLES.items():
        if name.startswith("strand") != of_strands or name.startswith("masked"):
            continue
        for at, own in enumerate(table):
            for where, other in others(own):
                table[at] = other
                try:
                    with contextlib.suppress(Exception):
                        if (choice := problem.library()) != chosen:
                            found[f"{name}[{at}] {where}"] = choice
                finally:
                    table[at] = own
    return found


def tried(problem: Problem, wide: int = 0) -> list[Choice]:
    """All choices to be timed, the library's first, then the model's; and `wide` more of all that
    are possible, spread evenly over the model's order."""
    order = problem.possible()
    spread = order[:: max(1, len(order) // wide)][: wide + 1] if wide else []
    first = [problem.library(), order[0], *by_constants(problem).values()]
    return list(dict.fromkeys([*first, *spread]))


# --- what was measured


class Cell(NamedTuple):
    """What was measured of a case."""

    line: dict
    """As the file holds it."""
    case: Case
    problem: Problem
    choices: list[Choice]

    def time(self, choice: Choice) -> float | None:
        """The time of a choice in the second round; None if it was not measured."""
        return self.line["timed"][self.choices.index(choice)][2] if choice in self.choices else None

    @property
    def best(self) -> int:
        """Which choice was fastest in the first round."""
        return tuned.best(self.line["timed"])

    def reached(self, choice: Choice) -> float | None:
        """The best choice's time over that of this one; at most 1, but for chance."""
        time, best = self.time(choice), self.line["timed"][self.best][2]
        return best / time if time and best else None


def cell_of(line: dict, device: Device) -> Cell:
    """A cell from its line."""
    fields = {name: line[name] for name in FIELDS} | {"shape": tuple(line["shape"])}
    facts = Rows(*line["rows"]) if "rows" in line else Columns(*line["columns"])
    choices = []
    for (kernel, how, *rest), *_ in line["timed"]:
        choices.append(Choice(kernel, CONSTANTS[kernel](*how), *rest))
    problem = Problem(facts, Traits(*line["traits"]), device)
    return Cell(line, Case("random", **fields), problem, choices)  # pyright: ignore


def cells_of(run: dict) -> list[Cell]:
    """The cells of a run."""
    device = device_of(run["environment"]["multiprocessors"])
    return [cell_of(line, device) for line in run["cells"]]


def load(path: Path) -> list[dict]:
    """The runs of a file.

    Raises:
        DataError: as `tuned.read`; or a cell is not described by the numbers beside it.
    """
    runs = tuned.read(path)
    for run in runs:
        try:
            cells = cells_of(run)
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: {type(error).__name__}: {error}") from error
        for cell in cells:
            if cell.problem != problem_of(cell.case, cell.problem.device):
                raise DataError(f"{path}: {cell.case.id} is not described by its own numbers")
    return runs


class Bench:
    """Launches choices on the tensors of cases."""

    def __init__(self, device: str):
        from softmax_bench import runner

        results = runner.Results(Path(os.devnull), {})
        self.runner = runner.Runner(results, device, lambda call, cold=True: [], seed=0)

    def call(self, case: Case, tensors: Any, choice: Choice | None):
        """A call without arguments that launches a choice; None is the library's."""
        from softmax_bench import providers
        from triton_softmax import plan

        op, inputs, dim, dtype, _ = providers.arguments(case, tensors, None)
        with contextlib.ExitStack() as stack:
            if choice is not None:
                for name in ("choose_rows", "choose_strided"):
                    stack.enter_context(replaced(plan, name, lambda *_, **__: choice))
            made = plan.make_plan(op, inputs, dim, dtype)
        return lambda: made(*inputs)

    def timed(self, case: Case, problem: Problem, choices: list[Choice], timer) -> dict:
        """Check and time a case: a line of the file."""
        from softmax_bench import measure, providers

        def median(call: Any) -> float:
            return round(measure.percentile(timer(call), 0.5), 3)

        tensors = self.runner.tensors(case)
        copy = providers.PREPARE["copy"](case, tensors)
        expected = self.call(case, tensors, None)()
        calls, times = [], [[] for _ in choices]
        for choice in choices:
            try:
                call = self.call(case, tensors, choice)
                _, error = measure.errors(call(), expected, case.dim, floor=0.01)  # pyright: ignore
                calls.append(call if error <= measure.TOLERANCE[case.dtype] else None)
            except Exception as error:
                calls.append(None)
                print(f"{case.id}: {choice}: {' '.join(str(error).split())[:200]}", flush=True)
        copies = []
        for _ in range(2):
            copies.append(median(copy))
            for call, of in zip(calls, times, strict=True):
                of.append(median(call) if call else None)
        encoded = [[each.kernel, list(each.how), *each[2:]] for each in choices]
        return {
            **{name: getattr(case, name) for name in FIELDS},
            "rows" if isinstance(problem.facts, Rows) else "columns": list(problem.facts),
            "traits": list(problem.traits),
            "copy": min(copies),
            "library": choices.index(problem.library()),
            "model": choices.index(problem.possible()[0]),
            "timed": [[choice, *of] for choice, of in zip(encoded, times, strict=True)],
        }


def distinct(plans: list[tuple[Case, Problem, list[Choice]]]) -> list[tuple[Case, Choice]]:
    """What has to be compiled, each kernel once."""
    kernels: dict[tuple, tuple[Case, Choice]] = {}
    for case, _, choices in plans:
        for choice in choices:
            key: tuple = case.op, case.direction, case.dtype, *choice[:4]
            if not choice.kernel.endswith("_rows"):
                key += tuple(size % 16 == 0 for size in case.shape) + (1 in case.shape,)
            kernels.setdefault(key, (case, choice))
    return list(kernels.values())


def run(options: Any) -> int:
    """Measure what the options ask for and is not in the file yet."""
    begin = time.monotonic()
    import torch

    from softmax_bench import measure, runner

    on_gpu = options.device == "cuda"
    device = device_of(torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 0)
    if options.shapes:
        options.seed, cases = LISTED, listed(Path(options.shapes))
    else:
        cases = select(options.seed, options.cells, device)
    out = Path(options.out)
    runs = load(out) if out.is_file() else []
    done = {cell.case.id for run in runs for cell in cells_of(run)}
    plans = []
    for case in cases:
        if case.id not in done and case.bytes <= options.most_bytes:
            problem = problem_of(case, device)
            plans.append((case, problem, tried(problem, options.wide)))
    bench = Bench(options.device)
    if options.part:
        runner.call_share(distinct(plans), options.part, bench.call, options.device)
        return 0
    timer = measure.CudaTimer(options.target_ms) if on_gpu else measure.WallTimer(2)
    if not runs or runs[-1]["seed"] != options.seed:
        found = runner.environment(options.device, options.commit, timer)
        environment = {name: found[name] for name in ENVIRONMENT}
        head = {"seed": options.seed, "unseen": options.unseen, "environment": environment}
        runs.append(head | {"cells": []})
    lines = runs[-1]["cells"]
    print(f"{len(plans)} cells, {sum(len(choices) for *_, choices in plans)} choices", flush=True)
    if options.processes > 1:
        command = [*sys.argv[1:], "--processes", "0"]
        runner.compile_ahead(command, options.processes, 0.6 * options.budget_seconds)
    for number, (case, problem, choices) in enumerate(plans, start=1):
        spent = time.monotonic() - begin
        if spent > options.budget_seconds:
            print(f"time is up: {len(plans) - number + 1} cells left")
            break
        line = bench.timed(case, problem, choices, timer)
        lines.append(tuned.pruned(line) if options.wide else line)
        reached = cell_of(line, device).reached(choices[0])
        shown = f"{reached:.3f} of the best" if reached else "no answer"
        print(f"[{spent:5.0f} s {number}/{len(plans)}] {case.id}: {shown}")
        if number % 10 == 0:
            tuned.write(out, runs)
    tuned.write(out, runs)
    print(report(cells_of(runs[-1])))
    return 0


# --- the report


def _mean_and_worst(values: Iterable[float | None]) -> str:
    known = [value for value in values if value]
    mean = geometric_mean(known)
    return f"{mean:6.3f} {min(known):6.3f}" if mean else "     –      –"


def report(cells: list[Cell], worst: int = 25) -> str:
    """The tables for the terminal: what library and model reach by kind of cell, the worst cells of
    each, and what every constant would give with another value."""
    choosers = {
        "library": [cell.problem.library() for cell in cells],
        "model": [cell.problem.possible()[0] for cell in cells],
    }
    kinds: dict[str, list[int]] = {"all": list(range(len(cells)))}
    changes: dict[str, list[float]] = {}
    for at, cell in enumerate(cells):
        kinds.setdefault(", ".join(tuned.kind(cell.line)), []).append(at)
        own = cell.time(choosers["library"][at])
        for label, choice in by_constants(cell.problem).items():
            if (other := cell.time(choice)) and own:
                changes.setdefault(label, []).append(own / other)
    reached = {
        who: [cell.reached(choice) for cell, choice in zip(cells, choices, strict=True)]
        for who, choices in choosers.items()
    }
    lines = [f"{'share of the best found':<48} cells library  worst   model  worst"]
    for kind, members in kinds.items():
        shown = [_mean_and_worst(reached[who][at] for at in members) for who in choosers]
        lines.append(f"{kind:<48} {len(members):5}  {'  '.join(shown)}")
    for who, choices in choosers.items():
        lines.append(f"\nworst {worst} of the {who}")
        for at in sorted(kinds["all"], key=lambda at: reached[who][at] or 1.0)[:worst]:
            cell, best = cells[at], cells[at].best
            lines.append(
                f"{reached[who][at] or 0:6.3f} {cell.time(choices[at]) or 0:8.2f} µs, best "
                f"{cell.line['timed'][best][2]:8.2f}, copy {cell.line['copy']:8.2f} {cell.case.id}"
                f"\n       {short(choices[at])}  →  {short(cell.choices[best])}"
            )
    lines.append("\nother constants: speed over the library's, where it makes a difference")
    for label, values in sorted(changes.items()):
        lines.append(f"{label:<52} {len(values):3} {_mean_and_worst(values)} {max(values):6.3f}")
    return "\n".join(lines)


def short(choice: Choice) -> str:
    """A choice in a few characters."""
    how = " ".join(f"{name}={int(value)}" for name, value in choice.how._asdict().items() if value)
    rest = f" registers={choice.max_registers}" if choice.max_registers else ""
    return f"{choice.kernel} {how} warps={choice.num_warps}{rest}"
