"""What a page includes: text, the measurement that it speaks of, and the files that it links to.

Above the text stands what a reader must know of the measurement, decided when the site is built:
nothing while all is well; a warning when some of the calls that were measured launch something else
today, or when the measurement is older than 90 days.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from softmax_bench.report import gbs
from softmax_bench.roster import CHOOSER, LIBRARIES, RUNGS, label_of
from softmax_site.benchmarks.data import case_words, time_text

ASSETS = "assets/bench"
"""Where the CSV files lie in the site."""


class Measured(NamedTuple):
    """What numbers rest on: how old they are, and whether they are of what is launched today."""

    utc: str
    """Of the oldest row."""
    changed: int = 0
    """How many calls of ours launch something else today."""
    calls: int = 0
    """How many calls of ours there are."""

    last: str = ""
    """Of the newest row, where the runs have several days."""


class Fragment(NamedTuple):
    """Markdown that a page includes, and the measurement it speaks of, if any."""

    text: str
    measured: Measured | None = None


NOT_MEASURED = Fragment("Not measured yet.\n")


@dataclass
class Rendered:
    """Fragments by name, and files of the site by path."""

    fragments: dict[str, Fragment] = field(default_factory=dict)
    assets: dict[str, str] = field(default_factory=dict)

    def add(self, other: Rendered) -> None:
        """Take in what another holds."""
        self.fragments |= other.fragments
        self.assets |= other.assets


def measured_by(rows: Sequence[dict]) -> Measured | None:
    """What these rows rest on; None of no rows."""
    if not rows:
        return None
    changed = sum(row.get("changed", False) for row in rows)
    calls = sum(row["provider"] in (CHOOSER, *RUNGS) and row["status"] == "ok" for row in rows)
    times = [row["utc"] for row in rows]
    return Measured(min(times), changed, calls, max(times))


def block(text: str, css: str = "bench", hidden: bool = True) -> str:
    """HTML that stands in Markdown as it is; `hidden` from the search, which numbers burden."""
    search = " data-search-exclude" if hidden else ""
    return f'<div class="{css}"{search}>\n{text}\n</div>'


def shown(html: str, rows: Sequence[dict] = (), told: bool = False) -> Fragment:
    """HTML as a fragment that speaks of some rows; `told` says below it what was measured when."""
    below = f"\n{origin(list(rows))}" if told else ""
    return Fragment(f"{block(html)}\n{below}", measured_by(rows))


def note(*facts: str) -> str:
    """Facts as a line in small type."""
    return f"{' · '.join(facts)}\n{{ .bench-note data-search-exclude }}\n"


def of_run(run: dict, machine: str, *more: str) -> str:
    """What a run that has a file of its own was measured on, and when."""
    versions = (f"torch {run['torch'].split('+')[0]}", f"triton {run['triton']}", run["date"])
    return note(f"Measured: {machine}", *versions, f"commit `{run['commit'][:12]}`", *more)


def runs_words(environments: Iterable[dict]) -> list[str]:
    """The machine, time and commit of each run, and the versions."""
    runs = {env["started"]: env for env in environments}
    facts = [
        f"one {env['gpu']}, {time_text(started)} UTC, commit `{env['commit'][:12]}`"
        for started, env in sorted(runs.items())
    ]
    for name in ("torch", "triton"):
        versions = dict.fromkeys(env[name].split("+")[0] for env in runs.values())
        facts.append(f"{name} {' and '.join(versions)}")
    return [f"Measured: {facts[0]}", *facts[1:]]


def origin(rows: list[dict], path: str = "") -> str:
    """The runs of some rows, the case of a run with only one, and what was not installed."""
    links = (
        f"[{len(rows)} rows as CSV](/{path}){{ .bench-csv }}",
        "[method](/benchmarks/method.md)",
    )
    facts = runs_words(row["environment"] for row in rows)
    of_run: dict[str, dict[str, dict]] = {}
    for row in rows:
        of_run.setdefault(row["environment"]["commit"][:12], {})[row["case"]] = row
    for commit, cases in of_run.items():
        if len(of_run) > len(cases) == 1:
            facts.append(f"of `{commit}` one case: {case_words(*cases.values())}")
    skipped, right = ({r["provider"] for r in rows if r["status"] == s} for s in ("skipped", "ok"))
    if absent := [label_of(name) for name in LIBRARIES if name in skipped - right]:
        facts.append(f"not installed: {', '.join(absent)}")
    return note(*facts, *(links if path else ()))


# What a reader must know of a measurement

OLD_DAYS = 90


def today() -> datetime:
    """The time of the build; `SOURCE_DATE_EPOCH` sets it, for builds that can be repeated."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)


def warning(measured: Measured, now: datetime) -> str:
    """What a reader must know of a measurement, in a box that the search leaves out; empty while
    all is well."""
    age, said = (now - datetime.fromisoformat(measured.utc)).days, []
    if measured.changed:
        said.append(
            f"Timings of ours shown here that are of earlier code: {measured.changed:,} of "
            f'{measured.calls:,}. <a href="/benchmarks/method/#what-is-launched-today">What '
            "changed</a>"
        )
    if age > OLD_DAYS:
        said.append(f"This was {age} days before this page was built.")
    ends = dict.fromkeys(utc[:10] for utc in (measured.utc, measured.last) if utc)
    days = " to ".join(f"{at.day} {at:%B %Y}" for at in map(datetime.fromisoformat, ends))
    box = (
        f'<div class="admonition warning" data-search-exclude>\n<p class="admonition-title">'
        f"Measured on {days}</p>\n<p>{' '.join(said)}</p>\n</div>\n\n"
    )
    return box if said else ""


# The rows as CSV

BEFORE = "case suite op direction dtype shape dim layout inputs provider status".split()
AFTER = "us_loop max_abs_error max_rel_error kernels count utc".split()
MACHINE = "gpu driver cuda torch triton commit".split()
TIMES = ("p20", "p50", "p80")
RENAMED = {"count": "compiled", "us_loop": "in_a_loop_us", **{name: f"{name}_us" for name in TIMES}}


def csv_text(rows: list[dict]) -> str:
    """The rows of a page as CSV, with machine and software in every line."""
    speeds = ["samples", "gb_per_s", "gb_per_s_counting_m_n"]
    names = [*BEFORE, "reason", "bytes", *TIMES, *speeds, *AFTER, *MACHINE, "peer_version"]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: RENAMED.get(name, name) for name in names})
    for row in rows:
        env, speed = row["environment"], gbs(row)
        moved = 3 if row["direction"] == "backward" else 2
        writer.writerow(
            {**row, **(row["us"] or {}), **{name: env[name] for name in MACHINE}}
            | {"shape": "x".join(map(str, row["shape"])), "kernels": " ".join(row["kernels"])}
            | {"gb_per_s": round(speed, 1) if speed else None}
            | {"gb_per_s_counting_m_n": round(speed / moved, 1) if speed else None}
            | {"peer_version": env["peers"].get(row["provider"])}
        )
    return out.getvalue()
