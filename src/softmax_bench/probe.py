"""What calls launch on an H200, asked by `replay`.

Run as a program this file reads cells of a data file and answers with every launch of each: kernel,
grid, numbers, constants, options, and a hash of the machine code. The library that it asks is the
one that it finds on its path, which may be of any commit.
"""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from softmax_bench.compilation import lowered
from softmax_bench.gpus import H200
from softmax_bench.recording import Kernel, Recorder, call_of, hashed, on, recorder
from softmax_bench.replay import cell_of

PROCESSES = 2
"""That compile."""


# --- machine code


def normal_ir(text: str) -> str:
    """Triton's intermediate language without places in files and without names.

    >>> normal_ir('#loc = loc("f.py":1:0)\\ntt.func public @f(%x: i32 loc("x"))')
    'tt.func public @name0(%0: i32 )'
    """
    text = re.sub(r"^#loc.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bloc\((?:[^()\"]|\"[^\"]*\"|\([^()]*(?:\([^()]*\)[^()]*)*\))*\)", "", text)
    for mark, stem in (("%", ""), ("@", "name")):
        names: dict[str, str] = {}
        text = re.sub(
            rf"{mark}[\w.$]+|{mark}\"[^\"]*\"",
            lambda found, m=mark, s=stem, n=names: n.setdefault(found[0], f"{m}{s}{len(n)}"),
            text,
        )
    return text


def normal(assembly: str) -> str:
    """PTX without what does not reach the machine: comments, names of files, of lines, of kernels
    and of functions.

    >>> print(normal(".visible .entry f(\\n.param .u64 f_param_0) // why\\nret;"))
    .visible .entry name0(
    .param .u64 name0_param_0)
    ret;
    """
    text = re.sub(r"//[^\n]*", "", assembly)
    text = re.sub(r"^\s*\.section\s+\.debug.*?^\s*\}", "", text, flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$.]+)", text)
    for number, name in enumerate(dict.fromkeys(names)):
        text = re.sub(rf"(?<![\w$.]){re.escape(name)}(?=\b|_)", f"name{number}", text)
    skipped = (".file", ".loc", "$L__tmp", "$L__func")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(skipped))


def key_of(kernel: Kernel) -> str:
    """Follows from all that machine code follows from: sources, constants, options, compiler."""
    import triton

    return hashed(f"{triton.__version__} {kernel.source.hash()} {kernel.options.hash()}")


def hash_of(kernel: Kernel, machine: bool) -> str:
    """A hash of the first language that a kernel becomes with its options; or of its machine code:
    of PTX, which ptxas turns into the same every time."""
    import triton

    text, noted = lowered(kernel, "ptx" if machine else "ttir")
    if machine:
        return hashed(f"{normal(text)} {noted['shared']}")
    return hashed(f"{triton.__version__} {kernel.options.hash()} {normal_ir(text)}")


def find(known: dict[str, str], kernels: dict[str, Kernel], machine: bool) -> None:
    """Add the hashes of kernels that are not known yet, each by its name, from several
    processes."""
    _kernels.update((name, each) for name, each in kernels.items() if name not in known)
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        wanted = list(_kernels)
        found = pool.map(_hashed, wanted, [machine] * len(wanted), chunksize=2)
        known.update(zip(wanted, found, strict=True))
    _kernels.clear()


_kernels: dict[str, Kernel] = {}
"""What the processes that compile take from the one that starts them: it cannot be sent."""


def _hashed(name: str, machine: bool) -> str:
    return hash_of(_kernels[name], machine)


def described(kernel: Kernel) -> str:
    """A kernel's constants and options in words, for people."""
    constants = [f"{name}={value}" for name, value in kernel.constants.items()]
    shown = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion")
    return ", ".join([*constants, *(f"{name}={getattr(kernel.options, name)}" for name in shown)])


# --- the program


def launches(row: dict, recorder: Recorder) -> list[tuple[int, str, str]]:
    """What a row's call launches, in order; of a sweep each kernel once, on no grid. The naive rung
    launches PyTorch's kernels alone, and is not called."""
    if row["provider"] == "naive":
        return []
    found = recorder.launches(call_of(row))
    if row["suite"] == "compiles":
        return [(kernel, "", "") for kernel in dict.fromkeys(each[0] for each in found)]
    return found


def probe(rows: list[dict], known: dict[str, str], looked_at: list[str]) -> dict:
    """All kernels (name, words, key, hash of the first language, hash of the machine code), and
    each row's launches by case and provider.

    The first language that Triton compiles to has neither names of functions nor of variables, and
    with the options and the compiler it decides the machine code. So two kernels that agree in it
    are the same, and only where they differ is the machine code looked at: it may agree all the
    same, and takes four times as long.

    Args:
        rows: of the data.
        known: hashes of the first language by `key_of`, and of machine code by these.
        looked_at: hashes of the first language of kernels whose machine code is asked for.
    """
    recorded = recorder()
    with on(H200):
        cells = {cell_of(row): launches(row, recorded) for row in rows}
    keys = list(map(key_of, recorded.kernels))
    find(known, dict(zip(keys, recorded.kernels, strict=True)), machine=False)
    by_first = {known[key]: each for key, each in zip(keys, recorded.kernels, strict=True)}
    find(known, {each: by_first[each] for each in looked_at if each in by_first}, machine=True)
    kernels = [
        (each.source.name, described(each), key, known[key], known.get(known[key]))
        for each, key in zip(recorded.kernels, keys, strict=True)
    ]
    return {"cells": cells, "kernels": kernels}


if __name__ == "__main__":
    json.dump(probe(**json.load(sys.stdin)), sys.stdout)
