"""The command `python -m softmax_bench`."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path

from softmax_bench import cases, roster


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suites", type=_list, default=None, help=f"of {','.join(cases.SUITES)}; all by default"
    )
    parser.add_argument(
        "--providers",
        type=_list,
        default=None,
        help=f"of {','.join(roster.PROVIDERS)}; all by default",
    )
    parser.add_argument(
        "--dtypes", type=_list, default=None, help="float32,bfloat16,float16; all by default"
    )
    parser.add_argument(
        "--columns", type=_list, default=None, help="row lengths to keep; all by default"
    )
    parser.add_argument(
        "--cases", default=None, help="a file: only cases whose names stand in it, one in a line"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="draws the cells of the suite random; by default the seed in the file that is gone on "
        "with, or else a fresh one",
    )


def _cases(options: argparse.Namespace) -> list[cases.Case]:
    columns = [int(text) for text in options.columns] if options.columns else None
    found = cases.select(options.suites, options.providers, options.dtypes, columns, _seed(options))
    if options.cases is None:
        return found
    named = set(Path(options.cases).read_text(encoding="utf-8").split())
    return [case for case in found if case.id in named]


def _seed(options: argparse.Namespace) -> int:
    """The seed of the suite `random`; the options keep it for the processes that are started."""
    if options.seed is None:
        out = getattr(options, "out", None)
        known = []
        if out and Path(out).is_file():
            rows = json.loads(Path(out).read_text(encoding="utf-8"))["rows"]
            known = [row["seed"] for row in rows if "seed" in row]
        options.seed = known[-1] if known else secrets.randbelow(10**6)
    return options.seed


def _selection_arguments(options: argparse.Namespace) -> list[str]:
    arguments = []
    for name in ("suites", "providers", "dtypes", "columns"):
        value = getattr(options, name)
        if value:
            arguments += [f"--{name}", ",".join(value)]
    if options.cases is not None:
        arguments += ["--cases", options.cases]
    return [*arguments, "--seed", str(options.seed)]


def _run(options: argparse.Namespace) -> int:
    begin = time.time()
    import torch

    from softmax_bench import measure, report, runner, schema, tuning

    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("no CUDA device; --device cpu tries the runner without one", file=sys.stderr)
        return 2
    chosen = _cases(options)
    out = Path(options.out)
    if on_gpu and options.compile_processes > 1:
        arguments = ["warm", *_selection_arguments(options), "--out", str(out)]
        limit = min(150.0, options.budget_seconds / 3)
        runner.compile_ahead(arguments, options.compile_processes, limit)
    timer = measure.CudaTimer(options.target_ms) if on_gpu else measure.WallTimer()
    if on_gpu:
        tuning.hasten_autotuning()

    def restart() -> None:
        left = options.budget_seconds - (time.time() - begin)
        arguments = [
            "run",
            *_selection_arguments(options),
            *("--out", str(out), "--compile-processes", "0", "--budget-seconds", f"{left:.0f}"),
            *("--target-ms", str(options.target_ms)),
            *(("--commit", options.commit) if options.commit else ()),
        ]
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "softmax_bench", *arguments])

    results = runner.Results(out, runner.environment(options.device, options.commit, timer))
    left = options.budget_seconds - (time.time() - begin)
    runner.Runner(
        results, options.device, timer, budget_seconds=left, restart=restart if on_gpu else None
    ).run(chosen)
    try:
        schema.load(out)
    except ImportError:
        print("jsonschema is not installed here: the data was not validated")
    print(report.short_table(list(results.rows.values())))
    print(f"{len(results.rows)} rows in {out}, {time.time() - begin:.0f} s")
    return 0


def _warm(options: argparse.Namespace) -> int:
    from softmax_bench import runner

    part, parts = map(int, options.part.split("/"))
    runner.warm(_cases(options), part, parts, Path(options.out) if options.out else None)
    return 0


def _show(options: argparse.Namespace) -> int:
    chosen = _cases(options)
    for case in chosen:
        print(f"{case.id}  {','.join(case.providers)}")
    print(f"{len(chosen)} cases, {sum(len(case.providers) for case in chosen)} rows")
    return 0


def _merge(options: argparse.Namespace) -> int:
    from softmax_bench import merge, schema

    try:
        files = [schema.load(Path(path)) for path in options.files]
        if options.into is None:
            data = merge.merged(files)
        else:
            data = merge.renewed(schema.load(Path(options.into)), merge.merged(files))
    except (schema.DataError, merge.Different) as error:
        print(error, file=sys.stderr)
        return 2
    Path(options.out).write_text(schema.dump(data), encoding="utf-8")
    disturbed = sum(row["reason"] == merge.REASON for row in data["rows"])
    print(f"{len(data['rows'])} rows in {options.out}, {disturbed} of them disturbed")
    return 0


def _replanned(options: argparse.Namespace) -> int:
    from softmax_bench import replanned

    root = Path(__file__).resolve().parents[2]
    path = root / options.data
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = [replanned.compare(base, root, path) for base in replanned.bases(data)]
    except replanned.NotOnlyConstants as error:
        print(f"more than constants has changed: {error}", file=sys.stderr)
        return 2
    (root / replanned.FILE).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(len(each['cells']) for each in found)} cells are planned otherwise")
    return 0


def _check(options: argparse.Namespace) -> int:
    from softmax_bench import schema

    try:
        for path in options.files:
            print(f"{path}: {len(schema.load(Path(path))['rows'])} rows keep to the schema")
    except schema.DataError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _classes(options: argparse.Namespace) -> int:
    from softmax_bench import report

    data = json.loads(Path(options.file).read_text(encoding="utf-8"))
    rows = [row for row in data["rows"] if row["suite"] == "random"]
    for seed in sorted({row["seed"] for row in rows}):
        print(f"seed {seed}")
        of_seed = [row for row in rows if row["seed"] == seed]
        print(report.class_table(of_seed, options.worst))
        if options.record:
            path = Path(options.record)
            known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
            known = [each for each in known if each["seed"] != seed]
            lines = map(json.dumps, [*known, report.seed_record(of_seed)])
            path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from softmax_bench import compare, schema

    try:
        before, after = schema.load(Path(options.before)), schema.load(Path(options.after))
    except schema.DataError as error:
        print(error, file=sys.stderr)
        return 2
    text, good = compare.compare(
        before, after, options.max_slowdown, per_copy=options.per_copy, everyone=options.everyone
    )
    print(text)
    return 0 if good else 1


def _gpu_report(options: argparse.Namespace) -> int:
    from softmax_bench import gpu_report

    report = gpu_report.report(Path(options.junitxml), options.commit, options.command)
    Path(options.out).write_text(gpu_report.text(report), encoding="utf-8")
    print(gpu_report.sentence(report))
    return 0


def _registers(options: argparse.Namespace) -> int:
    from softmax_bench import registers

    text = registers.table()
    if options.write:
        registers.PATH.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def _tune(options: argparse.Namespace) -> int:
    from softmax_bench import tune

    if not (options.report or options.join):
        return tune.run(options)
    try:
        files = [options.report] if options.report else options.join
        runs = [run for file in files for run in tune.load(Path(file))]
    except tune.DataError as error:
        print(error, file=sys.stderr)
        return 2
    if options.join:
        tune.write(Path(options.out), runs)
        return 0
    for run in runs:
        print(f"seed {run.seed}, {'unseen' if run.unseen else 'tuned on'}")
        print(tune.report(run.cells, options.worst))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m softmax_bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    run = commands.add_parser("run", help="measure and write data")
    _selection(run)
    run.add_argument(
        "--out", default="measurements.json", help="the file to write, or to go on with"
    )
    run.add_argument(
        "--commit", default=None, help="the commit measured, where there is no repository"
    )
    run.add_argument(
        "--budget-seconds", type=float, default=float("inf"), help="stop after about this long"
    )
    run.add_argument(
        "--compile-processes", type=int, default=min(12, os.cpu_count() or 1), help="0: none ahead"
    )
    run.add_argument("--target-ms", type=float, default=25.0, help="device time spent on one row")
    run.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu: try the runner, not to publish",
    )
    run.set_defaults(do=_run)

    warm = commands.add_parser("warm", help="used by run: call a share of everything once")
    _selection(warm)
    warm.add_argument("--part", default="0/1")
    warm.add_argument("--out", default=None)
    warm.set_defaults(do=_warm)

    show = commands.add_parser("list", help="show the cases")
    _selection(show)
    show.set_defaults(do=_show)

    classes = commands.add_parser(
        "classes", help="the suite random, class by class, and its worst cells"
    )
    classes.add_argument("file")
    classes.add_argument("--worst", type=int, default=25, help="how many of the worst to list")
    classes.add_argument(
        "--record",
        default=None,
        help="add each seed in a line to this file, as one on which constants were tuned",
    )
    classes.set_defaults(do=_classes)

    changed = commands.add_parser(
        "replanned", help="write down which measured cells changed constants plan otherwise"
    )
    changed.add_argument("--data", default="docs/benchmarks/data/h200.json")
    changed.set_defaults(do=_replanned)

    check = commands.add_parser("check", help="validate data files against the published schema")
    check.add_argument("files", nargs="+")
    check.set_defaults(do=_check)

    merge = commands.add_parser(
        "merge", help="one data file of several that were measured on GPUs of one machine at once"
    )
    merge.add_argument("files", nargs="+")
    merge.add_argument("--out", required=True)
    merge.add_argument(
        "--into", default=None, help="a file measured before, whose rows they take the place of"
    )
    merge.set_defaults(do=_merge)

    compare = commands.add_parser(
        "compare", help="two data files side by side; fails past a slowdown"
    )
    compare.add_argument("before")
    compare.add_argument("after")
    compare.add_argument(
        "--max-slowdown", type=float, default=1.05, help="largest ratio of times allowed"
    )
    compare.add_argument(
        "--per-copy", action="store_true", help="relative to the copy of the same run"
    )
    compare.add_argument("--everyone", action="store_true", help="the other libraries too")
    compare.set_defaults(do=_compare)

    tests = commands.add_parser(
        "gpu-report", help="turn pytest's JUnit file of the GPU tests into committed data"
    )
    tests.add_argument("--junitxml", required=True)
    tests.add_argument("--out", required=True)
    tests.add_argument(
        "--commit", default=None, help="the commit tested, where there is no repository"
    )
    tests.add_argument("--command", default="pytest -m gpu")
    tests.set_defaults(do=_gpu_report)

    table = commands.add_parser(
        "registers", help="compile production kernels for sm_90: registers and spills"
    )
    table.add_argument("--write", action="store_true", help="write the committed table anew")
    table.set_defaults(do=_registers)

    tune = commands.add_parser(
        "tune", help="time the choices near the library's own, on cells that a seed draws"
    )
    tune.add_argument("--report", default=None, metavar="FILE", help="only say what a file holds")
    tune.add_argument(
        "--join", nargs="+", default=None, metavar="FILE", help="one file of several, at --out"
    )
    tune.add_argument("--worst", type=int, default=25, help="how many of the worst to list")
    tune.add_argument("--seed", type=int, default=202, help="draws the cells")
    tune.add_argument(
        "--unseen", action="store_true", help="say in the file that no constant was chosen by it"
    )
    tune.add_argument(
        "--shapes", default=None, metavar="FILE", help="cells that a file names, in place of a seed"
    )
    tune.add_argument(
        "--wide",
        type=int,
        default=0,
        help="so many choices from everywhere, not near the library's",
    )
    tune.add_argument("--cells", type=int, default=60, help="how many, in turn of every class")
    tune.add_argument(
        "--geometry",
        type=_list,
        default=None,
        help="packed_rows,aligned_rows,split_rows,strided; else all",
    )
    tune.add_argument("--dtypes", type=_list, default=None, help="as in run")
    tune.add_argument("--small", action="store_true", help="only what is copied within 10 µs")
    tune.add_argument("--most-bytes", type=int, default=None, help="only tensors up to this size")
    tune.add_argument("--explore", type=int, default=0, help="so many more choices of the model's")
    tune.add_argument("--out", default="tuning.json", help="the file to write, or to go on with")
    tune.add_argument("--commit", default=None, help="as in run")
    tune.add_argument("--budget-seconds", type=float, default=180.0, help="as in run")
    tune.add_argument("--target-ms", type=float, default=12.0, help="device time for each choice")
    tune.add_argument(
        "--processes", type=int, default=min(15, os.cpu_count() or 1), help="to compile"
    )
    tune.add_argument("--compile-only", action="store_true", help="measure nothing")
    tune.add_argument("--part", default=None, help="used by itself: compile a share")
    tune.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="as in run")
    tune.set_defaults(do=_tune)

    options = parser.parse_args(arguments)
    return options.do(options)


if __name__ == "__main__":
    sys.exit(main())
