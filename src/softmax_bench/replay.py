"""Which measured calls launch something else at another commit: `python -m softmax_bench replay`.

The library as it lies below a folder is asked what each call launches on the GPU that was measured,
in a process of its own: kernel, grid, numbers, constants, options, and a hash of the machine code.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from softmax_bench import recording
from softmax_bench.compilation import hash_of, key_of
from softmax_bench.gpus import MEASURED
from softmax_bench.launches import Cells, Launch, cell_of, differences, measured, read, write_down
from softmax_bench.schema import ROOT, DataError

PROCESSES = 2
"""That compile."""


# --- in a process that records


def launches(row: dict) -> list[tuple[int, str, str]]:
    """What a row's call launches, in order; of a sweep each kernel once, on no grid. The naive rung
    launches PyTorch's kernels alone, and is not called."""
    if row["provider"] == "naive":
        return []
    found = recording.recorder().launches(recording.call_of(row))
    if row["suite"] == "compiles":
        return [(kernel, "", "") for kernel in dict.fromkeys(each[0] for each in found)]
    return found


def described(kernel: recording.Kernel) -> str:
    """A kernel's constants and options in words, for people."""
    constants = [f"{name}={value}" for name, value in kernel.constants.items()]
    shown = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
    return ", ".join([*constants, *(f"{name}={getattr(kernel.options, name)}" for name in shown)])


def hash_at(index: int, last: str) -> str:
    """The hash of a recorded kernel: it cannot be sent to a process, but is there after a fork."""
    return hash_of(recording.recorder().kernels[index], last)


def answer(rows: list[dict], known: dict[str, str]) -> tuple[Cells, dict[str, str]]:
    """`ask`, in the process that records."""
    with recording.on(MEASURED):
        cells = {cell_of(row): launches(row) for row in rows}
    recorded = recording.recorder().kernels
    keys = list(map(key_of, recorded))

    def find(names: list[str], last: str) -> list[str]:
        """What the recorded kernels' names lead to; the compiler says what is not known yet."""
        missing = {name: at for at, name in enumerate(names) if name not in known}
        found = pool.map(hash_at, missing.values(), repeat(last), chunksize=2)
        known.update(zip(missing, found, strict=True))
        return [known[name] for name in names]

    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        firsts = find(keys, "ttir")
        machines = find(firsts, "ptx")
    kernels = [
        (each.source.name, machine) for each, machine in zip(recorded, machines, strict=True)
    ]
    words = list(map(described, recorded))
    found = {
        cell: [Launch(*kernels[at], grid, numbers, words[at]) for at, grid, numbers in of]
        for cell, of in cells.items()
    }
    return found, {name: known[name] for name in (*keys, *firsts)}


# --- asking a tree


def ask(tree: Path, rows: list[dict], known: Mapping[str, str]) -> tuple[Cells, dict[str, str]]:
    """What rows' calls launch in the packages below a folder, and the hashes of their kernels.

    The first language that Triton compiles to has neither names of functions nor of variables, and
    with the options and the compiler it decides the machine code, which takes four times as long.
    So machine code is only made of what differs in it from all that is known.

    Args:
        tree: the folder.
        rows: of the data.
        known: hashes of the first language by key, and of the machine code by these.
    """
    with recording.process(tree) as process:
        return process.submit(answer, rows, dict(known)).result()


def extracted(commit: str, folder: Path) -> Path:
    """The packages of a commit, in a folder."""
    run = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True)
    if run.returncode:
        raise DataError(run.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(run.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def run(old: str | None, new: str | None, update: bool = False) -> str:
    """The command: what launches something else, in words.

    Args:
        old: a commit; None takes for each cell the one that measured it, and asks it for what is
            not in the file yet.
        new: a later commit; None is the working tree.
        update: write down what was launched then, and is today; neither is named, then.
    """
    if update and (old or new):
        raise DataError("--update takes each cell at the commit that measured it")
    by_commit, committed = measured(), read(ROOT)
    commits = {commit: list(map(cell_of, rows)) for commit, rows in by_commit.items()}
    every = [row for rows in by_commit.values() for row in rows]
    before: Cells = {}
    if old is not None:
        by_commit = {old: every}
    else:
        before = {
            cell: committed.measured[cell]
            for commit, cells in commits.items()
            for cell in cells
            if committed.commits.get(cell) == commit
        }
    known = dict(committed.known)
    with tempfile.TemporaryDirectory() as folder:
        for commit, rows in by_commit.items():
            if missing := [row for row in rows if cell_of(row) not in before]:
                found, more = ask(extracted(commit, Path(folder) / commit), missing, known)
                before |= found
                known |= more
        there = ROOT / "src" if new is None else extracted(new, Path(folder) / "new")
        after, today = ask(there, every, known)
    if update:
        write_down(ROOT, commits, before, after, today)
    changes = differences(before, after)
    lines = [f"{cell}: {words}" for cell, words in changes.items()]
    return "\n".join([*lines, f"{len(changes)} of {len(before)} cells launch something else"])
