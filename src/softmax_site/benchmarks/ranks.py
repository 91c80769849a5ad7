"""Rows that are cut over several GPUs: what was measured, and the formula of the page beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace as Names
from typing import NamedTuple

from softmax_bench import launches
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.charts import Column, Series, over_columns
from softmax_site.benchmarks.data import read as read_json
from softmax_site.benchmarks.page import NOT_MEASURED, Fragment, Measured, block, of_run
from softmax_site.benchmarks.tables import Row, folded, table
from softmax_site.benchmarks.values import Values
from softmax_site.benchmarks.words import sign

FILE = "docs/benchmarks/ranks.json"
"""What `softmax_bench.ranks` wrote, a run for each number of ranks."""

SOFTMAX, LOSS = "softmax", "cross-entropy"

PUSHED = "words pushed"
"""Softmax in one launch: measured where GPUs see each other's memory."""

INVARIANT = "batch-invariant"
"""Ours with the bits of one GPU."""

OTHERS = {
    SOFTMAX: {"softmax, DTensor of PyTorch": ("softmax of a DTensor", "torch")},
    LOSS: {
        "cross-entropy, Megatron-LM": ("Megatron-LM", "megatron"),
        "cross-entropy, Megatron-LM's formula": ("Megatron-LM's formula", "megatron"),
        "cross-entropy, TransformerEngine": ("TransformerEngine", "transformer_engine"),
        "cross-entropy, loss_parallel": ("loss_parallel", "torch"),
        "cross-entropy, gathered rows": ("gathered rows", "gathered"),
    },
}
"""Whom each function is compared with, by the name of the call: the page's name, and the mark."""

ITEMSIZE = 2
"""Bytes of an element: bfloat16."""


class Point(NamedTuple):
    """What was measured of one matrix over one number of ranks."""

    ranks: int
    rows: int
    columns: int
    """Of a rank's own part."""
    calls: dict[str, dict]
    total: int | None = None
    """Columns of a matrix of a fixed size, which the ranks share."""

    def us(self, call: str) -> float | None:
        """The median of a call on the slower rank, in µs; None if it did not run."""
        return self.calls.get(call, {}).get("us")

    def pace(self, call: str) -> float | None:
        """The time of a call back to back, or the longer of GPU and processor, in µs."""
        of = self.calls.get(call, {})
        return (us := of.get("us")) and of.get("sustained_us", max(us, of["host_us"]))

    def factor(self, call: str, time: Callable[..., float | None] = us) -> float | None:
        """How many times as fast ours is as the fastest of the others; None without both."""
        others = [found for other in OTHERS[call] if (found := time(self, other))]
        ours = time(self, call)
        return min(others) / ours if ours and others else None

    @property
    def memory(self) -> float:
        """Bytes that a copy moves in a second: each element read once and written once."""
        return 2 * self.rows * self.columns * ITEMSIZE / (self.calls["copy"]["us"] * 1e-6)

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.ranks} ranks, {self.rows:,} rows"


def points(data: dict, shared: bool = False) -> Iterator[Point]:
    """The points of all runs, of matrices that grow with the ranks or that the ranks share."""
    for run in data["runs"]:
        found: dict[tuple[int, int], Point] = {}
        for row in run["rows"]:
            if ("total" in row) == shared:
                new = Point(run["ranks"], row["rows"], row["columns"], {}, row.get("total"))
                found.setdefault((row["rows"], row["columns"]), new).calls[row["call"]] = row
        yield from found.values()


def spoken_of(data: dict) -> dict:
    """The run that sentences are made of: over two ranks."""
    return next((run for run in data["runs"] if run["ranks"] == 2), data["runs"][0])


def predicted_us(point: Point) -> float:
    """The formula of the page at a measured point: three passes at the rate of the copy there, and
    the message there."""
    passes = 3 * point.rows * point.columns * ITEMSIZE / point.memory
    return passes * 1e6 + point.calls["message"]["us"]


def _us(value: float | None) -> str:
    return f"{value:,.0f}" if value else "–"


