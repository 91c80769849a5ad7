"""The command `python -m softmax_bench`."""

# pyright: reportArgumentType=false
from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path

from softmax_bench import cases, everywhere, launches, random_shapes, report, roster, schema, slow
from softmax_bench.gpus import GPUS
from softmax_bench.schema import DataError

Options = argparse.Namespace


def _ready(options: Options) -> None:
    """Raise an error before anything is measured, if it cannot be or its data cannot be kept."""
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise DataError("no CUDA device; --device cpu tries the command without one")
    schema.check_writable(options.out)


def _selected(options: Options) -> list[cases.Case]:
    part, of = map(int, options.part.split("/"))
    return cases.select(options.cases, options.providers, options.seed)[part - 1 :: of]


def _run(options: Options) -> None:
    begin, on_gpu = time.time(), options.device == "cuda"
    _ready(options)
    from softmax_bench import inputs, measure, providers, results, runner, warmup

    timer, chosen = measure.timer_of(options.device, 25.0), _selected(options)
    environment = results.environment(options.device, options.commit, timer)
    found = results.Results(options.out, environment)
    if on_gpu:
        warmup.hasten_autotuning()
        if options.processes > 1:
            pairs = runner.to_compile(chosen, found)
            warmup.compile_ahead(providers.prepare, pairs, options.processes)

    def restart() -> None:
        sys.stdout.flush()
        again = [*options.arguments, "--processes", "0"]
        os.execv(sys.executable, [sys.executable, "-m", "softmax_bench", *again])

    again, made = restart if on_gpu else None, inputs.Inputs(options.device)
    runner.Runner(found, made, timer, restart=again).run(chosen)
    rows = list(found.rows.values())
    try:
        schema.load(options.out)
    except ImportError:
        print("jsonschema is not installed here: the data was not validated")
    print(report.summary(rows))
    print(f"{len(rows)} rows in {options.out}, {time.time() - begin:.0f} s")


def _list(options: Options) -> None:
    for case in _selected(options):
        print(f"{case.id}  {','.join(case.providers)}")


def _compare(options: Options) -> int:
    both = (options.before, options.after)
    before, after = (launches.read_rows(path, schema.load) for path in both)
    text, good = report.compare(before, after, options.max_slowdown, per_copy=options.per_copy)
    print(text)
    return 0 if good else 1


MODULES = {name: name for name in ("attention", "ranks", "invariance", "replay", "tune", "profile")}
MODULES |= {"train": "training", "compile-everywhere": "everywhere", "gpu-report": "gpu_report"}
"""Of commands whose options are the arguments of a module's `run`."""


def _module(options: Options) -> None:
    if "device" in options:
        _ready(options)
    run = importlib.import_module(f"softmax_bench.{MODULES[options.command]}").run
    said = run(**{name: getattr(options, name) for name in signature(run).parameters})
    if isinstance(said, str):
        print(said)


def _profile(options: Options) -> None:
    from softmax_bench import profile

    lines = profile.lines_of(options.calls, options.data)
    if options.inside:
        profile.call_each(profile.listed(lines), options.inside, options.seconds)
    elif options.dry:
        print(*lines, sep="\n")
    else:
        _module(options)


def _tune(options: Options) -> None:
    from softmax_bench import tune, tuned

    if options.report:
        print(tune.reports(tuned.read(options.report)))
    else:
        _module(options)


