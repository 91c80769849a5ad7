"""What the project keeps account of: targets met and missed, machines, versions, tests."""

from __future__ import annotations

from html import escape
from pathlib import Path

from softmax_bench import gpu_report, launches, targets
from softmax_bench.report import ratio
from softmax_bench.roster import CHOOSER, label_of
from softmax_site.benchmarks.data import case_words, gpu_of, n_cols, of_suite, read, time_text
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, Measured, block, origin, shown
from softmax_site.benchmarks.profiled import Profiles
from softmax_site.benchmarks.stand import of_rows
from softmax_site.benchmarks.tables import Row, share_of, share_text, table, why
from softmax_site.benchmarks.values import faults, filled
from softmax_site.benchmarks.views import HOST_CALLS
from softmax_site.benchmarks.words import bound, link, missed, reason_groups, verdict

TESTS = "docs/benchmarks/gpu-tests.json"
SANITIZER = "docs/benchmarks/sanitizer/run.json"


def with_target(data: dict) -> tuple[list[targets.Cell], dict[str, dict]]:
    """Every target, and our rows that have one, by case."""
    cells = targets.cells(data["rows"])
    ours = {row["case"]: row for row in data["rows"] if row["provider"] == CHOOSER}
    return cells, {cell.case: ours[cell.case] for cell in cells}


def targets_fragment(data: dict) -> Fragment:
    """The targets, met and missed."""
    every, of_case = with_target(data)
    wanted: dict[tuple[str, str], list[targets.Cell]] = {}
    for cell in every:
        wanted.setdefault((cell.regime, cell.asked), []).append(cell)
    body = []
    for (regime, asked), cells in sorted(wanted.items(), key=lambda item: _place(item[0][0])):
        met, worst = sum(cell.met for cell in cells), min(cells, key=lambda cell: cell.margin)
        tick = _tick(met == len(cells), f"{met}\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}{len(cells)}")
        body.append([regime, tick, bound(asked), worst.reached, _where(of_case[worst.case])])
    suites = ("forward", "backward", "few_rows")
    stand = of_rows(row for row in data["rows"] if row["suite"] in suites)
    for factors, name, least in (
        (stand.factors, "the best other library", targets.OVER_BEST_PEER),
        (stand.values(lambda group: ratio(group, "torch")), "torch", targets.OVER_TORCH),
    ):
        if factors:
            asked = f"geometric mean over {name} ≥ {least}"
            tick = _tick(factors.mean >= least, f"{factors.mean:.2f}")
            where = [f"lowest {min(factors):.2f}", f"{len(factors)} cases"]
            body.append(["forward, backward and few rows", tick, asked, *where])
    head = ["calls", "met, of all", "asked for", "worst", "where"]
    return shown(table(head, body, 5), list(of_case.values()))


def missed_fragment(data: dict, reasons: dict[str, str], profiles: Profiles) -> Fragment:
    """The cells that missed, worst first, gathered below the reasons that they share; these may
    quote what counters say of all of them, where they were read."""
    every, of_case = with_target(data)
    below = [cell for cell in every if not cell.met]
    by_reason: dict[str, list[targets.Cell]] = {}
    for cell in sorted(below, key=lambda cell: cell.margin):
        reason = targets.reason_for(cell.case, reasons) or "Not explained yet."
        by_reason.setdefault(reason, []).append(cell)
    body = []
    for reason, cells in by_reason.items():
        listed = []
        for cell in cells:
            pair = bound(cell.asked), cell.reached
            asked, reached = (text.removesuffix(" of the copy") for text in pair)
            listed.append(f"{_where(of_case[cell.case])} {missed(reached)} ({asked})")
        names = profiles.of([cell.case for cell in cells])
        why = filled(reason, names, unsaid=[what for what, _ in faults(reason, names)])
        body.append(f"<dt>{why}</dt><dd>{'<br>'.join(listed)}</dd>")
    told = block(f'<dl class="bench-missed">{"".join(body)}</dl>')
    return Fragment(f"{told}\n\n{origin(list(of_case.values()))}")


