"""The loop that measures: for each case and provider check against float64, then time, then write a
row.

The file is written again every few seconds and read back at the start, so a run that stops goes on
where it was. A provider that breaks the device, or hangs, gets a row that says so, and the run
starts itself again without it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from softmax_bench import inputs, loss_head, measure, providers, tuning
from softmax_bench.cases import ELEMENTS, Case
from softmax_bench.random_shapes import pitch
from softmax_bench.roster import CHOOSER, COPY, RUNGS
from softmax_bench.schema import FORMAT, dump, write_whole

HANG_SECONDS = 100
"""How long one provider may take for one case, compiling included, before it counts as hanging."""

TURNS = 5
"""How often those who are compared are timed in turn."""

WARM_BELOW_MICROSECONDS = 10.0
"""Below this time of the copy the suite `random` is timed with a warm cache too."""

FINAL = {"ok", "wrong", "refused", "failed"}
"""The states of a row that a resumed run leaves alone."""


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(*command: str) -> str | None:
    """The first line that a program prints; None if it fails."""
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip().splitlines()[0] if not run.returncode and run.stdout.strip() else None


def git_commit() -> str | None:
    """The commit of the working tree, or None outside a repository."""
    return _said("git", "rev-parse", "HEAD")


def machine(on_gpu: bool | None = None) -> dict:
    """The GPU, if there is one and it is asked for, and the versions."""
    import triton

    on_gpu = torch.cuda.is_available() if on_gpu is None else on_gpu
    properties = torch.cuda.get_device_properties(0) if on_gpu else None
    driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "gpu": properties.name if properties else f"none ({platform.machine()})",
        "gpu_memory_bytes": properties.total_memory if properties else 0,
        "multiprocessors": properties.multi_processor_count if properties else 0,
        "l2_bytes": getattr(properties, "L2_cache_size", 0),
        "driver": driver if on_gpu and driver else "none",
        "cuda": torch.version.cuda or "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def environment(device: str, commit: str | None, timer) -> dict:
    """Everything about the machine and the software that a row refers to."""
    return {
        **machine(device == "cuda"),
        "peers": providers.versions(),
        "commit": commit or git_commit() or "unknown",
        "started": now(),
        "timer": timer.name,
        "flush_bytes": timer.flush_bytes,
    }


class Results:
    """The file of a run: its rows by case and provider, kept on disk."""

    def __init__(self, path: Path, env: dict, every: float = 3.0):
        self.path, self.every, self.written = path, every, 0.0
        self.environments: dict[str, dict] = {}
        self.rows: dict[tuple[str, str], dict] = {}
        if path.is_file():
            data = json.loads(path.read_text(encoding="utf-8"))
            self.environments = data["environments"]
            self.rows = {(row["case"], row["provider"]): row for row in data["rows"]}
        self.environment = self._enter(env)

    def _enter(self, env: dict) -> str:
        def same(a: dict, b: dict) -> bool:
            return {**a, "started": ""} == {**b, "started": ""}

        for name, known in self.environments.items():
            if same(known, env):
                return name
        taken = [int(name.removeprefix("run")) for name in self.environments]
        name = f"run{max(taken, default=0) + 1}"
        self.environments[name] = env
        return name

    def done(self, case: Case, provider: str) -> bool:
        """Whether a row needs no measuring again: it is final, and was measured with the same
        software."""
        row = self.rows.get((case.id, provider))
        if row is None or row["status"] not in FINAL:
            return False
        then, current = self.environments[row["environment"]], self.environments[self.environment]
        if any(then[key] != current[key] for key in ("gpu", "driver", "cuda", "torch", "triton")):
            return False
        if then["peers"].get(provider) != current["peers"].get(provider):
            return False
        ours = provider in (CHOOSER, *RUNGS)
        return not ours or then["commit"] == current["commit"]

    def add(self, case: Case, provider: str, **fields) -> dict:
        """Keep a row; whatever stood at its place goes."""
        row = {
            **case.fields,
            "provider": provider,
            "status": "ok",
            "reason": None,
            "us": None,
            "samples": 0,
            "max_abs_error": None,
            "max_rel_error": None,
            "kernels": [],
            "count": None,
            "environment": self.environment,
            "utc": now(),
            **fields,
        }
        self.rows[case.id, provider] = row
        if time.monotonic() - self.written > self.every:
            self.write()
        return row

    def write(self) -> None:
        """Write the file, with the environments that its rows refer to."""
        used = {row["environment"] for row in self.rows.values()} | {self.environment}
        kept = {name: env for name, env in self.environments.items() if name in used}
        rows = list(self.rows.values())
        write_whole(self.path, dump({"format": FORMAT, "environments": kept, "rows": rows}))
        self.written = time.monotonic()


def judged(absolute: float, relative: float, case: Case) -> dict:
    """The fields of a row about its errors."""
    fields: dict[str, Any] = {"max_abs_error": absolute, "max_rel_error": relative}
    # JSON has no infinite number, so it is the word.
    fields = {name: each if each < float("inf") else "inf" for name, each in fields.items()}
    if relative > measure.TOLERANCE[case.dtype]:
        reason = f"largest relative error of a row {relative:.3g}"
        fields |= {"status": "wrong", "reason": reason}
    return fields


def taken(samples: list[float]) -> dict:
    """The fields of a row about its times."""
    return {"us": measure.summary(samples), "samples": len(samples)}


class Runner:
    """Measures cases one by one."""

    def __init__(
        self,
        results: Results,
        device: str,
        timer: Callable[..., list[float]],
        *,
        budget_seconds: float = float("inf"),
        say: Callable[[str], None] = lambda line: print(line, flush=True),
        restart: Callable[[], None] | None = None,
        seed: int | None = None,
    ):
        self.results, self.device, self.timer, self.say = results, torch.device(device), timer, say
        self.begin, self.budget = time.monotonic(), budget_seconds
        self.restart = restart
        few = {} if device == "cuda" else {"batches": 2, "calls": 2, "warm": 1}
        self.host_timer = measure.HostTimer(self.synchronize, **few)
        self.generator = torch.Generator(device).manual_seed(
            seed if seed is not None else time.time_ns() % 2**31
        )
        self.pool: dict[tuple[str, int], torch.Tensor] = {}
        self.current: tuple[Case, str, float] | None = None

    # Tensors

    def _random(self, dtype: str, slot: int, elements: int) -> torch.Tensor:
        """Normally distributed numbers from a buffer that all cases of a type share."""
        buffer = self.pool.get((dtype, slot))
        if buffer is None or buffer.numel() < elements:
            self.pool.pop((dtype, slot), None)
            size = max(elements, ELEMENTS) if self.device.type == "cuda" else elements
            buffer = torch.randn(
                size, generator=self.generator, device=self.device, dtype=getattr(torch, dtype)
            )
            self.pool[dtype, slot] = buffer
        return buffer[:elements]

    def tensors(self, case: Case) -> inputs.Tensors:
        """The tensors of a case."""
        x = self._laid_out(case, 0)
        if case.inputs not in ("normal", "sweep") or case.suite == "host_time":
            x = inputs.make_input(case, x.clone())
        tensors = inputs.Tensors(x)
        if case.direction != "forward":
            tensors.dy = self._laid_out(case, 1)
        if case.direction == "backward":
            function = torch.log_softmax if case.op == "log_softmax" else torch.softmax
            tensors.y = function(x, case.dim)
        return tensors

    def _laid_out(self, case: Case, slot: int) -> torch.Tensor:
        """Random numbers as they lie in memory; the gradient of the layout `row_strided` is
        contiguous."""
        step = case.n_cols
        if case.layout == "padded":
            step = pitch(step)
        elif case.layout == "row_strided" and not slot:
            step *= 2
        flat = self._random(case.dtype, slot, case.n_rows * step)
        if step == case.n_cols:
            return flat.view(case.shape)
        return flat.view(case.n_rows, step)[:, : case.n_cols]

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    # The loop

    def run(self, cases: list[Case]) -> None:
        """Measure every case that is not measured yet, until the time is up."""
        todo = []
        for case in cases:
            missing = [name for name in case.providers if not self.results.done(case, name)]
            if missing and COPY in case.providers and COPY not in missing:
                missing.insert(0, COPY)  # the copy of the same run
            if missing:
                todo.append((case, missing))
        n_rows = sum(len(names) for _, names in todo)
        self.say(f"{len(todo)} of {len(cases)} cases to measure, {n_rows} rows")
        threading.Thread(target=self._watch, daemon=True).start()
        late = "the time given was used up"
        for number, (case, names) in enumerate(todo, start=1):
            spent = time.monotonic() - self.begin
            if spent <= self.budget:
                words = "  ".join(self._case(case, names))
                self.say(f"[{spent:5.0f} s {number}/{len(todo)}] {case.id}: {words}")
                continue
            for name in names:
                if (case.id, name) not in self.results.rows:
                    self.results.add(case, name, status="not_run", reason=late)
        if late_ones := [row for row in self.results.rows.values() if row["reason"] == late]:
            self.say(f"time is up: {len(late_ones)} rows left")
        self.current = None
        self.results.write()

    def _case(self, case: Case, names: list[str]) -> list[str]:
        """Measure a case; what came of it in a few words for each provider."""
        tensors: Any
        expected: Any = None
        try:
            if case.suite == "loss_head":
                tensors = loss_head.operands(case, self.device, self.generator)
                expected = loss_head.reference(case, tensors)
            else:
                tensors = self.tensors(case)
                if case.inputs != "sweep":
                    expected = measure.reference(case, tensors)
        except Exception as error:
            self._survive(error)
            reason = f"making the tensors: {describe(error)}"
            for name in names:
                self.results.add(case, name, status="failed", reason=reason)
            return [f"failed: {describe(error)}"]
        found: dict[str, dict] = {}
        calls: dict[str, Callable[[], object]] = {}
        for name in names:
            self.current = (case, name, time.monotonic())
            found[name] = self._measure(case, name, tensors, expected, calls)
        self._time(case, found, calls)
        self.current = None
        calls.clear()
        del tensors, expected
        gc.collect(0)
        return [cell(self.results.add(case, name, **found[name])) for name in names]

    def _time(self, case: Case, found: dict[str, dict], calls: dict[str, Callable]) -> None:
        """Time all calls in turn, several times, and add what is found; small random tensors with a
        warm cache, too."""
        for cold in (True, False):
            copy = found.get(COPY, {}).get("us")
            small = copy and copy["p50"] < WARM_BELOW_MICROSECONDS
            if not cold and not (small and case.suite == "random"):
                return
            samples: dict[str, list[float]] = {name: [] for name in calls}
            for turn in range(TURNS):
                for name in list(calls):
                    if turn and measure.percentile(samples[name], 0.5) >= 1000:
                        continue  # all of its samples were taken at once
                    self.current = (case, name, time.monotonic())
                    try:
                        samples[name] += self.timer(calls[name], cold, 1 / TURNS)
                    except Exception as error:
                        del calls[name], samples[name]
                        found[name] = self._failed(error, case, name)
            for name, times in samples.items():
                found[name] |= taken(times) if cold else {"us_warm": measure.summary(times)}

    def _measure(
        self,
        case: Case,
        name: str,
        tensors: inputs.Tensors,
        expected: Any,
        calls: dict[str, Callable[[], object]],
    ) -> dict:
        """What there is to say of a case before it is timed; a call that is to be timed goes to
        `calls`."""
        try:
            if case.suite == "compiles":
                return self._count_kernels(case)
            if case.suite == "compiled":
                return self._compiled_step(case, name, tensors)
            if case.suite == "loss_head":
                return self._loss_head(case, name, tensors, expected)
            call = providers.PREPARE[name](case, tensors)
            if case.suite == "host_time":
                return self._host_time(case, call, tensors, expected)
            fields: dict = {}
            if name != COPY:
                if case.suite != "accuracy":
                    self._poison(case)
                result: Any = call()
                absolute, relative = measure.errors(
                    result,
                    expected.view(result.shape),
                    case.dim,
                    floor=0.01 if case.suite == "random" and case.direction == "backward" else 0.0,
                )
                del result
                fields = judged(absolute, relative, case)
                if name in (CHOOSER, *RUNGS):
                    rung = None if name == CHOOSER else name
                    fields["kernels"] = providers.kernels(case, tensors, rung)
            if case.suite != "accuracy":
                call()
                calls[name] = call
            return fields
        except providers.Refused as error:
            return {"status": "refused", "reason": str(error)}
        except providers.Missing as error:
            return {"status": "skipped", "reason": str(error)}
        except Exception as error:
            return self._failed(error, case, name)

    def _failed(self, error: Exception, case: Case, name: str) -> dict:
        refused = isinstance(error, (ValueError, NotImplementedError, AssertionError))
        fields = {"status": "refused" if refused else "failed", "reason": describe(error)}
        self._survive(error, lambda: self.results.add(case, name, **fields))
        return fields

    def _poison(self, case: Case) -> None:
        count = case.n_rows if case.op == "logsumexp" else case.elements
        measure.poison(count, getattr(torch, case.dtype), self.device)

    def _loss_head(self, case: Case, name: str, tensors: Any, expected: Any) -> dict:
        """Time, error of the results and the gradients, and the memory that a call takes."""
        call = loss_head.prepare(case, name, tensors)
        fields: dict = {}
        if name not in (COPY, "packed_rows") and case.inputs != "in_place":
            found = [
                measure.errors(result.detach(), wanted.detach(), -1, floor=0.01)
                for result, wanted in zip(call(), expected, strict=True)
            ]
            absolute, relative = (max(each) for each in zip(*found, strict=True))
            fields = judged(absolute, relative, case)
        call()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            call()
            torch.cuda.synchronize()
            fields["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        return fields | taken(self.timer(call))

    def _host_time(self, case: Case, call, tensors: inputs.Tensors, expected) -> dict:
        absolute, relative = measure.errors(call(), expected, case.dim)
        try:
            if case.direction != "forward":
                call = providers.differentiable(case, call, tensors)
            samples = self.host_timer(call)
        finally:
            tensors.x.requires_grad_(False)
        return judged(absolute, relative, case) | taken(samples)

    def _compiled_step(self, case: Case, name: str, tensors: inputs.Tensors) -> dict:
        """Host time of a compiled step that multiplies before and after."""
        step, wanted = providers.compiled_step(case, name), providers.plain_step(case)
        x, graphs = tensors.x, case.inputs != "default" and self.device.type == "cuda"

        def forward() -> torch.Tensor:
            if graphs:
                torch.compiler.cudagraph_mark_step_begin()
            return step(x)

        def forward_backward() -> torch.Tensor:
            return torch.autograd.grad(forward(), x, tensors.dy)[0]

        training = case.direction == "forward_backward"
        try:
            x.requires_grad_(training)
            with torch.set_grad_enabled(training):
                absolute, relative = measure.errors(
                    forward().detach(), wanted(x.detach().double()), case.dim
                )
                samples = self.host_timer(forward_backward if training else forward)
        finally:
            x.requires_grad_(False)
        return judged(absolute, relative, case) | taken(samples)

    def _count_kernels(self, case: Case) -> dict:
        """Run over many row lengths and count what Triton compiles."""
        import triton

        if triton.knobs.runtime.interpret or self.device.type != "cuda":
            raise providers.Missing("the interpreter compiles nothing")
        n_rows, count = case.shape
        lengths = sorted({1 + (i * 262143) // (count - 1) for i in range(count)})
        if len(lengths) < count:
            raise ValueError(f"{len(lengths)} different lengths, not {count}")
        fresh = tuning.forget_compiled()
        begin = time.perf_counter()
        for n_cols in lengths:
            view = Case(case.suite, (n_rows, n_cols), case.dtype, case.direction)
            call = providers.PREPARE[CHOOSER](view, self.tensors(view))
            call()
            self.current = (case, CHOOSER, time.monotonic())
        self.synchronize()
        seconds = time.perf_counter() - begin
        compiled = tuning.compiled()
        reason = None if fresh else "kernels compiled earlier in this process are not counted"
        return {
            "count": len(compiled),
            "samples": len(lengths),
            "reason": reason,
            "us": measure.summary([seconds * 1e6 / len(lengths)]),
            "kernels": sorted(set(compiled)),
            "bytes": 0,
        }

    # Breakage

    def _survive(self, error: Exception, keep: Callable[[], object] = lambda: None) -> None:
        """After a failure: go on if the device still answers, start again if it does not."""
        if isinstance(error, torch.cuda.OutOfMemoryError):
            self.pool.clear()
        if self.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize()
            torch.ones(1, device=self.device).item()
            if isinstance(error, torch.cuda.OutOfMemoryError):
                torch.cuda.empty_cache()
        except Exception:
            keep()
            self.results.write()
            self.say("the device no longer answers: starting again")
            if self.restart is None:
                raise
            self.restart()

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
            self.results.write()
            self.say(f"{case.id}: {name} hangs: starting again")
            if self.restart is not None:
                self.restart()
            os._exit(3)


def describe(error: Exception) -> str:
    """An error in one line, shortened."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:297] + "..."


