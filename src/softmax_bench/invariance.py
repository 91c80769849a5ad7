"""What batch invariance costs: `python -m softmax_bench invariance`.

Each call is timed with it and without, in turn, on the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch

from softmax_bench import measure, providers, results, schema, warmup
from softmax_bench.case import Case
from softmax_bench.inputs import Inputs, Tensors
from softmax_bench.roster import CHOOSER
from triton_softmax import batch_invariant, softmax

FORMAT = "triton-softmax-invariant/1"

ALLOWED = 1.05
"""Times of the plain call that a batch-invariant one may take."""

SHAPES = {
    "softmax/bfloat16": "1x128256 64x128256 256x151936 4096x4096 2048x50257 8192x1000 1x4096 "
    "64x4096 1x50257 256x50257 1024x128256 512x65536 65536x128 8192x1003 4096x8192 2048x16384 "
    "64x50257 8192x32000 16x1000 500x9000 500x9001 100x300000 30x1000003",
    "logsumexp/bfloat16": "1x128256 64x128256 256x151936 4096x4096 2048x50257 8192x1000 65536x128 "
    "8192x1003 4096x8192 2048x32768",
    "cross_entropy/bfloat16": "4096x4096 2048x50257 2048x128256 64x128256 8192x1000 64x50257",
    "softmax_vjp/bfloat16": "1x128256 256x151936 4096x4096 2048x50257 8192x1000",
    "softmax_vjp/float32": "1x128256 256x151936 4096x4096 2048x50257",
    "softmax_of_columns/bfloat16": "2048x4096 16384x512",
    "log_softmax/bfloat16": "4096x4096 2048x50257",
    "logsumexp/float32": "1x128256 64x128256 256x151936 4096x4096 2048x50257",
    "softmax/float32": "1x128256 256x151936 4096x4096 2048x50257 8192x1000",
}
"""Rows × columns of each operation and dtype."""


def cases() -> dict[str, Case]:
    """Every call, by its name in the file; a loss computes its gradient too."""
    found = {}
    for of, shapes in SHAPES.items():
        op, dtype = of.split("/")
        direction = {"softmax_vjp": "backward", "cross_entropy": "forward_grad"}.get(op, "forward")
        for each in shapes.split():
            n_rows, n_cols = map(int, each.split("x"))
            dim = 0 if "columns" in op else -1
            name = op.removesuffix("_vjp").removesuffix("_of_columns")
            found[f"{of}/{each}"] = Case("", (n_rows, n_cols), dtype, direction, name, dim)
    return found


def prepare(case: Case, invariant: bool, t: Tensors) -> Callable[[], object]:
    """The call of a case, batch-invariant or not."""
    if case.direction == "backward":
        x = t.x.detach().requires_grad_()
        y = softmax(x, batch_invariant=invariant)
        return partial(torch.autograd.grad, y, x, t.dy, retain_graph=True)
    call = providers.prepare(case, CHOOSER, t)
    return batch_invariant()(call) if invariant else call


def measured(case: Case, timer: Callable, inputs: Inputs) -> dict[str, float]:
    """The medians of both calls, and their ratio."""
    t = inputs.tensors(case)
    calls = {each: prepare(case, each, t) for each in (False, True)}
    for call in calls.values():
        call()  # the timer expects it
    found = measure.in_turn(lambda name: timer(calls[name]), calls)
    plain, invariant = (median(measure.flat(found[each])) for each in calls)
    times = {"plain_us": round(plain, 2), "invariant_us": round(invariant, 2)}
    return {**times, "ratio": round(invariant / plain, 3)}


def run(out: Path, commit: str | None, processes: int) -> dict:
    """Write the file, or go on with it: every call, and how many keep what is allowed."""
    about = {"format": FORMAT, "machine": results.machine()}
    about["commit"] = commit or results.git_commit()
    data = schema.read_json(out) if out.is_file() else {}
    if any(data.get(key) != value for key, value in about.items()):
        data = {**about, "utc": results.now(), "count": 0, "within": 0, "most": 0.0, "calls": {}}
    calls, found = data["calls"], cases()
    todo = {name: case for name, case in found.items() if name not in calls}
    if processes > 1:
        pairs = [(case, each) for case in todo.values() for each in (False, True)]
        warmup.compile_ahead(prepare, pairs, processes)
    timer, inputs = measure.CudaTimer(60.0), Inputs("cuda")
    for name, case in todo.items():
        calls[name] = measured(case, timer, inputs)
        print(name, *calls[name].values(), flush=True)
        ratios = [each["ratio"] for each in calls.values()]
        data |= {"count": len(calls), "within": sum(each <= ALLOWED for each in ratios)}
        data |= {"most": max(ratios)}
        schema.write(out, data, 3)
    print(data["within"], "of", data["count"], "keep it, at most", data["most"])
    return data
