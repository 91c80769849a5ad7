"""The last run of the GPU tests, from pytest's JUnit file to committed data."""

from __future__ import annotations

import xml.etree.ElementTree as etree
from pathlib import Path

from softmax_bench.schema import DataError, write

FORMAT = "triton-softmax-gpu-tests/2"

STATES = ("passed", "failed", "skipped", "xfailed")
MACHINE = ("gpu", "driver", "cuda", "torch", "triton")


def run(junitxml: Path, out: Path, commit: str | None) -> str:
    """Write counts by state and by test module, and the names of failed tests; return the run in
    one sentence."""
    from softmax_bench import results

    try:
        tree = etree.parse(junitxml).getroot()
    except etree.ParseError as error:
        raise DataError(f"{junitxml}: not a file of JUnit: {error}") from error
    counts = dict.fromkeys(STATES, 0)
    modules: dict[str, list[int]] = {}
    failures = []
    for case in tree.iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            state = "failed"
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is not None:
            state = "xfailed" if "xfail" in (skipped.get("type") or "") else "skipped"
        else:
            state = "passed"
        counts[state] += 1
        numbers = modules.setdefault(case.get("classname") or "whole modules", [0, 0, 0])
        numbers[min(STATES.index(state), 2)] += 1
    seconds = sum(float(suite.get("time") or 0) for suite in tree.iter("testsuite"))
    machine = results.machine()
    data = {
        "format": FORMAT,
        "utc": results.now(),
        "commit": commit or results.git_commit(),
        "command": "pytest -m gpu",
        "seconds": round(seconds, 1),
        "counts": counts,
        "machine": {name: machine[name] for name in MACHINE},
        "modules": dict(sorted(modules.items())),
        "failures": sorted(failures),
    }
    write(out, data)
    return sentence(data)


def sentence(data: dict) -> str:
    """The run in one sentence."""
    counts, where = data["counts"], data["machine"]
    tally = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    versions = "driver {driver}, CUDA {cuda}, torch {torch}, triton {triton}".format(**where)
    return (
        f"Last run of the GPU tests (`{data['command']}`): {tally}, in {data['seconds']:.0f} s on "
        f"one {where['gpu']} ({versions}), commit `{data['commit'][:12]}`, "
        f"{data['utc'].replace('T', ' ')[:16]} UTC."
    )
