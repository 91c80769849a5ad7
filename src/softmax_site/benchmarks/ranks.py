"""Rows that are cut over several GPUs: what was measured, and the formula of the page beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from softmax_bench import replanned
from softmax_bench.report import standing
from softmax_bench.roster import CHOOSER, COPY
from softmax_site.benchmarks.page import Fragment, Measured, block
from softmax_site.benchmarks.plots import BEST, Column, Plot, Series, draw
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import sign

FILE = "docs/benchmarks/ranks.json"
"""What `softmax_bench.ranks` wrote, a run for each number of ranks."""

SOFTMAX, LOSS = "softmax", "cross-entropy"

PUSHED = "words pushed"
"""Softmax in one launch: measured where GPUs see each other's memory."""

OTHERS = {
    SOFTMAX: {"softmax, DTensor of PyTorch": "softmax of a DTensor"},
    LOSS: {
        "cross-entropy, Megatron-LM's formula": "Megatron-LM’s formula",
        "cross-entropy, loss_parallel": "loss_parallel",
    },
}
"""Whom each function is compared with, by the name of the call, as the page names them."""

ITEMSIZE = 2
"""Bytes of an element: bfloat16."""

MARKS = {
    "softmax, DTensor of PyTorch": "torch",
    "cross-entropy, loss_parallel": "torch",
    "cross-entropy, Megatron-LM's formula": "megatron",
}
"""What stands for the others in a plot."""

PREDICTED = (2, 8, 64, 1024)
"""Numbers of ranks for which the page counts bytes, and the formula gives times."""

MATRIX = (8192, 131_072)
"""Rows and columns of the matrix that they share."""


class Point(NamedTuple):
    """What was measured of one matrix over one number of ranks."""

    ranks: int
    rows: int
    columns: int
    """Of a rank's own part."""
    calls: dict[str, dict]

    def us(self, call: str) -> float | None:
        """The median of a call on the slower rank, in µs; None if it did not run."""
        return self.calls.get(call, {}).get("us")

    def factor(self, call: str) -> float | None:
        """How many times as fast ours is as the fastest of the others; None without both."""
        others = [us for other in OTHERS[call] if (us := self.us(other))]
        ours = self.us(call)
        return min(others) / ours if ours and others else None

    @property
    def memory(self) -> float:
        """Bytes that a copy moves in a second: each element read once and written once."""
        return 2 * self.rows * self.columns * ITEMSIZE / (self.calls["copy"]["us"] * 1e-6)

    @property
    def words(self) -> int:
        """Bytes that a rank receives."""
        return 8 * self.rows * (self.ranks - 1)

    def id(self, call: str) -> str:
        """Of the row of a table."""
        return f"ranks-{call}-{self.ranks}-{self.rows}"

    def host(self, call: str) -> float:
        """What the processor takes for a call, in µs."""
        return self.calls[call]["host_us"]

    def held_up(self, call: str) -> bool:
        """Whether the processor takes longer for a call than the GPU does."""
        return self.host(call) > self.calls[call]["us"]


def points(data: dict) -> Iterator[Point]:
    """The points of all runs."""
    for run in data["runs"]:
        found: dict[int, Point] = {}
        for row in run["rows"]:
            new = Point(run["ranks"], row["rows"], row["columns"], {})
            found.setdefault(row["rows"], new).calls[row["call"]] = row
        yield from found.values()


def today(data: dict) -> dict:
    """The runs of the same code as the first, which is the newest. The numbers of others
    are shown, but no sentence is made of them."""
    source = data["runs"][0]["source"]
    return {**data, "runs": [run for run in data["runs"] if run["source"] == source]}


def seconds(R: int, n: int, N: int, b: int, memory: float, latency: float, link: float) -> float:
    """The formula of the page."""
    return 3 * n * N * b / R / memory + latency + 8 * n * (R - 1) / link


def predicted_us(point: Point) -> float:
    """The formula at a measured point, with the rate of the copy there, and the message there for
    the latency and the words together."""
    R, n, N = point.ranks, point.rows, point.columns * point.ranks
    passes = seconds(R, n, N, ITEMSIZE, point.memory, 0.0, float("inf"))
    return passes * 1e6 + point.calls["message"]["us"]


def _name(point: Point) -> str:
    return f"{point.ranks} ranks, {point.rows:,} rows"


