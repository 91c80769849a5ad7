"""What becomes of measured cells when constants change after the measurement.

A constant of `triton_softmax.choose` changes what some calls launch, and no other. So not all is
old that was measured before: a cell whose plan is still the same, in kernels that are still the
same, was measured with what the library launches today. `python -m softmax_bench replanned`
compares it with each commit that was measured, and writes down which cells are planned otherwise;
the pages leave those out until they are measured again.

Run as a program this file reads rows of a data file and prints the plan of each: that of the
package it finds.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

FILE = "docs/benchmarks/replanned.json"

CHOSEN = "choose"
"""The folder whose changes are followed cell by cell."""

CHOOSER = "triton_softmax"
"""The provider that is the library itself."""

GEOMETRIES = ("packed_rows", "aligned_rows", "split_rows", "strided")
"""Providers that insist on a kernel of ours, and leave its constants to the library."""


class NotOnlyConstants(RuntimeError):
    """Something else than constants has changed."""


def _strides(row: dict) -> tuple[int, ...]:
    shape = row["shape"]
    if row["layout"] == "row_strided":
        return 2 * shape[1], 1
    if row["layout"] == "padded":
        from softmax_bench.random_shapes import pitch

        return pitch(shape[-1]), 1
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _operations(row: dict) -> list[tuple[str, str]]:
    """What a row's call plans: operations, and the dtype of the result of each."""
    op, direction, dtype = row["op"], row["direction"], row["dtype"]
    wide = "float64" if dtype == "float64" else "float32"
    if op == "mapped_softmax":
        return []  # not planned by what this follows
    if op == "token_logprobs":
        return [("entropy", wide)]
    if op in ("cross_entropy", "linear_cross_entropy"):
        gradient = direction != "forward"
        return [("cross_entropy_gradient", dtype) if gradient else ("cross_entropy", wide)]
    if direction == "backward":
        return [(f"{op}_backward", dtype)]
    if direction == "forward_backward":
        return [(op, dtype), (f"{op}_backward", dtype)]
    return [(op, dtype)]


def plans_of(row: dict, device: Any) -> list:
    """What a row's call launches on a device, as text."""
    import torch

    from triton_softmax import plan

    dtype = getattr(torch, row["dtype"])
    shape, dim = tuple(row["shape"]), row["dim"] % len(row["shape"])
    implementation = row["provider"] if row["provider"] in GEOMETRIES else None
    original, plan._device_of = plan._device_of, lambda _: device
    try:
        found = []
        for name, out_dtype in _operations(row):
            op = plan.operation_of(name)
            x = torch.empty_strided(shape, _strides(row), dtype=dtype, device="meta")
            without = shape[:dim] + shape[dim + 1 :]
            numbers = torch.empty(without, dtype=torch.float32, device="meta")
            backward = (torch.empty(shape, dtype=dtype, device="meta"),) * (op.inputs - 1)
            inputs = (x, *backward, *(numbers,) * op.numbers)
            wanted = without if op.reduces else shape
            out = torch.empty(wanted, dtype=getattr(torch, out_dtype), device="meta")
            outs = (out, *(numbers,) * (op.results - 1))
            planned = plan._plan_launches(name, inputs, outs, dim, implementation)
            launches = getattr(planned, "launches", ())
            found += [
                [each.kernel.__name__, each.grid, repr(each.numbers), repr(each.constants["HOW"])]
                + [repr(each.options)]
                for each in launches
            ]
        return found
    finally:
        plan._device_of = original


def plans(data: dict, measured: Collection[str]) -> dict[str, list]:
    """The plans of all rows of ours that a choice is made for and that were measured with these
    sources, by case and provider."""
    from triton_softmax.choose import Device

    found = {}
    for row in data["rows"]:
        ours = row["provider"] in (CHOOSER, *GEOMETRIES) and row["suite"] != "compiles"
        if ours and row["status"] == "ok" and row["source"] in measured:
            environment = data["environments"][row["environment"]]
            device = Device(environment["multiprocessors"], nvidia=True)
            found[f"{row['case']} {row['provider']}"] = plans_of(row, device)
    return found


