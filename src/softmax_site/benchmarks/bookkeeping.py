"""What the project keeps account of: targets met and missed, machines, versions, tests."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from softmax_bench import gpu_report, targets
from softmax_bench.roster import CHOOSER, label_of
from softmax_bench.sources import ENTRIES
from softmax_site import source
from softmax_site.benchmarks.data import DATA, case_words, n_cols, runs_used, time_text
from softmax_site.benchmarks.page import Fragment, Measured, block, measured_by
from softmax_site.benchmarks.rungs import NOT_MEASURED
from softmax_site.benchmarks.suites.host import HOST_CALLS
from softmax_site.benchmarks.tables import Row, table
from softmax_site.benchmarks.words import PAGES, link, measured_line, reason_groups

TESTS = "docs/benchmarks/gpu-tests.json"
SANITIZER = "docs/benchmarks/sanitizer/run.json"


def targets_fragment(data: dict, reasons: dict[str, str]) -> Fragment:
    """The targets, met and missed, with the names that the data give to cases."""
    found = targets.cells(data["rows"])
    rows = [row for row in data["rows"] if row["provider"] == CHOOSER]
    if not rows:
        return NOT_MEASURED
    of_case = {row["case"]: row for row in rows}
    body: list[Row | list[str]] = []
    wanted = dict.fromkeys((cell.regime, cell.asked) for cell in found)
    for regime, asked in sorted(wanted, key=lambda item: _place(item[0])):
        cells = [cell for cell in found if (cell.regime, cell.asked) == (regime, asked)]
        met = sum(cell.met for cell in cells)
        worst = min(cells, key=lambda cell: cell.margin)
        body.append(
            [
                regime,
                _tick(
                    met == len(cells), f"{met} of {len(cells)}".replace(" ", "\N{NO-BREAK SPACE}")
                ),
                asked,
                worst.reached,
                _where(of_case[worst.case]),
            ]
        )
    means = targets.means(data["rows"])
    for key, name, least in (
        ("best peer", "the best other library", targets.OVER_BEST_PEER),
        ("torch", "torch", targets.OVER_TORCH),
    ):
        mean, cases, low = means[key]
        if mean is not None:
            body.append(
                [
                    "forward, backward and few rows",
                    _tick(mean >= least, f"{mean:.2f}"),
                    f"geometric mean over {name} at least {least}",
                    f"lowest {low:.2f}",
                    f"{cases} cases",
                ]
            )
    head = ["calls", "met", "asked for", "worst", "where"]
    parts = [block(table(head, body, 5))]
    missed = sorted((cell for cell in found if not cell.met), key=lambda cell: cell.margin)
    if missed:
        parts.append(f"## Missed: {len(missed)} of {len(found)}")
        parts.append(
            "By reason, the worst first. The reasons are read off the code and the counts of "
            "bytes; those of the loss head alone were profiled."
        )
        parts.append(block(_missed(missed, of_case, reasons)))
    else:
        parts.append(f"All {len(found)} are met.")
    parts.append(measured_line(data, rows) + "\n{ .bench-note data-search-exclude }")
    return Fragment("\n\n".join(parts) + "\n", measured_by(rows))


def _missed(missed: list[targets.Cell], of_case: dict[str, dict], reasons: dict[str, str]) -> str:
    """The cells that missed, worst first, gathered below the reasons that they share."""
    by_reason: dict[str, list[targets.Cell]] = {}
    for cell in missed:
        reason = targets.reason_for(cell.case, reasons) or "Not explained yet."
        by_reason.setdefault(reason, []).append(cell)
    head = ["where", "reached", "asked for", "name in the data"]
    bodies = []
    for reason, cells in by_reason.items():
        lines: list[Row | list[str]] = [
            [
                _where(of_case[cell.case]),
                f'<span class="behind">▼ {cell.reached}</span>',
                cell.asked,
                f'<code class="case">{_breakable(cell.case)}</code>',
            ]
            for cell in cells
        ]
        rows = table(head, lines, 4).partition("<tbody>")[2].removesuffix("</tbody></table>")
        bodies.append(
            f'<tbody><tr class="why"><th colspan="4" scope="rowgroup">{escape(reason)}</th></tr>'
            f"{rows}</tbody>"
        )
    return f"{table(head, [], 4).partition('<tbody>')[0]}{''.join(bodies)}</table>"


ORDER = ("many rows, N up", "many rows, N above", "few rows", "dim", "host", "compiles")


def _place(regime: str) -> tuple[int, bool]:
    """Where a kind of target stands: forward before backward."""
    at = next((at for at, start in enumerate(ORDER) if regime.startswith(start)), len(ORDER))
    return at, regime.endswith("backward")


def _tick(met: bool, text: str) -> str:
    return f'<span class="{"ahead" if met else "behind"}">{"✓" if met else "✗"} {text}</span>'


def _where(row: dict) -> str:
    """The case in words, linked to its row, where a page shows it."""
    if row["suite"] == "compiles":
        return f"{row['direction']}, {row['dtype']}, 1,000 lengths"
    if row["suite"] == "host_time":
        return f'<a href="../host-time/">{HOST_CALLS[row["direction"]]}</a>'
    return link(row, case_words(row), f"../{PAGES[row['suite']]}/")


def _breakable(case: str) -> str:
    """The name of a case, which may break after a slash and nowhere else."""
    return escape(case).replace("/", "/<wbr>")


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


def environment_fragment(root: Path, path: Path, data: dict) -> Fragment:
    """The machines and versions, the files, and why some rows have no result."""
    names = runs_used(data, data["rows"])
    environments = [data["environments"][name] for name in names]
    body: list[Row | list[str]] = []
    for key, title in FIELDS.items():
        values = [env[key] for env in environments]
        body.append([title, *(f"{v:,}" if isinstance(v, int) else _value(key, v) for v in values)])
    for peer in dict.fromkeys(peer for env in environments for peer in env["peers"]):
        body.append(
            [label_of(peer), *(env["peers"].get(peer) or "not installed" for env in environments)]
        )
    suites = [
        ", ".join(
            dict.fromkeys(
                row["suite"].replace("_", " ") for row in data["rows"] if row["environment"] == name
            )
        )
        for name in names
    ]
    body.append(["measured in it", *suites])
    heads = ["", *(f"run {at}" for at in range(1, len(names) + 1))]
    parts = [block(table(heads, body, len(heads)))]
    others = [other.name for other in sorted((root / DATA).glob("*.json"))]
    files = ", ".join(
        f"[{name}](data/{name})" + (" (shown)" if name == path.name else "") for name in others
    )
    parts.append(f"Data files: {files}; they keep to the [published schema](schema.json).")
    groups = reason_groups(data["rows"])
    if groups:
        parts.append("## Without a result, and why")
        parts.append(
            "Libraries have limits, and the measurement keeps them: a case that one refuses, "
            "breaks on or gets wrong stays in the data with what the library said."
        )
        parts.append(block(_reasons(groups)))
    parts.append("## The code that was measured")
    parts.append(
        "The hash covers a kernel's own file, those that it imports, and the operations that it "
        "takes as constants, without comments."
    )
    hashes = environments[-1]["sources"]
    lines: list[Row | list[str]] = [
        [label_of(name), _files(name), f'<code class="hash">{sha}</code>']
        for name, sha in hashes.items()
    ]
    parts.append(block(table(["implementation", "begins at", "SHA-256"], lines, 3)))
    return Fragment("\n\n".join(parts) + "\n", measured_by(data["rows"], tuple(hashes)))


def _value(key: str, value) -> str:
    text = escape(str(value))
    return f"<code>{text[:12]}</code>" if key == "commit" else text


def _files(name: str) -> str:
    """The files that an implementation begins with, each linked to the page that shows it whole."""
    return ", ".join(
        f'<a href="../../{source.page_of(f"{source.LIBRARY}/{file}").removesuffix(".md")}/">'
        f"<code>{file}</code></a>"
        for file in ENTRIES.get(name, ())
    )


def _reasons(groups: list[tuple[str, str, str, list[dict]]]) -> str:
    """One line for each limit of a library, however many messages say it."""
    merged: dict[tuple, list[tuple[str, list[dict]]]] = {}
    for provider, state, reason, rows in groups:
        merged.setdefault((provider, state), []).append((reason, rows))
    lines: list[Row | list[str]] = []
    for (provider, state), items in merged.items():
        rows = [row for _, some in items for row in some]
        lengths = [n_cols(row) for row in rows]
        suites = dict.fromkeys(row["suite"].replace("_", " ") for row in rows)
        lines.append(
            [
                label_of(provider),
                f"{state.replace('_', ' ')}, {len(rows)} rows",
                "<br>".join(f"<q>{escape(reason)}</q>" for reason, _ in items),
                ", ".join(suites),
                f"{min(lengths):,} … {max(lengths):,}",
            ]
        )
    return table(["who", "state", "what it said", "where", "lengths"], lines, 5)


def gpu_tests_fragment(root: Path) -> Fragment:
    """The last run of the GPU tests in a sentence and by module, with what the code was then."""
    path = root / TESTS
    if not path.is_file():
        return Fragment("No run of the GPU tests is recorded yet.\n")
    data = json.loads(path.read_text(encoding="utf-8"))
    return Fragment(gpu_tests_text(data), Measured(data["utc"], data["sources"]))


def gpu_tests_text(data: dict) -> str:
    """The run as Markdown."""
    body: list[Row | list[str]] = [
        [f"<code>{name}</code>", *map(str, numbers)] for name, numbers in data["modules"].items()
    ]
    lines = [
        gpu_report.sentence(data),
        "",
        block(table(["test module", "passed", "failed", "skipped"], body)),
    ]
    if data["failures"]:
        lines += ["", "Failed:", ""] + [f"* `{name}`" for name in data["failures"]]
    return "\n".join(lines) + "\n"


def sanitizer_fragment(root: Path) -> Fragment:
    """Which code the sanitizer saw, and when."""
    path = root / SANITIZER
    if not path.is_file():
        return Fragment("No run of the sanitizer is recorded yet.\n")
    run = json.loads(path.read_text(encoding="utf-8"))
    text = f"Last run: commit `{run['commit'][:12]}`, {time_text(run['utc'])} UTC.\n"
    return Fragment(text, Measured(run["utc"], run["sources"]))


def fragments(
    root: Path, path: Path | None, data: dict, reasons: dict[str, str]
) -> dict[str, Fragment]:
    """The pages on targets and on the environment, by the name of their fragment."""
    return {
        "bench-targets": targets_fragment(data, reasons),
        "bench-environment": environment_fragment(root, path, data) if path else NOT_MEASURED,
        "gpu-tests": gpu_tests_fragment(root),
        "sanitizer": sanitizer_fragment(root),
    }
