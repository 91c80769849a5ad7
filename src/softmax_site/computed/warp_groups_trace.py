"""What the warps of attention's Gluon kernel do, and who waits for whom: the kernel's own Python,
run on NumPy's arrays with a thread for each group of warps.

How long a product, a tile of weights and a copy take is assumed (`TICKS`, `LATENCY`), and that each
unit of a multiprocessor does one thing at a time. What is started, awaited and freed is the
kernel's code. A tile that is copied over one still to be read makes the result wrong, and `trace`
compares it with attention's definition.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from softmax_tutorial.attention import warp_groups

PATH = "src/softmax_site/figures/warp_groups_trace.json"
ROWS, KEYS, DIMS, TILES = 4, 4, 4, 5
TICKS = {
    64: {"scores": 4, "values": 4, "weights": 8},
    128: {"scores": 8, "values": 8, "weights": 8},
}
"""By the components of a query. A tile's exponentials take as long as both its products do with 64
components; a copy of a tile occupies the memory as long as a product the tensor cores."""
LATENCY = 8
"""Ticks until the first byte of a copy arrives."""
SHAPES = [(dim, groups, stages) for dim in TICKS for groups in (2, 3) for stages in (1, 2, 4)]

Event = tuple[int, str, int, int, int]
"""Who (groups first, then the warp that loads), what, which tile, from when, until when."""


class Values(np.ndarray):
    """An array with what Gluon's tensors and tiles can do."""

    type = SimpleNamespace(layout=None)
    to = lambda self, dtype: self  # noqa: E731
    index = lambda self, at: self[at]  # noqa: E731
    permute = lambda self, axes: self.transpose(axes)  # noqa: E731
    store = lambda self, values: self.__setitem__(..., values)  # noqa: E731


class Barrier:
    """Ends a phase whenever `count` have arrived, and knows when that was."""

    def __init__(self, name: str, place: int) -> None:
        self.name, self.place, self.times, self.count = name, place, [], 1

    def passed(self, parity: int) -> int | None:
        """When the last phase of a parity ended, if the barrier is in one of the other."""
        phase = len(self.times) // self.count
        return None if phase % 2 == parity else max(self.times[: phase * self.count], default=0)


class Warps(threading.Thread):
    """A group of warps, which runs until it pauses, and goes on when it is its turn."""

    def __init__(self, lane: int, work: Callable, arguments: tuple) -> None:
        super().__init__(daemon=True)
        self.lane, self.work, self.arguments = lane, work, arguments
        self.now, self.ends, self.done = 0, [], Counter()
        self.may: Callable[[], int | None] | None = lambda: 0
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.error: Exception | None = None

    def run(self) -> None:
        self.turn.acquire()
        try:
            self.work(*self.arguments)
        except Exception as error:
            self.error = error
        self.may = None
        self.back.release()

    def pause(self, may: Callable[[], int | None]) -> None:
        """Go on at the time that `may` gives, once all that happens before has happened."""
        self.may = may
        self.back.release()
        self.turn.acquire()


def working() -> Any:
    """The warps whose code this is."""
    return threading.current_thread()


