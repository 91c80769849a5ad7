"""Everything that follows from the measurements, by name and path."""

from __future__ import annotations

from pathlib import Path

from softmax_bench import schema
from softmax_bench.roster import PROVIDERS
from softmax_site.benchmarks import bookkeeping, ranks, rungs, tuning, views
from softmax_site.benchmarks.data import newest, read_reasons, size_key
from softmax_site.benchmarks.page import Rendered


def render(root: Path) -> Rendered:
    """Every fragment and file; without data the fragments say so."""
    found = newest(root)
    path, data = found if found else (None, {"rows": []})
    order = {case: at for at, case in enumerate(dict.fromkeys(r["case"] for r in data["rows"]))}
    rank = {name: at for at, name in enumerate(PROVIDERS)}
    data["rows"].sort(
        key=lambda row: (size_key(row), order[row["case"]], rank.get(row["provider"], len(rank)))
    )
    out = views.fragments(data)
    out.assets["benchmarks/schema.json"] = schema.schema_text()
    out.fragments |= rungs.fragments(data)
    out.fragments |= ranks.fragments(root)
    out.fragments |= bookkeeping.fragments(root, path, data, read_reasons(root))
    out.fragments |= {"tuning-choices": tuning.choices(root), "tuning-seeds": tuning.seeds(root)}
    return out
