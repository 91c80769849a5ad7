"""The site's part in a build by MkDocs or ProperDocs.

`mkdocs_hooks.py` offers these functions, so that a plain `mkdocs build` or `mkdocs serve` finds
them wherever the repository lies.
"""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache

from softmax_site import (
    cells,
    equations,
    glossary,
    listing,
    markdown,
    modules,
    rendered,
    search,
    shell,
)
from softmax_site.preview import Pages


class _Templates(BytecodeCache):
    """Compiled templates, kept from build to build."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}

    def load_bytecode(self, bucket):
        bucket.code = self.kept.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket):
        self.kept[bucket.key, bucket.checksum] = bucket.code


_templates = _Templates()
_preview: Pages | None = None
_hidden: dict[str, list[str]] = {}


def on_startup(command, **_):
    """Keep converted pages from build to build in a preview."""
    global _preview
    _preview = Pages() if command == "serve" else None
    gc.set_threshold(
        100_000, 20, 50
    )  # trees of pages stay; to look for garbage took 7 % of a build


def on_config(config):
    """Add the Markdown extension, which needs to know where the repository is, and take a style
    sheet from every page that one page needs."""
    config.markdown_extensions.append(markdown.__name__)
    # Which only the page of the API needs: it is among `loads`.
    config.extra_css = [each for each in config.extra_css if "mkdocstrings" not in str(each)]
    config.mdx_configs[markdown.__name__] = {"root": str(Path(config.config_file_path).parent)}
    equations.forget()
    modules.forget()
    rendered.forget()
    cells.forget()
    _hidden.clear()
    return config


def on_files(files, config):
    """Add the tables that follow from the measurements, and the pages that
    show files of the repository whole."""
    file: Any = type(next(iter(files)))  # of MkDocs or of ProperDocs, whichever runs
    root = Path(config.config_file_path).parent
    for path, text in rendered.load(root).assets.items():
        files.append(file.generated(config, path, content=text))
    files.append(file.generated(config, cells.RUNTIME, content=cells.runtime(root)))
    for path, text in listing.whole_pages(root).items():
        files.append(file.generated(config, path, content=text))
    return files


def on_page_markdown(text, page, config, files):
    """Say where to install from; in a preview, convert only pages that have changed."""
    text = shell.installable(text, config.repo_url)
    if _preview is not None:
        _preview.on_page_markdown(text, page, config, files)
    return text


def on_page_content(html, page, config, **_):
    """Mark the terms of the glossary, and let code be copied and names be broken."""
    path = page.file.src_uri
    terms = None
    if path not in glossary.WITHOUT:
        terms = glossary.terms(Path(config.config_file_path).parent)

    def marked() -> str:
        shown = html if terms is None else glossary.mark(html, page.url, terms)
        return shell.punctuated(shell.breakable(shell.copyable(shown)))

    if _preview is None:
        return marked()
    return _preview.once("marked", path, (html, page.url, terms), marked)


def on_env(env, config, files):
    """Take out what the search need not read, until it has read the rest; in a preview, index only
    pages that have changed, and compile templates once."""
    for page in (file.page for file in files.documentation_pages()):
        page.content, _hidden[page.file.src_uri] = search.hide(page.content)
    if _preview is not None:
        env.bytecode_cache = _templates
        _preview.on_env(env, config)
    return env


on_env.mkdocs_priority = -100  # when references have been resolved, in what is taken out as well


def on_page_context(context, page, config, **_):
    """Put it back: plugins, and with them the search, come before hooks."""
    page.content = search.show(page.content, _hidden.pop(page.file.src_uri))
    context["place"] = shell.place(page)
    context["heading"] = shell.heading(page)
    context["needed"] = shell.needed(config.extra.get("loads", []), page.content)
    return context


def on_post_template(output, template_name, config):
    """No map of a site that does not know its address, and a page for lost readers that works at
    any address."""
    if template_name == "sitemap.xml" and not config.site_url:
        return ""
    if template_name == "404.html" and not config.site_url:
        return shell.without_root(output)
    return output


def on_post_page(output, page, config):
    """Name the page's layout on its body, where style sheets look for it; and drop the indentation
    of the navigation, a tenth of a page's bytes."""
    before, article, rest = output.partition("<article")
    output = re.sub(r"\n\s+", "\n", before) + article + rest
    layout = page.meta.get("layout")
    return output.replace("<body ", f'<body class="page-{layout}" ', 1) if layout else output