class Run:
    """Gluon's functions as one multiprocessor might carry them out, and what happened."""

    def __init__(self, dim: int, stages: int, rows: int) -> None:
        self.ticks, self.stages, self.lse = TICKS[dim], stages, np.zeros(rows)
        self.events: list[Event] = []
        self.busy: Counter = Counter()
        self.names = iter([f"{side} {of}" for of in "qkv" for side in ("await", "free")])

    def start(self, what: str, unit: str, ticks: int, after: int = 0) -> int:
        """Begin something as soon as its unit is free, and return when it will have ended."""
        warps = working()
        warps.pause(lambda: warps.now)
        begin = max(warps.now, self.busy[unit])
        self.busy[unit] = begin + ticks
        end = begin + ticks + after
        self.events.append((warps.lane, what, warps.done[what], begin, end))
        warps.done[what] += 1
        return end

    def multiply(self, a: Values, b: Values, c: Values, use_acc: bool = True, **_: bool) -> Any:
        what = "values" if use_acc else "scores"
        warps = working()
        warps.ends.append(self.start(what, "tensor cores", self.ticks[what]))
        return a @ b + (c if use_acc else 0)

    def await_products(self, but: int, deps: list[Values]) -> Values:
        warps = working()
        warps.now = max([warps.now, *warps.ends[: len(warps.ends) - but]])
        return deps[0]

    def weigh(self, *arguments: Any) -> tuple:
        warps = working()
        warps.now = self.start("weights", "other units", self.ticks["weights"])
        return self.weights_of(*arguments)

    def copy(self, desc: Any, at: list, barrier: Barrier, tile: Values) -> None:
        tile[...] = desc.data[:, :, at[2] : at[2] + tile.shape[2]]
        barrier.times.append(self.start(desc.name, "memory", self.ticks["scores"], LATENCY))

    def wait(self, barrier: Barrier, parity: int) -> None:
        """Wait for a phase of a barrier to end; the warp that loads waits for places."""
        warps = working()
        before, what = warps.now, barrier.name.replace("free", "await")

        def passed() -> int | None:
            time = barrier.passed(parity)
            return time if time is None else max(before, time)

        warps.pause(passed)
        if warps.now > before:
            self.events.append((warps.lane, what, warps.done[what], before, warps.now))
        warps.done[what] += 1

    def arrive(self, barrier: Barrier) -> None:
        warps = working()
        barrier.times.append(warps.now)
        phase, rest = divmod(len(barrier.times), barrier.count)
        if rest == 0:
            tile = (phase - 1) * self.stages + barrier.place
            self.events.append((warps.lane, barrier.name, tile, warps.now, warps.now))

    def allocate(self, dtype: object, shape: list[int], layout: object) -> Any:
        """Tiles, or barriers in the order in which the kernel asks for them."""
        if dtype != "barrier":
            return np.zeros(shape).view(Values)
        name = next(self.names)
        return SimpleNamespace(index=[Barrier(name, at) for at in range(shape[0])].__getitem__)

    def specialize(self, parts: list[tuple], *_: object) -> None:
        """Let groups of warps work, always the one whose time is the least."""
        every = [Warps(lane, *part) for lane, part in enumerate(parts)]
        for warps in every:
            warps.start()
        while left := [warps for warps in every if warps.may]:
            times = [(each.may and each.may(), each.lane) for each in left]
            # The least of nothing, if all wait for one another.
            time, lane = min((time, lane) for time, lane in times if time is not None)
            every[lane].now = time
            every[lane].turn.release()
            every[lane].back.acquire()
            if error := every[lane].error:
                raise error

    def module(self) -> dict[str, Any]:
        """The functions of the kernel's module, in a scope where Gluon's are these."""
        filled = lambda shape, value, *_: np.full(shape, value).view(Values)  # noqa: E731
        nothing = lambda *_, **__: None  # noqa: E731
        gl = SimpleNamespace(
            **{name: getattr(np, name) for name in ("exp2", "log2", "maximum", "minimum")},
            **dict.fromkeys(("SliceLayout", "NVMMADistributedLayout", "DotOperandLayout"), nothing),
            where=lambda *of: np.where(*of).view(Values), cdiv=lambda a, b: -(-a // b),
            arange=lambda *ends, layout: np.arange(*ends),
            max=np.max, sum=np.sum, zeros=lambda shape, *_: filled(shape, 0.0), full=filled,
            convert_layout=lambda values, layout: values, static_range=range,
            program_id=lambda axis: 0, num_programs=lambda axis: 1,
            store=lambda at, values, mask: self.lse.__setitem__(at, values),
            allocate_shared_memory=self.allocate, warp_specialize=self.specialize,
            float32=None, int64="barrier",
        )  # fmt: skip
        put = lambda desc, at, tile: desc.data.__setitem__(  # noqa: E731
            (slice(None), slice(None), slice(at[2], at[2] + ROWS)), tile
        )
        given: dict[str, Any] = {
            "gl": gl, "ROWS": ROWS, "LOG2E": math.log2(math.e), "fence_async_shared": nothing,
            "warpgroup_mma": self.multiply, "warpgroup_mma_wait": self.await_products,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=nothing, expect=nothing, wait=self.wait, arrive=self.arrive,
                init=lambda barrier, count: setattr(barrier, "count", count),
            ),
            "tma": SimpleNamespace(
                store_wait=nothing, async_copy_global_to_shared=self.copy,
                async_copy_shared_to_global=put,
            ),
        }  # fmt: skip
        jitted = {name: each.fn for name, each in vars(warp_groups).items() if hasattr(each, "fn")}
        given |= {name: FunctionType(fn.__code__, given) for name, fn in jitted.items()}
        self.weights_of, given["weigh"] = given["weigh"], self.weigh
        return given


def trace(dim: int, groups: int, stages: int) -> list[Event]:
    """What happens while one task is worked at, checked against the definition of attention.

    Args:
        dim: components of a query, which say how long a product takes.
        groups: groups of warps that compute, each for queries of its own.
        stages: places for tiles of keys, and for tiles of values.
    """
    rows, keys, random = groups * ROWS, TILES * KEYS, np.random.default_rng(0)
    q, k, v, o = (random.normal(size=(n, DIMS)) for n in (rows, keys, keys, rows))
    run = Run(dim, stages, rows)

    def desc(name: str, data: np.ndarray, rows: int) -> SimpleNamespace:
        shape = [np.asarray(size).view(Values) for size in (1, 1, *data.shape)]
        return SimpleNamespace(
            name=name, data=data[None, None], shape=shape, block_shape=[1, 1, rows, DIMS],
            dtype=None, layout=None, block_type=SimpleNamespace(nbytes=0),
        )  # fmt: skip

    tiles = (desc("q", q, ROWS), desc("k", k, KEYS), desc("v", v, KEYS), desc("o", o, ROWS))
    kernel = run.module()["attention_warp_groups_kernel"]
    kernel(*tiles, 0, math.log2(math.e), False, groups, stages)
    scores = np.exp(q @ k.T)
    np.testing.assert_allclose(o, scores @ v / scores.sum(1, keepdims=True))
    np.testing.assert_allclose(run.lse, np.log(scores.sum(1)))
    return sorted(run.events, key=lambda event: event[3])


def generate() -> dict[str, str]:
    """Each trace by components, groups and places."""
    lines = [f'"{a} {b} {c}": {json.dumps(trace(a, b, c))}' for a, b, c in SHAPES]
    return {PATH: "{\n" + ",\n".join(lines) + "\n}\n"}
