"""The tests behind the corrections of the sources, as they stand in their file."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = "tests/site/test_corrections.py"


def listing(root: Path) -> str:
    """One folded listing per test, each with an anchor."""
    source = (root / TESTS).read_text("utf8")
    lines = source.splitlines()
    out = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            anchor = node.name.replace("_", "-")
            out += [
                f'<a id="{anchor}"></a>',
                "",
                f'??? test "{node.name}"',
                "",
                "    ```{.python .excerpt}",
            ]
            out += [f"    {line}".rstrip() for line in lines[first - 1 : node.end_lineno]]
            out += ["    ```", ""]
    return "\n".join(out)
