"""The one run: everything that the pages quote, on all GPUs of a machine at once: `python -m
softmax_bench everything --out DIR`.

What is quoted most comes first. Each job is a command of its own, which writes a file below the
folder after each case. A job that has ended is not begun again, and one that was cut off goes on
where it was, so a run that takes several calls is the same command again; seed and commit are those
of the first. What hangs is stopped, and what dies is begun again as long as that gets any further.
At the end `.github/publish.sh DIR OUT` puts it in the place of what is published.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from softmax_bench import cases
from softmax_bench.case import UNTIMED
from softmax_bench.launches import DATA, read_rows
from softmax_bench.providers import versions
from softmax_bench.results import git_commit
from softmax_bench.schema import FORMAT, ROOT, DataError, begun, read_json, write

MEASUREMENTS, OTHERS = "new.json", "docs/benchmarks"
"""The cells of all suites, and where all else lies, as `.github/publish.sh` takes them."""

PROGRESS = "progress.json"

SUITES = {
    "most": ("forward", "backward", "random", "loss_head", "few_rows", "ladder", "batch",
             "longest"),
    "rest": ("strided", "log_softmax", "article"),
    "host": ("host_time", "compiled"),
    "untimed": UNTIMED,
}  # fmt: skip
"""What jobs measure that are named so: all GPUs of the first call share `most`, and `rest`, which a
short run leaves out; one process times the host; what is untimed shares a GPU."""

CROWD = 8
"""So many processes have room in the memory of one GPU."""

BEGINS = 60.0
"""Seconds that a job takes before its first row, to import and to compile ahead."""

LATE = 2.0
"""A job that takes so many times what is planned, and `BEGINS` more, is stopped: it hangs."""

MODULES = {
    **{"liger": "liger_kernel", "flag_gems": "flag_gems", "quack": "quack", "trl": "trl"},
    **{"transformer_engine": "transformer_engine", "helion": "pretuned_kernels"},
    "flashinfer": "flashinfer",
}
"""What is imported of each library; of Helion's its repository, whose package lacks the kernels."""


class Job(NamedTuple):
    """A command, and what is known of it."""

    name: str
    seconds: float  # by the committed runs
    arguments: list[str]  # of Python
    gpus: int = 1
    timed: bool = True  # what is not shares its GPU with others that are not


