"""The rows of a page as CSV."""

from __future__ import annotations

import csv
import io

from softmax_bench.report import gbs

BEFORE = "case suite op direction dtype shape dim layout inputs provider status".split()
AFTER = "max_abs_error max_rel_error kernels count utc".split()
MACHINE = "gpu driver cuda torch triton commit".split()
TIMES = ("p20", "p50", "p80")
RENAMED = {"count": "compiled", **{name: f"{name}_us" for name in TIMES}}


def csv_text(data: dict, rows: list[dict]) -> str:
    """The rows of a page as CSV, with machine and software in every line."""
    speeds = ["samples", "gb_per_s", "gb_per_s_counting_m_n"]
    names = [*BEFORE, "reason", "bytes", *TIMES, *speeds, *AFTER, *MACHINE, "peer_version"]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: RENAMED.get(name, name) for name in names})
    for row in rows:
        env, speed = data["environments"][row["environment"]], gbs(row)
        moved = 3 if row["direction"] == "backward" else 2
        writer.writerow(
            {**row, **(row["us"] or {}), **{name: env[name] for name in MACHINE}}
            | {"shape": "x".join(map(str, row["shape"])), "kernels": " ".join(row["kernels"])}
            | {"gb_per_s": round(speed, 1) if speed else None}
            | {"gb_per_s_counting_m_n": round(speed / moved, 1) if speed else None}
            | {"peer_version": env["peers"].get(row["provider"])}
        )
    return out.getvalue()
