"""Which measured calls launch something else at another commit: `python -m softmax_bench replay`.

The library as it lies below a folder is asked what each call launches on an H200, in a process of
its own: kernel, grid, numbers, constants, options, and a hash of the machine code.
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
from softmax_bench.gpus import H200
from softmax_bench.launches import (
    FILE,
    Cells,
    Kernel,
    Launch,
    cell_of,
    differences,
    measured,
    read,
    text_of,
)
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


def hash_at(index: int, machine: bool) -> str:
    """The hash of a recorded kernel: it cannot be sent to a process, but is there after a fork."""
    return hash_of(recording.recorder().kernels[index], machine)


def answer(rows: list[dict], known: dict[str, str], machine: bool) -> Cells:
    """`ask`, in the process that records."""
    with recording.on(H200):
        cells = {cell_of(row): launches(row) for row in rows}
    recorded = recording.recorder().kernels
    keys = list(map(key_of, recorded))

    def find(names: list[str], machine: bool) -> None:
        """Add what is not known yet, each by its name."""
        missing = {name: at for at, name in enumerate(names) if name not in known}
        found = pool.map(hash_at, missing.values(), repeat(machine), chunksize=2)
        known.update(zip(missing, found, strict=True))

    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        find(keys, machine=False)
        firsts = [known[key] for key in keys]
        if machine:
            find(firsts, machine=True)
    kernels = [
        Kernel(each.source.name, described(each), key, first, known.get(first))
        for each, key, first in zip(recorded, keys, firsts, strict=True)
    ]
    return {cell: [Launch(kernels[at], *more) for at, *more in of] for cell, of in cells.items()}


# --- asking a tree


def ask(tree: Path, rows: list[dict], known: Mapping[str, str], machine: bool = False) -> Cells:
    """What rows' calls launch in the packages below a folder.

    The first language that Triton compiles to has neither names of functions nor of variables, and
    with the options and the compiler it decides the machine code. So two kernels that agree in it
    are the same, and only where they differ is the machine code looked at: it may agree all the
    same, and takes four times as long.

    Args:
        tree: the folder.
        rows: of the data.
        known: hashes of the first language by key, and of the machine code by these.
        machine: whether their machine code is looked at.
    """
    with recording.process(tree) as process:
        return process.submit(answer, rows, dict(known), machine).result()


def extracted(commit: str, folder: Path) -> Path:
    """The packages of a commit, in a folder."""
    run = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True)
    if run.returncode:
        raise DataError(run.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(run.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def compared(
    old: Mapping[Path, list[dict]], new: Path, known: Mapping[str, str]
) -> tuple[Cells, Cells]:
    """What rows' calls launch in trees and in another one.

    Args:
        old: the rows that each tree is asked for.
        new: the other tree.
        known: as for `ask`.
    """
    rows = [row for some in old.values() for row in some]
    before: Cells = {}
    for tree, some in old.items():
        before |= ask(tree, some, known)
    after = ask(new, rows, known)
    changed = differences(before, after)
    for tree, some in (*old.items(), (new, rows)):
        if again := [row for row in some if cell_of(row) in changed]:
            found = ask(tree, again, known, machine=True)
            (after if tree == new else before).update(found)
    return before, after


def replay(old: str | None, new: str | None, *, update: bool = False) -> str:
    """The command: what launches something else, in words.

    Args:
        old: a commit; None asks for each cell at the commit that measured it.
        new: a later commit; None is the working tree.
        update: write down what was launched then, and is today.
    """
    by_commit = measured()
    if old is not None:
        by_commit = {old: [row for rows in by_commit.values() for row in rows]}
    with tempfile.TemporaryDirectory() as folder:
        there = ROOT / "src" if new is None else extracted(new, Path(folder) / "new")
        trees = {extracted(at, Path(folder) / at): rows for at, rows in by_commit.items()}
        before, after = compared(trees, there, read(ROOT).known)
    if update:
        (ROOT / FILE).write_text(text_of(before, after), encoding="utf-8")
    found = differences(before, after)
    lines = [f"{cell}: {words}" for cell, words in found.items()]
    return "\n".join([*lines, f"{len(found)} of {len(before)} cells launch something else"])
