"""The last run of the GPU tests, from pytest's JUnit file to committed data."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as etree
from datetime import UTC, datetime
from pathlib import Path

from softmax_bench import sources

FORMAT = "triton-softmax-gpu-tests/2"

_COUNT = {"type": "integer", "minimum": 0}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A run of the GPU tests",
    "type": "object",
    "additionalProperties": False,
    "required": [
        "format",
        "utc",
        "commit",
        "command",
        "seconds",
        "counts",
        "machine",
        "sources",
        "modules",
        "failures",
    ],
    "properties": {
        "format": {"const": FORMAT},
        "utc": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
        "commit": {"type": "string", "minLength": 7},
        "command": {"type": "string"},
        "seconds": {"type": "number", "minimum": 0},
        "counts": {
            "type": "object",
            "additionalProperties": False,
            "required": ["passed", "failed", "skipped", "xfailed"],
            "properties": {name: _COUNT for name in ("passed", "failed", "skipped", "xfailed")},
        },
        "machine": {
            "type": "object",
            "additionalProperties": False,
            "required": ["gpu", "driver", "cuda", "torch", "triton"],
            "properties": {
                name: {"type": "string"} for name in ("gpu", "driver", "cuda", "torch", "triton")
            },
        },
        "sources": {
            "description": "Hash of each implementation's source at this commit.",
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
        "modules": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": _COUNT, "minItems": 3},
        },
        "failures": {"type": "array", "items": {"type": "string"}},
    },
}


def machine() -> dict[str, str]:
    """The GPU and the versions, as far as this machine has them."""
    try:
        import torch
        import triton
    except ImportError:
        return {"gpu": "none", "driver": "none", "cuda": "none", "torch": "none", "triton": "none"}
    on_gpu = torch.cuda.is_available()
    driver = "none"
    if on_gpu:
        run = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
        )
        driver = run.stdout.strip().splitlines()[0] if run.stdout.strip() else "unknown"
    return {
        "gpu": torch.cuda.get_device_name(0) if on_gpu else "none",
        "driver": driver,
        "cuda": torch.version.cuda or "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def report(junit: Path, commit: str | None, command: str) -> dict:
    """Counts by state and by test module, and the names of failed tests."""
    tree = etree.parse(junit).getroot()
    counts = {"passed": 0, "failed": 0, "skipped": 0, "xfailed": 0}
    modules: dict[str, list[int]] = {}
    failures = []
    for case in tree.iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            state = "failed"
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is not None:
            state = "xfailed" if "xfail" in (skipped.get("type") or "") else "skipped"
        else:
            state = "passed"
        counts[state] += 1
        numbers = modules.setdefault(case.get("classname") or "", [0, 0, 0])
        numbers[("passed", "failed").index(state) if state in ("passed", "failed") else 2] += 1
    seconds = sum(float(suite.get("time") or 0) for suite in tree.iter("testsuite"))
    if commit is None:
        run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        commit = run.stdout.strip() or "unknown"
    return {
        "format": FORMAT,
        "utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "command": command,
        "seconds": round(seconds, 1),
        "counts": counts,
        "machine": machine(),
        "sources": {name: entry["sha256"] for name, entry in sources.hashes().items()},
        "modules": dict(sorted(modules.items())),
        "failures": sorted(failures),
    }


def text(data: dict) -> str:
    """The report as it is committed."""
    return json.dumps(data, indent=1) + "\n"


def load(path: Path) -> dict:
    """Read and validate a committed report."""
    from softmax_bench.schema import check

    return check(json.loads(path.read_text(encoding="utf-8")), SCHEMA, path.name)


def sentence(data: dict) -> str:
    """The run in one sentence."""
    counts, where = data["counts"], data["machine"]
    tally = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return (
        f"Last run of the GPU tests (`{data['command']}`): {tally}, in {data['seconds']:.0f} "
        f"s on one {where['gpu']} "
        f"(driver {where['driver']}, CUDA {where['cuda']}, torch {where['torch']}, triton "
        f"{where['triton']}), "
        f"commit `{data['commit'][:12]}`, {data['utc'].replace('T', ' ')[:16]} UTC."
    )
