"""The rows of a run, and the machine and software that they come from."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from softmax_bench.case import Case
from softmax_bench.measure import CudaTimer
from softmax_bench.providers import versions
from softmax_bench.roster import CHOOSER, RUNGS
from softmax_bench.schema import FORMAT, DataError, begun, write

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone."""

SAME = ("gpu", "driver", "cuda", "torch", "triton")
"""What has to be the same of two runs whose times are compared."""


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


DISTURBED = 2.0
"""How many times its 20th percentile the median of an undisturbed row is at most."""

REASON = "disturbed: the median is more than twice the 20th percentile"


def undisturbed(row: dict) -> dict:
    """The row without a time that the machine has disturbed: now and then a process waits for the
    processor, and the GPU for it, which says nothing about the library.

    >>> times = {"p20": 5.4, "p50": 100.4, "p80": 200.5}
    >>> undisturbed({"status": "ok", "us": times})["status"]
    'not_run'
    """

    def disturbed(times: dict | None) -> bool:
        return times is not None and times["p50"] > DISTURBED * times["p20"]

    if disturbed(row.get("us_warm")):
        row = {key: value for key, value in row.items() if key != "us_warm"}
    if row["status"] == "ok" and disturbed(row["us"]):
        row = {**row, "status": "not_run", "reason": REASON, "us": None, "samples": 0}
        row.pop("us_turns", None)
    return row


class Results:
    """The file of a run: its rows by case and provider, kept on disk, all of one machine and the
    same software. What is measured again takes the place of what was there.

    Raises:
        DataError: there is a file, and it is of another machine.
    """

    def __init__(self, path: Path, env: dict, every: float = 3.0):
        self.path, self.every, self.written = path, every, 0.0
        self.environments: dict[str, dict] = {}
        self.rows: dict[tuple[str, str], dict] = {}
        if path.is_file():
            data = begun(path)
            self.rows = {(row["case"], row["provider"]): row for row in data["rows"]}
            self.environments = data["environments"]
        for name, known in self.environments.items():
            if found := [key for key in SAME if known[key] != env[key]]:
                raise DataError(f"{path} was measured with another {', '.join(found)}")
            if known | {"started": ""} == env | {"started": ""}:
                self.environment = name
                return
        taken = [int(name.removeprefix("run")) for name in self.environments]
        self.environment = f"run{max(taken, default=0) + 1}"
        self.environments[self.environment] = env

    def done(self, case: Case, provider: str) -> bool:
        """Whether a row needs no measuring again: it is final, and was measured at this commit if
        it is ours, or else with the same library, unless that is not installed now."""
        row = self.rows.get((case.id, provider))
        if row is None or row["status"] not in FINAL:
            return False
        then, current = self.environments[row["environment"]], self.environments[self.environment]
        if provider in (CHOOSER, *RUNGS):
            return then["commit"] == current["commit"]
        version = current["peers"].get(provider)
        return version in (None, then["peers"].get(provider))

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
            "environment": self.environment,
            "utc": now(),
            **fields,
        }
        if self.environments[self.environment]["timer"] == CudaTimer.name:
            row = undisturbed(row)
        self.rows[case.id, provider] = row
        if time.monotonic() - self.written > self.every:
            self.write()
        return row

    def write(self) -> None:
        """Write the file, with the environments that its rows refer to."""
        used = {row["environment"] for row in self.rows.values()} | {self.environment}
        kept = {name: env for name, env in self.environments.items() if name in used}
        rows = list(self.rows.values())
        write(self.path, {"format": FORMAT, "environments": kept, "rows": rows})
        self.written = time.monotonic()
