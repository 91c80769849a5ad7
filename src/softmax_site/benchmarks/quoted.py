"""The numbers that pages quote, by name; `values` says how a page writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median
from types import SimpleNamespace as Names
from typing import Any

from softmax_bench import targets, traffic
from softmax_bench.report import LEVEL, by_case, gbs, looped, ratio, timed, warm
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, RUNGS, label_of
from softmax_site import equations, source
from softmax_site.benchmarks import attention, profiled, ranks, rungs, training
from softmax_site.benchmarks.data import (
    given,
    gpu_of,
    is_odd,
    measurements,
    n_cols,
    of_suite,
    read,
    time_text,
)
from softmax_site.benchmarks.stand import Stand, of_rows, over_best
from softmax_site.benchmarks.tables import Group, present, share_of, some
from softmax_site.benchmarks.values import UNSAID, Values
from softmax_site.benchmarks.words import listed
from softmax_site.figures import moving, share

AS_THEY_ARE = {
    "gpu_tests": "docs/benchmarks/gpu-tests.json",  # the last run of those that need a GPU
    "mutants": "docs/reference/mutants.json",  # planted mistakes: `tests/mutate.py`
    "page_mutants": "docs/reference/page-mutants.json",  # those of pages: `tests/mutate_pages.py`
    "invariant": "docs/benchmarks/invariant.json",  # what batch invariance costs
    "pace": "docs/benchmarks/pace.json",  # why launches have two speeds
    "counters": profiled.FILE,  # what Nsight Compute reads of calls; `profile` by calls
    "rounding": "docs/_computed/rounding.json",  # what each choice of arithmetic costs
    "worked": equations.WORKED,  # matrices in LaTeX
}
"""Files that are quoted as they are."""

ARTICLE = ("two_loops", "single_block", "torch")
"""Whom the article compares: its multi-block kernel and its single-block kernel, as they are here,
and torch."""

TUTORIAL_COLUMNS = 128 * 49
"""The longest rows of the first tutorial's plot."""

TINY_BYTES = 2**16
"""What the smallest tensors read and write, at most."""

# Single pages


def memory(rows: list[dict]) -> dict[str, Values]:
    """By provider, what a call with its gradient takes beside the logits, in their size."""
    found: dict[str, Values] = {}
    for row in rows:
        if row["direction"] == "forward_backward" and row.get("peak_bytes"):
            of_logits = row["peak_bytes"] / (row["bytes"] / 2)
            found.setdefault(row["provider"], Values()).append(of_logits)
    return found


def beside_clusters(data: dict) -> Stand:
    """Split rows against QuACK, where that has an answer."""
    return Stand(given(data, "split_rows"), lambda g: "quack" if ratio(g, "quack") else None)


def right_answers(rows: list[dict]) -> Names:
    """How many answers there are, and how many of them are right, by provider."""
    right = Counter(row["provider"] for row in rows if row["status"] == "ok")
    wrong = Counter(row["provider"] for row in rows if row["status"] == "wrong")
    shortest = min(map(n_cols, rows))
    return Names(cases=len(by_case(rows)), of=right, answers=right + wrong, shortest=shortest)


def ladder(rows: list[dict]) -> Names:
    """How near to the copy each rung comes, and where the library's choice is not the best rung."""
    groups = list(by_case(rows).values())
    of = {
        name: Values(share for group in groups if (share := share_of(group, name)))
        for name in (*RUNGS, CHOOSER)
    }

    def best_rung(group: Group) -> str | None:
        found = {name: us for name in RUNGS if (us := timed(group.get(name)))}
        return min(found, key=lambda name: found[name], default=None)

    return Names(of=of, choice=Stand(groups, best_rung))


def fastest_copy(rows: list[dict]) -> dict[str, float]:
    """For each case, how long the fastest copy of its direction and type takes for its bytes."""
    copies = [row for row in rows if row["provider"] == COPY]
    best: dict[tuple, float] = {}
    for row in copies:
        key = row["direction"], row["dtype"]
        best[key] = max(best.get(key, 0.0), gbs(row) or 0.0 if timed(row) else 0.0)
    return {
        row["case"]: row["bytes"] / best[row["direction"], row["dtype"]] / 1e3 for row in copies
    }


