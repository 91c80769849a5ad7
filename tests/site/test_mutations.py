"""One mistake of each kind is planted in a copy of the repository, and has to turn the run red.

Each case runs only what should notice, and looks for the mistake in what it says: a run that is red
    for another reason does not count.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from site_build import build

ROOT = Path(__file__).resolve().parents[2]
KEPT = (
    "src",
    "docs",
    "tests",
    "conftest.py",
    "mkdocs_hooks.py",
    "mkdocs.yml",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)


def run_tests(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run pytest on `arguments` in the copy at `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )


def run_build(root: Path) -> subprocess.CompletedProcess:
    """Build strictly in the copy at `root`."""
    return build(root / "site-out", root=root)


def replace(path: str, pattern: str, replacement: str) -> Callable[[Path], None]:
    """A mistake: the first match of `pattern` in the file becomes `replacement`."""

    def plant(root: Path) -> None:
        text = (root / path).read_text("utf8")
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.M)
        assert count == 1 and changed != text, f"nothing to change in {path}"
        (root / path).write_text(changed, "utf8")

    return plant


@dataclass(frozen=True)
class Mistake:
    """What is changed, the check that has to notice, and what it says then."""

    plant: Callable[[Path], None]
    check: Callable[[Path], subprocess.CompletedProcess]
    says: str


VJP_KERNEL = "src/triton_softmax/kernels/single_block.py"
EXAMPLE = "docs/math/worked-example.md"

MISTAKES = {
    "a flipped sign in the VJP kernel": Mistake(
        replace(
            VJP_KERNEL,
            r"^(\s*# eq: [^\n]*\bsoftmax-vjp\b[^\n]*\n(?:[^\n]*\n){0,6}?[^\n]*= y \* \(dy) - ",
            r"\1 + ",
        ),
        lambda root: run_tests(
            root, "tests/library/kernels/test_rungs.py", "-k", "single_block and backward"
        ),
        r"not close|AssertionError",
    ),
    "a digit of printed output on a page": Mistake(
        replace(EXAMPLE, r"0\.1353", "0.1354"),
        lambda root: run_tests(root, EXAMPLE),
        r"Expected:[\s\S]*0\.1354[\s\S]*Got:[\s\S]*0\.1353",
    ),
    "a digit of a doctest in the source": Mistake(
        replace("src/softmax_site/computed/worked.py", r"0\.1353", "0.1354"),
        lambda root: run_tests(root, "src/softmax_site/computed/worked.py"),
        r"Expected:[\s\S]*0\.1354[\s\S]*Got:[\s\S]*0\.1353",
    ),
    "a section without its beginning": Mistake(
        replace("src/triton_softmax/kernels/device/monoid.py", r"^# --8<-- \[start:merge\]\n", ""),
        run_build,
        r"Snippet[\s\S]*could not be",
    ),
    "a section without its end": Mistake(
        replace("src/triton_softmax/kernels/device/monoid.py", r"^# --8<-- \[end:merge\]\n", ""),
        lambda root: run_tests(root, "tests/site/test_fences.py", "-k", "well_formed"),
        r"never closed: \['merge'\]",
    ),
    "a broken anchor": Mistake(
        replace("docs/math/softmax.md", r"\(jacobian\.md#[\w-]+\)", "(jacobian.md#nowhere)"),
        run_build,
        r"does not contain an anchor '#nowhere'",
    ),
    "a reference to an equation that does not exist": Mistake(
        replace("docs/math/softmax.md", r"\\eqref\{[\w-]+\}", r"\\eqref{nowhere}"),
        run_build,
        r"no equation is labelled 'nowhere'",
    ),
    "LaTeX that cannot be shown": Mistake(
        replace("docs/math/softmax.md", r"\\frac", r"\\fracc"),
        run_build,
        r"LaTeX that cannot be converted",
    ),
    "an equation without a test": Mistake(
        replace(
            "tests/site/test_equations.py", r"def test_softmax_vjp\(", "def check_softmax_vjp("
        ),
        lambda root: run_tests(root, "tests/site/test_site.py", "-k", "every_equation_has_a_test"),
        r"softmax-vjp has no test_softmax_vjp",
    ),
    "a typed measurement": Mistake(
        replace("docs/math/softmax.md", r"\Z", "\nIt is 1.4× faster.\n"),
        lambda root: run_tests(
            root, "tests/site/test_typed_speeds.py", "-k", "no_speed_is_typed_on_a_page"
        ),
        r"typed by hand: '1\.4× faster'",
    ),
    "a stale computed file": Mistake(
        replace("docs/_computed/worked-view.md", r"0\.6652", "0.6653"),
        lambda root: run_tests(root, "tests/site/test_computed.py", "-k", "worked_view"),
        r"worked-view\.md is stale",
    ),
}


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of what the checks read."""
    for name in KEPT:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(
                source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(source, target)
    return tmp_path


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_turns_the_run_red(name, copy):
    mistake = MISTAKES[name]
    mistake.plant(copy)
    result = mistake.check(copy)
    assert result.returncode == 1, f"nothing noticed {name}"
    assert re.search(mistake.says, result.stdout + result.stderr), result.stdout + result.stderr