def _us(value: float | None) -> str:
    return f"{value:,.0f}" if value else "–"


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _line(data: dict) -> str:
    """On what, when, and which code."""
    run = data["runs"][0]
    ranks = " and ".join(str(each["ranks"]) for each in data["runs"])
    text = (
        f"Measured on {ranks} GPUs of one machine ({run['gpu']}), over NCCL, with torch "
        f"{run['torch'].split('+')[0]} and triton {run['triton']}, {run['date']}, commit "
        f"`{run['commit']}`; medians on the slowest rank, with nothing in the L2 cache before."
    )
    for old in data["runs"]:
        if old["source"] != run["source"]:
            text += (
                f" The rows of {old['ranks']} GPUs were measured with an older version of ours, "
                f"commit `{old['commit']}`; the sentences above are about the others only."
            )
    return f"{text}\n{{ .bench-note data-search-exclude }}"


def _measured(data: dict) -> Measured:
    run = data["runs"][0]
    return Measured(f"{run['date']}T00:00:00Z", {"ranks": run["source"]})


def compared(data: dict, call: str) -> Fragment:
    """Ours, the part of a rank alone, and the others, at every point."""
    found = list(points(data))
    body: list[Row | list[str]] = []
    both = any(point.us(f"{call}, {PUSHED}") for point in found)
    for point in found:
        ours = point.calls[call]
        low, high = _us(ours["us_p20"]), _us(ours["us_p80"])
        cells = [
            _name(point),
            sign(point.factor(call)),
            f'<b>{_us(ours["us"])}</b> <span class="quiet">{low}–{high}</span>',
            *([_us(point.us(f"{call}, {PUSHED}"))] if both else []),
            _us(point.us(f"{call}, part alone")),
            *(_us(point.us(other)) for other in OTHERS[call]),
            _us(ours["host_us"]),
        ]
        body.append(Row(cells, point.id(call)))
    head = [
        "ranks, rows",
        "against the best other",
        'µs: ours <span class="quiet">p20–p80</span>',
        *([PUSHED] if both else []),
        "its part alone",
        *OTHERS[call].values(),
        "processor, ours",
    ]
    parts = [_plot(found, call), table(head, body, 2)]
    parts = [block("\n".join(parts)), _sentence(list(points(today(data))), call), _line(data)]
    return Fragment("\n\n".join(parts) + "\n", _measured(data))


def _plot(found: list[Point], call: str) -> str:
    """Ours, its part alone and the others over rows and ranks, in µs."""
    keys = {call: CHOOSER, **{other: MARKS[other] for other in OTHERS[call]}}
    keys[f"{call}, part alone"] = COPY
    names = {CHOOSER: "triton_softmax", COPY: "its part alone"}
    if any(point.us(f"{call}, {PUSHED}") for point in found):
        keys[f"{call}, {PUSHED}"] = "pushed"
        names["pushed"] = PUSHED
    names |= {MARKS[other]: name for other, name in OTHERS[call].items()}
    columns = []
    for point in found:
        values = {key: us for name, key in keys.items() if (us := point.us(name))}
        tip = [_name(point), f"ours {_us(point.us(call))} µs, processor {_us(point.host(call))} µs"]
        tip += [f"{names[key]} {_us(us)} µs" for key, us in values.items() if key != CHOOSER]
        label = f"{point.ranks} ranks, {point.rows:,}"
        columns.append(Column(label, values, tip, f"#{point.id(call)}"))
    what = f"{call.capitalize()}{' with its gradient' if call == LOSS else ''}"
    title = f"{what}: µs over ranks and rows, less is better"
    alt = f"{title}: {', '.join(names.values())}. Every number is in the table below."
    return draw(
        Plot(
            title=title,
            alt=alt,
            columns=columns,
            series=[Series(key, names[key]) for key in names],
            unit="us",
            log=True,
        )
    )