def gaps(rows: list[dict]) -> Names:
    """What the copy of rows with gaps reaches of one without, where that is less than 0.9, and what
    ours would read against it."""
    reached, against = Values(), Values()
    without = fastest_copy(rows)
    for case, group in by_case(rows).items():
        copy, ours = timed(group.get(COPY)), timed(group.get(CHOOSER))
        if copy and ours and group[COPY]["layout"] == "row_strided" and without[case] < 0.9 * copy:
            reached.append(without[case] / copy)
            against.append(copy / ours)
    return Names(reached=reached, against=against)


def gain(rows: list[dict]) -> Names:
    """The gain over the naive lines in time and in bytes, and how fast each moves its bytes."""
    found = Names(**{name: Values() for name in ("time", "bytes", "ours", "naive")})
    for group in by_case(rows).values():
        copy, ours, lines = (timed(group.get(name)) for name in (COPY, CHOOSER, "naive"))
        if copy and ours and lines and n_cols(group[CHOOSER]) <= TUTORIAL_COLUMNS:
            fewer = traffic.best_gain(group[CHOOSER]["shape"][0], n_cols(group[CHOOSER]))
            found.time.append(lines / ours)
            found.bytes.append(fewer)
            found.ours.append(copy / ours)
            found.naive.append(fewer * copy / lines)
    found.cases = len(found.time)
    return found


def spans(lengths: list[int], holds: Callable[[int], bool]) -> str:
    """The runs of measured lengths for which something holds, as words.

    >>> spans([256, 384, 512, 640, 768], lambda n: n in (256, 640, 768))
    '256 and 640 to 768'
    >>> spans([256, 384], lambda n: False)
    'none'
    """
    found = [list(run) for held, run in groupby(lengths, holds) if held]
    words = [f"{run[0]:,}" + (f" to {run[-1]:,}" if len(run) > 1 else "") for run in found]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words) or "none"


def article(rows: list[dict]) -> Names:
    """The article's kernels on its lengths: where one is faster than another, and how fast they
    are."""
    groups = {n_cols(some(group)): group for group in by_case(rows).values()}
    us = {
        n: {name: timed(group.get(name)) or 0.0 for name in ARTICLE}
        for n, group in sorted(groups.items())
        if all(timed(group.get(name)) for name in ARTICLE)
    }
    speed = {n: gbs(groups[n]["two_loops"]) or 0.0 for n in us}
    fastest = max(us, key=lambda n: speed[n])

    def faster(one: str, other: str) -> str:
        return spans(list(us), lambda n: us[n][one] < us[n][other])

    return Names(
        torch_over_two_loops=faster("torch", "two_loops"),
        torch_over_single_block=faster("torch", "single_block"),
        two_loops_over_single_block=faster("two_loops", "single_block"),
        fastest=fastest,
        fastest_speed=speed[fastest],
        longest=max(us),
        longest_speed=speed[max(us)],
    )


def host(rows: list[dict]) -> dict[str, Names]:
    """The time of a call on the host, ours and torch's, by direction."""
    groups = by_case(rows).values()
    return {
        some(group)["direction"]: Names(ours=timed(group[CHOOSER]), torch=timed(group["torch"]))
        for group in groups
    }


def eager(data: dict) -> Names:
    """From how many rows of 1,024 numbers on a call takes the GPU longer than the host."""
    (host,) = by_case(of_suite(data, "host_time", direction="forward")).values()
    groups = by_case(of_suite(data, "batch", direction="forward")).values()

    def first(name: str) -> int:
        longer = (group for group in groups if (timed(group[name]) or 0) > (timed(host[name]) or 0))
        return min(some(group)["shape"][0] for group in longer)

    return Names(ours=first(CHOOSER), torch=first("torch"))


def in_a_loop(rows: list[dict]) -> Names:
    """In how many calls ours takes longer than the best other library in a loop, in which the host
    may be the slower one, and how many times as long at most."""
    ours = of_rows(rows).values(partial(over_best, time=looped))
    return Names(cases=len(ours), slower=sum(each < 1 - LEVEL for each in ours), most=1 / ours.low)


def answered_torch(group: Group) -> str | None:
    """PyTorch, where it has a time."""
    return "torch" if timed(group.get("torch")) else None


LOGITS = [4185, 128_256]
"""Whose loss the home page shows: the vocabulary of Llama 3."""