def _everything(options: Options) -> int:
    from softmax_bench import everything

    if options.dry_run:
        gpus = options.gpus or 2
        about = {"seed": random_shapes.SEED, "parts": gpus, "commit": "", "jobs": {}}
        plan = everything.jobs(options.out, gpus, about, options.without, options.only)
        print(everything.table(plan, {}))
        print(f"{everything.total(plan, gpus):.0f} s on {gpus} GPUs")
        return 0
    if absent := everything.missing(options.without):
        raise DataError(f"not installed: {', '.join(absent)}; --without does without them")
    machine = everything.machine_in_a_process()
    found = machine.pop("gpus")
    gpus = options.gpus or found
    out = options.out.resolve()
    about = everything.begin(out, options.commit, machine, gpus)
    some = (options.without, options.only, options.processes)
    plan = everything.jobs(out, gpus, about, *some)
    good = everything.run(plan, out, list(map(str, range(gpus))), options.seconds, about)
    print(f"the cells are in {everything.merged(out)}")
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m softmax_bench", description=__doc__)
    several = {"type": lambda text: [part for part in text.split(",") if part]}
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(do: Callable[[Options], int | None], words: str, name: str | None = None):
        name = name or do.__name__.removeprefix("_").replace("_", "-")
        found = commands.add_parser(name, help=words)
        found.set_defaults(do=do, command=name)
        return found.add_argument

    def selects(add: Callable) -> None:
        words = f"patterns of names, such as forward/*; suites are {', '.join(cases.SUITES)}"
        add("--cases", help=words, default="*", **several)
        everyone = ",".join(roster.PROVIDERS)
        add("--providers", help=f"some of {everyone}", default=everyone, **several)
        add("--seed", type=int, default=random_shapes.SEED, help="draws the cells of random/*")
        add("--part", metavar="K/N", default="1/1", help="every N-th case from the K-th on")

    def measures(add: Callable, out: str, devices: tuple[str, ...] = ("cuda", "cpu")) -> None:
        add("--out", type=Path, default=Path(out), help="the file to write, or to go on with")
        add("--commit", help="the commit measured, where there is no repository")
        add("--device", choices=devices, default="cuda", help="cpu: try it, not to publish")
        processes = min(12, os.cpu_count() or 1)
        add("--processes", type=int, default=processes, help="to compile ahead")

    add = command(_run, "measure and write data")
    selects(add)
    measures(add, "measurements.json")

    selects(command(_list, "show the cases"))

    words = "which measured calls launch something else at another commit, and what"
    add = command(_module, words, "replay")
    add("old", nargs="?", help="a commit; by default each cell's own, at which it was measured")
    add("new", nargs="?", help="a later commit; by default the working tree")
    add("--update", action="store_true", help="write down what was launched then, and is today")

    words = "compile all kernels for many GPUs, and add what becomes of them to a file"
    add = command(_module, words, "compile-everywhere")
    add("--gpus", **several, default=list(GPUS), help=",".join(GPUS))
    add("--frontend", action="store_true", help="only see whether Triton takes them; no file")
    words = "patterns of kinds, such as two_pass*, whose lines alone are made anew; by default all"
    add("--kernels", dest="patterns", help=words, default=["*"], **several)
    add("--out", type=Path, default=schema.ROOT / everywhere.FILE)

    add = command(_compare, "two data files side by side; fails past a slowdown")
    add("before", type=Path)
    add("after", type=Path)
    add("--max-slowdown", type=float, default=1.05, help="largest ratio of times allowed")
    add("--per-copy", action="store_true", help="relative to the copy of the same run")

    words = "turn pytest's JUnit file of the GPU tests into committed data"
    add = command(_module, words, "gpu-report")
    add("--junitxml", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--commit", help="the commit tested, where there is no repository")

    add = command(_profile, "what a GPU's counters say of calls, by Nsight Compute")
    measures(add, "profile.json", ("cuda",))
    words = "measurements, of which what is slow is profiled; by default those published"
    add("--data", type=Path, default=schema.ROOT / launches.DATA, help=words)
    add("--list", type=Path, dest="calls", help="in place of them a case a line, with providers")
    add("--dry", action="store_true", help="only say the list")
    add("--seconds", type=float, default=90.0, help="what is not reached by then is left out")
    add("--inside", type=Path, help=argparse.SUPPRESS)

    add = command(_everything, "measure all that the pages quote, on all GPUs, and go on with that")
    add("--out", type=Path, default=Path("everything"), metavar="FOLDER")
    add("--commit", help="the commit measured, where there is no repository")
    add("--gpus", type=int, help="so many; by default all")
    add("--seconds", type=float, default=1e9, help="by then it stops, to be called again")
    add("--without", **several, default=[], help="libraries, or ncu, that may be missing")
    add("--only", **several, default=[], help="the jobs whose names begin so; by default all")
    words = "of each job, to compile ahead; 0 to go on where the caches are warm"
    add("--processes", type=int, help=words)
    add("--dry-run", action="store_true", help="only say the plan, and what it takes")

    for name, words in (
        ("attention", "time attention"),
        ("ranks", "time rows over several GPUs, in processes of torch.distributed.run"),
        ("invariance", "time calls with batch invariance and without"),
        ("train", "time steps of training of models of transformers"),
    ):
        out = MODULES[name].replace("invariance", "invariant")
        measures(command(_module, words, name), f"{out}.json")

    add = command(_tune, "time the choices that the library could make, on cells that a seed draws")
    measures(add, "tuning.json")
    add("--report", type=Path, help="only say what a file holds")
    add("--seed", type=int, default=202, help="of a run of the file, or draws the cells")
    add("--unseen", action="store_true", help="say in the file that no constant was chosen by it")
    words = "cells to take in place of a seed's, such as softmax/backward/float32/7500x4500/dim0"
    add("--shapes", metavar="NAMES", help=words, default="", **several)
    words = f"slow kinds in their place: all, or of {', '.join(slow.KINDS)}"
    add("--kinds", metavar="NAMES", help=words, default="", **several)
    add("--seconds", type=float, default=1e9, help="after these no further cell is begun")
    add("--wide", type=int, default=12, help="so many choices beside the library's and the model's")
    add("--cells", type=int, default=60, help="how many are drawn, in turn of every kernel")

    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    options.arguments = arguments  # for the processes that are started
    try:
        status = options.do(options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        measures = options.do in (_run, _tune)
        kept = f"; what was measured is in {options.out}" if measures else ""
        print(f"stopped{kept}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
