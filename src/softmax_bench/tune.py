"""How far the library's choices are from the best that can be found: `python -m softmax_bench
tune`.

Cells are drawn from a seed as in the suite `random`, or named by a file (`--shapes`). Each is
launched as the library would, as its model would, and in `--wide` more of the ways that
[`config.space`][triton_softmax.config.space] allows, spread over the order that the model gives
them. Every answer is compared with the library's and timed with a cold cache, in two rounds: the
first says which is best, the second how fast it is, so that luck is not taken for speed.

The file keeps choices with their times. So `--report` needs no GPU, and judges the library as it is
today.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import tuned
from softmax_bench.case import Case
from softmax_bench.problem import Problem, choosing, device_of, problem_of
from softmax_bench.random_shapes import draw
from softmax_bench.report import Cell as Line
from softmax_bench.report import by_kind
from softmax_bench.schema import DataError
from softmax_bench.tuned import LISTED
from triton_softmax.config import Choice, Device
from triton_softmax.config.space import RowTile, SplitRows, SplitStrided, StridedTile, TwoPass

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

SMALL_BYTES = 24 * 2**20
"""Tensors that are copied within 10 µs, about."""


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


def tried(problem: Problem, wide: int) -> list[Choice]:
    """All choices to be timed, the library's first, then the model's; and `wide` more of all that
    are possible, spread evenly over the model's order."""
    order = problem.possible()
    spread = order[:: max(1, len(order) // wide)][: wide + 1] if wide else []
    return list(dict.fromkeys([problem.library(), order[0], *spread]))


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
    choices = [
        Choice(kernel, CONSTANTS[kernel](*how), *rest) for (kernel, how, *rest), *_ in line["timed"]
    ]
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


# --- measuring


def call(case: Case, choice: Choice | None, tensors: Any) -> Callable[[], Any]:
    """A call without arguments that launches a choice; None is the library's."""
    from softmax_bench import providers
    from triton_softmax import plan

    given = providers.arguments(case, tensors)
    with contextlib.nullcontext() if choice is None else choosing(lambda *_: choice):
        made = plan.make_plan(*given)
    return lambda: made(*given[1])


def timed(case: Case, choices: list[Choice], tensors: Any, timer: Any) -> dict:
    """Check and time the choices of a case: a line of the file."""
    from softmax_bench import measure, providers

    def median(each: Any) -> float | None:
        return each and round(measure.percentile(timer(each), 0.5), 3)

    copy = providers.copy(case, tensors)
    expected = call(case, None, tensors)()
    calls: list[Any] = []
    for choice in choices:
        try:
            made = call(case, choice, tensors)
            _, error = measure.errors(made(), expected, case.dim, floor=0.01)
            calls.append(made if error <= measure.TOLERANCE[case.dtype] else None)
        except Exception as error:
            calls.append(None)
            print(f"{case.id}: {choice}: {' '.join(str(error).split())[:200]}", flush=True)
    (copied, *first), (again, *second) = ([median(c) for c in (copy, *calls)] for _ in range(2))
    encoded = [[each.kernel, list(each.how), *each[2:]] for each in choices]
    return {
        **{name: getattr(case, name) for name in FIELDS},
        "copy": min(copied or 0.0, again or 0.0),
        "timed": [list(each) for each in zip(encoded, first, second, strict=True)],
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


def run(options: Any) -> None:
    """Measure what the options ask for and is not in the file yet."""
    import torch

    from softmax_bench import inputs, measure, results, warmup

    on_gpu, out = options.device == "cuda", Path(options.out)
    device = device_of(torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 0)
    if options.shapes:
        options.seed, cases = LISTED, listed(Path(options.shapes))
    else:
        cases = select(options.seed, options.cells, device)
    runs = tuned.read(out) if out.is_file() else []
    done = {cell.case.id for run in runs for cell in cells_of(run)}
    plans = []
    for case in cases:
        if case.id not in done and case.bytes <= options.most_bytes:
            asked = problem_of(case, device)
            plans.append((case, asked, tried(asked, options.wide)))
    timer = measure.timer_of(options.device, options.target_ms)
    if not runs or runs[-1]["seed"] != options.seed:
        found = results.environment(options.device, options.commit, timer)
        environment = {name: found[name] for name in ENVIRONMENT}
        head = {"seed": options.seed, "unseen": options.unseen, "environment": environment}
        runs.append(head | {"cells": []})
    lines = runs[-1]["cells"]
    print(f"{len(plans)} cells, {sum(len(choices) for *_, choices in plans)} choices", flush=True)
    if on_gpu and options.processes > 1:
        warmup.compile_ahead(call, distinct(plans), options.processes)
    maker = inputs.Inputs(options.device, seed=0)
    try:
        for number, (case, asked, choices) in enumerate(plans, start=1):
            line = timed(case, choices, maker.tensors(case), timer)
            chosen = asked.library(), asked.possible()[0]
            line |= dict(zip(tuned.CHOOSERS, map(choices.index, chosen), strict=True))
            lines.append(tuned.pruned(line) if options.shapes else line)
            reached = tuned.share(line["timed"], 0)
            shown = f"{reached:.3f} of the best" if reached else "no answer"
            print(f"[{number}/{len(plans)}] {case.id}: {shown}", flush=True)
    finally:  # also when someone stops it
        tuned.write(out, runs)
    print(report(cells_of(runs[-1])))


# --- the report


def report(cells: list[Cell]) -> str:
    """For the terminal: what library and model, as they are today, reach of the best speed."""
    lines = []
    for cell in cells:
        choices = cell.problem.library(), cell.problem.possible()[0]
        best = cell.choices[tuned.best(cell.line["timed"])]
        shown = [f"{short(each)}, {cell.time(each) or 0:.2f} µs" for each in (*choices, best)]
        words = f"{cell.case.id}: {shown[0]}; model {shown[1]}; best {shown[2]}"
        kinds = "all", ", ".join(tuned.kind(cell.line))
        lines.append(Line(kinds, tuple(map(cell.reached, choices)), words))
    return "\n".join(by_kind(("the library", "the model"), lines))


def short(choice: Choice) -> str:
    """A choice in a few characters."""
    how = " ".join(f"{name}={int(value)}" for name, value in choice.how._asdict().items() if value)
    rest = f" registers={choice.max_registers}" if choice.max_registers else ""
    return f"{choice.kernel} {how} warps={choice.num_warps}{rest}"
