"""Fixtures that the tests of the documentation and of the browser share."""

import fcntl
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id) -> Path:
    """The site, built strictly once in a run: the first worker that asks builds it for all."""
    from site_build import build

    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    target = shared / "site" / "built"
    target.parent.mkdir(exist_ok=True)
    log = target.parent / "log.txt"
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            result = build(target)
            log.write_text(f"{result.returncode}\n{result.stdout}{result.stderr}", "utf8")
    returncode, _, output = log.read_text("utf8").partition("\n")
    assert returncode == "0", output
    return target