def jobs(
    out: Path,
    gpus: int,
    about: dict,
    without: Iterable[str] = (),
    only: Iterable[str] = (),
    ahead: int | None = None,
) -> list[Job]:
    """Return the plan for so many GPUs, in the order in which its jobs begin: all of them, or those
    whose names begin as `only` says. `ahead` processes compile ahead; by default as many as cores
    allow."""
    each = seconds_of_rows(read_rows(ROOT / DATA))
    cores, parts = os.cpu_count() or 1, about["parts"]
    processes = str(max(1, min(12, cores // gpus - 1)) if ahead is None else ahead)
    commit, bench = ("--commit", about["commit"]), ("-m", "softmax_bench")

    def cells(name: str, parts: int, timed: bool = True) -> list[Job]:
        patterns, seed = ",".join(f"{suite}/*" for suite in SUITES[name]), about["seed"]
        rows = [(case.suite, who) for case in cases.select(patterns.split(","), seed=seed)
                for who in case.providers]  # fmt: skip
        took = sum(each.get(row, each.get(row[0], 0.0)) for row in rows) / parts
        return [
            Job(stem, BEGINS + took, [
                *bench, "run", "--cases", patterns, "--seed", str(seed), *commit,
                "--part", f"{part}/{parts}", "--processes", processes if timed else "1",
                "--out", str(out / f"{stem}.json"),
            ], timed=timed)
            for part in range(1, parts + 1)
            for stem in [f"{name}-{part}"]
        ]  # fmt: skip

    def other(name: str, seconds: float, *command: str, gpus: int = 1) -> Job:
        path = str(out / OTHERS / f"{name.partition('-')[0]}.json")
        return Job(name, seconds, [*command, "--out", path, *commit], gpus)

    def of_ranks(ranks: int) -> Job:
        start = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        return other(f"ranks-{ranks}", 40 * ranks, *start, *bench, "ranks", gpus=ranks)

    untimed = cells("untimed", max(1, min(CROWD, cores - 2)), timed=False)
    profile = [other("profile", 150, *bench, "profile", "--data", str(out / MEASUREMENTS))]
    several = [of_ranks(gpus), of_ranks(1)] if gpus > 1 else []  # one after the other: of one file
    plan = [
        *cells("most", parts), *several, other("attention", 240, *bench, "attention"),
        *cells("host", 1), other("training", 260, *bench, "train"),
        other("invariant", 90, *bench, "invariance", "--processes", processes),
        *untimed, *([] if "ncu" in without else profile), *cells("rest", parts),
    ]  # fmt: skip
    return [job for job in plan if job.name.startswith(tuple(only) or "")]


def seconds_of_rows(rows: list[dict]) -> dict[Any, float]:
    """Return how long a row took in committed runs, by suite and provider and by suite alone: from
    the row before it to itself. What was skipped took nothing, and says nothing."""
    found: dict[Any, list[float]] = {}
    stamped = [(row["environment"]["started"], row["utc"], row) for row in rows]
    for (run, before, _), (again, utc, row) in pairwise(sorted(stamped, key=lambda each: each[:2])):
        spent = datetime.fromisoformat(utc) - datetime.fromisoformat(before)
        if run == again and row["status"] != "skipped":
            took = min(60.0, spent.total_seconds())
            for key in (row["suite"], (row["suite"], row["provider"])):
                found.setdefault(key, []).append(took)
    return {key: sum(of) / len(of) for key, of in found.items()}


def table(plan: list[Job], done: dict[str, dict]) -> str:
    """For the terminal: every job with what it takes, or took, and what came of it."""
    lines = []
    for job in plan:
        state = done.get(job.name, {"state": "to do"})
        spent = f"{state['seconds']:5.0f} s" if "seconds" in state else " " * 7
        rows = ", ".join(f"{count} {name}" for name, count in state.get("rows", {}).items())
        lines.append(f"{job.name:<12} {job.gpus} GPU {job.seconds:5.0f} s planned {spent}  "
                     f"{state['state']}  {rows}".rstrip())  # fmt: skip
    return "\n".join(lines)


def total(plan: list[Job], gpus: int) -> float:
    """Return the seconds that a plan takes on so many GPUs."""
    free = [0.0] * gpus
    crowd = max((job.seconds for job in plan if not job.timed), default=0.0)
    for job in plan:
        if job.timed:
            free.sort()
            end = (free[0] if job.gpus == 1 else free[-1]) + job.seconds
            free[: job.gpus] = [end] * job.gpus
    return max(free) + crowd


def missing(
    without: Iterable[str], find: Callable[[str], Any] = importlib.util.find_spec
) -> list[str]:
    """Return what the plan needs and is not installed, but for what it is to do without."""
    modules = {name: module for name, module in MODULES.items() if name not in without}
    found = [name for name, module in modules.items() if not find(module)]
    if "ncu" not in without and not shutil.which("ncu"):
        found.append("ncu")
    return found


def merged(out: Path) -> Path:
    """Write the cells of all suites into one file, and return its path.

    Raises:
        DataError: they are of different machines or software, or there are none.
    """
    rows: list[dict] = []
    about: dict = {}
    order = {suite: at for at, suite in enumerate(cases.SUITES)}
    for path in sorted(path for name in SUITES for path in out.glob(f"{name}-*.json")):
        data = begun(path)
        about = about or data["environment"]
        same = data["environment"] | {"started": about["started"]}
        if other := sorted(key for key in about if same.get(key) != about[key]):
            raise DataError(f"{path} was measured with another {', '.join(other)}")
        rows += data["rows"]
    if not rows:
        raise DataError(f"{out} has no cells")
    rows.sort(key=lambda row: order[row["suite"]])
    write(out / MEASUREMENTS, {"format": FORMAT, "environment": about, "rows": rows})
    return out / MEASUREMENTS


def begin(out: Path, commit: str | None, machine: dict, gpus: int) -> dict:
    """Return what is known of the run in a folder; of a new one seed, commit, machine, the releases
    of other libraries, and into how many parts suites are split, which is a part for each GPU.

    Raises:
        DataError: another of these but the seed is here today.
    """
    (out / OTHERS).mkdir(parents=True, exist_ok=True)
    path = out / PROGRESS
    about = {"commit": commit or git_commit(), "machine": machine, "peers": versions()}
    if not path.is_file():
        return {"seed": secrets.randbelow(10**6), "parts": gpus, **about, "jobs": {}}
    known = read_json(path)
    if other := [key for key, value in about.items() if known[key] != value]:
        raise DataError(f"{path} is a run of another {' and '.join(other)}")
    return known


def run(
    plan: list[Job], out: Path, gpus: list[str], seconds: float, about: dict,
    program: Callable[[Job], list[str]] = lambda job: [sys.executable, *job.arguments],
) -> bool:  # fmt: skip
    """Run what is left of a plan on GPUs, by their numbers, for so many seconds, and return whether
    all is done. What does not end by then is stopped, and goes on another time."""
    done, end = about["jobs"], time.monotonic() + seconds
    todo = [job for job in plan if done.get(job.name, {}).get("state") != "done"]
    free, running = list(gpus), {}
    write(out / PROGRESS, about, 2)

    def ended(
        job: Job, process: subprocess.Popen, began: float, taken: list[str], stopped: bool
    ) -> None:
        spent = done.get(job.name, {}).get("seconds", 0.0) + time.monotonic() - began
        failed = "cut off" if stopped else f"failed, see {job.name}.log"
        state, rows = failed if process.poll() != 0 else "done", counts(out / f"{job.name}.json")
        if state.startswith("failed") and rows != done.get(job.name, {}).get("rows", {}):
            todo.insert(0, job)  # it goes on behind what has ended it
        done[job.name] = {"state": state, "seconds": round(spent, 1), "rows": rows}
        del running[job.name]
        free.extend({*taken} - {gpu for *_, others in running.values() for gpu in others})
        write(out / PROGRESS, about, 2)
        print(f"[{time.monotonic() - end + seconds:4.0f} s] {table([job], done)}", flush=True)

    def place(job: Job) -> list[str]:
        """Take GPUs for a job: none if it has to wait."""
        free.sort()
        if len(free) >= job.gpus:
            taken, free[: job.gpus] = free[: job.gpus], []
            return taken
        shared = [taken[0] for other, *_, taken in running.values() if not other.timed]
        return [min(shared, key=shared.count)] if shared and not job.timed else []

    try:
        while (todo or running) and time.monotonic() < end:
            while todo and (taken := place(todo[0])):
                job = todo.pop(0)
                env = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(taken)}
                if job.name == "profile":
                    merged(out)
                if not job.timed:  # it counts kernels that nobody has compiled before
                    env["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
                    env["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
                with (out / f"{job.name}.log").open("a", encoding="utf-8") as log:
                    process = subprocess.Popen(
                        program(job), stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
                        env=env,
                    )  # fmt: skip
                running[job.name] = (job, process, time.monotonic(), taken)
            for job, process, began, taken in list(running.values()):
                if late := time.monotonic() - began > LATE * job.seconds + BEGINS:
                    stop([process])
                if process.poll() is not None:
                    ended(job, process, began, taken, late)
            time.sleep(0.1)
    finally:
        stop([process for _, process, *_ in running.values()])
        for each in list(running.values()):
            ended(*each, stopped=True)
        print(table(plan, done))
    return all(done.get(job.name, {}).get("state") == "done" for job in plan)


def stop(processes: list[subprocess.Popen]) -> None:
    """Stop processes with all that they have started; for 20 seconds they may write what they
    have."""
    for how, patience in ((signal.SIGINT, 20.0), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + patience
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, how)
        while time.monotonic() < until and any(process.poll() is None for process in processes):
            time.sleep(0.1)


def counts(path: Path) -> dict[str, int]:
    """Return how many rows a file has, by what came of them; empty where a file has other rows."""
    rows = read_json(path).get("rows", []) if path.is_file() else []
    return dict(Counter(row["status"] for row in rows if "status" in row))


def machine_in_a_process() -> dict:
    """Return the machine and its number of GPUs, from a process that frees their memory again.

    Raises:
        DataError: there is no GPU.
    """
    text = "import json, torch; from softmax_bench.results import machine; "
    text += "print(json.dumps(machine() | {'gpus': torch.cuda.device_count()}))"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    machine = json.loads(found.stdout or '{"gpus": 0}')
    if not machine["gpus"]:
        raise DataError(f"no CUDA device {found.stderr[-300:]}".strip())
    return machine
