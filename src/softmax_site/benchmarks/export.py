"""The rows of a page as CSV."""

from __future__ import annotations

import csv
import io

from softmax_bench.report import gbs


def csv_text(data: dict, rows: list[dict]) -> str:
    """The rows of a page as CSV, with machine and software in every line."""
    out = io.StringIO()
    env_fields = ("gpu", "driver", "cuda", "torch", "triton", "commit")
    names = [
        "case",
        "suite",
        "op",
        "direction",
        "dtype",
        "shape",
        "dim",
        "layout",
        "inputs",
        "provider",
        "status",
    ]
    names += [
        "reason",
        "bytes",
        "p20_us",
        "p50_us",
        "p80_us",
        "samples",
        "gb_per_s",
        "gb_per_s_counting_m_n",
    ]
    names += [
        "max_abs_error",
        "max_rel_error",
        "kernels",
        "compiled",
        "source",
        "utc",
        *env_fields,
        "peer_version",
    ]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        env, us = data["environments"][row["environment"]], row["us"] or {}
        speed = gbs(row)
        half = speed / (3 if row["direction"] == "backward" else 2) if speed else None
        writer.writerow(
            [row[name] for name in ("case", "suite", "op", "direction", "dtype")]
            + ["x".join(map(str, row["shape"]))]
            + [
                row[name]
                for name in ("dim", "layout", "inputs", "provider", "status", "reason", "bytes")
            ]
            + [us.get(name) for name in ("p20", "p50", "p80")]
            + [row["samples"], round(speed, 1) if speed else None, round(half, 1) if half else None]
            + [row["max_abs_error"], row["max_rel_error"], " ".join(row["kernels"]), row["count"]]
            + [
                row["source"],
                row["utc"],
                *(env[name] for name in env_fields),
                env["peers"].get(row["provider"]),
            ]
        )
    return out.getvalue()
