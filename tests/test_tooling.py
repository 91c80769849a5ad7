"""Versions, licences, releases and safety are what is said of them, wherever it is said."""

import os
import re
import shutil
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from site_build import OFFLINE, python

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
WORKFLOWS = {each.name: each.read_text("utf8") for each in ROOT.glob(".github/workflows/*.yml")}
MAY_WRITE = {
    "propose": "actions contents pull-requests",
    "deploy": "pages id-token",
    "publish": "id-token",
}
"""What jobs may write."""


def stated(path: str, pattern: str) -> list:
    """What a file says, line by line."""
    return re.findall(pattern, (ROOT / path).read_text("utf8"), re.M)


LISTS = {
    name: [*map(Requirement, stated(f"requirements-{name}.txt", r"^\w[^#\n]*"))]
    for name in ("docs", "test", "all")
}
DEPENDENCIES = [*map(Requirement, PROJECT["dependencies"]), *sum(LISTS.values(), [])]
LICENCES = dict(stated("docs/reference/dependencies.md", r"^\| `([\w-]+)` \| (.+?) \|"))


def test_what_is_supported_is_the_same_everywhere():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(name[len(prefix) :]) for name in PROJECT["classifiers"] if prefix in name]
    oldest, newest = f"3.{min(minors)}", f"3.{max(minors)}"
    assert minors == list(range(min(minors), max(minors) + 1))
    assert PROJECT["requires-python"] == f">={oldest}"
    words = [f"Python {oldest} to {newest}"]
    ends = yaml.safe_load(WORKFLOWS["test.yml"])["jobs"]["ends"]["strategy"]["matrix"]["include"]
    assert [end["python"] for end in ends] == [oldest, newest]
    by = yaml.safe_load(WORKFLOWS["compile.yml"])["jobs"]["everywhere"]["strategy"]["matrix"]
    assert [by["triton"][0], by["triton"][-1]] == [end["triton"] for end in ends]
    for needed, name in zip(PROJECT["dependencies"], ("PyTorch", "Triton")):
        least, major, above = re.fullmatch(r"\w+>=([\d.]+),<(\d+)\.(\d+)", needed).groups()
        most = f"{major}.{int(above) - 1}"
        words.append(f"{name} {least} to {most}")
        tested = [end[Requirement(needed).name].rpartition(".")[0] for end in ends]
        assert tested == [least, most], f"{name}: the suite runs with {tested}"
    oldest_two = "triton=={triton} numpy=={numpy}".format(**ends[0])
    assert oldest_two in (ROOT / ".ci/run").read_text("utf8")
    (numpy,) = [each for each in DEPENDENCIES if each.name == "numpy"]
    assert f">={ends[0]['numpy']}" in str(numpy.specifier) and ends[1]["numpy"] in numpy.specifier
    version = PROJECT["version"].rpartition(".")[0]
    changes = "[later changes](reference/changelog.md) · "
    said = {"README.md": "Supported: ", "docs/index.md": f"version {version} and {changes}"}
    for page, first in said.items():
        assert first + ", ".join([*words, "Linux"]) in (ROOT / page).read_text("utf8"), page
    for name, text in WORKFLOWS.items():
        for version in re.findall(r'python-version: "([\d.]+)"', text):
            assert int(version.split(".")[1]) in minors, f"{name}: Python {version}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_pins_its_actions_and_may_only_read(name):
    """Each action by commit, its version beside it; few jobs may write, and what is listed here."""
    used = re.findall(r"\buses:(.*)", WORKFLOWS[name])
    pinned = re.compile(r" [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert used and not [each for each in used if not pinned.fullmatch(each)]
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    for job, content in workflow["jobs"].items():
        rights = content.get("permissions", {})
        assert {what for what in rights if rights[what] != "read"} == {
            *MAY_WRITE.get(job, "").split()
        }
        for step in content["steps"]:
            if "actions/checkout@" in step.get("uses", "") and job not in MAY_WRITE:
                assert step["with"]["persist-credentials"] is False


def test_all_dependencies_are_listed():
    assert [*dict.fromkeys(each.name for each in DEPENDENCIES)] == [*LICENCES]


@pytest.mark.parametrize(
    "needed", {each.name: each for each in DEPENDENCIES}.values(), ids=lambda each: each.name
)
def test_a_dependency_has_bounds_around_what_was_tested_and_the_licence_that_is_listed(needed):
    tested = stated("constraints.txt", rf"^{needed.name}==([\w.]+)")
    assert {each.operator for each in needed.specifier} == {">=", "<"}
    assert tested and all(map(needed.specifier.contains, tested))
    package = metadata.distribution(needed.name)
    if package.version.partition("+")[0] not in tested:
        pytest.skip(f"{package.version} is not the version whose licence is listed")
    says = package.metadata
    kinds = [each.split(" :: ")[-1] for each in says.get_all("Classifier", []) if "License" in each]
    files = [each.read_text() for each in package.files if each.name.startswith("LICENSE")]
    text = says.get("License") or [*kinds, *files, ""][0]
    text = re.sub(r"Apache( 2\.0)?(?= |$)", "Apache-2.0", text)
    family = text.partition(" ")[0]
    assert LICENCES[needed.name] == says.get("License-Expression", family)


@pytest.mark.slow
@pytest.mark.parametrize("program", [
    "import socket; socket.create_connection(('127.0.0.1', 1))",
    "import pathlib, pickle; pickle.loads(pickle.dumps(pathlib.Path()))",
])  # fmt: skip
def test_a_program_is_ended_that_uses_a_network_or_unpickles(tmp_path, program):
    (tmp_path / "sitecustomize.py").write_text(OFFLINE)
    ran = python("-c", program, PYTHONPATH=str(tmp_path))
    assert ran.returncode == 1 and re.search(r"(socket|pickle)\.", ran.stderr)


@pytest.mark.parametrize("held, says", [
    ("__init__.py py.typed", ""),
    ("__init__.py py.typed ../softmax_bench/runner.py", "holds softmax_bench/runner.py"),
    ("__init__.py", "lacks triton_softmax/py.typed"),
])  # fmt: skip
def test_a_release_is_the_library_alone(tmp_path, held, says):
    """By the script that the release workflow runs."""
    with zipfile.ZipFile(tmp_path / "triton_softmax-1.2-py3-none-any.whl", "w") as wheel:
        for name in [*held.split(), "../triton_softmax-1.2.dist-info/X"]:
            wheel.writestr(os.path.normpath(f"triton_softmax/{name}"), "")
    (tmp_path / "triton_softmax-1.2.tar.gz").touch()
    check = ROOT / ".github/check_release.py"
    checked = python(check, tmp_path, "v1.2")
    assert checked.returncode == bool(says) and says in checked.stderr
    assert python(check, tmp_path, "v1.3").stderr.startswith("v1.3 needs")


@pytest.mark.slow
@pytest.mark.parametrize("where, tag, interpret, says", [
    ("installed", PROJECT["version"], None, ""),
    ("installed", PROJECT["version"], "1", ""),
    ("installed", "9.9", None, "9.9 is tagged, and"),
    ("src", PROJECT["version"], None, "is not installed"),
])  # fmt: skip
def test_a_release_is_used_as_its_users_do(tmp_path, where, tag, interpret, says):
    """By the script that the release workflow runs; nothing uses a network or unpickles."""
    shutil.copytree(ROOT / "src" / "triton_softmax", tmp_path / "installed" / "triton_softmax")
    (tmp_path / "sitecustomize.py").write_text(OFFLINE)
    path = f"{tmp_path}{os.pathsep}{ROOT / 'src' if where == 'src' else tmp_path / 'installed'}"
    script = ROOT / ".github/try_release.py"
    tried = python(script, f"v{tag}", PYTHONPATH=path, TRITON_INTERPRET=interpret)
    assert tried.returncode == bool(says) and says in tried.stderr, tried.stderr
