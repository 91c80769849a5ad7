"""Everything that follows from the measurements, by name and path."""

from __future__ import annotations

from pathlib import Path

from softmax_bench import schema
from softmax_bench.roster import PROVIDERS, RUNGS
from softmax_site.benchmarks import gpu_tests, summaries
from softmax_site.benchmarks.data import newest, of_suite, read_reasons, size_key
from softmax_site.benchmarks.drawing import style_sheet
from softmax_site.benchmarks.page import Rendered
from softmax_site.benchmarks.suites import PAGES


def render(root: Path) -> Rendered:
    """Every fragment and file; without data the fragments say so."""
    out = Rendered()
    out.assets["assets/bench-colours.css"] = style_sheet()
    out.assets["benchmarks/schema.json"] = schema.schema_text()
    out.fragments["gpu-tests"] = gpu_tests.fragment(root)
    found = newest(root)
    path, data = found if found else (None, {"rows": []})
    order = {case: at for at, case in enumerate(dict.fromkeys(r["case"] for r in data["rows"]))}
    rank = {name: at for at, name in enumerate(PROVIDERS)}
    data["rows"].sort(
        key=lambda row: (size_key(row), order[row["case"]], rank.get(row["provider"], len(rank)))
    )
    for suite, build in PAGES.items():
        if of_suite(data, suite):
            out.add(build(data))
        else:
            out.fragments[f"bench-{suite}"] = summaries.NOT_MEASURED
    for rung in RUNGS:
        out.fragments[f"bench-rung-{rung}"] = summaries.rung_fragment(data, rung)
    out.fragments["bench-targets"] = summaries.targets_fragment(data, read_reasons(root))
    out.fragments["bench-summary"] = summaries.home_fragment(data)
    out.fragments["bench-environment"] = (
        summaries.environment_fragment(root, path, data) if path else summaries.NOT_MEASURED
    )
    return out