WEAK = (
    *("forward", "backward", "few_rows", "log_softmax", "strided", "longest", "host_time"),
    "random",
)
"""Suites whose worst cells are gathered on the first page."""


def weak_fragment(data: dict) -> Fragment:
    """The worst cells of each suite, by the best other library and by the copy."""
    body, rows = [], []
    for suite in WEAK:
        stand = of_rows(of_suite(data, suite))
        without_gaps = of_rows(of_suite(data, suite, layout="contiguous"))
        picked = [stand.worst] if stand.behind else []
        if min(without_gaps.of_copy, default=1.0) < 0.9:
            picked.append(without_gaps.slowest)
        for row, group in {each.row["case"]: (each.row, each.group) for each in picked}.values():
            body.append([_where(row), verdict(group), share_text(share_of(group))])
            rows += group.values()
    head = ["where", "against the best other", "of a copy"]
    return Fragment(f"{block(table(head, body, 2), hidden=False)}\n\n{origin(rows)}")


ORDER = ("many rows, N up", "many rows, N above", "few rows", "dim", "host", "compiles")


def _place(regime: str) -> tuple[int, bool]:
    """Where a kind of target stands: forward before backward."""
    at = next((at for at, start in enumerate(ORDER) if regime.startswith(start)), len(ORDER))
    return at, regime.endswith("backward")


def _tick(met: bool, text: str) -> str:
    css, mark = ("ahead", "✓") if met else ("behind", "✗")
    return f'<span class="{css}">{mark}\N{NO-BREAK SPACE}{text}</span>'


def _where(row: dict) -> str:
    """The case in words, linked to its row, where a page shows it."""
    if row["suite"] == "compiles":
        return f"{row['direction']}, {row['dtype']}, 1,000 lengths"
    if row["suite"] == "host_time":
        return link(row, f"one call on the host, {HOST_CALLS[row['direction']]}")
    if row["suite"] == "random":  # whose page has a row of the worst alone
        return f'<a href="/benchmarks/random/#the-worst-ten">{escape(case_words(row))}</a>'
    return link(row, case_words(row))


FIELDS = {
    "gpu": "GPU",
    "gpu_memory_bytes": "memory, bytes",
    "multiprocessors": "multiprocessors",
    "l2_bytes": "L2 cache, bytes",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "triton": "triton",
    "python": "Python",
    "system": "system",
    "commit": "commit",
    "started": "started, UTC",
    "timer": "timer",
    "flush_bytes": "bytes written between calls",
}


def environment_fragment(data: dict) -> Fragment:
    """The machines and the versions, a column for each run."""
    runs: dict[str, dict] = {}
    suites: dict[str, dict[str, None]] = {}
    for row in data["rows"]:
        started = row["environment"]["started"]
        runs[started] = row["environment"]
        suites.setdefault(started, {})[row["suite"].replace("_", " ")] = None
    runs = dict(sorted(runs.items()))
    body = [["suites", *(", ".join(suites[started]) for started in runs)]]
    for key, title in FIELDS.items():
        body.append([title, *(_value(key, env[key]) for env in runs.values())])
    for peer in dict.fromkeys(peer for env in runs.values() for peer in env["peers"]):
        versions = (env["peers"].get(peer) or "not installed" for env in runs.values())
        body.append([label_of(peer), *versions])
    # Below it the page says itself what has changed since.
    return shown(table(["", *map(time_text, runs)], body, 1 + len(runs)))


def files_fragment(root: Path) -> Fragment:
    """The files of the data, each with the machine and the day of its run."""
    links = []
    for path in sorted((root / launches.DATA).glob("*.json")):
        run = launches.read_rows(path)
        env = run[0]["environment"]
        words = f"{gpu_of(run)}, {time_text(env['started'])} UTC"
        links.append(f"[{words}](/{launches.DATA.removeprefix('docs/')}/{path.name})")
    return Fragment(f"The data, a file for each run: {'; '.join(links)}.\n")


