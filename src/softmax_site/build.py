"""The site's part in a build by MkDocs or ProperDocs.

`mkdocs_hooks.py` offers these functions, so that a plain `mkdocs build` or `mkdocs serve` finds
them wherever the repository lies.
"""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

from jinja2 import FileSystemBytecodeCache

from softmax_playground import cells
from softmax_site import (
    as_markdown,
    glossary,
    history,
    listing,
    markdown,
    on_your_gpu,
    rendered,
    search,
    source,
)
from softmax_site.figures import front

_nav: Any = None
_terms: dict[str, glossary.Term] = {}
_pages: list[Any] = []
"""Those of the navigation, and those without a place in it."""
_changes: dict[str, history.Change] = {}
_unread: dict[str, str] = {}
"""The HTML of pages, while the search reads what it is to read of them."""

MOVED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="1; url={to}"><a href="{to}">This page has moved.</a>
<script>location.replace("{to}" + location.hash)</script>"""
"""What stands at the old address of a page; with a script it keeps the anchor."""


def _root(config: Any) -> Path:
    return Path(config.config_file_path).parent


def on_startup(**_):
    """Look for garbage less often: pages stay, and the search took 7 % of a build."""
    gc.set_threshold(100_000, 20, 50)


def on_config(config):
    """Add the Markdown extension, which needs to know where the repository is, and the glossary;
    take a style sheet from every page that one page needs."""
    global _terms, _changes
    _terms = glossary.terms(_root(config))
    _changes = history.last_changes(_root(config)) if config.repo_url else {}
    config.markdown_extensions.append(markdown.__name__)
    # Which only the page of the API needs: it is among `loads`.
    config.extra_css = [each for each in config.extra_css if "mkdocstrings" not in str(each)]
    of_site = {"root": str(_root(config)), "repository": config.repo_url or ""}
    config.mdx_configs[markdown.__name__] = of_site
    config.mdx_configs["abbr"] = {"glossary": glossary.abbreviations(_terms)}
    source.forget()
    cells.forget()
    return config


def on_files(files, config):
    """Add the tables that follow from the measurements, the pages that show files of the repository
    whole, and the old addresses of pages."""
    file: Any = type(next(iter(files)))  # of MkDocs or of ProperDocs, whichever runs
    root = _root(config)
    if "mkdocstrings" in config.plugins:  # which compiles its templates in each build otherwise
        handler = config.plugins["mkdocstrings"].get_handler("python")
        handler.env.bytecode_cache = FileSystemBytecodeCache()
    for path, text in rendered.load(root).assets.items():
        files.append(file.generated(config, path, content=text))
    files.append(file.generated(config, cells.RUNTIME, content=cells.runtime(root)))
    notebook = on_your_gpu.notebook(config.repo_url)
    files.append(file.generated(config, on_your_gpu.DOWNLOAD, content=notebook))
    for path in listing.paths(root):
        files.append(file.generated(config, source.page_of(path), content=""))
    for old, new in config.extra["moved"].items():
        content = MOVED.format(to=f"{'../' * (old.count('/') + 1)}{new}/")
        files.append(file.generated(config, f"{old}/index.html", content=content))
    return files


def on_nav(nav, **_):
    """Keep the navigation for the pages of whole files."""
    global _nav
    _nav = nav
    return nav


def rooted(html: str, url: str) -> str:
    """Links from the root of the site, as HTML that stands in many pages has them, as the page at
    `url` writes them.

    >>> rooted('<a href="/b/c/#x"><a href="/b/#y"><a href="/"><a href="//z/">', "b/")
    '<a href="../b/c/#x"><a href="#y"><a href="../"><a href="//z/">'
    """

    def relative(found: re.Match) -> str:
        path, anchor = found["path"], found["anchor"] or ""
        here = path == url and anchor
        up = "../" * url.count("/") or "./"
        return f'href="{anchor if here else up + path + anchor}"'

    return re.sub(r'href="/(?!/)(?P<path>[^"#]*)(?P<anchor>#[^"]*)?"', relative, html)


def on_page_content(html, page, **_):
    """Mark the terms of the glossary, and make links relative: both depend on the page."""
    return rooted(glossary.first_only(html, page.file.src_uri, _terms), page.url)


def on_env(env, config, files):
    """Fill the pages of whole files. Show the search what it is to read of the others."""
    env.bytecode_cache = FileSystemBytecodeCache()
    root, template = _root(config), env.get_template("source.html")
    for path in listing.paths(root):
        file, up = files.get_file_from_path(source.page_of(path)), ".." + "/.." * path.count("/")
        around = {"config": config, "nav": _nav, "page": None, "base_url": up}
        shown = {name: rooted(text, file.url) for name, text in listing.whole(path, root).items()}
        file.content_string = template.render(around | shown)
    others = [file.page for file in files.documentation_pages()]
    _pages[:] = [*_nav.pages, *(page for page in others if page not in _nav.pages)]
    for page in others:
        _unread[page.file.src_uri] = page.content
        page.content = search.prose(page.content)
    return env


on_env.mkdocs_priority = -100  # when references have been resolved


def on_page_context(context, page, **_):
    """Put back what the search has not read, as plugins, and with them the search, come before
    hooks; and say which picture a link to the page shows."""
    page.content = _unread.pop(page.file.src_uri)
    page.meta["card"] = front.card(page.ancestors[-1].title if page.ancestors else "")
    if change := _changes.get(page.file.src_uri):
        page.meta["changed"] = change.time[:10]
    return context


def on_post_template(output, template_name, config):
    """No map of a site that does not know its address, and a page for lost readers whose links are
    relative to the root, which a script in it finds."""
    if config.site_url:
        return output
    if template_name == "404.html":
        output = re.sub(r'(href|src)="/"', r'\1="./"', output)
        return re.sub(r'(href|src)="/(?!/)', r'\1="', output)
    return "" if template_name == "sitemap.xml" else output


def on_post_build(config):
    """Write the pages as Markdown, the list of them, and the feed where the site has an address."""
    made = dict(as_markdown.files(_pages, config, _root(config)))
    if config.site_url and _changes:
        made[history.FEED] = history.feed(_pages, _changes, config)
    for path, text in made.items():
        (Path(config.site_dir) / path).parent.mkdir(parents=True, exist_ok=True)
        (Path(config.site_dir) / path).write_text(text, "utf8")


def on_post_page(output, page, config):
    """Name the page's layout on its body, where style sheets look for it; and drop the indentation
    of the navigation, a tenth of a page's bytes."""
    before, article, rest = output.partition("<article")
    output = re.sub(r"\n\s+", "\n", before) + article + rest
    layout = page.meta.get("layout")
    return output.replace("<body ", f'<body class="page-{layout}" ', 1) if layout else output
