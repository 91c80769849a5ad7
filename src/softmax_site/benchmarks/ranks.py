"""Rows that are cut over several GPUs: what was measured, and the formula of the page beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from softmax_bench import replanned
from softmax_bench.report import standing
from softmax_site.benchmarks.page import Fragment, Measured, block
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import sign

FILE = "docs/benchmarks/ranks.json"
"""What `softmax_bench.ranks` wrote, a run for each number of ranks."""

SOFTMAX, LOSS = "softmax", "cross-entropy"

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


def points(data: dict) -> Iterator[Point]:
    """The points of all runs."""
    for run in data["runs"]:
        found: dict[int, Point] = {}
        for row in run["rows"]:
            new = Point(run["ranks"], row["rows"], row["columns"], {})
            found.setdefault(row["rows"], new).calls[row["call"]] = row
        yield from found.values()


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
    run = data["runs"][-1]
    ranks = " and ".join(str(each["ranks"]) for each in data["runs"])
    return (
        f"Measured on {ranks} GPUs of one machine ({run['gpu']}), over NCCL, with torch "
        f"{run['torch'].split('+')[0]} and triton {run['triton']}, {run['date']}, commit "
        f"`{run['commit']}`; medians on the slower rank, with nothing in the L2 cache before."
        "\n{ .bench-note data-search-exclude }"
    )


def _measured(data: dict) -> Measured:
    oldest = min(data["runs"], key=lambda run: run["date"])
    return Measured(f"{oldest['date']}T00:00:00Z", {"ranks": oldest["source"]})


def compared(data: dict, call: str) -> Fragment:
    """Ours, the part of a rank alone, and the others, at every point."""
    found = list(points(data))
    body: list[Row | list[str]] = []
    for point in found:
        ours = point.calls[call]
        low, high = _us(ours["us_p20"]), _us(ours["us_p80"])
        body.append(
            [
                _name(point),
                sign(point.factor(call)),
                f'<b>{_us(ours["us"])}</b> <span class="quiet">{low}–{high}</span>',
                _us(point.us(f"{call}, part alone")),
                *(_us(point.us(other)) for other in OTHERS[call]),
                _us(ours["host_us"]),
            ]
        )
    head = [
        "ranks, rows",
        "against the best other",
        'µs: ours <span class="quiet">p20–p80</span>',
        "its part alone",
        *OTHERS[call].values(),
        "processor, ours",
    ]
    parts = [block(table(head, body, 2)), _sentence(found, call), _line(data)]
    return Fragment("\n\n".join(part for part in parts if part) + "\n", _measured(data))


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
    slow = [point for point in found if point.calls[call]["host_us"] > point.calls[call]["us"]]
    if slow:
        text += (
            f" At {len(slow)} of {len(found)} points the processor takes longer for a call than "
            "the GPU does."
        )
    return text


def formula(data: dict) -> Fragment:
    """The formula at the measured points, beside what was measured."""
    body: list[Row | list[str]] = []
    of_softmax, of_loss = [], []
    for point in points(data):
        wanted, message = predicted_us(point), point.calls["message"]["us"]
        softmax, loss = point.calls[SOFTMAX]["us"], point.calls[LOSS]["us"]
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
    text = (
        f"Softmax takes {_span(of_softmax)} times as long as the formula says, and cross-entropy "
        f"with its gradient {_span(of_loss)} times."
    )
    return Fragment(f"{block(table(head, body, 2))}\n\n{text}\n", _measured(data))


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
    text = (
        f"Here memory moves {memory / 1e12:.1f} TB/s, a message takes {latency * 1e6:.0f} µs "
        f"before its first byte, and a byte takes {memory / link:,.0f} times as long over the link "
        "as from memory."
    )
    return Fragment(f"{text}\n\n{block(table(head, body, 2))}\n", _measured(data))


def read(root: Path) -> dict | None:
    """The file of the measurement; None without one. Where nothing but constants of other calls has
    changed since, its source is today's."""
    path, changes = root / FILE, root / replanned.FILE
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    if changes.is_file():
        pair = json.loads(changes.read_text(encoding="utf-8"))["sources"].get("ranks")
        for run in data["runs"]:
            if pair and run["source"] == pair["measured"]:
                run["source"] = pair["now"]
    return data


def fragments(root: Path) -> dict[str, Fragment]:
    """By name, for the page on several GPUs."""
    make = {
        "ranks-softmax": lambda data: compared(data, SOFTMAX),
        "ranks-loss": lambda data: compared(data, LOSS),
        "ranks-formula": formula,
        "ranks-prediction": prediction,
    }
    data = read(root)
    if data is None:
        return dict.fromkeys(make, NOT_MEASURED)
    return {name: each(data) for name, each in make.items()}
