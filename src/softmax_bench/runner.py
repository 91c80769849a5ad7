"""The loop that measures: for each case and provider check against float64, then time, then write a
row.

The file is written again every few seconds and read back at the start, so a run that stops goes on
where it was. A provider that breaks the device, or hangs, gets a row that says so, and the run
starts itself again without it.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from softmax_bench import measure, providers
from softmax_bench.case import UNTIMED, Case
from softmax_bench.inputs import Inputs, Tensors
from softmax_bench.report import says_no
from softmax_bench.results import Results
from softmax_bench.roster import CHOOSER, COPY, RUNGS

HANG_SECONDS = 100
"""How long one provider may take for one case, compiling included, before it counts as hanging."""

WARM_BELOW_MICROSECONDS = 10.0
"""Below this time of the copy the suite `random` is timed with a warm cache too."""

OF_THE_HOST = ("host_time", "compiled")
"""Suites that time the host."""

IN_A_LOOP = ("few_rows", "loss_head")
"""Suites whose calls are timed in a loop, too, in which the host may be the slower one."""


def judged(case: Case, results: Any, expected: tuple[torch.Tensor, ...]) -> dict:
    """The fields of a row about its errors: the largest of all results."""
    cancels = case.direction != "forward" and case.suite in ("random", "choices", *OF_THE_HOST)
    floor = 0.01 if cancels or case.suite == "loss_head" else 0.0
    found = []
    for result, wanted in zip(providers.as_tuple(results), expected, strict=True):
        result, wanted = result.detach(), wanted.detach()
        found.append(measure.errors(result, wanted.view(result.shape), case.dim, floor=floor))
    absolute, relative = (max(each) for each in zip(*found, strict=True))
    fields: dict[str, Any] = {"max_abs_error": absolute, "max_rel_error": relative}
    # JSON has no infinite number, so it is the word.
    fields = {name: each if each < float("inf") else "inf" for name, each in fields.items()}
    if relative > measure.TOLERANCE[case.dtype]:
        reason = f"largest relative error of a row {relative:.3g}"
        fields |= {"status": "wrong", "reason": reason}
    return fields


def taken(turns: list[list[float]]) -> dict:
    """The fields of a row about its times."""
    samples = measure.flat(turns)
    medians = [round(median(turn), 3) for turn in turns]
    return {"us": measure.summary(samples), "samples": len(samples), "us_turns": medians}


def to_compile(cases: list[Case], results: Results) -> list[tuple[Case, str]]:
    """What is worth compiling ahead of the measurement: cases and providers."""
    return [
        (case, name)
        for case in cases
        if case.suite not in (*UNTIMED, "compiled")
        for name in case.providers
        if name not in providers.COMPILED and not results.done(case, name)
    ]


class Runner:
    """Measures cases one by one.

    Args:
        results: where rows go.
        inputs: makes the tensors, and has the device.
        timer: of calls on the device.
        say: takes a line of progress.
        restart: starts the run again, after the device has broken.
    """

    def __init__(
        self,
        results: Results,
        inputs: Inputs,
        timer: Callable[..., list[float]],
        *,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
        restart: Callable[[], None] | None = None,
    ):
        self.results, self.inputs, self.timer, self.say = results, inputs, timer, say
        self.on_gpu = inputs.device.type == "cuda"
        self.restart = restart
        self.host_timer = measure.HostTimer(inputs.synchronize) if self.on_gpu else timer
        self.current: tuple[Case, str, float] | None = None
        self.marker = results.path.with_suffix(".now")

    # The loop

    def run(self, cases: list[Case]) -> None:
        """Measure every case that is not measured yet."""
        todo, marked = [], self.marker.read_text("utf-8") if self.marker.is_file() else ""
        for case in cases:
            for name in case.providers:
                if marked == f"{case.id} {name}" and not self.results.done(case, name):
                    self.results.add(case, name, status="failed", reason="it ended the process")
            missing = [name for name in case.providers if not self.results.done(case, name)]
            if missing and COPY in case.providers and COPY not in missing:
                missing.insert(0, COPY)  # the copy of the same run
            if missing:
                todo.append((case, missing))
        n_rows = sum(len(names) for _, names in todo)
        self.say(f"{len(todo)} of {len(cases)} cases to measure, {n_rows} rows")
        threading.Thread(target=self._watch, daemon=True).start()
        begin = time.monotonic()
        try:
            for number, (case, names) in enumerate(todo, start=1):
                words = "  ".join(self._case(case, names))
                spent = time.monotonic() - begin
                self.say(f"[{spent:5.0f} s {number}/{len(todo)}] {case.id}: {words}")
        finally:  # also when someone stops it
            self._keep()

    def _case(self, case: Case, names: list[str]) -> list[str]:
        """Measure a case; what came of it in a few words for each provider."""
        expected: Any = None
        try:
            tensors = self.inputs.tensors(case)
            if any(providers.answers(case, name) for name in names) and case.suite != "compiles":
                expected = providers.reference(case, tensors)
        except Exception as error:
            self._raise_if_crowded(error, case)
            self._survive(error)
            reason = f"making the tensors: {describe(error)}"
            for name in names:
                self.results.add(case, name, status="failed", reason=reason)
            return [f"failed: {describe(error)}"]
        found: dict[str, dict] = {}
        calls: dict[str, Callable[[], object]] = {}  # to be timed
        # A step that is compiled to infer keeps nothing for a backward pass.
        infers = case.suite == "compiled" and case.direction == "forward"
        with torch.set_grad_enabled(not infers):
            for name in names:
                self._ask(case, name)
                try:
                    found[name] = self._checked(case, name, tensors, expected, calls)
                except Exception as error:
                    self._raise_if_crowded(error, case)
                    found[name] = self._failed(error, case, name)
            self._time(case, found, calls)
        self.current = None
        calls.clear()
        del tensors, expected
        gc.collect(0)
        if case.suite in UNTIMED:
            self.inputs.free()
        return [cell(self.results.add(case, name, **found[name])) for name in names]

    def _checked(
        self, case: Case, name: str, t: Tensors, expected: Any, calls: dict[str, Callable]
    ) -> dict:
        """What there is to say of a case before it is timed in turn."""
        if case.suite == "compiles":
            return self._count_kernels(case)
        call, fields = providers.prepare(case, name, t), {}
        if providers.answers(case, name):
            elements = case.n_rows if case.op == "logsumexp" else case.elements
            measure.poison(elements, getattr(torch, case.dtype), self.inputs.device)
            fields = judged(case, call(), expected)
        if name in (CHOOSER, *RUNGS) and case.suite not in ("loss_head", *OF_THE_HOST):
            fields["kernels"] = providers.kernels(case, t, name)
        else:
            call()
        if case.suite != "accuracy":
            calls[name] = call
        if case.suite == "loss_head" and self.on_gpu:
            fields["peak_bytes"] = measure.peak_bytes(call)
        if case.suite in IN_A_LOOP and self.on_gpu:
            fields["us_loop"] = measure.in_a_loop(call, self.inputs.synchronize)
        return fields

    def _time(self, case: Case, found: dict[str, dict], calls: dict[str, Callable]) -> None:
        """Time all calls in turn, several times, and add what is found; small random tensors with a
        warm cache, too."""
        timer = self.host_timer if case.suite in OF_THE_HOST else self.timer
        for cold in (True, False):
            copy = found.get(COPY, {}).get("us")
            small = copy and copy["p50"] < WARM_BELOW_MICROSECONDS
            if not cold and not (small and case.suite == "random"):
                return

            def timed(name: str, cold: bool = cold) -> list[float]:
                self._ask(case, name)
                return timer(calls[name], cold)

            def failed(name: str, error: Exception) -> None:
                del calls[name]
                found[name] = self._failed(error, case, name)

            for name, times in measure.in_turn(timed, calls, failed=failed).items():
                found[name] |= taken(times) if cold else {"us_warm": taken(times)["us"]}

    def _count_kernels(self, case: Case) -> dict:
        """Run over many row lengths and count what Triton compiles."""
        import triton

        if triton.knobs.runtime.interpret or not self.on_gpu:
            raise providers.Missing("the interpreter compiles nothing")
        compiled: list[object] = []
        launched: set[str] = set()
        lengths, begin = case.lengths, time.perf_counter()
        listen = lambda **event: compiled.append(event)  # noqa: E731
        with patch.object(triton.knobs.compilation, "listener", listen):
            for n_cols in lengths:
                view = replace(case, shape=(case.shape[0], n_cols))
                tensors = self.inputs.tensors(view)
                providers.prepare(view, CHOOSER, tensors)()
                launched.update(providers.kernels(view, tensors, CHOOSER))
                self._ask(case, CHOOSER)
                del tensors
                self.inputs.free()  # each length would keep its own: 100 GB in the end
        self.inputs.synchronize()
        seconds = time.perf_counter() - begin
        return {
            "count": len(compiled),
            "samples": len(lengths),
            "us": measure.summary([seconds * 1e6 / len(lengths)]),
            "kernels": sorted(launched),
            "bytes": 0,
        }

    # Breakage

    def _ask(self, case: Case, name: str) -> None:
        """Note who is asked from now on, on disk for the run that finds this one dead."""
        self.current = (case, name, time.monotonic())
        self.marker.write_text(f"{case.id} {name}", "utf-8")

    def _keep(self) -> None:
        self.results.write()
        self.marker.unlink(missing_ok=True)

    def _failed(self, error: Exception, case: Case, name: str) -> dict:
        if isinstance(error, providers.Refused):
            return {"status": error.status, "reason": str(error)}
        fields = {"reason": describe(error)}
        refused = isinstance(error, (ValueError, NotImplementedError, AssertionError))
        refused |= says_no(fields["reason"])
        fields["status"] = "refused" if refused else "failed"
        self._survive(error, lambda: self.results.add(case, name, **fields))
        return fields

    def _raise_if_crowded(self, error: Exception, case: Case) -> None:
        """End the run if others on the GPU left no memory: that says nothing of a provider, and is
        no row, so the same command goes on with it."""
        if case.suite in UNTIMED and isinstance(error, torch.OutOfMemoryError):
            raise error

    def _survive(self, error: Exception, keep: Callable[[], object] = lambda: None) -> None:
        """After a failure: go on if the device still answers, start again if it does not."""
        if not self.on_gpu:
            return
        try:
            torch.cuda.synchronize()
            torch.ones(1, device=self.inputs.device).item()
            if isinstance(error, torch.cuda.OutOfMemoryError):
                torch.cuda.empty_cache()
        except Exception:
            keep()
            self._start_again("the device no longer answers")
            raise

    def _watch(self) -> None:
        while True:
            time.sleep(5)
            current = self.current
            if current is None or time.monotonic() - current[2] < HANG_SECONDS:
                continue
            case, name, _ = current
            self.results.add(
                case, name, status="failed", reason=f"no answer within {HANG_SECONDS} s"
            )
            self._start_again(f"{case.id}: {name} hangs")
            os._exit(3)

    def _start_again(self, why: str) -> None:
        self._keep()
        self.say(f"{why}: starting again")
        if self.restart is not None:
            self.restart()


def describe(error: Exception) -> str:
    """An error in one line, shortened."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:297] + "..."


def cell(row: dict) -> str:
    """A row in a few characters, for the progress line."""
    found = row["status"] if row["status"] != "ok" else ""
    if row["count"] is not None:
        found += f"{row['count']} kernels"
    elif row["us"]:
        found += f"{row['us']['p50']:.1f}us"
    elif row["max_rel_error"] is not None:
        found += f"{float(row['max_rel_error']):.1e}"
    return f"{row['provider']}={found}"
