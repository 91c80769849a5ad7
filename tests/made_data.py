"""Data as a run would write it, without a GPU: times follow from made-up speeds, the same on every
call."""

import zlib

from softmax_bench.cases import SUITES
from softmax_bench.report import TURNS
from softmax_bench.roster import CHOOSER, COPY
from softmax_bench.schema import FORMAT

SPEED = {COPY: 4000, CHOOSER: 3900, "torch": 2000, "torch.compile": 2600, "liger": 3700}
SPEED |= {"flag_gems": 3300, "quack": 3850, "naive": 700, "three_loops": 2100, "two_loops": 2700}
SPEED |= {"single_block": 3600, "packed_rows": 3800, "aligned_rows": 3700, "split_rows": 3650}
SPEED |= dict.fromkeys(("trl", "transformer_engine", "helion", "flashinfer"), 2500)
SPEED |= {"strided": 3700}
"""Made-up GB/s of each provider."""


def environment(**changes) -> dict:
    """A made-up machine."""
    made = {"gpu": "Made-up GPU", "gpu_memory_bytes": 2**37, "multiprocessors": 100}
    made |= {"l2_bytes": 2**26, "driver": "1.2.3", "cuda": "13.0", "torch": "2.11.0"}
    made |= {"triton": "3.6.0", "python": "3.12.3", "system": "Linux", "timer": "made-up"}
    made |= {"peers": {"liger": "0.8.5", "flag_gems": "5.0.2", "quack": None}}
    made |= {"commit": "0123456789abcdef0123456789abcdef01234567", "flush_bytes": 2**28}
    return made | {"started": "2026-11-20T20:00:00Z"} | changes


def turns(us: float) -> list[float]:
    """The medians of turns of a call that takes so long."""
    return [round(us * (1 + 1e-4 * (at % 3 - 1)), 4) for at in range(TURNS)]


def row(case, provider: str, **changes) -> dict:
    """A made-up row: right, and as fast as `SPEED` says, give or take what the names hash to."""
    noise = zlib.crc32(f"{case.id} {provider}".encode()) % 1000 / 1000
    us = 2.0 + case.bytes / SPEED[provider] / 1e3 * (1 + 0.1 * noise)
    times = {"p20": round(us * 0.99, 3), "p50": round(us, 3), "p80": round(us * 1.02, 3)}
    nothing = {"us": None, "samples": 0, "max_abs_error": None, "max_rel_error": None}
    made = case.fields | {"provider": provider, "status": "ok", "reason": None, "us": times}
    made |= {"samples": 50, "max_abs_error": 1e-7, "max_rel_error": 2e-7 * (1 + noise)}
    made |= {
        "kernels": {CHOOSER: ["single_block"], "strided": ["strided_kernel"]}.get(provider, [])
    }
    made |= {"count": None, "utc": "2026-11-20T20:01:00Z"}
    if case.suite == "accuracy":
        made |= {"us": None, "samples": 0}
    if provider == "quack":
        no = "import quack.softmax: no module | named quack"
        made |= nothing | {"status": "skipped", "reason": no}
    if provider == "liger" and case.n_cols > 65536:
        made |= nothing | {"status": "failed", "reason": "RuntimeError: too long"}
    if provider == "flag_gems" and case.inputs == "masked":
        far = "largest relative error of a row inf"
        made |= {"status": "wrong", "reason": far, "max_rel_error": "inf"}
    if case.suite == "compiles":
        made |= {"count": 12 + (case.dtype == "float16") * 20, "samples": 1000}
    if made["us"] and "us" not in changes and case.suite != "compiles":
        made["us_turns"] = turns(made["us"]["p50"])
        made |= {"us_loop": 12.0} if case.suite in ("few_rows", "loss_head") else {}
    return {**made, **changes}


def as_read(made: dict) -> dict:
    """A run as pages read it: each row has the machine and software of its run."""
    return {"rows": [each | {"environment": made["environment"]} for each in made["rows"]]}


def data(suites: tuple[str, ...] = tuple(SUITES), **changes) -> dict:
    """A whole made-up run."""
    rows = [
        row(case, name) for suite in suites for case in SUITES[suite] for name in case.providers
    ]
    return {"format": FORMAT, "environment": environment(**changes), "rows": rows}
