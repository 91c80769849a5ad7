"""What a GPU's counters say of measured calls: `python -m softmax_bench profile`.

The command runs itself below Nsight Compute, which launches each kernel of a call again and again,
with cold caches, until it has read every counter. Clocks stay as they are.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from softmax_bench import cases, report, targets
from softmax_bench.case import Case
from softmax_bench.launches import read_rows
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import DataError, add_run

FORMAT = "triton-softmax-profile/1"
FILE = "docs/benchmarks/profile.json"

_PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
_LIMIT = "launch__occupancy_limit_{}"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
_SPILLED = "l1tex__t_bytes_pipe_lsu_mem_local_op_{}.sum"

METRICS = {
    "ns": "gpu__time_duration.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors.sum",  # of 32 bytes
    "sectors_a_load": _SECTORS.format("ld"),
    "sectors_a_store": _SECTORS.format("st"),
    "spilled_read": _SPILLED.format("ld"),
    "spilled_write": _SPILLED.format("st"),
    "instructions": "smsp__inst_issued.sum",  # of warps
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps_at_most": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    **{pipe: _PIPE.format(pipe) for pipe in ("xu", "fma", "alu", "lsu")},
}
"""What is kept of a launch; percentages are of what the multiprocessors that run could do."""

LIMITS = ("registers", "shared_mem", "warps", "blocks")
"""What may bound the programs of a multiprocessor."""

STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle"),
    *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction"),
    *("not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait"),
)
"""Why a warp does not issue, or that it does: kept is what takes a percent of the warps' time."""

ASKED = [
    *METRICS.values(),
    *map(_LIMIT.format, LIMITS),
    *map(_STALL.format, STALLS),
]

GEOMETRIES = (
    "forward/softmax/forward/bfloat16/32768x4096",  # packed rows
    "forward/softmax/forward/bfloat16/171853x781",  # aligned rows
    "backward/softmax/backward/bfloat16/171853x781",
    "forward/softmax/forward/bfloat16/1024x131072",  # split rows
    "strided/softmax/forward/float32/64x1024x2048/dim1",  # strided
    "strided/softmax/forward/float32/4096x32768/dim0",  # split strided
    "longest/softmax/forward/bfloat16/8x67108867",  # two passes
    "loss_head/modified_softmax/forward/bfloat16/8x16x1024x1024/mask",  # masked rows
    "loss_head/token_logprobs/forward/bfloat16/8192x151936",  # token rows
    "loss_head/cross_entropy/forward_backward/bfloat16/4185x128256",  # loss
)
"""A published case of each geometry."""

HEADLINES = ("forward", "backward")
NO_KERNELS = ("compiles", "host_time", "compiled")
"""Suites whose targets no counter of a GPU explains."""

Chosen = list[tuple[Case, str]]


def chosen(rows: list[dict]) -> dict[str, list[str]]:
    """The calls worth a profile, by case: a case of each geometry, what misses a target, and what
    another library is faster at, beside that library."""
    missed = {cell.case for cell in targets.cells(rows) if not cell.met}
    found = {case: [CHOOSER] for case in GEOMETRIES}
    for case, group in report.by_case(rows).items():
        suite, peer = case.split("/")[0], report.best_peer(group)
        if not next(iter(group.values()))["bytes"]:
            continue  # no traffic bounds it, and counters are told as shares of that
        slower = peer and report.standing(group, peer) == "behind"
        if suite not in NO_KERNELS and (case in missed or (slower and suite in HEADLINES)):
            found[case] = [CHOOSER]
        if peer and slower and peer not in found.get(case, [peer]):
            found[case].append(peer)
    return found


def lines_of(calls: Path | None, data: Path) -> list[str]:
    """What is profiled, a case a line with its providers: of a list, or else of measurements."""
    if calls:
        return calls.read_text("utf-8").splitlines()
    rows = read_rows(data)
    return [" ".join([case, *names]) for case, names in chosen(rows).items()]


def listed(lines: Iterable[str]) -> Chosen:
    """Lines of a case and its providers, as cases; what is no case any more is left out, and said.

    >>> found = listed(["forward/softmax/forward/float32/4194304x32 torch quack"])
    >>> [(case.n_cols, name) for case, name in found]
    [(32, 'torch'), (32, 'quack')]
    """
    words = [*filter(None, map(str.split, lines))]
    seeds = {int(seed) for case, *_ in words for seed in re.findall(r"^random/seed(\d+)", case)}
    every = {case.id: case for seed in seeds or {0} for case in cases.select(seed=seed)}
    found = []
    for case, *names in words:
        if case not in every:
            print(f"no case is named {case}", file=sys.stderr)
        found += [(every[case], name) for name in names if case in every]
    return found


# --- below Nsight Compute


