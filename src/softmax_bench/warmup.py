"""What is compiled before anything is timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from softmax_bench.case import Case
from softmax_bench.inputs import Inputs

SECONDS = 150.0
"""What is not compiled by then is compiled when it is measured."""

SPAWN = get_context("spawn")

Pairs = list[tuple[Case, Any]]
"""Cases, and what to measure of each."""

Turn = list[tuple[int, tuple[Case, Any]]]
"""The pairs of one case, by their numbers."""


class Shared:
    """What processes share: whose turn it is, and which pair each of them is at, since when."""

    def __init__(self, processes: int):
        self.turn = SPAWN.Value("i", 0)
        self.pair = SPAWN.RawArray("i", [-1] * processes)
        self.since = SPAWN.RawArray("d", [time.monotonic()] * processes)

    def take(self) -> int:
        """Return the number of the next turn, which is nobody else's."""
        with self.turn.get_lock():
            self.turn.value += 1
            return self.turn.value - 1

    def note(self, process: int, pair: int) -> None:
        """Note what a process is at from now on."""
        self.since[process], self.pair[process] = time.monotonic(), pair


def compile_ahead(prepare: Callable, pairs: Pairs, processes: int, device: str = "cuda") -> None:
    """Let several processes call every pair once, so that what they compile lies in the caches on
    disk. A case is one turn, and they take turns; who has not ended well by `SECONDS` is said, and
    what it was at."""
    turns = [list(of) for _, of in groupby(enumerate(pairs), key=lambda each: each[1][0])]
    processes = min(processes, len(turns))
    print(f"compiling ahead in {processes} processes", flush=True)
    begin, shared = time.monotonic(), Shared(processes)
    children = [
        SPAWN.Process(target=_take_turns, args=(prepare, turns, device, shared, number))
        for number in range(processes)
    ]
    with patch.dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1"):
        for child in children:
            child.daemon = True
            child.start()
    for child in children:
        child.join(max(0.0, begin + SECONDS - time.monotonic()))
    end, codes = time.monotonic(), [child.exitcode for child in children]
    for child in children:
        child.kill()
        child.join(5.0)  # until its memory is free
    ended = f"{codes.count(0)} of {processes} ended"
    print(f"compiled ahead in {end - begin:.0f} s; {ended}", flush=True)
    for code, pair, since in zip(codes, shared.pair, shared.since, strict=True):
        if code != 0:
            what = f"{pairs[pair][0].id} {pairs[pair][1]}" if pair >= 0 else "its imports"
            how = f"for {end - since:.0f} s" if code is None else f"until it ended with {code}"
            print(f"  one was at {what} {how}", flush=True)


def _take_turns(
    prepare: Callable, turns: list[Turn], device: str, shared: Shared, number: int
) -> None:
    """Take turns until none is left, in a process from which nobody hears."""
    code = 1
    try:
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        only_compile()
        inputs = Inputs(device)
        while (turn := shared.take()) < len(turns):
            call_each(prepare, turns[turn], inputs, partial(shared.note, number))
            inputs.free()
        code = 0
    finally:  # threads and pools of libraries could hold up an orderly end, which writes nothing
        os._exit(code)


def call_each(
    prepare: Callable, turn: Turn, inputs: Inputs, note: Callable[[int], object] = lambda pair: None
) -> None:
    """Call what `prepare` makes of a case, of what to measure of it and of tensors, for all that is
    measured of it.

    Raises:
        RuntimeError: the device is broken.
    """
    tensors = None
    for pair, (case, what) in turn:
        note(pair)
        try:
            tensors = tensors or inputs.tensors(case)
            prepare(case, what, tensors)()
            inputs.synchronize()
        except Exception as error:  # it fails again, and is recorded, when it is measured
            if "CUDA error" in str(error):
                raise


def hasten_autotuning() -> None:
    """Let the autotuned rungs try each configuration a few times only: a run visits hundreds of row
    lengths."""
    from triton.runtime.autotuner import Autotuner
    from triton.testing import do_bench

    from softmax_tutorial import two_loops

    for kernel in vars(two_loops).values():
        if isinstance(kernel, Autotuner):
            kernel._do_bench = partial(do_bench, warmup=1, rep=1)


def only_compile() -> None:
    """Let Triton's autotuner call each configuration once, untimed, from now on: what it finds is
    for this process alone, and where many share a GPU it takes them minutes. One that keeps its
    choices on disk goes on as it is: they would be nobody's choices. Inductor's are not kept: what
    is fastest among many processes need not be so alone."""
    from torch._inductor import config
    from triton.runtime.autotuner import Autotuner

    config.autotune_local_cache = False

    timed = Autotuner._bench

    def once(kernel_call: Callable, quantiles: tuple) -> list[float]:
        kernel_call()
        return [0.0] * len(quantiles)

    def bench(self: Autotuner, *args: Any, **meta: Any) -> Any:
        if type(self) is Autotuner and not self.cache_results:
            self._do_bench = once
        return timed(self, *args, **meta)

    Autotuner._bench = bench
