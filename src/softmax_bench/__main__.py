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

from softmax_bench import (
    cases,
    everywhere,
    gpu_report,
    random_shapes,
    report,
    roster,
    schema,
    slow,
)
from softmax_bench.gpus import GPUS
from softmax_bench.schema import DataError

Options = argparse.Namespace


def _ready(options: Options) -> None:
    """Raise an error before anything is measured, if it cannot be or its data cannot be kept."""
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise DataError("no CUDA device; --device cpu tries the command without one")
    schema.check_writable(Path(options.out))


def _selected(options: Options) -> list[cases.Case]:
    part, of = map(int, options.part.split("/"))
    return cases.select(options.cases, options.providers, options.seed)[part - 1 :: of]


def _run(options: Options) -> None:
    begin, on_gpu = time.time(), options.device == "cuda"
    _ready(options)
    from softmax_bench import inputs, measure, providers, results, runner, warmup

    timer, chosen = measure.timer_of(options.device, 25.0), _selected(options)
    environment = results.environment(options.device, options.commit, timer)
    found = results.Results(Path(options.out), environment)
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
        schema.load(Path(options.out))
    except ImportError:
        print("jsonschema is not installed here: the data was not validated")
    print(report.summary(rows))
    print(f"{len(rows)} rows in {options.out}, {time.time() - begin:.0f} s")


def _list(options: Options) -> None:
    for case in _selected(options):
        print(f"{case.id}  {','.join(case.providers)}")


def _replay(options: Options) -> None:
    from softmax_bench import replay

    if options.update and (options.old or options.new):
        raise DataError("--update takes each cell at the commit that measured it")
    print(replay.replay(options.old, options.new, update=options.update))


def _compile_everywhere(options: Options) -> None:
    out = None if options.frontend else Path(options.out)
    print(everywhere.run(options.gpus, out))


def _compare(options: Options) -> int:
    from softmax_bench import launches

    paths = map(Path, (options.before, options.after))
    before, after = (launches.read_rows(path, schema.load) for path in paths)
    text, good = report.compare(before, after, options.max_slowdown, per_copy=options.per_copy)
    print(text)
    return 0 if good else 1


def _gpu_report(options: Options) -> None:
    found = gpu_report.report(Path(options.junitxml), options.commit)
    schema.write(Path(options.out), found)
    print(gpu_report.sentence(found))


def _suite(options: Options) -> None:
    """A suite with a file of its own: a module's `run`, whose arguments are options."""
    _ready(options)
    run = importlib.import_module(f"softmax_bench.{SUITES[options.command]}").run
    run(Path(options.out), **{name: getattr(options, name) for name in signature(run).parameters
                              if name != "out"})  # fmt: skip


SUITES = {name: name for name in ("attention", "ranks", "invariance")} | {"train": "training"}


def _profile(options: Options) -> None:
    from softmax_bench import launches, profile

    if options.list:
        lines = Path(options.list).read_text("utf-8").splitlines()
    else:
        rows = launches.read_rows(Path(options.data or schema.ROOT / launches.DATA))
        lines = [" ".join([case, *names]) for case, names in profile.chosen(rows).items()]
    if options.inside:
        profile.call_each(profile.listed(lines), Path(options.inside), options.seconds)
    elif options.dry:
        print(*lines, sep="\n")
    else:
        _ready(options)
        given = lines, options.commit, options.seconds, options.processes
        found = profile.run(Path(options.out), *given)
        schema.add_run(Path(options.out), found, "commit", profile.FORMAT)


def _tune(options: Options) -> None:
    from softmax_bench import tune, tuned

    for run in tuned.read(Path(options.report)) if options.report else [_tuned(options)]:
        print(f"seed {run['seed']}, {'unseen' if run['unseen'] else 'tuned on'}")
        cells = tune.cells_of(run)
        print(tune.report(cells))
        print(tune.report_of_kinds(cells))


def _tuned(options: Options) -> dict:
    """A run of `tune`, which is in its file then."""
    import torch

    from softmax_bench import inputs, measure, results, tune, tuned
    from triton_softmax import plan

    if options.compile:
        device, name = tune.device_of(GPUS[options.compile].multiprocessors), options.compile
    else:
        _ready(options)
        device, name = plan.device_of(torch.empty(1, device=options.device)), None
    if name is None and options.device == "cuda":
        name = "sm_{}{}".format(*torch.cuda.get_device_capability())
    into = Path(options.out)
    runs = tuned.read(into) if into.is_file() else []
    if options.kinds:
        cases = tune.slow_cases(options.kinds, device)
    else:
        chosen = list(map(tune.named, options.shapes))
        chosen = chosen or tune.chosen(runs, options.seed, options.cells, device)
        cases = {case: tune.tried(tune.problem_of(case, device), options.wide) for case in chosen}
    if name in GPUS and options.processes > 0:
        print(tune.compile_ahead(cases, options.processes, name), "kernels are compiled")
    if options.compile:
        sys.exit()
    timer = measure.timer_of(options.device, 12.0)
    environment = results.environment(options.device, options.commit, timer)
    head = {
        "seed": next(iter(cases)).seed,
        "unseen": options.unseen,
        "environment": {name: environment[name] for name in tune.ENVIRONMENT},
    }
    return tune.run(cases, into, head, timer, inputs.Inputs(options.device), options.seconds)


