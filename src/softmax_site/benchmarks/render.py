"""Everything that follows from the measurements, by name and path."""

from __future__ import annotations

from pathlib import Path

from softmax_bench import schema
from softmax_bench.roster import PROVIDERS
from softmax_site.benchmarks import bookkeeping, facts, overview, ranks, rungs
from softmax_site.benchmarks.data import newest, of_suite, read_reasons, size_key
from softmax_site.benchmarks.page import Rendered
from softmax_site.benchmarks.suites import PAGES, loss_head, tuning
from softmax_site.benchmarks.suites.random import tuning_fragment


def render(root: Path) -> Rendered:
    """Every fragment and file; without data the fragments say so."""
    out = Rendered()
    out.assets["benchmarks/schema.json"] = schema.schema_text()
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
            out.fragments[f"bench-{suite}"] = rungs.NOT_MEASURED
    out.fragments["bench-loss_head-asked"] = loss_head.asked()
    out.fragments["loss-head-speeds"] = loss_head.speeds(data)
    out.fragments["maps-speed"] = loss_head.maps_fragment(data)
    out.fragments["bench-random-tuning"] = tuning_fragment(root, data)
    out.fragments["bench-tuning"] = tuning.fragment(root)
    reasons = read_reasons(root)
    out.fragments |= overview.fragments(data, reasons)
    out.fragments |= rungs.fragments(data)
    out.fragments |= facts.fragments(data)
    out.fragments |= ranks.fragments(root)
    out.fragments |= bookkeeping.fragments(root, path, data, reasons)
    return out
