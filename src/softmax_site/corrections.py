"""The tests behind the corrections of the sources: where each stands in their file."""

from __future__ import annotations

import ast
from pathlib import Path

from softmax_site import source

TESTS = "tests/site/test_corrections.py"


def listing(root: Path) -> str:
    """A link to the line of each test, with an anchor."""
    out = []
    for node in ast.parse((root / TESTS).read_text("utf8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            anchor, href = node.name.replace("_", "-"), source.link(TESTS, node.lineno)
            out.append(f'- <a id="{anchor}" href="{href}"><code>{node.name}</code></a>\n')
    return "".join(out)