def _everything(options: Options) -> int:
    from softmax_bench import everything

    if options.dry_run:
        gpus, about = options.gpus or 2, {"seed": random_shapes.SEED, "commit": "", "jobs": {}}
        plan = everything.jobs(Path(options.out), gpus, about, options.without)
        print(everything.table(plan, {}))
        print(f"{everything.total(plan, gpus):.0f} s on {gpus} GPUs")
        return 0
    if absent := everything.missing(options.without):
        raise DataError(f"not installed: {', '.join(absent)}; --without does without them")
    machine = everything.machine_in_a_process()
    found = machine.pop("gpus")
    gpus = options.gpus or found
    out = Path(options.out).resolve()
    about = everything.begin(out, options.commit, machine)
    plan = everything.jobs(out, gpus, about, options.without)
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
        add("--out", default=out, help="the file to write, or to go on with")
        add("--commit", help="the commit measured, where there is no repository")
        add("--device", choices=devices, default="cuda", help="cpu: try it, not to publish")
        processes = min(12, os.cpu_count() or 1)
        add("--processes", type=int, default=processes, help="to compile ahead")

    add = command(_run, "measure and write data")
    selects(add)
    measures(add, "measurements.json")

    selects(command(_list, "show the cases"))

    add = command(_replay, "which measured calls launch something else at another commit, and what")
    add("old", nargs="?", help="a commit; by default each cell's own, at which it was measured")
    add("new", nargs="?", help="a later commit; by default the working tree")
    add("--update", action="store_true", help="write down what was launched then, and is today")

    words = "compile all kernels for many GPUs, and add what becomes of them to a file"
    add = command(_compile_everywhere, words)
    add("--gpus", **several, default=list(GPUS), help=",".join(GPUS))
    add("--frontend", action="store_true", help="only see whether Triton takes them; no file")
    add("--out", default=str(schema.ROOT / everywhere.FILE))

    add = command(_compare, "two data files side by side; fails past a slowdown")
    add("before")
    add("after")
    add("--max-slowdown", type=float, default=1.05, help="largest ratio of times allowed")
    add("--per-copy", action="store_true", help="relative to the copy of the same run")

    add = command(_gpu_report, "turn pytest's JUnit file of the GPU tests into committed data")
    add("--junitxml", required=True)
    add("--out", required=True)
    add("--commit", help="the commit tested, where there is no repository")

    add = command(_profile, "what a GPU's counters say of calls, by Nsight Compute")
    measures(add, "profile.json", ("cuda",))
    words = "measurements, of which what is slow is profiled; by default those published"
    add("--data", metavar="FILE", help=words)
    add("--list", metavar="FILE", help="in place of them a case a line, with providers")
    add("--dry", action="store_true", help="only say the list")
    add("--seconds", type=float, default=90.0, help="what is not reached by then is left out")
    add("--inside", metavar="FILE", help=argparse.SUPPRESS)

    add = command(_everything, "measure all that the pages quote, on all GPUs, and go on with that")
    add("--out", default="everything", metavar="FOLDER")
    add("--commit", help="the commit measured, where there is no repository")
    add("--gpus", type=int, help="so many; by default all")
    add("--seconds", type=float, default=1e9, help="by then it stops, to be called again")
    add("--without", **several, default=[], help="libraries, or ncu, that may be missing")
    add("--dry-run", action="store_true", help="only say the plan, and what it takes")

    for name, words in (
        ("attention", "time attention"),
        ("ranks", "time rows over several GPUs, in processes of torch.distributed.run"),
        ("invariance", "time calls with batch invariance and without"),
        ("train", "time steps of training of models of transformers"),
    ):
        out = SUITES[name].replace("invariance", "invariant")
        measures(command(_suite, words, name), f"{out}.json")

    add = command(_tune, "time the choices that the library could make, on cells that a seed draws")
    measures(add, "tuning.json")
    add("--report", metavar="FILE", help="only say what a file holds")
    add("--seed", type=int, default=202, help="of a run of the file, or draws the cells")
    add("--unseen", action="store_true", help="say in the file that no constant was chosen by it")
    words = "cells to take in place of a seed's, such as softmax/backward/float32/7500x4500/dim0"
    add("--shapes", metavar="NAMES", help=words, default="", **several)
    add(
        "--kinds",
        metavar="NAMES",
        help=f"slow kinds in their place: all, or of {', '.join(slow.KINDS)}",
        default="",
        **several,
    )
    add("--compile", choices=GPUS, help="only compile what would be tried on this GPU")
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