def _sentence(found: list[Point], call: str) -> str:
    """What the table says of ours, in words."""
    factors = [(factor, point) for point in found if (factor := point.factor(call))]
    alone = [
        ours / part
        for point in found
        if (ours := point.us(call)) and (part := point.us(f"{call}, part alone"))
    ]
    states = [standing(factor) for factor, _ in factors]
    best = "the faster of the two others" if len(OTHERS[call]) > 1 else "the other"
    worst, where = min(factors, key=lambda item: item[0])
    text = (
        f"Ours is ahead of {best} at {states.count('ahead')} of {len(factors)} points, level at "
        f"{states.count('level')} and behind at {states.count('behind')}: "
        f"{_span([factor for factor, _ in factors])} times its speed"
    )
    if "behind" in states:
        text += f", least with {_name(where)} ({worst:.2f})"
    text += f". It takes {_span(alone)} times as long as a rank takes for its part alone."
    text += _pushed(found, call)
    names = {call: "ours", **OTHERS[call]}
    hosts = [f"{_host(found, name)} for {names[name]}" for name in names]
    return f"{text} The processor of a rank takes {', '.join(hosts)}. {_held_up(found, call)}"


def _pushed(found: list[Point], call: str) -> str:
    """What pushing its words gains, in words."""
    name = f"{call}, {PUSHED}"
    times = [(point, us) for point in found if (us := point.us(name))]
    if not times:
        return ""
    alone = [us / part for point, us in times if (part := point.us(f"{call}, part alone"))]
    gain = [ours / us for point, us in times if (ours := point.us(call))]
    return (
        f" With its words pushed it is {_span(gain)} times as fast as with a message, and takes "
        f"{_span(alone)} times as long as a part alone."
    )


def _host(found: list[Point], call: str) -> str:
    """From how many to how many µs the processor takes for a call."""
    times = [point.calls[call]["host_us"] for point in found if "host_us" in point.calls[call]]
    return f"{_us(min(times))} to {_us(max(times))} µs" if times else "no measured time"


def _held_up(found: list[Point], call: str) -> str:
    """Where the processor takes longer than the GPU, in words."""
    slow = [point for point in found if point.held_up(call)]
    if not slow:
        return "At no point is that longer than the GPU takes for ours."
    which = "At all points" if len(slow) == len(found) else f"At {len(slow)} of {len(found)} points"
    return f"{which} that is longer than the GPU takes for ours: calls in a row wait for it there."


def processor(data: dict) -> Fragment:
    """What is to be said of the processor below what is not there. The tables have the notices."""
    found = list(points(today(data)))
    counts = {call: sum(point.held_up(call) for point in found) for call in (SOFTMAX, LOSS)}
    if not any(counts.values()):
        return Fragment("")
    parts = [f"for {call} at {n} of {len(found)}" for call, n in counts.items() if n]
    text = f"The processor takes longer for a call than the GPU does, {' and '.join(parts)} points."
    return Fragment(f"{text}\n")


def formula(data: dict) -> Fragment:
    """The formula at the measured points, beside what was measured."""
    body: list[Row | list[str]] = []
    of_softmax, of_loss = [], []
    current = list(points(today(data)))
    for point in points(data):
        wanted, message = predicted_us(point), point.calls["message"]["us"]
        softmax, loss = point.calls[SOFTMAX]["us"], point.calls[LOSS]["us"]
        if point in current:
            of_softmax.append(softmax / wanted)
            of_loss.append(loss / wanted)
        body.append(
            [
                _name(point),
                f"{point.rows * point.columns * ITEMSIZE / 2**20:,.0f} MiB each",
                _us(wanted - message),
                _us(message),
                f"<b>{_us(wanted)}</b>",
                f"{_us(softmax)} ({softmax / wanted:.2f} ×)",
                f"{_us(loss)} ({loss / wanted:.2f} ×)",
            ]
        )
    head = [
        "ranks, rows",
        "part of a rank",
        "µs: elements",
        "message",
        "formula",
        "softmax, measured",
        "cross-entropy, measured",
    ]
    older = len(current) < len(body)
    text = (
        f"{'Without the rows of an older version of ours: s' if older else 'S'}oftmax takes "
        f"{_span(of_softmax)} times as long as the formula says, and "
        f"cross-entropy with its gradient {_span(of_loss)} times."
    )
    if min(of_softmax + of_loss) > 1.0:
        text += " The formula is too low at every point."
    for call, ratios in ((SOFTMAX, of_softmax), (LOSS, of_loss)):
        text += _far_off(call, list(zip(ratios, current, strict=True)))
    return Fragment(f"{block(table(head, body, 2))}\n\n{text}\n", _measured(data))