def launched_fragment(root: Path) -> Fragment:
    """How many measured calls launch something else than then."""
    committed, counts = launches.read(root), []
    for over_gpus in (False, True):
        calls = {cell for cell in committed.today if cell.startswith("ranks/") == over_gpus}
        counts.append(f"{len(calls & committed.changed):,} of {len(calls):,}")
    said = f"Of our measured calls {counts[0]} launch something else today, and {counts[1]} over"
    return Fragment(f"{said} several GPUs.\n")


def _value(key: str, value) -> str:
    text = f"{value:,}" if isinstance(value, int) else escape(str(value))
    return f"<code>{text[:12]}</code>" if key == "commit" else text


def reasons_fragment(data: dict) -> Fragment:
    """One line for each limit of a library, however many messages say it."""
    merged: dict[tuple, list[tuple[str, list[dict]]]] = {}
    for provider, state, reason, rows in reason_groups(data["rows"]):
        merged.setdefault((provider, state), []).append((reason, rows))
    lines = []
    for (provider, state), items in merged.items():
        rows = [row for _, some in items for row in some]
        lengths = sorted(map(n_cols, rows))
        suites = dict.fromkeys(row["suite"].replace("_", " ") for row in rows)
        said = "<br>".join(f"<q>{escape(reason)}</q>" for reason, _ in items)
        span = " … ".join(dict.fromkeys(f"{lengths[at]:,}" for at in (0, -1)))
        counted = f"{state.replace('_', ' ')}, {len(rows)} rows"
        cells = [label_of(provider), counted, said, ", ".join(suites), span]
        lines.append(Row(cells, f'id="{why(rows[0]).partition("#")[2]}"'))
    head = ["library", "what became of it", "what it said", "where", "lengths"]
    return shown(table(head, lines, 5))


def gpu_tests_fragment(root: Path) -> Fragment:
    """The last run of the GPU tests in a sentence and by module, with what the code was then."""
    data = read(root, TESTS)
    if data is None:
        return Fragment("No run of the GPU tests is recorded yet.\n")
    body = [[f"<code>{name}</code>", *map(str, counts)] for name, counts in data["modules"].items()]
    counts = block(table(["test module", "passed", "failed", "skipped"], body))
    failed = "".join(f"* `{name}`\n" for name in data["failures"])
    more = f"\n\nFailed:\n\n{failed}" if failed else "\n"
    return Fragment(f"{gpu_report.sentence(data)}\n\n{counts}{more}", Measured(data["utc"]))


def sanitizer_fragment(root: Path) -> Fragment:
    """Which code the sanitizer saw, and when."""
    run = read(root, SANITIZER)
    if run is None:
        return Fragment("No run of the sanitizer is recorded yet.\n")
    text = f"Last run: commit `{run['commit'][:12]}`, {time_text(run['utc'])} UTC.\n"
    return Fragment(text, Measured(run["utc"]))


def fragments(root: Path, data: dict, reasons: dict[str, str]) -> dict[str, Fragment]:
    """The pages on targets and on the environment, by the name of their fragment."""
    of_data = {
        "bench-targets": lambda: targets_fragment(data),
        "targets-missed": lambda: missed_fragment(data, reasons, Profiles(root, data["rows"])),
        "weak-cells": lambda: weak_fragment(data),
        "bench-environment": lambda: environment_fragment(data),
        "data-files": lambda: files_fragment(root),
        "bench-launched": lambda: launched_fragment(root),
        "bench-reasons": lambda: reasons_fragment(data),
    }
    return {
        **{name: make() if data["rows"] else NOT_MEASURED for name, make in of_data.items()},
        "gpu-tests": gpu_tests_fragment(root),
        "sanitizer": sanitizer_fragment(root),
    }
