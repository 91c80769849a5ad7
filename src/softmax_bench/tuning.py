"""What a run does to Triton's own state: shorter autotuning, caches emptied to count compiles."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction

from softmax_bench.measure import percentile
from softmax_bench.roster import RUNGS


def hasten_autotuning() -> None:
    """Let the autotuned rungs try each configuration a few times only: a run visits hundreds of row
    lengths."""
    from triton.runtime.autotuner import Autotuner

    def few_calls(call: Callable[[], object], quantiles=(0.5, 0.2, 0.8)) -> list[float]:
        call()
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(5)
        ]
        for start, end in events:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        times = [start.elapsed_time(end) for start, end in events]
        return [percentile(times, share) for share in quantiles]

    for name in RUNGS:
        try:
            module = importlib.import_module(f"softmax_tutorial.{name}")
        except ImportError:
            continue
        for value in vars(module).values():
            while value is not None:
                if isinstance(value, Autotuner):
                    value._do_bench = few_calls
                value = getattr(value, "fn", None)


def jitted() -> Iterator[JITFunction]:
    """The library's jitted functions, each once."""
    from triton.runtime.jit import JITFunction

    seen = set()
    for name, module in list(sys.modules.items()):
        if not name.startswith(("triton_softmax.kernels", "softmax_tutorial.")):
            continue
        for value in vars(module).values():
            while value is not None and not isinstance(value, JITFunction):
                value = getattr(value, "fn", None)  # tuned kernels wrap it
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield value


def forget_compiled() -> bool:
    """Empty Triton's in-memory caches of this package's kernels, so that compilations can be
    counted from nothing; whether there are any kernels."""
    importlib.import_module("triton_softmax.plan").clear_plans()
    functions = list(jitted())
    for function in functions:
        function.device_caches.clear()
    return bool(functions)


def compiled() -> list[str]:
    """The name of a function for each of its variants in those caches."""
    return [
        function.fn.__name__
        for function in jitted()
        for kernels, *_ in function.device_caches.values()
        for _ in kernels
    ]