def front_loss(data: dict) -> list[dict]:
    """The rows of the loss that the home page shows: cross-entropy with its gradient."""
    asked = {"op": "cross_entropy", "direction": "forward_backward", "dtype": "bfloat16"}
    rows = of_suite(data, "loss_head", inputs="normal", **asked)
    shown = [row for row in rows if row["shape"] == LOGITS and timed(row)]
    return sorted(shown, key=lambda row: timed(row) or 0.0)


def time_and_memory(rows: list[dict]) -> dict[str, Names]:
    """The time of each provider, and its peak memory beside the inputs in GiB."""
    return {
        row["provider"]: Names(us=us, ms=us / 1e3, gib=row["peak_bytes"] / 2**30)
        for row in rows
        if (us := timed(row))
    }


# Shapes drawn at random


def compiler_ran(group: Group) -> bool:
    """Whether torch.compile was asked for this case, and has a time."""
    return bool(group.get("torch.compile", {}).get("us"))


class Drawn(Stand):
    """How ours stands in the cells that the seed drew."""

    @property
    def seed(self) -> int:
        """What drew them."""
        return self.groups[0][CHOOSER]["seed"]

    def _part(self, holds: Callable[[Group], object]) -> Stand:
        return Stand(group for group in self.groups if holds(group))

    columns = property(lambda self: self._part(lambda group: group[CHOOSER]["dim"] != -1))
    compiled = property(lambda self: self._part(compiler_ran))
    uncompiled = property(lambda self: self._part(lambda group: not compiler_ran(group)))
    compiled_backward = property(
        lambda self: self._part(
            lambda group: compiler_ran(group) and group[CHOOSER]["direction"] == "backward"
        )
    )
    small = property(lambda self: self._part(partial(over_best, time=warm)))
    warm = property(lambda self: self.small.values(partial(over_best, time=warm)))

    @property
    def wrong(self) -> dict[str, int]:
        """How many answers of each other library are wrong."""
        rows = [row for group in self.groups for row in group.values()]
        wrong = Counter(row["provider"] for row in rows if row["status"] == "wrong")
        return {name: wrong[name] for name in LIBRARIES}

    def of_kernel(self, name: str) -> Stand:
        """How ours stands where a kernel runs."""
        return self._part(lambda group: f"{name}_kernel" in group[CHOOSER]["kernels"])

    @property
    def tiny(self) -> Names:
        """Medians over the smallest tensors, in µs, of ours and of a copy, cold and warm."""
        rows = [
            (group[CHOOSER], group[COPY])
            for group, _ in self.compared
            if group[CHOOSER]["bytes"] <= TINY_BYTES
            and all(map(warm, (group[CHOOSER], group[COPY])))
        ]
        cold, copied = (median(pair[at]["us"]["p50"] for pair in rows) for at in (0, 1))
        hot, copied_hot = (median(warm(pair[at]) or 0.0 for pair in rows) for at in (0, 1))
        found = {"cold": cold, "copied": copied, "hot": hot, "copied_hot": copied_hot}
        apart = {"fetching": cold - hot, "softmax": hot - copied_hot}
        return Names(count=len(rows), kibibytes=TINY_BYTES // 1024, **found, **apart)


# By name


def machine(rows: list[dict]) -> Names:
    """What some rows were measured on, and beside whom."""
    run = rows[0]["environment"]
    torch, triton = (".".join(run[name].split(".")[:2]) for name in ("torch", "triton"))
    return Names(
        gpu=gpu_of(rows),
        versions=f"torch {torch}, Triton {triton}",
        day=time_text(max(row["utc"] for row in rows)).split()[0],
        libraries=listed(map(label_of, present(rows, LIBRARIES))),
    )


def run_words(rows: list[dict]) -> str:
    """The GPU that some rows were measured on, and when the runs began, as below tables: two may be
    of one day.

    >>> started = ["2026-11-29T12:35:37Z", "2026-11-29T03:07:19Z"]
    >>> run_words([{"environment": {"gpu": "NVIDIA H200", "started": each}} for each in started])
    'H200, 2026-11-29 03:07 and 2026-11-29 12:35 UTC'
    """
    starts = sorted({time_text(row["environment"]["started"]) for row in rows})
    return f"{gpu_of(rows)}, {listed(starts)} UTC"


def runs(rows: list[dict]) -> str:
    """How many runs there are, and of which GPUs."""
    count, gpus = len({row["environment"]["started"] for row in rows}), gpu_of(rows)
    return f"one run, on an {gpus}" if count == 1 else f"{count} runs, on {gpus} GPUs"


def asked(rows: list[dict]) -> Names:
    """How many targets were set, and how many are missed."""
    cells = targets.cells(rows)
    return Names(of=len(cells), missed=sum(not cell.met for cell in cells))


class Quoted(dict[str, Any]):
    """Every name that a page may use, each made when it is first asked for."""

    def __init__(self, root: Path, data: dict) -> None:
        self.unsaid = frozenset(read(root, UNSAID, []))

        def rows(*suites: str, **fields) -> list[dict]:
            return [row for suite in suites for row in of_suite(data, suite, **fields)]

        def grid(holds: Callable[[dict], bool] = lambda row: True) -> Stand:
            return of_rows(row for row in rows("forward", "backward") if holds(row))

        present_suites = dict.fromkeys(row["suite"] for row in data["rows"])
        suites = ("forward", "backward", "few_rows", "log_softmax", "strided", "loss_head")
        self.make: dict[str, Callable[[], Any]] = {
            **{name: lambda name=name: of_rows(rows(name)) for name in (*suites, "longest")},
            **{name: lambda path=path: read(root, path) for name, path in AS_THEY_ARE.items()},
            "grid": grid,
            "odd": lambda: grid(is_odd),
            "even": lambda: grid(lambda row: not is_odd(row) and n_cols(row) <= 65536),
            "shared": lambda: grid(lambda row: not is_odd(row) and n_cols(row) >= 131072),
            "other_dimensions": lambda: of_rows(rows("strided", layout="contiguous")),
            "cross_entropy": lambda: of_rows(rows("loss_head", op="cross_entropy")),
            "few_rows_in_a_loop": lambda: in_a_loop(rows("few_rows")),
            "compiled": lambda: Stand(by_case(rows("compiled")).values(), answered_torch),
            "memory": lambda: memory(rows("loss_head", op="cross_entropy", inputs="normal")),
            "linear_loss": lambda: time_and_memory(rows("loss_head", op="linear_cross_entropy")),
            "front": lambda: of_rows(rows(share.SUITE, dtype=share.DTYPE)),
            "front_loss": lambda: time_and_memory(front_loss(data)),
            "logits": lambda: " × ".join(f"{size:,}" for size in LOGITS),
            "accuracy": lambda: right_answers(rows("accuracy")),
            "ladder": lambda: ladder(rows("ladder")),
            "gaps": lambda: gaps(rows("strided")),
            "gain": lambda: gain(rows("article")),
            "article": lambda: article(rows("article")),
            "sources": lambda: Stand(by_case(rows("article", "batch")).values(), answered_torch),
            "batch": lambda: {
                way: Stand(by_case(rows("batch", direction=way)).values(), lambda group: "torch")
                for way in ("forward", "backward")
            },
            "host": lambda: host(rows("host_time")),
            "eager": lambda: eager(data),
            "random": lambda: Drawn(by_case(rows("random")).values()),
            "drawn": lambda: {name: self["random"].of_kernel(name) for name in rungs.STRIDED},
            "targets": lambda: asked(data["rows"]),
            "loss_head_targets": lambda: asked(rows("loss_head")),
            "profile": lambda: profiled.Profiles(root, data["rows"]),
            "split_rows": lambda: beside_clusters(data),
            "rung": lambda: {name: rungs.Rung(data, name) for name in rungs.NAMES},
            "machine": lambda: machine(rows("forward", "backward")),
            "runs": lambda: runs(data["rows"]),
            "run_of": lambda: {name: run_words(rows(name)) for name in present_suites},
            "machine_of": lambda: {"ladder": machine(rows("ladder"))},
            "gpus": lambda: gpu_of(data["rows"]),
            "ranks": lambda: ranks.quoted(ranks.read(root) or {}),
            "attention": lambda: attention.quoted(root),
            "training": lambda: training.quoted(root),
            "one_row": lambda: moving.one_row(root),
        }

    def __missing__(self, name: str) -> Any:
        self[name] = value = self.make[name]()
        return value


@source.kept
def load(root: Path) -> Quoted:
    """The names, with the data."""
    return Quoted(root, measurements(root))
