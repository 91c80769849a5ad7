"""What is compiled before anything is timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from softmax_bench.case import Case
from softmax_bench.inputs import Inputs

SECONDS = 150.0
"""What is not compiled by then is compiled when it is measured."""


def compile_ahead(
    prepare: Callable, pairs: list[tuple[Case, Any]], processes: int, device: str = "cuda"
) -> None:
    """Let several processes call a share each, so that what they compile lies in the caches on
    disk."""
    print(f"compiling ahead in {processes} processes", flush=True)
    begin = time.monotonic()
    children = [
        get_context("spawn").Process(
            target=call_each, args=(prepare, pairs[part::processes], device, True), daemon=True
        )
        for part in range(processes)
    ]
    with patch.dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1"):
        for child in children:
            child.start()
    for child in children:
        child.join(max(0.1, SECONDS - (time.monotonic() - begin)))
        child.kill()
    print(f"compiled ahead in {time.monotonic() - begin:.0f} s", flush=True)


def call_each(
    prepare: Callable, pairs: list[tuple[Case, Any]], device: str, alone: bool = False
) -> None:
    """Call what `prepare` makes of each case, of what to measure of it and of tensors; `alone` in a
    process, from which nobody hears."""
    if alone:
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        hasten_autotuning()
    inputs = Inputs(device)
    for case, what in pairs:
        try:
            prepare(case, what, inputs.tensors(case))()
            inputs.synchronize()
        except Exception as error:  # it fails again, and is recorded, when it is measured
            if "CUDA error" in str(error):
                return


def hasten_autotuning() -> None:
    """Let the autotuned rungs try each configuration a few times only: a run visits hundreds of row
    lengths."""
    from triton.runtime.autotuner import Autotuner
    from triton.testing import do_bench

    from softmax_tutorial import two_loops

    for kernel in vars(two_loops).values():
        if isinstance(kernel, Autotuner):
            kernel._do_bench = partial(do_bench, warmup=1, rep=1)
