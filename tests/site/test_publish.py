"""What the GPU workflow leaves, tried from end to end without a GPU: a run of a few small cases,
the scripts that the workflow calls, and the branch that they push, built and tested."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browser import CHROMIUM
from site_build import ROOT, build, python
from softmax_bench import launches, schema
from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.values import UNSAID
from softmax_site.publish import PUBLISHED, report, unsaid

CASES = "batch/*/1x1024,host_time/*,forward/softmax/forward/bfloat16/32x4194304"
RUN = ("run", "--device", "cpu", "--processes", "0", "--providers", "torch,triton_softmax")
WITHOUT_WORKERS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu")
TESTS = {
    "tests/site/test_benchmarks.py": ("committed_data", "every_include"),
    "tests/site/test_shell.py": ("drawings_of_the_readme", "picture_for_shared_links"),
    "tests/bench/test_replay.py": ("launched_today",),
}


def did(*command: object, cwd: Path, **environment: str) -> str:
    """What a program prints, which has to succeed."""
    words = list(map(str, command))
    variables = os.environ | environment
    run = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True)
    assert run.returncode == 0, f"{words}:\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    return run.stdout


def committed(folder: Path) -> Path:
    """The working tree as a repository with one commit, whatever is committed here."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, did(*listed, cwd=ROOT).split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    did("git", "init", "--quiet", "--initial-branch=main", cwd=folder)
    did("git", "add", "--all", cwd=folder)
    did("git", *who, "commit", "--quiet", "--message", "Everything", cwd=folder)
    return folder


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
def test_what_the_gpu_workflow_proposes_builds_strictly_and_passes_the_tests_of_the_data(tmp_path):
    origin, measured, out = tmp_path / "origin", tmp_path / "measured", tmp_path / "proposal"
    committed(origin)
    clone = tmp_path / "clone"
    did("git", "clone", "--quiet", origin, clone, cwd=tmp_path)
    ours = {"PYTHONPATH": str(clone / "src"), "PYTHON": sys.executable, "TRITON_INTERPRET": "0"}
    bench = (sys.executable, "-m", "softmax_bench")
    did(*bench, *RUN, "--cases", CASES, "--out", measured / "new.json", cwd=clone, **ours)
    reports = measured / "docs/benchmarks"
    reports.mkdir(parents=True)
    shutil.copy2(ROOT / "docs/benchmarks/gpu-tests.json", reports)
    did(clone / ".github/publish.sh", measured, out, cwd=clone, **ours)

    # The job that pushes has a checkout of its own.
    with (out / "proposal.patch").open("a") as patch:
        patch.write(HOSTILE)
    pushes = tmp_path / "pushes"
    did("git", "clone", "--quiet", origin, pushes, cwd=tmp_path)
    proposal = (out / "proposal.patch", out / "body.md", "Publish new measurements")
    asked = did(pushes / ".github/propose.sh", *proposal, cwd=pushes, GH="echo")
    branch = did("git", "branch", "--list", "benchmark-*", cwd=origin, LC_ALL="C").strip()
    assert f"workflow run test.yml --ref {branch}" in asked and f"--head {branch}" in asked
    there = tmp_path / "there"
    did("git", "clone", "--quiet", "--branch", branch, origin, there, cwd=tmp_path)

    assert [path.name for path in (there / launches.DATA).iterdir()] == [PUBLISHED]
    assert not (there / "hostile.txt").exists()
    rows = schema.load(there / launches.DATA / PUBLISHED)["rows"]
    assert {row["suite"] for row in rows} == {"forward", "batch", "host_time"}
    changed = set(did("git", "diff", "--name-only", "HEAD^", cwd=there).split())
    assert {"README.md", launches.FILE, UNSAID, "docs/assets/share-light.svg"} <= changed
    assert "{{ random.seed:d }}" in (out / "body.md").read_text("utf8")

    result = build(tmp_path / "site", root=there)
    assert result.returncode == 0, result.stdout + result.stderr
    chosen = [*TESTS, "-k", " or ".join(name for names in TESTS.values() for name in names)]
    told = python(*WITHOUT_WORKERS, *chosen, cwd=there, PYTHONPATH=str(there / "src"))
    assert told.returncode == 0, told.stdout[-4000:]
    assert "no tests ran" not in told.stdout and " skipped" not in told.stdout.splitlines()[-1]


HOSTILE = """diff --git a/hostile.txt b/hostile.txt
new file mode 100644
index 0000000..d95f3ad
--- /dev/null
+++ b/hostile.txt
@@ -0,0 +1 @@
+content
"""
"""A change that no publishing makes."""


def test_the_committed_pages_say_nothing_that_the_data_do_not_bear_out():
    """Or it is among what has to be written anew, where a remark stands in its place."""
    found = {what for faults in unsaid(ROOT).values() for what, _ in faults}
    path = ROOT / UNSAID
    assert found == set(json.loads(path.read_text("utf8")) if path.is_file() else [])
    assert quoted.load(ROOT).unsaid == found


def test_what_has_to_be_written_anew_is_listed_by_page():
    found = {"docs/index.md": [("[[holds a > 1]]", "it is 0 and 1; write the sentence anew")]}
    assert "- [ ] `docs/index.md`\n    - `[[holds a > 1]]`: it is 0 and 1" in report(found)
    assert "Every sentence" in report({})
