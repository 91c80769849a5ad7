"""What Triton compiles before anything is timed, and what it has compiled since."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from softmax_bench.case import Case
from softmax_bench.inputs import Inputs
from softmax_bench.measure import percentile

OURS = ("triton_softmax.kernels", "softmax_tutorial.")
"""Modules with kernels."""


def compile_ahead(arguments: list[str], processes: int, seconds: float) -> None:
    """Let several processes do a share of a command each, so that what they compile lies in the
    caches on disk."""
    print(f"compiling ahead in {processes} processes", flush=True)
    begin = time.monotonic()
    command = [sys.executable, "-m", "softmax_bench", *arguments, "--part"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    children = [
        subprocess.Popen([*command, f"{part}/{processes}"], env=env, **quiet)  # pyright: ignore
        for part in range(processes)
    ]
    for child in children:
        try:
            child.wait(max(0.1, seconds - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    print(f"compiled ahead in {time.monotonic() - begin:.0f} s", flush=True)


def call_share(
    pairs: list[tuple[Case, Any]], part: str, prepare: Callable, device: str = "cuda"
) -> None:
    """Call a share of what `prepare` makes of a case, of what to measure and of tensors, each once;
    the share is "0/4" for the first of four."""
    inputs = Inputs(device)
    first, step = map(int, part.split("/"))
    for case, what in pairs[first::step]:
        try:
            prepare(case, what, inputs.tensors(case))()
            inputs.synchronize()
        except Exception as error:  # it fails again, and is recorded, when it is measured
            if "CUDA error" in str(error):
                return


def wrapped() -> Iterator[Any]:
    """The jitted functions of ours that have been imported, and what wraps them, each once."""
    from triton.runtime.jit import KernelInterface

    found: dict[int, Any] = {}
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith(OURS) else ():
            while isinstance(value, KernelInterface):
                found[id(value)] = value
                value = getattr(value, "fn", None)
    yield from found.values()


def hasten_autotuning() -> None:
    """Let the autotuned rungs try each configuration a few times only: a run visits hundreds of row
    lengths."""
    from triton.runtime.autotuner import Autotuner

    def few_calls(call: Callable[[], object], quantiles=(0.5, 0.2, 0.8)) -> list[float]:
        call()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(5)]
        for start, end in events:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        times = [start.elapsed_time(end) for start, end in events]
        return [percentile(times, share) for share in quantiles]

    importlib.import_module("softmax_tutorial.ladder")
    for each in wrapped():
        if isinstance(each, Autotuner):
            each._do_bench = few_calls


def _caches() -> Iterator[tuple[str, dict]]:
    """The name and the in-memory caches of each of our jitted functions."""
    for each in wrapped():
        if hasattr(each, "device_caches"):
            yield each.fn.__name__, each.device_caches


def forget_compiled() -> None:
    """Empty Triton's in-memory caches of our kernels, so that compilations can be counted from
    nothing."""
    importlib.import_module("triton_softmax.plan").plans.clear()
    for _, caches in _caches():
        caches.clear()


def compiled() -> list[str]:
    """The name of a function for each of its variants in those caches."""
    return [name for name, caches in _caches() for kernels, *_ in caches.values() for _ in kernels]
