"""The rows of a run, and the machine and software that they come from."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from softmax_bench.case import Case
from softmax_bench.providers import versions
from softmax_bench.schema import FORMAT, DataError, add_run, begun, read_json, write

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone; and of a library that is not installed it
leaves all."""


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
        status = self.rows.get((case.id, provider), {"status": None})["status"]
        absent = self.environment["peers"].get(provider, "") is None
        return status in FINAL or (status == "skipped" and absent)

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


class Run:
    """A run of a suite whose file holds a run for each value of `key`. It goes on with what is
    there of the same machine, software and commit, takes the place of any other with this value,
    and is written after each case.

    Args:
        path: the file.
        form: its format.
        key: a name among `about` or gpu.
        commit: the commit measured, where there is no repository.
        about: what else is said of the run.
    """

    def __init__(self, path: Path, form: str, key: str, commit: str | None, **about: Any):
        self.path, self.form, self.key, here = path, form, key, machine()
        head = {name: here[name] for name in ("gpu", "torch", "triton")}
        head |= {**about, "commit": commit or git_commit()}
        runs = read_json(path)["runs"] if path.is_file() else []
        again = [run for run in runs if head.items() <= {**run, "rows": None}.items()]
        self.run = again[0] if again else {**head, "date": now()[:10], "rows": []}

    def lacks(self, **case: Any) -> bool:
        """Whether no row is of a case, of which some fields are given."""
        rows = self.run["rows"]
        return not any(case.items() <= row.items() for row in rows)

    def add(self, rows: list[dict]) -> None:
        """Keep rows, on disk too."""
        self.run["rows"] += rows
        add_run(self.path, self.run, self.key, self.form)
        print(*rows, sep="\n", flush=True)
