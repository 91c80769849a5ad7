"""What is said about all suites together, and about one rung on its own page."""

from __future__ import annotations

from pathlib import Path

from softmax_bench import targets
from softmax_bench.report import LEVEL, by_case, gbs, standing, timed
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site.benchmarks.data import DATA, of_suite, runs_used, shape_text
from softmax_site.benchmarks.page import Fragment, measured_by
from softmax_site.benchmarks.sentences import measured_line, summary
from softmax_site.benchmarks.tables import speed_cell, table

NOT_MEASURED = Fragment("Not measured yet.\n")

WHERE = {
    "ladder": "All rungs on the same shapes, machine, versions and commit: "
    "[the ladder measured](../benchmarks/ladder.md).",
    "strided": "The same shapes against every library: "
    "[strides measured](../benchmarks/strides.md).",
}
"""The page with the rest of the suite that a rung's numbers come from."""


def rung_fragment(data: dict, rung: str) -> Fragment:
    """What one rung reaches, for its own page."""
    suite = "strided" if rung == "strided" else "ladder"
    rows = of_suite(data, suite)
    mine = [row for row in rows if row["provider"] == rung]
    if not mine:
        return NOT_MEASURED
    parts = [measured_line(data, mine)]
    body, losses = [], []
    for group in by_case(rows).values():
        row = group.get(rung)
        if row is None:
            continue
        speed, copy, other = gbs(row), gbs(group.get(COPY)), gbs(group.get("torch"))
        if row["status"] != "ok":
            speed = None
        to_torch = speed / other if speed and other else None
        slower = to_torch is not None and standing(to_torch) == "behind"
        if slower:
            losses.append((to_torch, row))
        against = "–" if to_torch is None else f"{to_torch:.2f} × torch"
        body.append(
            [row["direction"], row["dtype"], shape_text(row), speed_cell(row)]
            + [f"{speed / copy:.2f}" if speed and copy else "–"]
            + [f"**▼ {against}, loss**" if slower else against]
        )
    parts.append(
        table(["direction", "dtype", "shape", "GB/s", "of copy", "against torch"], body, 3)
    )
    if losses:
        worst, row = min(losses, key=lambda item: item[0])
        parts.append(
            f"It is more than {LEVEL:.0%} slower than torch in {len(losses)} of these {len(body)} "
            f"cases, most on {shape_text(row)}, {row['direction']}, {row['dtype']}: "
            f"{worst:.2f} of torch's speed."
        )
    elif any(timed(row) for row in mine):
        parts.append(f"It is nowhere more than {LEVEL:.0%} slower than torch on these shapes.")
    parts.append(WHERE[suite])
    return Fragment("\n\n".join(parts) + "\n", measured_by(mine, (rung,)))


def targets_fragment(data: dict, reasons: dict[str, str]) -> Fragment:
    """The targets, met and missed."""
    found = targets.cells(data["rows"])
    rows = [row for row in data["rows"] if row["provider"] == CHOOSER]
    parts = [measured_line(data, rows)] if rows else []
    body = []
    for regime in dict.fromkeys(cell.regime for cell in found):
        for asked in dict.fromkeys(cell.asked for cell in found if cell.regime == regime):
            cells = [cell for cell in found if (cell.regime, cell.asked) == (regime, asked)]
            met = sum(cell.met for cell in cells)
            worst = min(cells, key=lambda cell: cell.margin)
            tick = "✓" if met == len(cells) else "✗"
            body.append(
                [regime, asked, f"{tick} {met} of {len(cells)}", worst.reached, f"`{worst.case}`"]
            )
    means = targets.means(data["rows"])
    for name, least in (("best peer", targets.OVER_BEST_PEER), ("torch", targets.OVER_TORCH)):
        mean, cases, low = means[name]
        if mean is not None:
            tick = "✓" if mean >= least else "✗"
            body.append(
                [
                    "forward, backward and few rows",
                    f"geometric mean over the {name} at least {least}",
                ]
                + [f"{tick} {mean:.2f}", f"lowest {low:.2f}", f"{cases} cases"]
            )
    parts.append(table(["regime", "target", "met", "worst", "where"], body, 2))
    missed = sorted((cell for cell in found if not cell.met), key=lambda cell: cell.margin)
    if missed:
        parts.append(f"Missed, worst first ({len(missed)} of {len(found)}):")
        parts.append(
            table(
                ["case", "target", "reached", "reason"],
                [
                    [
                        f"`{c.case}`",
                        c.asked,
                        c.reached,
                        targets.reason_for(c.case, reasons) or "not explained yet",
                    ]
                    for c in missed
                ],
                4,
            )
        )
    else:
        parts.append(f"All {len(found)} cells are met.")
    return Fragment("\n\n".join(parts) + "\n", measured_by(rows))


def environment_fragment(root: Path, path: Path, data: dict) -> Fragment:
    """The machines and versions, the files, and every row without a result with its reason."""
    parts = [measured_line(data, data["rows"])]
    fields = {
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
    names = runs_used(data, data["rows"])
    body = []
    for key, title in fields.items():
        values = [data["environments"][name][key] for name in names]
        body.append(
            [title, *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)]
        )
    for peer in dict.fromkeys(
        peer for name in names for peer in data["environments"][name]["peers"]
    ):
        versions = [
            data["environments"][name]["peers"].get(peer) or "not installed" for name in names
        ]
        body.append([label_of(peer), *versions])
    parts.append(table(["", *names], body, len(names) + 1))
    others = [other.name for other in sorted((root / DATA).glob("*.json"))]
    files = ", ".join(
        f"[{name}](data/{name})" + (" (shown)" if name == path.name else "") for name in others
    )
    parts.append(f"Data files: {files}; they keep to the [published schema](schema.json).")
    without: dict[tuple, int] = {}
    for row in data["rows"]:
        if row["status"] != "ok":
            key = (
                label_of(row["provider"]),
                row["suite"],
                row["status"],
                row["reason"] or "",
            )
            without[key] = without.get(key, 0) + 1
    if without:
        parts.append("Rows without a result, with the reason as the provider gave it:")
        body = [
            [
                who,
                suite,
                status,
                str(count),
                "`" + reason.replace("|", "/").replace("`", "'") + "`" if reason else "–",
            ]
            for (who, suite, status, reason), count in sorted(without.items())
        ]
        parts.append(table(["who", "suite", "state", "rows", "reason"], body, 3))
    hashes = data["environments"][names[-1]]["sources"]
    parts.append("Hash of each implementation's source in the last run:")
    parts.append(
        table(
            ["implementation", "SHA-256"], [[label_of(n), f"`{h}`"] for n, h in hashes.items()], 2
        )
    )
    return Fragment("\n\n".join(parts) + "\n", measured_by(data["rows"]))


def home_fragment(data: dict) -> Fragment:
    """Two sentences for the front pages."""
    rows = of_suite(data, "forward") + of_suite(data, "backward")
    if not rows:
        return NOT_MEASURED
    text = f"{summary(rows).split(' Losses:')[0]} {measured_line(data, rows)}\n"
    return Fragment(text, measured_by(rows))