def cell(row: dict) -> str:
    """A row in a few characters, for the progress line."""
    name = row["provider"]
    if row["status"] not in ("ok", "wrong"):
        return f"{name}={row['status']}"
    mark = "" if row["status"] == "ok" else "(wrong)"
    if row["count"] is not None:
        return f"{name}={row['count']} kernels{mark}"
    if row["us"] is None:
        return f"{name}={float(row['max_rel_error']):.1e}{mark}"
    us = row["us"]["p50"]
    if row["suite"] in ("host_time", "few_rows", "batch"):
        return f"{name}={us:.1f}us{mark}"
    return f"{name}={row['bytes'] / us / 1e3:.0f}{mark}"


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


def call_share(pairs: list[tuple[Case, Any]], part: str, prepare: Callable, device: str) -> None:
    """Call a share of what `prepare` makes of cases and of what to measure, each once; the share is
    "0/4" for the first of four."""
    runner = Runner(Results(Path(os.devnull), {}), device, lambda call, cold=True: [])
    first, step = map(int, part.split("/"))
    for case, what in pairs[first::step]:
        try:
            prepare(case, runner.tensors(case), what)()
            runner.synchronize()
        except Exception as error:  # it fails again, and is recorded, when it is measured
            if "CUDA error" in str(error):
                return


def warm(cases: list[Case], part: str, results_path: Path | None = None) -> None:
    """Call one share of all (case, provider) pairs once."""
    done: set[tuple[str, str]] = set()
    if results_path is not None and results_path.is_file():
        rows = json.loads(results_path.read_text(encoding="utf-8"))["rows"]
        done = {(row["case"], row["provider"]) for row in rows if row["status"] in FINAL}
    tuning.hasten_autotuning()
    pairs = [
        (case, name)
        for case in cases
        if case.suite not in ("compiles", "accuracy", "compiled", "loss_head")
        for name in case.providers
        if name in providers.NEEDS_COMPILING and (case.id, name) not in done
    ]
    pairs.sort(key=lambda pair: pair[1])  # so that each share holds as many cases of each provider
    call_share(pairs, part, lambda case, t, name: providers.PREPARE[name](case, t), "cuda")
