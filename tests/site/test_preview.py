"""A preview shows what a build from nothing would show, and converts only what has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from softmax_site import build as ours
from softmax_site import preview

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "mkdocs.yml": f"""
site_name: toy
hooks: [{ROOT / "mkdocs_hooks.py"}]
theme: {{name: material, font: false}}
plugins:
  - search
  - mkdocstrings: {{enable_inventory: false, handlers: {{python: {{paths: [src]}}}}}}
markdown_extensions:
  - toc: {{permalink: true}}
  - pymdownx.superfences
  - pymdownx.snippets: {{base_path: [!relative $config_dir], check_paths: true}}
""",
    "docs/index.md": "# Home\n\n[twice][toy.twice], [the code](code.md#code), \\eqref{sum}\n",
    "docs/code.md": '# Code\n\n```python\n--8<-- "src/toy.py"\n```\n',
    "docs/pieces.md": "# Pieces\n\n[[code src/toy.py:sum since=other]]\n",
    "docs/api.md": "# API\n\n::: toy\n",
    "docs/equation.md": "# Equation\n\n/// equation | sum\na + b\n///\n",
    "docs/numbers.md": "# Numbers\n\n[[rendered bench-forward]]\n",
    "src/toy.py": (
        'def twice(x):\n    """Two of it."""\n    return 2 * x\n\n\n'
        "# --8<-- [start:sum]\n# eq: sum\nc = a + b\n# --8<-- [end:sum]\n"
    ),
    "src/other.py": "# --8<-- [start:sum]\nc = 0\n# --8<-- [end:sum]\n",
    "tests/site/test_corrections.py": "",
}

LISTED = {"pieces.md", "source/src/toy.py.md"}
INCLUDED = {"code.md", "api.md", *LISTED}

EDITS = {
    "the text of a page": ("docs/index.md", "# Home", "# House", {"index.md"}),
    "a title, which the navigation of every page shows":
        ("docs/api.md", "# API", "# Interface", {"api.md"}),
    "included code": ("src/toy.py", "2 * x", "x + x", INCLUDED),
    "a docstring": ("src/toy.py", "Two of it", "Double it", INCLUDED),
    "an equation": ("docs/equation.md", "a + b", "b + a", {"equation.md", *LISTED}),
    "a label": ("docs/equation.md", "/// eq", "/// equation | one\na\n///\n\n/// eq",
                {"equation.md", "index.md", "api.md", "code.md", "numbers.md", *LISTED}),
    "the code that pieces are compared with": ("src/other.py", "c = 0", "c = 1",
                                               {"pieces.md", "api.md"}),
    "nothing": ("docs/index.md", "# Home", "# Home", set()),
}  # fmt: skip


@pytest.fixture
def root(tmp_path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    yield tmp_path
    ours.on_startup("build")


def site(root: Path, name: str) -> dict[str, bytes]:
    """Build into a folder of this name and return its files; times are left out."""
    build(load_config(str(root / "mkdocs.yml"), site_dir=str(root / name)))
    return {
        path.relative_to(root / name).as_posix(): path.read_bytes()
        for path in (root / name).rglob("*")
        if path.is_file() and "sitemap" not in path.name
    }


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_shows_as_in_a_build_from_nothing(root, what):
    name, old, new, again = EDITS[what]
    ours.on_startup("serve")
    site(root, "preview")
    before = dict(ours._preview.kept)
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))
    shown = site(root, "preview")
    changed = {page for page, kept in ours._preview.kept.items() if before[page] is not kept}
    assert changed == again
    ours.on_startup("build")
    assert shown == site(root, "fresh")


def test_what_every_page_with_cells_is_made_from_is_found():
    """A page may also speak of a directive, as the contributing page does."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    texts = [text for text in texts if "[[run " in text]
    assert len(texts) > 10
    assert [preview.made_from(text, ROOT, frozenset())[0] for text in texts] == texts
