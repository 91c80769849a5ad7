"""Build the site strictly and read what its pages hold."""

import functools
import importlib
import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement

ROOT = Path(__file__).resolve().parents[1]
LOADING = {
    **dict.fromkeys(("script", "img", "iframe", "source", "video", "audio", "embed"), "src"),
    "link": "href",
}
"""The attribute of an element that says what it loads."""
SECTION = re.compile(r'(?<!;)--8<-- "(?P<path>src/[\w/]+\.py)(?::(?P<name>[\w-]+))?"')


OFFLINE = """
import os, sys

def end(event, arguments):
    if event.startswith("socket.") or event == "pickle.find_class":
        os.write(2, f"{event}{arguments}".encode())
        os._exit(1)  # an exception could be caught

sys.addaudithook(end)
"""
"""A `sitecustomize.py` with which a program ends once it uses a socket or unpickles an object."""


def python(*arguments: object, cwd: Path = ROOT, **environment: str | None) -> CompletedProcess:
    """Run Python as a process of its own; variables of the environment that are None it lacks."""
    variables = {**os.environ, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    return run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300)


def build(target: Path, *, root: Path = ROOT, tool: str = "mkdocs") -> CompletedProcess:
    """Build the site below `root` strictly into `target`; torch, triton and the network are kept
    out of reach."""
    importlib.import_module(tool)  # raises where it is not installed, and the test is skipped
    blocker = target.parent / "blocked"
    blocker.mkdir(exist_ok=True)
    for name in ("torch", "triton"):
        (blocker / f"{name}.py").write_text(
            "raise ImportError('the documentation build must not need this')\n"
        )
    (blocker / "sitecustomize.py").write_text(OFFLINE)
    command = ("-m", tool, "build", "--strict", "-f", root / "mkdocs.yml", "-d", target)
    return python(*command, cwd=root, NO_MKDOCS_2_WARNING="1", PYTHONPATH=str(blocker))


def build_with_address(root: Path, address: str, nav: list) -> CompletedProcess:
    """Build the pages of `root/docs` in the shell of the site, with an address and a repository,
    into `root/site`."""
    (root / "tests/site").mkdir(parents=True)
    (root / "tests/site/test_corrections.py").touch()
    settings = {"INHERIT": str(ROOT / "mkdocs.yml"), "hooks": [str(ROOT / "mkdocs_hooks.py")]}
    settings |= {"watch": [], "plugins": ["search"], "extra": {"loads": []}, "extra_css": []}
    settings |= {"theme": {"custom_dir": str(ROOT / "docs/_overrides")}, "nav": nav}
    (root / "mkdocs.yml").write_text(json.dumps(settings))  # which is YAML
    named = {"SITE_URL": address, "REPO_URL": "https://example.org/source"}
    (command,) = re.findall(r"&& (.+mkdocs serve)$", (ROOT / "README.md").read_text("utf8"), re.M)
    quiet = dict([command.split()[0].split("=")])  # as readers of the README are told to call it
    return python(*"-m mkdocs build -q -d site".split(), cwd=root, **named, **quiet)


def site_config():
    """`mkdocs.yml` as a build sees it, with what our hooks add."""
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"))
    return config.plugins.on_config(config)


@functools.cache
def pages() -> tuple[Path, ...]:
    """The Markdown pages that the site holds: folders that it excludes begin with `_`."""
    docs = ROOT / "docs"
    found = [path for path in docs.rglob("*.md") if "/_" not in f"/{path.relative_to(docs)}"]
    return tuple(sorted(found))


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


class _Tree(HTMLParser):
    """The elements of a page, below one that is not in it."""

    VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page")]

    def handle_starttag(self, tag, attrs):
        element = SubElement(self.open[-1], tag, {name: value or "" for name, value in attrs})
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        begun = [at for at, each in enumerate(self.open) if each.tag == tag]
        del self.open[begun[-1] if begun else len(self.open) :]

    def handle_data(self, data):
        if len(self.open[-1]):
            self.open[-1][-1].tail = (self.open[-1][-1].tail or "") + data
        else:
            self.open[-1].text = (self.open[-1].text or "") + data


def tree(html: str) -> Element:
    """The elements of a page."""
    parser = _Tree()
    parser.feed(html)
    return parser.open[0]


def of_class(root: Element, name: str) -> list[Element]:
    """The elements that have a class, in their order."""
    return [each for each in root.iter() if name in each.get("class", "").split()]


def code_blocks(html: str) -> list[tuple[str, list[str], str]]:
    """The (language, classes, text) of each highlighted block of a page, outside API listings."""
    root, found = tree(html), []
    listed = {block for api in of_class(root, "doc-contents") for block in api.iter()}
    for block in of_class(root, "highlight"):
        if block.tag == "div" and block not in listed:
            classes = block.get("class", "").split()
            language = next((name[9:] for name in classes if name.startswith("language-")), "")
            text = "".join("".join(code.itertext()) for code in block.iter("code"))
            found.append((language, classes, text))
    return found


class Page(NamedTuple):
    """What a built page loads, where it leads, the anchors in it, and its description."""

    loads: list[str]
    links: list[str]
    anchors: set[str]
    description: str


@functools.cache
def read(path: Path) -> Page:
    """Read a built page."""
    page = Page([], [], set(), "")
    for each in tree(path.read_text("utf8")).iter():
        page.loads.append(each.get(LOADING.get(each.tag, ""), ""))
        page.loads.extend(re.findall(r"url\(([^)]+)\)", each.get("style", "")))
        page.loads.extend(re.findall(r"(?:^|,)\s*([^\s,]+)", each.get("srcset", "")))
        page.anchors.add(each.get("id", ""))
        if each.tag == "a":
            page.anchors.add(each.get("name", ""))
            page.links.append(each.get("href", ""))
        if each.get("name") == "description":
            page = page._replace(description=each.get("content", ""))
    return page
