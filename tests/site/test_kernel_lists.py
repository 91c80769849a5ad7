"""Every kernel and every operation is listed where they are listed, with what it moves."""

import ast
import re

import pytest

from site_build import ROOT
from softmax_bench import traffic
from softmax_site import kernel_map
from softmax_site.figures.drawings import drawing
from triton_softmax import operations
from triton_softmax.config.constants import TILE_KERNELS

TAUGHT = {
    "naive", "three_loops", "two_loops", "single_block", "packed_rows_simple", "split_rows_simple",
    "flash_attention", "attention",
}  # fmt: skip
"""The kernels of `softmax_tutorial`."""

PACKAGE = ROOT / "src/triton_softmax"
MAP = {entry.kernel: entry for entry in kernel_map.entries(ROOT)}
OVERVIEW = (ROOT / "docs/kernels/index.md").read_text("utf8") + "".join(f"`{name}`" for name in MAP)


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


def test_every_listed_name_is_a_module():
    known = {
        name for folder in ("kernels", "kernels/device", "operations") for name in modules(folder)
    } | TAUGHT
    known |= {*TILE_KERNELS, *vars(operations.SOFTMAX)}
    for text in (
        OVERVIEW,
        docstring("kernels"),
        docstring("kernels/device"),
        docstring("operations"),
    ):
        assert rows(text).keys() <= known


def test_the_map_shows_every_kernel_with_its_page_and_picture():
    geometries = set(modules("kernels")) - {"device", "tile", "row_scalars", "token_rows"}
    assert set(MAP) == geometries | set(TILE_KERNELS) | TAUGHT
    for entry in MAP.values():
        assert (ROOT / f"docs/kernels/{entry.page}.md").is_file(), entry.page
        assert "aria-label=" in drawing(entry.picture)
    ladder = (ROOT / "docs/benchmarks/ladder.md").read_text("utf8")
    for name in ("map-rungs", "map-geometries", "map-others"):
        assert f"[[rendered {name}]]" in OVERVIEW + ladder


def test_every_operation_is_in_a_table():
    for op in operations.OPERATIONS.values():
        assert f"| `{op.name.upper()}` |" in OVERVIEW
        assert f"`{op.name.upper()}`" in docstring("operations")
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", OVERVIEW, re.M))
    assert listed and listed <= {name for name in vars(operations) if name.isupper()}


@pytest.mark.parametrize("name", traffic.FORWARD)
def test_the_map_says_the_traffic_that_is_derived(name):
    assert traffic.FORWARD[name].formula == MAP[name].forward
    assert traffic.BACKWARD[name].formula == MAP[name].backward


def test_what_moves_twice_moves_what_two_loops_move():
    for one, other in (("two_pass", "two_loops"), ("split_strided", "strided")):
        assert MAP[one].forward == MAP[other].forward and MAP[one].backward == MAP[other].backward


def test_a_kernel_that_no_shape_gets_is_not_chosen():
    """What the map says to be for reading is not among the kernels that a choice can name."""
    for_reading = {entry.kernel for entry in MAP.values() if entry.shapes.startswith("none")}
    choices = "".join(path.read_text("utf8") for path in (PACKAGE / "config").glob("*.py"))
    named = {*re.findall(r'(?:Choice|in_loops)\(\s*"(\w+)"', choices), *TILE_KERNELS}
    assert named & MAP.keys() == MAP.keys() - for_reading