def call_each(chosen: Chosen, reached: Path, seconds: float) -> None:
    """Call everyone once while it is profiled, warm, and write down who was reached by then. Calls
    take turns on two streams, by which the launches of one are told from those of the next."""
    import torch

    from softmax_bench import providers, warmup
    from softmax_bench.inputs import Inputs

    warmup.hasten_autotuning()
    inputs, streams = Inputs("cuda"), [torch.cuda.Stream(), torch.cuda.Stream()]
    begin, made, tensors = time.monotonic(), "", None
    with reached.open("w", encoding="utf-8") as file:
        for case, name in chosen:
            if time.monotonic() - begin > seconds:
                return
            try:
                if made != case.id:
                    tensors = None  # makes room
                    made, tensors = case.id, inputs.tensors(case)
                    inputs.synchronize()
                assert tensors is not None
                with torch.cuda.stream(streams[0]):
                    call = providers.prepare(case, name, tensors)
                    for _ in range(2):
                        call()
                    inputs.synchronize()
                    with torch.cuda.profiler.profile():
                        call()
                        inputs.synchronize()
            except Exception as error:
                print(f"{case.id} {name}: {type(error).__name__}: {error}", flush=True)
                continue
            streams.reverse()
            print(case.id, name, file=file, flush=True)
            print(f"[{time.monotonic() - begin:5.1f} s] {case.id} {name}", flush=True)


# --- above it


def launches(text: Iterable[str]) -> tuple[list[list[dict]], list[str]]:
    """The launches of each call in what Nsight Compute prints as CSV, and the counters that it does
    not have."""
    rows = list(csv.DictReader(line for line in text if line.startswith('"')))[1:]  # after units
    found = [list(map(launch, call)) for _, call in groupby(rows, key=itemgetter("Stream"))]
    return found, [name for name in ASKED if rows and number(rows[0], name) is None]


def number(row: dict[str, str], metric: str) -> float | None:
    """A counter of a launch, five digits of it; None if Nsight Compute has no such counter."""
    try:
        value = float(f"{float(row[metric].replace(',', '')):.5g}")
    except (KeyError, ValueError):
        return None
    return int(value) if value.is_integer() else value


def function(name: str) -> str:
    """The name of a kernel alone.

    >>> function("void native::<unnamed>::copy_kernel<c10::Half, long>(T1 *, native::T2<T1>)")
    'copy_kernel'
    """
    plain = name.replace("<unnamed>", "").partition("(")[0].partition("<")[0]
    return plain.replace("::", " ").split()[-1]


def launch(row: dict[str, str]) -> dict:
    """What is kept of a launch."""
    found: dict[str, Any] = {"kernel": function(row["Kernel Name"])}
    found |= {name: number(row, metric) for name, metric in METRICS.items()}
    limits = {name: number(row, _LIMIT.format(name)) for name in LIMITS}
    known = {name: value for name, value in limits.items() if value is not None}
    found["programs_limited_by"] = min(known, key=lambda name: known[name], default=None)
    stalls = {name: number(row, _STALL.format(name)) or 0 for name in STALLS}
    total = sum(stalls.values()) or 1
    shares = {name: round(100 * value / total, 1) for name, value in stalls.items()}
    found["stalls"] = {name: share for name, share in shares.items() if share >= 1}
    return {name: value for name, value in found.items() if value is not None}


def run(
    out: Path, calls: Path | None, data: Path, commit: str | None, seconds: float, processes: int
) -> None:
    """Profile calls, which are compiled ahead unless there are no processes for it, and add the run
    to a file."""
    from softmax_bench import providers, results, warmup

    lines = lines_of(calls, data)
    names, counted, reached = (out.with_suffix(each) for each in (".list", ".csv", ".reached"))
    names.write_text("\n".join(lines), encoding="utf-8")
    command = ["ncu", "--clock-control", "none", "--cache-control", "all", "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--kernel-name-base", "function", "--log-file", counted]
    command += ["--profile-from-start", "off", "--target-processes", "application-only"]
    command += ["--metrics", ",".join(ASKED), sys.executable, "-m", "softmax_bench", "profile"]
    command += ["--list", names, "--inside", reached, "--seconds", str(seconds)]
    if processes:
        warmup.compile_ahead(providers.prepare, listed(lines), processes)
    if status := subprocess.run(command).returncode:
        raise DataError(f"ncu ended with {status}: {counted}")
    found, absent = launches(counted.read_text(encoding="utf-8").splitlines())
    cells: dict[str, dict] = {}
    for line, some in zip(reached.read_text(encoding="utf-8").splitlines(), found, strict=True):
        case, name = line.split()
        cells.setdefault(case, {})[name] = some
    about = {"utc": results.now(), "commit": commit or results.git_commit()}
    about |= {"machine": results.machine(), "absent": absent, "cells": cells}
    add_run(out, about, "commit", FORMAT)
    for each in (names, counted, reached):
        each.unlink()
