"""How time and error are measured.

Time: CUDA events around each call, with a cold L2 (a buffer larger than the cache is written
between calls) and with the launches queued ahead of the device, so that a slow host does not show
as a slow kernel. All who are compared are timed in turn, several times, so that a device that
changes its pace changes it for all. The median and the 20th and 80th percentiles are kept.

Error: against float64, element by element, as the largest absolute error and as the largest error
of a row relative to the largest value of that row.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from softmax_bench.report import TURNS

LONG_MS = 20.0
"""From so many milliseconds on, a turn is a single call: neither what the cache holds nor how a
launch falls makes a difference."""

TOLERANCE = {"float64": 1e-11, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3.2e-2}
"""Largest error of a row, relative to the row's largest value, beyond which an answer counts as
wrong.

About four times the rounding of a 16-bit type; wide enough for float32 answers that lose digits in
a fast exponential, so that "wrong" means wrong and not "less precise" (the error itself is in every
row of the data)."""


def summary(samples: list[float]) -> dict[str, float]:
    """The percentiles that a row of the data keeps, interpolated between neighbours.

    >>> summary([4.0, 1.0, 3.0, 2.0, 5.0])
    {'p20': 1.8, 'p50': 3.0, 'p80': 4.2}
    """
    return {f"p{part}": round(float(np.quantile(samples, part / 100)), 3) for part in (20, 50, 80)}


class CudaTimer:
    """Times a call on the device with events and a cold L2."""

    name = "cuda-events"

    def __init__(self, target_ms: float = 25.0, most: int = 100):
        """Keeps the device busy for about `target_ms` with a call, in all turns together."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.flush_bytes = max(256 * 2**20, 4 * getattr(properties, "L2_cache_size", 2**26))
        self.flush = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self.target_ms, self.most = target_ms, most
        self.clock_hz = 2.0e9
        self.flush.zero_()
        self._flush_ms = self._once(self.flush.zero_)

    def _once(self, call: Callable[[], object]) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        start.record()
        call()
        end.record()
        host = (time.perf_counter() - begin) * 1e3
        torch.cuda.synchronize()
        self._host_ms = host
        return start.elapsed_time(end)

    def __call__(self, call: Callable[[], object], cold: bool = True) -> list[float]:
        """Samples of a turn in microseconds.

        Args:
            call: what is timed, and has been called before.
            cold: with a cold cache, and not with what the call before left in it.

        What passes between events and kernel alternates from launch to launch
        (docs/benchmarks/pace.json). So one half of the samples is taken at one place in that order
        and one at the other, and what is returned are the means of both halves, sample by sample in
        the order of size.
        """
        estimate = self._once(call)
        if estimate >= LONG_MS:
            return [estimate * 1e3]
        host_ms = self._host_ms + 0.02
        flush_ms = self._flush_ms if cold else 0.0
        pairs = round(self.target_ms / TURNS / (estimate + flush_ms) / 2)
        pairs = max(1, min(self.most // TURNS // 2, pairs))
        events = [
            [torch.cuda.Event(enable_timing=True) for _ in ("start", "end")]
            for _ in range(2 * pairs)
        ]
        # The device waits until the host has queued everything, at most 20 ms.
        behind_ms = min(20.0, max(0.0, host_ms - flush_ms) * len(events) + 0.2)
        torch.cuda._sleep(int(behind_ms * 1e-3 * self.clock_hz))
        for number, (start, end) in enumerate(events):
            if number == pairs:
                self.flush[:1].zero_()  # one launch more
            if cold:
                self.flush.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        samples = [start.elapsed_time(end) * 1e3 for start, end in events]
        halves = zip(sorted(samples[:pairs]), sorted(samples[pairs:]), strict=True)
        return [(a + b) / 2 for a, b in halves]


class HostTimer:
    """Time the host spends in one call: batches of calls on the host's clock, the device drained in
    between. Without a GPU it serves to try the runner, not for publishing."""

    name = "wall-clock"
    flush_bytes = 0

    def __init__(
        self, synchronize: Callable[[], None], batches: int = 60, calls: int = 20, warm: int = 30
    ):
        self.synchronize, self.batches, self.calls, self.warm = synchronize, batches, calls, warm

    def __call__(self, call: Callable[[], object], cold: bool = True) -> list[float]:
        """Samples of a turn in microseconds for one call, each the mean of a batch; `cold` makes no
        difference here."""
        for _ in range(self.warm):
            call()
        samples = []
        for _ in range(max(1, self.batches // TURNS)):
            self.synchronize()
            begin = time.perf_counter()
            for _ in range(self.calls):
                call()
            samples.append((time.perf_counter() - begin) * 1e6 / self.calls)
        self.synchronize()
        return samples


def in_a_loop(
    call: Callable[[], object], synchronize: Callable[[], None], ms: float = 20.0
) -> float:
    """What a call takes in a loop that waits for nothing, in microseconds: at most 200 calls, by
    the clock on the wall, from an idle device to an idle device."""

    def each_of(count: int) -> float:
        synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        synchronize()
        return (time.perf_counter() - begin) * 1e6 / count

    return round(each_of(round(min(200, max(5, ms * 1e3 / each_of(3))))), 1)


def timer_of(device: str, target_ms: float) -> CudaTimer | HostTimer:
    """What times calls on a device; on the CPU a few calls, one by one."""
    if device == "cuda":
        return CudaTimer(target_ms)
    return HostTimer(lambda: None, batches=5, calls=1, warm=0)


FEW_FROM, FEW = 100_000.0, 3
"""Calls of so many microseconds take a few turns only."""


def in_turn(
    time: Callable[[Any], list[float]],
    names: Iterable[Any],
    turns: int = TURNS,
    failed: Callable[[Any, Exception], object] | None = None,
) -> dict[Any, list[list[float]]]:
    """The samples of each turn, by name; all take turns, so that a device that changes its pace
    changes it for all.

    Args:
        time: takes a name, and times its call, which has been made before.
        names: of the calls.
        turns: how many each takes.
        failed: is told of an error; without it the error is raised. The name then has no samples.
    """
    found: dict[Any, list[list[float]]] = {name: [] for name in names}
    for turn in range(turns):
        for name in list(found):
            if turn >= FEW and found[name][0][0] >= FEW_FROM:
                continue
            try:
                found[name].append(time(name))
            except Exception as error:
                if failed is None:
                    raise
                del found[name]
                failed(name, error)
    return found


def flat(turns: list[list[float]]) -> list[float]:
    """The samples of all turns."""
    return [sample for turn in turns for sample in turn]


def poison(elements: int, dtype: torch.dtype, device: torch.device) -> None:
    """Fill with NaN the memory that the allocator is about to hand out, so that an element left
    unwritten is seen."""
    torch.full((elements,), float("nan"), dtype=dtype, device=device)


def peak_bytes(call: Callable[[], object]) -> int:
    """The memory that a call takes at most, beside what is there before."""
    gc.collect()  # what an earlier call left in cycles would otherwise make room during this one
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def errors(
    result: torch.Tensor, expected: torch.Tensor, dim: int, chunk: int = 2**26, floor: float = 0.0
) -> tuple[float, float]:
    """Largest absolute error, and largest error of a row relative to that row's largest value.

    A row counts as at least `floor` times as large as the largest of all: where gradients cancel,
    which those of two columns do now and then, a rounding is as large as what is left.

    NaN where both have NaN is no error; NaN where one has it is an infinite one. Infinities must
    agree.
    """
    if result.shape != expected.shape:
        raise ValueError(f"the result has shape {tuple(result.shape)}, not {tuple(expected.shape)}")
    if result.ndim > 1:
        result, expected = result.movedim(dim, -1), expected.movedim(dim, -1)
    else:
        result, expected = result.reshape(1, -1), expected.reshape(1, -1)
    step = max(1, chunk // max(1, result[0].numel()))
    worst_absolute = worst_relative = 0.0
    for begin in range(0, result.shape[0], step):
        got, want = result[begin : begin + step].double(), expected[begin : begin + step]
        same = (got == want) | (got.isnan() & want.isnan())
        error = (got - want).abs_().masked_fill_(same, 0.0)
        error = torch.nan_to_num_(error, nan=math.inf, posinf=math.inf)
        scale = torch.nan_to_num(want, nan=0.0, posinf=0.0, neginf=0.0).abs_().amax(-1)
        worst_row = error.amax(-1)
        scale = scale.clamp_min(max(1e-300, floor * float(scale.max())))
        relative = torch.where(worst_row == 0, 0.0, worst_row / scale)
        worst_absolute = max(worst_absolute, float(worst_row.max()))
        worst_relative = max(worst_relative, float(relative.max()))
    return worst_absolute, worst_relative
