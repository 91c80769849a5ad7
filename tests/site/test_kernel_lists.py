"""Every kernel and every operation is listed where they are listed, with what it moves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import triton_softmax
from site_build import sections
from softmax_bench import traffic
from softmax_site import kernel_map
from softmax_site.figures.kernels import PICTURES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/triton_softmax"
MAP = {entry.module: entry for table in kernel_map.TABLES for entry in table}
OVERVIEW = (ROOT / "docs/kernels/index.md").read_text("utf8") + "".join(f"`{name}`" for name in MAP)
TAKEN_APART = (ROOT / "docs/kernels/operations-and-geometries.md").read_text("utf8")


def modules(folder: str) -> list[str]:
    """The modules and packages of a folder of the library."""
    found = [path.stem for path in (PACKAGE / folder).glob("*.py") if path.stem != "__init__"]
    found += [path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")]
    return sorted(found)


def docstring(folder: str) -> str:
    tree = ast.parse((PACKAGE / folder / "__init__.py").read_text("utf8"))
    return ast.get_docstring(tree) or ""


def rows(text: str) -> dict[str, list[str]]:
    """The cells of the rows of all tables whose first cell names a module, by that name."""
    found = {}
    for line in text.splitlines():
        name = re.match(r"\| \[?`([a-z]\w*)`", line)
        if name:
            found[name[1]] = [cell.strip() for cell in line.strip("| \n").split(" | ")]
    return found


@pytest.mark.parametrize("folder", ["kernels", "kernels/device", "operations"])
def test_every_module_is_listed(folder):
    assert modules(folder)
    for name in modules(folder):
        assert f"`{name}`" in docstring(folder), f"not in the docstring of {folder}: {name}"
        assert f"`{name}`" in OVERVIEW, f"not on docs/kernels/index.md: {name}"


def test_every_listed_name_is_a_module():
    known = {
        name for folder in ("kernels", "kernels/device", "operations") for name in modules(folder)
    }
    for text in (
        OVERVIEW,
        docstring("kernels"),
        docstring("kernels/device"),
        docstring("operations"),
    ):
        assert rows(text).keys() <= known


def test_the_map_shows_every_kernel_with_its_page_and_picture():
    beside_a_loss = {"targets", "scale_rows", "finish_rows"}
    assert set(MAP) == set(modules("kernels")) - {"rows", "device"} - beside_a_loss
    assert set(PICTURES) == set(MAP)
    for entry in MAP.values():
        assert (ROOT / f"docs/kernels/{entry.page}.md").is_file(), entry.page
        assert PICTURES[entry.module]().alt
    for name in ("map-rungs", "map-geometries", "map-others"):
        assert f"[[rendered {name}]]" in OVERVIEW


def test_every_implementation_is_in_a_table():
    assert set(triton_softmax.IMPLEMENTATIONS) <= MAP.keys()
    assert set(triton_softmax.IMPLEMENTATIONS) <= rows(docstring("kernels")).keys()


def test_every_operation_is_in_a_table():
    from triton_softmax import plan

    for op in plan.OPERATIONS.values():
        assert f"| `{op.name.upper()}` |" in OVERVIEW
        assert f"`{op.name.upper()}`" in docstring("operations")
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", OVERVIEW, re.M))
    assert listed and listed <= {name for name in vars(plan) if name.isupper()}


@pytest.mark.parametrize("name", traffic.FORWARD)
def test_the_map_says_the_traffic_that_is_derived(name):
    assert traffic.FORWARD[name].formula == MAP[name].forward
    assert traffic.BACKWARD[name].formula == MAP[name].backward


def test_what_moves_twice_moves_what_two_loops_move():
    assert MAP["strided_loops"][3:5] == MAP["two_loops"][3:5]
    assert MAP["split_strided"][3:5] == MAP["strided"][3:5]


def test_a_kernel_that_no_shape_gets_is_not_chosen():
    """What the map says to be for reading is not among the kernels that a choice can name."""
    for_reading = {entry.module for entry in MAP.values() if entry.shapes.startswith("none")}
    choices = "".join(path.read_text("utf8") for path in (PACKAGE / "choose").glob("*.py"))
    named = set(re.findall(r'(?:Choice\(|=\s*)\s*"(\w+)"|"(\w+)" if edges', choices))
    named = {name for pair in named for name in pair if name} | {"packed_rows"}
    assert named & MAP.keys() == MAP.keys() - for_reading


def test_the_lines_that_are_taken_apart_are_lines_of_the_single_block():
    """The table quotes the kernel, in its order, but for line breaks and closing brackets."""
    table = re.findall(r"^\| (`.+?`) \| (?:geometry|operation)", TAKEN_APART, re.M)
    assert len(table) >= 10
    kernel = sections(PACKAGE / "kernels/single_block.py")["forward"].split('"""')[-1]
    kernel = re.sub(r"\s+", " ", kernel).replace("( ", "(").replace(" )", ")")
    at = 0
    for line in table:
        found = kernel.find(line.strip("`"), at)
        assert found >= 0, f"the single block has no {line} there"
        at = found
