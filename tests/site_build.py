"""Build the site strictly and read what its pages hold."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config import load_config
from mkdocs.structure.files import get_files, set_exclusions

ROOT = Path(__file__).resolve().parents[1]


def build(target: Path, *, root: Path = ROOT, tool: str = "mkdocs") -> subprocess.CompletedProcess:
    """Build the site below `root` strictly into `target`; torch and triton are kept out of
    reach."""
    blocker = target.parent / "blocked"
    blocker.mkdir(exist_ok=True)
    for name in ("torch", "triton"):
        (blocker / f"{name}.py").write_text(
            "raise ImportError('the documentation build must not need this')\n"
        )
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONPATH": f"{blocker}{os.pathsep}{root / 'src'}",
    }
    command = [
        sys.executable,
        "-m",
        tool,
        "build",
        "--strict",
        "-f",
        str(root / "mkdocs.yml"),
        "-d",
        str(target),
    ]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )


def pages() -> list[Path]:
    """The Markdown pages that the site holds: those that `mkdocs.yml` excludes are left out."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    files = get_files(config)
    set_exclusions(files, config)
    return sorted(Path(file.abs_src_path) for file in files.documentation_pages())


def html_of(page: Path | str) -> str:
    """Where the build puts a page, given below `docs/` or in it.

    >>> html_of("math/index.md"), html_of("math/softmax.md")
    ('math/index.html', 'math/softmax/index.html')
    """
    relative = Path(page).relative_to(ROOT / "docs") if Path(page).is_absolute() else Path(page)
    return (
        relative.parent / "index.html"
        if relative.stem == "index"
        else relative.with_suffix("") / "index.html"
    ).as_posix()


class _CodeBlocks(HTMLParser):
    """Collect (language, classes, text) of each highlighted block outside API listings."""

    VOID = {
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
    }

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[tuple[str, list[str]]] = []
        self.blocks: list[tuple[str, list[str], str]] = []

    def handle_starttag(self, tag, attrs):
        if tag in self.VOID:
            return
        classes = (dict(attrs).get("class") or "").split()
        outside = not any("doc-contents" in seen for _, seen in self.stack)
        if tag == "div" and "highlight" in classes and outside:
            language = next((name[9:] for name in classes if name.startswith("language-")), "")
            self.blocks.append((language, classes, ""))
        self.stack.append((tag, classes))

    def handle_endtag(self, tag):
        while self.stack:
            if self.stack.pop()[0] == tag:
                break

    def handle_data(self, data):
        open_block = any("highlight" in classes and tag == "div" for tag, classes in self.stack)
        in_code = any(tag == "code" for tag, _ in self.stack)
        outside = not any("doc-contents" in seen for _, seen in self.stack)
        if open_block and in_code and outside and self.blocks:
            language, classes, text = self.blocks[-1]
            self.blocks[-1] = (language, classes, text + data)


def code_blocks(html: str) -> list[tuple[str, list[str], str]]:
    """The (language, classes, text) of each highlighted block of a page, outside API listings."""
    parser = _CodeBlocks()
    parser.feed(html)
    return parser.blocks
