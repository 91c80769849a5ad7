"""The compiler beside the interpreter: a process of its own, in which Triton compiles.

A worker starts it once, and Triton's own cache on disk keeps what has not changed.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os

from softmax_bench import compilation
from softmax_bench.compilation import Compilation, Request


def _compile(request: Request) -> Compilation:
    return compilation._compile(request)


@functools.cache
def _process() -> concurrent.futures.Executor:
    """Triton decides when it is imported whether it interprets, so the process is a new one."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        pool.submit(os.getpid).result()
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret
    return pool


def compiled(request: Request) -> Compilation:
    """What a request becomes; raises what the compiler raises."""
    return _process().submit(_compile, request).result()
