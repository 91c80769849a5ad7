"""The property of `tests/library/test_any_tensor.py`, whole, on a GPU: any function × any argument
× any kind of tensor × any stage. A case that kills the context fails, and takes no other with it: a
new process goes on behind it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.library.test_any_tensor import EVERY, MAKERS, cases

pytestmark = pytest.mark.gpu

CHILD = """
import json, sys, torch
from tests.library.test_any_tensor import EVERY, judge
name, *todo = json.loads(sys.argv[1])
for argument, kind, stage in todo:
    print(json.dumps([argument, kind, stage]), flush=True)
    wrong = judge(name, argument, kind, stage)
    wrong = wrong or judge(name, next(iter(EVERY[name][2])), "plain", "saved")
    torch.cuda.synchronize()
    print(json.dumps(wrong), flush=True)
"""
LIMIT = 540
"""Seconds of a process."""


def run(name: str, todo: list[tuple[str | None, str, str]]) -> list[str]:
    """Return the lines that a process prints: two for a case that it survives."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD, json.dumps([name, *todo])]
    try:
        root = Path(__file__).parents[2]
        child = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as expired:
        return (expired.stdout or b"").decode().splitlines()
    assert child.stdout, child.stderr
    return child.stdout.splitlines()


@pytest.mark.parametrize("name", EVERY)
def test_any_tensor(name):
    todo = [(argument, kind, stage) for kind in MAKERS for argument, stage in cases(name)]
    wrong = []
    while todo:
        lines = run(name, todo)
        wrong += filter(None, map(json.loads, lines[1::2]))
        done = len(lines) // 2
        if len(lines) % 2:
            wrong.append(f"{name}: the process died in {lines[-1]}")
            done += 1
        assert done, f"{name}: nothing ran before {todo[0]}"
        todo = todo[done:]
    assert not wrong, "\n".join(wrong)