def _origin(data: dict, shared: bool = False) -> str:
    """On what, when, and which code."""
    run = spoken_of(data)
    ranks = " and ".join(map(str, sorted({point.ranks for point in points(data, shared)})))
    return of_run(
        run,
        f"{ranks} GPUs of one machine ({run['gpu']}), over NCCL",
        "medians on the slowest rank, with nothing in the L2 cache before",
        *(
            f"{old['ranks']} GPUs with an older version of ours, commit `{old['commit']}`, which "
            "the sentences leave out"
            for old in data["runs"]
            if old["commit"] != run["commit"] and not shared
        ),
    )


def _fragment(data: dict, shown: str, below: str = "") -> Fragment:
    run = spoken_of(data)
    measured = Measured(f"{run['date']}T00:00:00Z", run["changed"], run["calls"])
    return Fragment(f"{block(shown)}\n{below}", measured)


def compared(data: dict, call: str) -> Fragment:
    """Ours, the part of a rank alone, and the others, at every point, as a chart and a table."""
    found = list(points(data))
    columns = {f"{call}, {PUSHED}": ("symmetric memory", "pushed")}
    columns |= {f"{call}, {INVARIANT}": ("batch-invariant", "invariant")}
    columns |= {f"{call}, part alone": ("its part alone", COPY), **OTHERS[call]}
    columns = {k: v for k, v in columns.items() if any(point.us(k) for point in found)}
    body, places = [], []
    for point in found:
        ours, us = point.calls[call], {name: point.us(name) for name in columns}
        low, high, mine, host = (
            _us(ours.get(name)) for name in ("us_p20", "us_p80", "us", "host_us")
        )
        written = f'<b>{mine}</b> <span class="quiet">{low}–{high}</span>'
        cells = [point.name, sign(point.factor(call)), written, *map(_us, us.values()), host]
        cells.append(sign(point.factor(call, Point.pace)))
        anchor = f"ranks-{call}-{point.ranks}-{point.rows}"
        body.append(Row(cells, f'id="{anchor}"'))
        tip = [point.name, f"ours {mine} µs, processor {host} µs"]
        tip += [f"{columns[name][0]} {_us(value)} µs" for name, value in us.items() if value]
        values = {columns[name][1]: value for name, value in us.items() if value}
        values |= {CHOOSER: ours["us"]} if ours.get("us") else {}
        places.append(Column(f"{point.ranks} ranks, {point.rows:,}", values, tip, f"#{anchor}"))
    labels = [label for label, _ in columns.values()]
    head = ["ranks, rows", "against the best other", 'µs: ours <span class="quiet">p20–p80</span>']
    what = f"{call.capitalize()}{' with its gradient' if call == LOSS else ''}"
    title = f"{what}: µs over ranks and rows, less is better"
    alt = f"{title}: {', '.join(labels)}. Every number is in the table below."
    series = [Series(CHOOSER, "triton_softmax")]
    series += [Series(key, label) for label, key in columns.values()]
    drawn = over_columns(title, alt, places, series, unit="us", log=True)
    every = table([*head, *labels, "processor, ours", "back to back, against the best"], body, 2)
    shown = f"{drawn}\n{folded('Every time, and the speed of calls back to back', every)}"
    return _fragment(data, shown, f"\n{_origin(data)}")


