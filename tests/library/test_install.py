"""What `pip install .` gives: the library alone, the same from the tree and from the sdist."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "triton_softmax"
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src", "tests")

IMPORT_ALL = """
import importlib, importlib.util, json, pkgutil, sys
target, *others = sys.argv[1:]
sys.path[:0] = [target]
sys.path += others
import triton_softmax
found = {"triton_softmax": triton_softmax.__file__}
for module in pkgutil.walk_packages(triton_softmax.__path__, "triton_softmax."):
    found[module.name] = importlib.import_module(module.name).__file__
others = ("softmax_bench", "softmax_playground", "softmax_site", "softmax_tutorial", "tests")
outside = [name for name in others if importlib.util.find_spec(name)]
print(json.dumps({"found": found, "outside": outside}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def wheel(source: Path, target: Path) -> Path:
    flags = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *flags, "-w", target, ".", cwd=source)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of what is built from: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def built(tree, tmp_path_factory) -> Path:
    return wheel(tree, tmp_path_factory.mktemp("wheel"))


def files(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_the_library_and_nothing_else(built):
    below = [path for path in (ROOT / "src" / PACKAGE).rglob("*") if path.is_file()]
    expected = [path for path in below if path.suffix != ".pyc"]
    assert files(built) == {path.relative_to(ROOT / "src").as_posix() for path in expected}


def test_the_sdist_builds_the_same_wheel(tree, built, tmp_path):
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    run(sys.executable, "-c", code, cwd=tree)
    (archive,) = (tree / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[-1] for name in tar.getnames()}
    shutil.unpack_archive(archive, tmp_path)
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("src/softmax_", "docs"))]
    (unpacked,) = tmp_path.iterdir()
    again = wheel(unpacked, tmp_path / "wheel")
    assert again.name == built.name and files(again) == files(built)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    flags = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", *flags, "-t", target, built, cwd=target)
    return target


def alone(code: str, installed: Path) -> str:
    """Run code in a process that sees the wheel, torch, triton and numpy, and not this
    repository."""
    import numpy

    others = os.fspath(Path(numpy.__file__).parents[1])
    return run(sys.executable, "-I", "-S", "-c", code, installed, others, cwd=installed)


def test_every_module_of_the_installed_wheel_imports(installed):
    answer = json.loads(alone(IMPORT_ALL, installed).splitlines()[-1])
    expected = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "src" / PACKAGE).rglob("*.py")
    }
    assert set(answer["found"]) == expected
    for name, file in answer["found"].items():
        assert Path(file).is_relative_to(installed), f"{name} comes from {file}"
    assert answer["outside"] == []
