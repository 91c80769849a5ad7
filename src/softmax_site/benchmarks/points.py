"""From rows to charts."""

from __future__ import annotations

from softmax_bench.report import by_case, gbs, timed
from softmax_bench.roster import COPY, PROVIDERS, label_of
from softmax_site.benchmarks.charts import Chart
from softmax_site.benchmarks.data import n_cols, runs_used


def points(data: dict, rows: list[dict], x, y) -> list[dict]:
    """The points of a chart: every row that has a value, with what the tooltip shows."""
    found = []
    groups = by_case(rows)
    for row in rows:
        if row["status"] not in ("ok", "wrong"):
            continue
        value = y(row)
        if not value or value == float("inf"):
            continue
        us, speed = row["us"] or {}, gbs(row)
        point = {
            "provider": row["provider"],
            "x": x(row),
            "y": round(value, 3) if value >= 0.01 else value,
            "case": row["case"],
            "run": row["environment"],
            "utc": row["utc"],
            **{name: us[name] for name in us},
        }
        if speed:
            point["gbs"] = round(speed)
        if us:
            point["samples"] = row["samples"]
        copy = timed(groups[row["case"]].get(COPY))
        if copy and us:
            point["of_copy"] = round(copy / us["p50"], 3)
        for name in ("max_abs_error", "max_rel_error"):
            if row[name] is not None:
                point[name] = row[name]
        if row["kernels"]:
            point["kernels"] = ", ".join(row["kernels"])
        if row["source"]:
            point["source"] = row["source"][:12]
        found.append(point)
    return found


def runs_of(data: dict, rows: list[dict]) -> list[dict]:
    """Machine and software of each run, for the tooltip."""
    keys = ("gpu", "driver", "cuda", "torch", "triton", "commit")
    return [
        {"run": name, **{key: data["environments"][name][key] for key in keys}}
        for name in runs_used(data, rows)
    ]


def speed_chart(data: dict, name: str, rows: list[dict], title: str, **more) -> Chart:
    """Throughput over the row length."""
    who = ", ".join(label_of(p) for p in PROVIDERS if any(row["provider"] == p for row in rows))
    return Chart(
        name=name,
        alt=(
            f"{title}: throughput in GB/s over the number of columns N, for {who}. The "
            "numbers are in the table below."
        ),
        x_title="columns N",
        y_title="GB/s of useful traffic",
        points=points(data, rows, n_cols, gbs),
        runs=runs_of(data, rows),
        **more,
    )


def named_chart(
    data: dict, name: str, rows: list[dict], title: str, label, y, y_title: str, **more
) -> Chart:
    """Values over cases that have names rather than a size."""
    categories = list(dict.fromkeys(label(row) for row in rows))
    return Chart(
        name=name,
        alt=f"{title}. The numbers are in the table below.",
        x_title="",
        y_title=y_title,
        points=points(data, rows, label, y),
        runs=runs_of(data, rows),
        categories=categories,
        **more,
    )