def _far_off(call: str, ratios: list[tuple[float, Point]]) -> str:
    """Where a call takes twice as long as the formula says, and what the processor has to do with
    it."""
    far = [point for ratio, point in ratios if ratio >= 2.0]
    if not far:
        return ""
    slow = sum(point.held_up(call) for point in far)
    text = (
        f" At {len(far)} of {len(ratios)} points it does not account for half of the time of {call}"
    )
    if slow:
        text += f"; at {slow} of these the processor takes longer than the GPU"
    return f"{text}."


def constants(data: dict) -> tuple[float, float, float]:
    """Bytes a second of memory, seconds of latency, and bytes a second of the links: of the largest
    copy over the most ranks, and of the line through their shortest and longest message."""
    last = list(points(data))
    most = [point for point in last if point.ranks == max(each.ranks for each in last)]
    few, many = (pick(most, key=lambda point: point.rows) for pick in (min, max))
    short, long = (point.calls["message"]["us"] * 1e-6 for point in (few, many))
    link = (many.words - few.words) / (long - short) if long > short else float("inf")
    return many.memory, short - few.words / link, link


def prediction(data: dict) -> Fragment:
    """What the formula says for more ranks than were measured."""
    memory, latency, link = constants(data)
    n, N = MATRIX
    body: list[Row | list[str]] = []
    for ranks in PREDICTED:
        whole = seconds(ranks, n, N, ITEMSIZE, memory, latency, link) * 1e6
        words = seconds(ranks, n, 0, ITEMSIZE, memory, 0.0, link) * 1e6
        elements = whole - words - latency * 1e6
        part = f"{N // ranks:,} columns each"
        body.append([f"{ranks:,} ranks", part, *map(_us, (elements, words, whole))])
    head = ["over", "part of a rank", "µs, predicted: elements", "words", "all, with the latency"]
    plot = _predicted_plot(memory, latency, link)
    text = (
        f"Here memory moves {memory / 1e12:.1f} TB/s, a message takes {latency * 1e6:.0f} µs "
        f"before its first byte, and a byte takes {memory / link:,.0f} times as long over the link "
        "as from memory."
    )
    found = block(f"{plot}\n{table(head, body, 2)}")
    return Fragment(f"{text}\n\n{found}\n", _measured(data))


def _predicted_plot(memory: float, latency: float, link: float) -> str:
    """The formula and its terms over twice as many ranks each time."""
    n, N = MATRIX
    columns = []
    for ranks in (2**i for i in range(1, 11)):
        of = {
            CHOOSER: seconds(ranks, n, N, ITEMSIZE, memory, latency, link),
            COPY: seconds(ranks, n, N, ITEMSIZE, memory, 0.0, float("inf")),
            BEST: seconds(ranks, n, 0, ITEMSIZE, memory, latency, link),
        }
        us = {key: value * 1e6 for key, value in of.items()}
        tip = [
            f"{ranks:,} ranks, predicted",
            f"all: {_us(us[CHOOSER])} µs",
            f"elements {_us(us[COPY])} µs, message {_us(us[BEST])} µs",
        ]
        columns.append(Column(f"{ranks:,} ranks", us, tip))
    title = f"{n:,} rows of {N:,} columns over more ranks: µs, predicted"
    alt = f"{title}: all, the elements alone, the message alone."
    series = [Series(CHOOSER, "all"), Series(COPY, "elements"), Series(BEST, "message")]
    return draw(Plot(title, alt, columns, series, unit="us", lines=True, log=True))


def read(root: Path) -> dict | None:
    """The file of the measurement; None without one. Where nothing but constants of other calls has
    changed since, its source is today's."""
    path, changes = root / FILE, root / replanned.FILE
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if changes.is_file():
        of_hash = {
            pair["measured"]: pair["now"]
            for found in json.loads(changes.read_text(encoding="utf-8"))
            if (pair := found["sources"].get("ranks"))
        }
        for run in data["runs"]:
            run["source"] = of_hash.get(run["source"], run["source"])
    return data


def fragments(root: Path) -> dict[str, Fragment]:
    """By name, for the page on several GPUs."""
    make = {
        "ranks-softmax": lambda data: compared(data, SOFTMAX),
        "ranks-loss": lambda data: compared(data, LOSS),
        "ranks-formula": formula,
        "ranks-prediction": prediction,
        "ranks-processor": processor,
    }
    data = read(root)
    if data is None:
        return dict.fromkeys(make, NOT_MEASURED)
    return {name: each(data) for name, each in make.items()}
