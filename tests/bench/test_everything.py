"""The one run: what it asks for, in which order, and what is left when it is cut off."""

from __future__ import annotations

import importlib
import inspect
import json
import shlex
import sys
import time
from pathlib import Path

import pytest

from softmax_bench import __main__, cases, everything, schema
from softmax_bench.everything import Job
from softmax_bench.providers import versions
from softmax_bench.roster import CHOOSER, LIBRARIES

ABOUT = {"seed": 5, "parts": 2, "commit": "c" * 40, "machine": {"gpu": "none"}, "peers": versions()}
CPU = ["--device", "cpu", "--processes", "0", "--commit", "c" * 40]


def new() -> dict:
    return {**ABOUT, "jobs": {}}


def script(text: str):
    """A program in place of every job's, which has `name` and `out`."""
    begin = "import os, signal, sys, time; name, out = sys.argv[1:]; "
    return lambda job: [sys.executable, "-c", begin + text, job.name, str(job.arguments[0])]


def plan_of(out: Path, *names: str, gpus: int = 1) -> list[Job]:
    return [Job(name, 1.0, [str(out)], gpus) for name in names]


def test_every_case_is_asked_for_once(tmp_path):
    """By the commands themselves, as the command line reads them."""
    plan, found = everything.jobs(tmp_path, 2, new()), []
    for job in plan:
        words = job.arguments[job.arguments.index("softmax_bench") + 1 :]
        options = __main__._parser().parse_args(words)
        assert Path(options.out).stem in (job.name, job.name.partition("-")[0])
        assert options.commit == ABOUT["commit"]
        if words[0] == "run":
            found += __main__._selected(options)
            assert Path(options.out).parent == tmp_path and options.seed == 5
        elif words[0] in __main__.MODULES:
            suite = importlib.import_module(f"softmax_bench.{__main__.MODULES[words[0]]}")
            assert {*inspect.signature(suite.run).parameters} <= {*vars(options)}
    every = cases.select(seed=5)
    assert sorted(case.id for case in found) == sorted(case.id for case in every)
    assert {who for case in found for who in case.providers} > {CHOOSER, *LIBRARIES}
    assert len({job.name for job in plan}) == len(plan)
    others = {job.name for job in plan if "--cases" not in job.arguments}
    assert others == {"ranks-2", "ranks-1", "attention", "training", "invariant", "profile"}
    assert plan[0].name == "most-1" and plan[-1].name == "rest-2"
    crowd = [job for job in plan if not job.timed]
    assert {job.name.partition("-")[0] for job in crowd} == {"untimed"}
    assert {job.name for job in plan} - {
        job.name for job in everything.jobs(tmp_path, 1, new() | {"parts": 1}, ["ncu"])
    } == {"ranks-2", "ranks-1", "profile", *(f"{name}-2" for name in ("most", "rest"))}
    some = everything.jobs(tmp_path, 2, new(), only=["ranks", "host"])
    assert [(job.name, job.gpus) for job in some] == [("ranks-2", 2), ("ranks-1", 1), ("host-1", 1)]


def test_who_goes_on_with_more_gpus_keeps_the_parts(tmp_path):
    """A file is of one part: with others, what it has would be asked for again."""
    one = {job.name: job for job in everything.jobs(tmp_path, 1, new() | {"parts": 1})}
    more = {job.name: job for job in everything.jobs(tmp_path, 2, new() | {"parts": 1}, ahead=0)}
    assert more.keys() - one.keys() == {"ranks-2", "ranks-1"}
    assert "1/1" in one["most-1"].arguments and "1/1" in more["most-1"].arguments
    ahead = {
        job.arguments[job.arguments.index("--processes") + 1]
        for job in more.values()
        if "--processes" in job.arguments and job.timed
    }
    assert ahead == {"0"}