def _sources_at(base: str, root: Path, folder: Path) -> Path:
    archive = subprocess.run(
        ["git", "archive", base, "src/triton_softmax"], cwd=root, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def _plans_in(source: Path, data: Path, measured: Iterable[str]) -> dict[str, list]:
    """`plans` of the package in another folder, by a process of its own."""
    here = Path(__file__).resolve()
    paths = [str(source), str(here.parents[1])]
    run = subprocess.run(
        [sys.executable, str(here), str(data), *measured],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(run.stdout)


def compare(base: str, root: Path, data: Path) -> dict:
    """What stands in `FILE` of a commit that was measured: the commit, the hashes of sources on
    both sides, and the cells that are planned otherwise. What was measured at another is left
    alone.

    Raises:
        NotOnlyConstants: a file outside `choose` has changed, which a softmax rests on.
    """
    from softmax_bench import sources

    here = sources.PACKAGE.parent
    with tempfile.TemporaryDirectory() as folder:
        old = _sources_at(base, root, Path(folder)) / sources.PACKAGE.name
        names = [*sources.ENTRIES, *sources.BESIDE]
        pairs = {
            name: {"measured": sources.hash_of(name, old), "now": sources.hash_of(name)}
            for name in names
        }
        pairs = {name: pair for name, pair in pairs.items() if pair["measured"] != pair["now"]}
        for name in list(pairs):
            before, after = (
                {
                    file.relative_to(package): sources.read(file, package)[0]
                    for file in sources.files_of(name, package)
                    if file.parent.name != CHOSEN
                }
                for package in (old, sources.PACKAGE)
            )
            if before != after:
                if name in sources.BESIDE:  # measured by itself, or shown as it was
                    del pairs[name]
                    continue
                other = {file for file in before | after if before.get(file) != after.get(file)}
                raise NotOnlyConstants(f"{name}: {', '.join(sorted(map(str, other)))}")
        measured = [str(pair["measured"]) for pair in pairs.values()]
        then, now = (_plans_in(each, data, measured) for each in (old.parent, here))
    cells = [cell for cell, planned in then.items() if planned != now[cell]]
    return {"base": base, "sources": pairs, "cells": sorted(cells)}


def bases(data: dict) -> list[str]:
    """The commits that were measured."""
    return sorted({each["commit"] for each in data["environments"].values()})


def applied(data: dict, found: dict, hashes: Mapping[str, str | None]) -> dict:
    """The data without cells that are planned otherwise, and with the sources of today where all
    else is as it was measured; the data as they are, if what was found is not about them."""
    pairs = {
        name: pair for name, pair in found["sources"].items() if hashes.get(name) == pair["now"]
    }
    if pairs.keys() != found["sources"].keys():
        return data

    def renewed(known: dict[str, str]) -> dict[str, str]:
        return {
            name: pairs[name]["now"] if name in pairs and pairs[name]["measured"] == sha else sha
            for name, sha in known.items()
        }

    of_hash = {pair["measured"]: pair["now"] for pair in pairs.values()}
    gone = set(found["cells"])
    # Without the library itself there is nothing to compare the others with.
    again = {
        row["case"]
        for row in data["rows"]
        if row["provider"] == CHOOSER and row["source"] not in of_hash
    }
    cases = {cell.removesuffix(f" {CHOOSER}") for cell in gone if cell.endswith(f" {CHOOSER}")}
    rows = [
        {**row, "source": of_hash.get(row["source"], row["source"])}
        for row in data["rows"]
        if row["case"] in again
        or (row["case"] not in cases and f"{row['case']} {row['provider']}" not in gone)
    ]
    environments = {
        name: {**each, "sources": renewed(each["sources"])}
        for name, each in data["environments"].items()
    }
    return {**data, "environments": environments, "rows": rows}


if __name__ == "__main__":
    _, file, *hashes = sys.argv
    print(json.dumps(plans(json.loads(Path(file).read_text(encoding="utf-8")), hashes)))