def shared(data: dict) -> Fragment:
    """How the time of matrices of a fixed size falls with the ranks that share them: a chart and a
    table for each call."""
    found = sorted(points(data, True), key=lambda point: (-point.rows, point.ranks))
    if not found:
        return NOT_MEASURED
    parts = []
    for call in (SOFTMAX, LOSS):
        every = {f"{call}, {INVARIANT}": ("batch-invariant", "invariant"), **OTHERS[call]}
        others = {k: v for k, v in every.items() if any(point.us(k) for point in found)}
        places, body = [], []
        for point in found:
            matrix = f"{point.rows:,} × {point.total:,}"
            us = {name: point.us(name) for name in others}
            alone = next((p for p in found if (p.rows, p.ranks) == (point.rows, 1)), None)
            one, ours = alone and alone.us(call), point.us(call)
            times = f"{one / ours:.2f} ×" if one and ours else "–"
            host = _us(point.calls.get(call, {}).get("host_us"))
            cells = [matrix, str(point.ranks), f"<b>{_us(ours)}</b>", times, *map(_us, us.values())]
            body.append([*cells, host, sign(point.factor(call))])
            values = {others[name][1]: value for name, value in us.items() if value}
            tip = [f"{matrix} over {point.ranks}", f"ours {_us(ours)} µs, processor {host} µs"]
            tip += [f"{others[name][0]} {_us(value)} µs" for name, value in us.items() if value]
            label = f"{point.rows:,} over {point.ranks}"
            places.append(Column(label, values | ({CHOOSER: ours} if ours else {}), tip))
        what = f"{call.capitalize()}{' with its gradient' if call == LOSS else ''}"
        title = f"{what}: µs of matrices over ranks that share them, less is better"
        labels = [label for label, _ in others.values()]
        alt = f"{title}: {', '.join(labels)}. Every number is in the table below."
        series = [Series(CHOOSER, "triton_softmax")]
        series += [Series(key, label) for label, key in others.values()]
        head = ["matrix", "ranks", "µs: ours", "as fast as one rank", *labels, "processor, ours"]
        all_times = table([*head, "against the best other"], body, 2)
        drawn = over_columns(title, alt, places, series, unit="us", log=True)
        parts.append(f"{drawn}\n{folded('Every time', all_times)}")
    return _fragment(data, "\n".join(parts), f"\n{_origin(data, True)}")


def formula(data: dict) -> Fragment:
    """The formula at the measured points, beside what was measured."""
    body = []
    for point in points(data):
        wanted, message = predicted_us(point), point.calls["message"]["us"]
        part = f"{point.rows * point.columns * ITEMSIZE / 2**20:,.0f} MiB each"
        cells = [point.name, part, _us(wanted - message), _us(message), f"<b>{_us(wanted)}</b>"]
        found = [point.calls[call]["us"] for call in (SOFTMAX, LOSS)]
        body.append([*cells, *(f"{_us(us)} ({us / wanted:.2f} ×)" for us in found)])
    head = ["ranks, rows", "part of a rank", "µs: elements", "message", "formula"]
    shown = table([*head, *(f"{c}, measured" for c in (SOFTMAX, LOSS))], body, 2)
    return _fragment(data, shown, f"\n{_origin(data)}")


class Quote:
    """What may be said of a call at the points of today's code."""

    def __init__(self, found: list[Point], call: str) -> None:
        self.points, self.count = found, len(found)
        self.range = Values(factor for point in found if (factor := point.factor(call)))
        self.back_to_back = Values(f for point in found if (f := point.factor(call, Point.pace)))
        self.alone = self._over(call, f"{call}, part alone")
        self.pushed_alone = self._over(f"{call}, {PUSHED}", f"{call}, part alone")
        self.of_formula = Values(us / predicted_us(p) for p in found if (us := p.us(call)))
        self.held_up = sum(p.calls[call]["host_us"] > (p.us(call) or 0) for p in found)

    def _over(self, one: str, other: str) -> Values:
        pairs = ((point.us(one), point.us(other)) for point in self.points)
        return Values(first / second for first, second in pairs if first and second)


def quoted(data: dict) -> Names:
    """The numbers that pages quote, of the run over two ranks. Others are shown, but no sentence is
    made of them."""
    found = list(points({"runs": [spoken_of(data)]}))
    return Names(softmax=Quote(found, SOFTMAX), loss=Quote(found, LOSS))


def read(root: Path) -> dict | None:
    """The file of the measurement, where each run says how many of its calls launch something else
    today; None without one."""
    data, changed = read_json(root, FILE), launches.read(root).changed
    for run in data["runs"] if data else ():
        followed = list(map(launches.cell_of, launches.rows_of_ranks(run)))
        run["calls"], run["changed"] = len(followed), len(changed.intersection(followed))
    return data


def fragments(root: Path) -> dict[str, Fragment]:
    """By name, for the page on several GPUs."""
    make = {
        "ranks-softmax": lambda data: compared(data, SOFTMAX),
        "ranks-loss": lambda data: compared(data, LOSS),
        "ranks-shared": shared,
        "ranks-formula": formula,
    }
    data = read(root)
    return {name: each(data) if data else NOT_MEASURED for name, each in make.items()}