def test_a_plan_says_how_long_it_takes(tmp_path, capsys):
    assert __main__.main(["everything", "--dry-run", "--out", str(tmp_path / "no")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(everything.jobs(tmp_path, 2, new())) + 1
    assert said[-1].endswith("s on 2 GPUs") and not (tmp_path / "no").exists()
    plan = [Job("a", 10, []), Job("b", 30, []), Job("c", 5, [], 2), Job("d", 1, [])]
    assert everything.total(plan, 2) == 36, "c waits for b, and d for c"
    assert everything.total(plan[:2], 1) == 40
    crowd = [Job("e", 7, [], timed=False), Job("f", 9, [], timed=False)]
    assert everything.total([*plan[:2], *crowd], 1) == 49, "e and f share a GPU"


def test_rows_took_what_passed_between_them():
    run = {"environment": {"started": "2026-11-22T10:00:00Z"}, "suite": "s", "status": "ok"}
    stamps = {"a": ("copy", 0), "b": ("torch", 4), "c": ("torch", 10), "d": ("quack", 10)}
    rows = [
        {**run, "case": case, "provider": who, "utc": f"2026-11-22T10:00:{at:02}Z"}
        for case, (who, at) in stamps.items()
    ]
    rows[-1]["status"] = "skipped"
    found = everything.seconds_of_rows(rows)
    assert found == {"s": 5.0, ("s", "torch"): 5.0}


def test_two_run_at_once_and_one_on_both_alone(tmp_path):
    text = "print(name, 'on', os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True); "
    text += "time.sleep(0.5); print(time.time())"
    plan = [*plan_of(tmp_path, "a", "b"), *plan_of(tmp_path, "both", gpus=2)]
    plan += plan_of(tmp_path, "c")
    about = new()
    assert everything.run(plan, tmp_path, ["0", "1"], 60, about, script(text))
    logs = {job.name: (tmp_path / f"{job.name}.log").read_text().split() for job in plan}
    where = {name: words[2] for name, words in logs.items()}
    assert {where["a"], where["b"]} == {"0", "1"} and where["both"] == "0,1"
    begin, end = ({name: float(words[at]) for name, words in logs.items()} for at in (3, 4))
    assert begin["b"] < end["a"] and begin["both"] >= max(end["a"], end["b"])
    assert begin["c"] >= end["both"]
    assert {job["state"] for job in about["jobs"].values()} == {"done"}


def test_what_is_not_timed_shares_a_gpu_and_nobody_else_does(tmp_path):
    text = "print(os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True); "
    text += "time.sleep(1.0); print(time.time())"
    plan = [*plan_of(tmp_path, "timed"), *plan_of(tmp_path, "a", "b", "c"),
            *plan_of(tmp_path, "next")]  # fmt: skip
    plan = [job._replace(timed=job.name in ("timed", "next")) for job in plan]
    assert everything.run(plan, tmp_path, ["0"], 60, new(), script(text))
    logs = {job.name: (tmp_path / f"{job.name}.log").read_text().split() for job in plan}
    assert {gpu for gpu, *_ in logs.values()} == {"0"}
    begin, end = ({name: float(words[at]) for name, words in logs.items()} for at in (1, 2))
    crowd = "abc"
    assert max(begin[name] for name in crowd) < min(end[name] for name in crowd)
    assert end["timed"] <= min(begin[name] for name in crowd)
    assert begin["next"] >= max(end[name] for name in crowd)


def test_compiles_are_counted_in_a_cache_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "shared")
    plan = plan_of(tmp_path, "other", "untimed-1")
    plan[1] = plan[1]._replace(timed=False)
    assert everything.run(
        plan, tmp_path, ["0"], 60, new(), script("print(os.environ['TRITON_CACHE_DIR'])")
    )
    other, own = (Path((tmp_path / f"{job.name}.log").read_text().strip()) for job in plan)
    assert str(other) == "shared" and own.is_dir() and not list(own.iterdir())


def test_what_is_done_is_not_done_again_and_what_failed_is(tmp_path, capsys):
    text = "open(out + '/' + name, 'a').write('.'); sys.exit(name == 'bad' and 3)"
    plan, about = plan_of(tmp_path, "good", "bad", "last"), new()
    for _ in range(2):
        assert not everything.run(plan, tmp_path, ["0"], 60, about, script(text))
    assert [(tmp_path / name).read_text() for name in ("good", "bad", "last")] == [".", "..", "."]
    known = schema.read_json(tmp_path / everything.PROGRESS)
    assert known["jobs"]["bad"]["state"] == "failed, see bad.log"
    assert "failed, see bad.log" in capsys.readouterr().out
    assert everything.begin(tmp_path, ABOUT["commit"], ABOUT["machine"], 2) == known
    assert everything.run(plan, tmp_path, ["0"], 60, about, script("sys.exit(0)"))


def test_time_is_kept_and_what_is_cut_off_may_write(tmp_path):
    text = "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text += "try: print('there', flush=True); time.sleep(60)\n"
    text += "except KeyboardInterrupt: open(out + '/kept', 'w').write(name); sys.exit(130)"
    plan, about, begin = plan_of(tmp_path, "long", "never"), new(), time.monotonic()
    program = script("exec(" + repr(text) + ")")
    assert not everything.run(plan, tmp_path, ["0"], 2, about, program)
    assert time.monotonic() - begin < 15 and (tmp_path / "kept").read_text() == "long"
    assert about["jobs"]["long"]["state"] == "cut off" and "never" not in about["jobs"]


def test_a_job_that_dies_goes_on_while_it_gets_anywhere(tmp_path):
    text = "import json; path = out + '/' + name + '.json'; "
    text += "rows = json.load(open(path))['rows'] if os.path.exists(path) else []; "
    text += "rows += [{'status': 'ok'}] * (len(rows) < 3); "
    text += "json.dump({'rows': rows}, open(path, 'w')); os.abort()"
    plan, about = plan_of(tmp_path, "dies"), new()
    assert not everything.run(plan, tmp_path, ["0"], 60, about, script(text))
    assert about["jobs"]["dies"]["rows"] == {"ok": 3}


def test_a_job_that_hangs_is_stopped_and_others_go_on(tmp_path, monkeypatch):
    """With what it has started, although none of it listens."""
    monkeypatch.setattr(everything, "BEGINS", 0.0)
    text = "name == 'hangs' and (os.fork(), time.sleep(60)); open(out + '/' + name, 'w')"
    plan, about = [Job("hangs", 0.5, [str(tmp_path)]), Job("next", 9.0, [str(tmp_path)])], new()
    assert not everything.run(plan, tmp_path, ["0"], 30, about, script(text))
    states = {name: job["state"] for name, job in about["jobs"].items()}
    assert states == {"hangs": "cut off", "next": "done"} and not (tmp_path / "hangs").exists()


def test_a_folder_is_of_one_commit_and_machine(tmp_path, monkeypatch):
    about = everything.begin(tmp_path, "one", {"gpu": "H200"}, 2)
    assert about["parts"] == 2
    schema.write(tmp_path / everything.PROGRESS, about)
    assert everything.begin(tmp_path, "one", {"gpu": "H200"}, 1) == about, "with fewer GPUs"
    with pytest.raises(schema.DataError, match="another commit and machine"):
        everything.begin(tmp_path, "other", {"gpu": "H100"}, 1)
    monkeypatch.setattr(everything, "versions", lambda: {"quack": "9"})
    with pytest.raises(schema.DataError, match="another peers"):
        everything.begin(tmp_path, "one", {"gpu": "H200"}, 1)


def test_what_is_missing_is_said_before_anything_runs(tmp_path, capsys, monkeypatch):
    assert everything.missing(["ncu"], lambda module: module != "quack") == ["quack"]
    assert everything.missing(["ncu", "quack"], lambda module: module != "quack") == []
    monkeypatch.setattr(everything, "missing", lambda without: ["helion"])
    assert __main__.main(["everything", "--out", str(tmp_path / "run")]) == 2
    assert "not installed: helion" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_parts_of_suites_become_one_file(tmp_path):
    """Each measured by a command of its own; the whole is a file like that of one run."""
    chosen = "batch/softmax/forward/float32/1x1024,host_time/softmax/forward/*,batch/*/8x1024"
    for stem, part in (("most-1", "1/2"), ("most-2", "2/2")):
        out = tmp_path / f"{stem}.json"
        command = f"run --cases {chosen} --providers torch --part {part} --out {out}"
        assert __main__.main([*shlex.split(command), *CPU]) == 0
    parts = [schema.load(tmp_path / f"most-{part}.json")["rows"] for part in (1, 2)]
    data = schema.load(everything.merged(tmp_path))
    assert len(data["rows"]) == sum(map(len, parts)) and min(map(len, parts)) >= 2
    assert [row["suite"] for row in data["rows"]][0] == "host_time", "in the order of suites"
    assert everything.counts(tmp_path / "most-1.json") == {"ok": len(parts[0])}
    other = json.loads((tmp_path / "most-2.json").read_text())
    other["environment"]["driver"] = "another"
    (tmp_path / "most-2.json").write_text(json.dumps(other))
    with pytest.raises(schema.DataError, match="most-2.json was measured with another driver"):
        everything.merged(tmp_path)
    with pytest.raises(schema.DataError, match="no cells"):
        everything.merged(tmp_path / "nothing")
