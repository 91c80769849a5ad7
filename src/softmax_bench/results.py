"""The rows of a run, and the machine and software that they come from."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from softmax_bench.case import Case
from softmax_bench.providers import versions
from softmax_bench.schema import FORMAT, DataError, begun, write

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone."""


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(*command: str) -> str | None:
    """The first line that a program prints; None if it fails."""
    where = {"cwd": Path(__file__).parent, "timeout": 20}
    try:
        run = subprocess.run(command, capture_output=True, text=True, **where)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip().splitlines()[0] if not run.returncode and run.stdout.strip() else None


def git_commit() -> str:
    """The commit of the working tree."""
    return _said("git", "rev-parse", "HEAD") or "unknown"


def machine(on_gpu: bool | None = None) -> dict:
    """The GPU, if there is one and it is asked for, and the versions."""
    import triton

    on_gpu = torch.cuda.is_available() if on_gpu is None else on_gpu
    properties = torch.cuda.get_device_properties(0) if on_gpu else None
    driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": properties.name if properties else f"none ({platform.machine()})",
        "gpu_memory_bytes": properties.total_memory if properties else 0,
        "multiprocessors": properties.multi_processor_count if properties else 0,
        "l2_bytes": getattr(properties, "L2_cache_size", 0),
        "driver": driver if on_gpu and driver else "none",
        "cuda": torch.version.cuda or "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def environment(device: str, commit: str | None, timer) -> dict:
    """Everything about the machine and the software that a row refers to."""
    return {
        **machine(device == "cuda"),
        "peers": versions(),
        "commit": commit or git_commit(),
        "started": now(),
        "timer": timer.name,
        "flush_bytes": timer.flush_bytes,
    }


class Results:
    """The file of a run: its rows by case and provider, kept on disk, all of one machine and the
    same software. What is measured again takes the place of what was there.

    Raises:
        DataError: there is a file, and it is of another machine or of other software.
    """

    def __init__(self, path: Path, env: dict, every: float = 3.0):
        self.path, self.every, self.written = path, every, 0.0
        self.environment, self.rows = env, {}
        if path.is_file():
            data = begun(path)
            self.rows = {(row["case"], row["provider"]): row for row in data["rows"]}
            known = data["environment"]
            self.environment = {**env, "started": known["started"]}
            if other := [key for key, value in self.environment.items() if known[key] != value]:
                raise DataError(f"{path} was measured with another {', '.join(other)}")

    def done(self, case: Case, provider: str) -> bool:
        """Whether a row needs no measuring again."""
        return self.rows.get((case.id, provider), {"status": None})["status"] in FINAL

    def add(self, case: Case, provider: str, **fields) -> dict:
        """Keep a row; whatever stood at its place goes."""
        row = {
            **case.fields,
            "provider": provider,
            "status": "ok",
            "reason": None,
            "us": None,
            "samples": 0,
            "max_abs_error": None,
            "max_rel_error": None,
            "kernels": [],
            "count": None,
            "utc": now(),
            **fields,
        }
        self.rows[case.id, provider] = row
        if time.monotonic() - self.written > self.every:
            self.write()
        return row

    def write(self) -> None:
        """Write the file."""
        rows = list(self.rows.values())
        write(self.path, {"format": FORMAT, "environment": self.environment, "rows": rows})
        self.written = time.monotonic()
