"""One file with the tutorial's kernels that a reader takes along, made from their sources.

The kernels are those of `single_block` and `two_loops` with what they call, for contiguous rows of
one program each, computed in float32. So a constant takes the place of a name, a matrix of one row
becomes a row, and what is used once stands where it is used. What remains is printed, and put into
`take_home.txt`, which has the rest of the file: launch, autograd and test.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

from softmax_bench.report import by_case
from softmax_bench.roster import CHOOSER
from softmax_site.benchmarks.data import n_cols, of_suite
from softmax_site.benchmarks.page import Fragment, Rendered, block, measured_by, origin
from softmax_site.benchmarks.tables import share_of, table
from softmax_site.benchmarks.words import kernel_words

PATH = "assets/take-home/softmax.py"
"""Where the site has the file."""
LONGEST_LINE = 100
SOURCES = {
    "src/triton_softmax/kernels/device/monoid.py": ("exp_shifted", "merge"),
    "src/softmax_tutorial/single_block.py": (
        "softmax_forward_single_block_kernel",
        "softmax_backward_single_block_kernel",
    ),
    "src/softmax_tutorial/two_loops.py": (
        "softmax_forward_two_loops_kernel",
        "softmax_backward_two_loops_kernel",
    ),
}
TEMPLATE = "src/softmax_site/take_home.txt"
DTYPE = "bfloat16"
"""The type of which the page has figures."""

FIXED = {"acc_type": "tl.float32", "BLOCK_ROWS": "1", "LOG": "False", "rows": "row"}
FIXED |= {"LOG2E": "1.4426950408889634"}
FIXED |= {f"{name}_row_stride": "n_cols" for name in ("x", "y", "dy", "dx")}
DEFAULT = (".ca", ".wb")
"""How a cache keeps what it is not told how to keep."""


class Plain(ast.NodeTransformer):
    """A kernel for contiguous rows, one to a program, in float32."""

    def visit_FunctionDef(self, node):  # noqa: N802
        node.name = node.name.removeprefix("softmax_").removesuffix("_kernel")
        node.decorator_list = node.decorator_list[-1:]  # without the tuner
        gone = {*FIXED, "n_rows"} - {"rows"}
        node.args.args = [each for each in node.args.args if each.arg not in gone]
        node.body = node.body[ast.get_docstring(node) is not None :]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):  # noqa: N802
        return None  # of types, which are fixed

    def visit_If(self, node):  # noqa: N802
        return [self.visit(each) for each in node.orelse]  # LOG is False

    def visit_Name(self, node):  # noqa: N802
        return ast.parse(FIXED.get(node.id, node.id), mode="eval").body

    def visit_Subscript(self, node):  # noqa: N802
        """What is given a second axis keeps its one."""
        return self.visit(node.value) if "None" in ast.unparse(node.slice) else node

    def visit_keyword(self, node):
        if node.arg == "axis":
            node.value = ast.Constant(0)
        return self.generic_visit(node)

    def visit_BinOp(self, node: Any):  # noqa: N802
        self.generic_visit(node)
        text = ast.unparse(node)
        if text.endswith(" * 1 + tl.arange(0, 1)"):
            return node.left.left
        return node.right if text.startswith("(row < n_rows) & ") else node

    def visit_Call(self, node: Any):  # noqa: N802
        self.generic_visit(node)
        called, text = node.func, ast.unparse(node)
        if text.endswith((".to(y_type)", ".element_ty)")):
            return called.value  # what is stored is rounded to the type of the pointer
        if text.startswith("tl.full("):
            return node.args[1]
        if text.startswith("tl.zeros("):
            return ast.Constant(0.0)
        default = [each for each in node.keywords if getattr(each.value, "value", "") in DEFAULT]
        node.keywords = [each for each in node.keywords if each not in default]
        return node

    def visit_Assign(self, node):  # noqa: N802
        """Nothing is set to itself."""
        self.generic_visit(node)
        return None if ast.unparse(node.targets[0]) == ast.unparse(node.value) else node


class _Put(ast.NodeTransformer):
    def __init__(self, name, value):
        self.name, self.value = name, value

    def visit_Name(self, node):  # noqa: N802
        return self.value if node.id == self.name and isinstance(node.ctx, ast.Load) else node


def names_in(node: ast.AST) -> Counter[str]:
    """How often a part of a program has each name."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def inlined(block: list[ast.stmt], indent: int = 4) -> list[ast.stmt]:
    """A block in which stands what is set and used once where it is used, if that line is still
    short enough; an address also in a loop."""
    for at in range(len(block) - 2, -1, -1):
        step, rest = block[at], block[at + 1 :]
        if not isinstance(step, ast.Assign) or not isinstance(step.targets[0], ast.Name):
            continue
        name, moves = step.targets[0].id, not isinstance(step.value, (ast.Call, ast.Constant))
        if sum((names_in(each) for each in rest), Counter())[name] != 1:
            continue
        (user,) = (each for each in rest if names_in(each)[name])
        if isinstance(user, ast.For) and not moves:
            continue
        made = _Put(name, step.value).visit(ast.parse(ast.unparse(user)).body[0])
        if max(map(len, ast.unparse(made).split("\n"))) + indent <= LONGEST_LINE:
            block[block.index(user)] = made
            del block[at]
    for step in block:
        if isinstance(step, ast.For):
            step.body = inlined(step.body, indent + 4)
    return block


def kernels(root: Path) -> str:
    """The functions, each after an empty line."""
    out = []
    for path, names in SOURCES.items():
        for node in ast.parse((root / path).read_text("utf8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in names:
                node = ast.fix_missing_locations(Plain().visit(node))
                node.body = inlined(node.body)
                out += ["", ast.unparse(node)]
    return "\n".join(out)


def file(root: Path) -> str:
    """The whole file."""
    return (root / TEMPLATE).read_text("utf8").replace("KERNELS", kernels(root))


def shares(data: dict, longest: int) -> Fragment:
    """What the kernels of the file and the library reach of a copy's speed, length by length."""
    rows = of_suite(data, "ladder", dtype=DTYPE)
    lines: dict[int, list] = {}
    for group in by_case(rows).values():
        row = group[CHOOSER]
        mine = "single_block" if n_cols(row) <= longest else "two_loops"
        line = lines.setdefault(n_cols(row), [f"{n_cols(row):,}", mine.replace("_", " ")])
        found = [share_of(group, name) for name in (mine, CHOOSER)]
        line += [f"{each:.2f}" if each else "–" for each in found]
        if row["direction"] == "forward":
            line.append(kernel_words(row))
    head = ["columns", "in the file", "forward, file", "library", "by"]
    head += ["backward, file", "library"]
    caption = f"Shares of a copy's speed, {DTYPE}."
    body = table(head, lines.values(), 2, (4,), caption=caption)
    return Fragment(f"{block(body)}\n\n{origin(rows)}", measured_by(rows))


def render(root: Path, data: dict) -> Rendered:
    """The file, its text on the page, and how its kernels stand beside the library."""
    text = file(root)
    (longest,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LONGEST"
    )
    lines = "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    title = f'???+ code "softmax.py, {len(text.splitlines())} lines"'
    shown = f"{title}\n\n    ```{{.python .excerpt}}\n{lines}\n    ```\n"
    return Rendered(
        {"take-home": Fragment(shown), "take-home-shares": shares(data, longest)}, {PATH: text}
    )
