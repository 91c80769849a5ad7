"""Under `mkdocs serve`, what nothing has changed for is not converted, indexed or shown again.

A page is kept with everything that it is made from: its own text, the files it includes, the
equations it may name, what is rendered for it, and, where it shows docstrings, the source. When one
of these differs, it is converted; otherwise it is taken as it was, with the anchors that it told
the cross-references of and its entries in the search.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from softmax_site import cells, equations, rendered, source

TEMPLATES = "docs/_overrides"

_INCLUDED = re.compile(r'(?:--8<-- "|\[\[(?:code|source) )([^":\] ]+)')
_LISTED = re.compile(r"^\[\[(?:code|source) ", re.M)
_RENDERED = re.compile(r"^[ ]*\[\[rendered ([\w-]+)\]\]$", re.M)


def made_from(text: str, root: Path, pages: frozenset[str]) -> tuple:
    """Everything that the HTML of a page follows from; `pages` are those it may link to."""
    included = {root / name for name in _INCLUDED.findall(text)} | {root / "mkdocs.yml"}
    if re.search("^::: ", text, re.M):
        included |= set((root / "src").rglob("*.py"))
    beside = [
        (root / match["path"]).with_name(f"{match['since']}.py")
        for match in source.DIRECTIVE.finditer(text)
        if match["since"]
    ]
    registry = equations.load(root)
    named = [(each.label, each.number, each.page) for each in registry]
    at_home = [each for each in registry if f"/// equation | {each.label}\n" in text]
    if _LISTED.search(text):
        at_home = list(registry)
    return (
        text,
        pages,
        sorted(
            (str(path), path.stat().st_mtime_ns) for path in {*included, *beside} if path.is_file()
        ),
        [rendered.markdown(name, root) for name in _RENDERED.findall(text)],
        [
            cells.html(root, match["name"])
            for match in map(cells.DIRECTIVE.fullmatch, map(str.strip, text.splitlines()))
            if match
        ],
        registry if equations.INDEX in text else (named, at_home),
    )


class Converted(NamedTuple):
    """What converting a page gave."""

    made_from: tuple
    content: str
    toc: object
    title: str | None
    anchors: set[str]
    links: dict[str, dict[str, str]]
    """The anchors that it links to, by page."""
    registered: list[tuple[tuple, dict]]
    """The anchors that it told the cross-references of."""
    entries: list[dict]
    """What the search found on it; empty until it has looked."""


class Shell:
    """A template that is filled anew only for a page that has changed, or if what stands around
    all pages has."""

    def __init__(self, template, pages: Pages, stamp: tuple) -> None:
        self.template = template
        self.pages = pages
        self.stamp = stamp

    def __getattr__(self, name: str):
        return getattr(self.template, name)

    def render(self, context) -> str:
        page = context.get("page")
        if page is None:
            return self.template.render(context)
        ours = [context.get(name) for name in ("place", "heading", "needed")]
        made_from = (page.content, page.meta, page.title, page.url, ours, self.stamp)
        if self.pages.around is None:
            listed = context["nav"].pages
            self.pages.around = [(each.title, each.url, each.meta) for each in listed]
        made_from += (self.pages.around,)
        path = page.file.src_uri
        return self.pages.once("shown", path, made_from, lambda: self.template.render(context))


class Pages:
    """The pages of a preview by path."""

    def __init__(self) -> None:
        self.kept: dict[str, Converted] = {}
        self.made: dict[tuple[str, str], tuple[tuple, Any]] = {}
        """By kind and page, what something was made from, and what was made."""
        self.around: list | None = None
        """What the navigation says of each page in this build."""

    def once(self, kind: str, path: str, made_from: tuple, make: Callable[[], Any]) -> Any:
        """What is made of a page, made again only if what it follows from has changed."""
        kept = self.made.get((kind, path))
        if kept is None or kept[0] != made_from:
            kept = self.made[kind, path] = made_from, make()
        return kept[1]

    def on_env(self, env, config) -> None:
        """Put in place of the templates, and of the search's reading of a page, what does again
        only what has changed."""
        self.around = None
        root = Path(config.config_file_path).parent
        files = [root / "mkdocs.yml", *(root / TEMPLATES).rglob("*.html")]
        stamp = tuple((str(path), path.stat().st_mtime_ns) for path in files)
        find = env.get_template

        def get_template(name, parent=None, globals=None):
            template = find(name, parent, globals)
            return template if parent else Shell(template, self, stamp)

        env.get_template = get_template
        index = config.plugins["material/search"].search_index
        read = index.add_entry_from_context

        def add(page) -> None:
            entries = self.kept[page.file.src_uri].entries
            if entries:
                index.entries += map(dict, entries)
            else:
                before = len(index.entries)
                read(page)
                entries += map(dict, index.entries[before:])

        index.add_entry_from_context = add

    def on_page_markdown(self, text: str, page, config, files) -> None:
        """Put in place of `page.render` one that converts only what has changed."""
        root = Path(config.config_file_path).parent
        uris = frozenset(file.src_uri for file in files)
        source = made_from(text, root, uris)
        kept = self.kept.get(page.file.src_uri)
        if kept is not None and kept.made_from == source:
            page.render = lambda config, files: self._take(kept, page, config, files)
        else:
            convert = page.render
            page.render = lambda config, files: self._keep(source, convert, page, config, files)

    def _keep(self, source: tuple, convert: Callable, page, config, files) -> None:
        references = config.plugins["autorefs"]
        registered: list[tuple[tuple, dict]] = []
        register = references.register_anchor

        def record(of, *arguments, **options):
            registered.append((arguments, options))
            register(of, *arguments, **options)

        references.register_anchor = record
        try:
            convert(config, files)
        finally:
            del references.register_anchor
        links = page.links_to_anchors or {}
        self.kept[page.file.src_uri] = Converted(
            source,
            page.content,
            page.toc,
            page._title_from_render,
            page.present_anchor_ids,
            {file.src_uri: anchors for file, anchors in links.items()},
            registered,
            [],
        )

    def _take(self, kept: Converted, page, config, files) -> None:
        page.content, page.toc, page._title_from_render = kept.content, kept.toc, kept.title
        page.present_anchor_ids = kept.anchors
        page.links_to_anchors = {
            files.get_file_from_path(uri): anchors for uri, anchors in kept.links.items()
        }
        for arguments, options in kept.registered:
            config.plugins["autorefs"].register_anchor(page, *arguments, **options)
