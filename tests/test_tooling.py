"""What is said of the tools in several places is the same everywhere, and warnings of ours fail."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]


def modules() -> list[str]:
    """Every module of ours, by the name under which it warns."""
    source = [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in (ROOT / "src").rglob("*.py")
    ]
    helpers = [path.stem for path in (ROOT / "tests").glob("*.py")]
    tests = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "tests").rglob("*.py")
    ]
    helpers = [name for name in helpers if not name.startswith("test_")]
    return sorted({*source, *helpers, *tests, "conftest", "fence"})


@pytest.mark.parametrize("category", [UserWarning, DeprecationWarning])
def test_a_warning_of_ours_is_an_error(category):
    for module in modules():
        with pytest.raises(category, match="planted"):
            warnings.warn_explicit("planted", category, "planted.py", 1, module=module)


def test_this_module_and_a_fence_warn_under_those_names():
    assert __name__ in modules()
    with pytest.raises(UserWarning, match="planted"):
        warnings.warn("planted", stacklevel=1)


@pytest.mark.parametrize("module", ["torch.jit._script", "triton.runtime.interpreter", "numpy"])
@pytest.mark.parametrize("category", [UserWarning, DeprecationWarning, FutureWarning])
def test_a_warning_of_another_package_is_not(module, category):
    with warnings.catch_warnings(record=True):
        warnings.warn_explicit("planted", category, "planted.py", 1, module=module)


def test_the_supported_pythons_are_the_same_everywhere():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(name[len(prefix) :]) for name in PROJECT["classifiers"] if prefix in name]
    oldest, newest = f"3.{min(minors)}", f"3.{max(minors)}"
    assert minors == list(range(min(minors), max(minors) + 1))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert f"Python {oldest} to {newest}," in (ROOT / "README.md").read_text("utf8")
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf8"))
    assert workflow["jobs"]["cpu"]["strategy"]["matrix"]["python-version"] == [oldest, newest]
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for version in re.findall(r'python-version: "([\d.]+)"', path.read_text("utf8")):
            assert int(version.split(".")[1]) in minors, f"{path.name}: Python {version}"


def recipe(target: str) -> list[str]:
    """The modules that a target of the Makefile runs, each with its first words."""
    lines = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text("utf8"), re.M)[
        1
    ]
    return re.findall(r"^\t\$\(PY\) -m (\w+(?: [\w-]+)*)", lines, re.M)


def test_hooks_mend_what_make_format_mends_and_make_lint_checks():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf8"))
    entries = [
        hook["entry"] for repo in config["repos"] for hook in repo["hooks"] if "entry" in hook
    ]
    hooks = [each.partition(" -m ")[2] for each in entries]
    mended = ["ruff check --fix", "ruff format", "codespell_lib -w"]
    assert [each.removesuffix(" --force-exclude") for each in hooks] == mended == recipe("format")
    checked = ["ruff check", "ruff format --check --quiet", "codespell_lib"]
    assert recipe("quick") == checked and recipe("lint") == [*checked, "pyright --pythonpath"]


def test_a_newcomer_is_told_of_every_package_and_command():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf8")
    packages = {path.parent.name for path in (ROOT / "src").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    makefile = (ROOT / "Makefile").read_text("utf8")
    commands = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split()) - {"clean"}
    assert commands == set(re.findall(r"^\| `make (\w+)` \|", text, re.M))


def check_release(folder: Path, tag: str) -> subprocess.CompletedProcess:
    """The check that the release workflow runs on what it built."""
    command = [sys.executable, ".github/check_release.py", folder, tag]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("changed, says", [
    ({}, ""),
    ({"softmax_bench/runner.py": ""}, "holds softmax_bench/runner.py"),
    ({"triton_softmax/py.typed": None}, "lacks triton_softmax/py.typed"),
])  # fmt: skip
def test_a_release_is_the_library_alone(tmp_path, changed, says):
    names = dict.fromkeys(
        ["triton_softmax/__init__.py", "triton_softmax/py.typed", "triton_softmax-1.2.dist-info/X"],
        "",
    )
    with zipfile.ZipFile(tmp_path / "triton_softmax-1.2-py3-none-any.whl", "w") as wheel:
        for name, text in {**names, **changed}.items():
            if text is not None:
                wheel.writestr(name, text)
    (tmp_path / "triton_softmax-1.2.tar.gz").touch()
    checked = check_release(tmp_path, "v1.2")
    assert (checked.returncode, says in checked.stderr) == ((1, True) if says else (0, True))
    assert check_release(tmp_path, "v1.3").stderr.startswith("v1.3 needs")
