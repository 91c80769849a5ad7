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
from softmax_site import glossary, listing, markdown, on_your_gpu, rendered, search, source

_nav: Any = None
_terms: dict[str, glossary.Term] = {}
_unread: dict[str, str] = {}
"""The HTML of pages, while the search reads what it is to read of them."""

MOVED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="1; url={to}"><a href="{to}">This page has moved.</a>
<script>location.replace("{to}" + location.hash)</script>"""
"""What stands at the old address of a page; with a script it keeps the anchor."""

_BETWEEN = (
    r"(?<=\w[_/(])(?=\w)|(?<=\w::)(?=\w)|(?<=[\w)]\.)(?!py\b)(?=[^\W\d])|(?<=[a-z])(?=[A-Z][a-z])"
)
"""Where a name or a call may break: after an underscore, slash, bracket, colons or point, and
before a capital."""

_APART = (
    r"<table\b.*?(?:</table>|$)|<[^>]*>|(?<=×) (?=\d|<data)"
    r"|(?:(?<=\d)|(?<=\d</b>)|(?<=\d</data>)) (?=[×%]|(?:[KMGT]i?B|µs|ms)\b)"
)
"""Tables, tags, and the spaces between a number and its unit."""


def _root(config: Any) -> Path:
    return Path(config.config_file_path).parent


def on_startup(**_):
    """Look for garbage less often: pages stay, and the search took 7 % of a build."""
    gc.set_threshold(100_000, 20, 50)


def on_config(config):
    """Add the Markdown extension, which needs to know where the repository is, and the glossary;
    take a style sheet from every page that one page needs."""
    global _terms
    _terms = glossary.terms(_root(config))
    config.markdown_extensions.append(markdown.__name__)
    # Which only the page of the API needs: it is among `loads`.
    config.extra_css = [each for each in config.extra_css if "mkdocstrings" not in str(each)]
    config.mdx_configs[markdown.__name__] = {"root": str(_root(config))}
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


def on_page_markdown(text, config, **_):
    """Say how to install from where the repository is published, and link to Colab if it has the
    notebook."""
    clone = "pip install .  # in a clone of the repository"
    if address := on_your_gpu.colab(_root(config), config.repo_url):
        text = text.replace("<!-- Colab -->", f"[Open it in Colab]({address}), or")
    return text.replace(clone, f"pip install git+{config.repo_url}") if config.repo_url else text


def breakable(html: str) -> str:
    """Names in the cells of tables, which may break between their words and nowhere else.

    >>> breakable("<td><code>tests/test_it.py</code></td><code>tests/test_it.py</code>")
    '<td><code class="name">tests/<wbr>test_<wbr>it.py</code></td><code>tests/test_it.py</code>'
    >>> breakable("<td><code>plan_of(x).kernels</code></td>")
    '<td><code class="name">plan_<wbr>of(<wbr>x).<wbr>kernels</code></td>'
    """

    def name(found: re.Match) -> str:
        tag = found["tag"].replace("<code>", '<code class="name">')
        return tag + re.sub(_BETWEEN, "<wbr>", found["name"]) + found["end"]

    names = r"(?P<tag><code>|<a\b[^>]*>)(?P<name>[^<>&]{8,})(?P<end></(?:code|a)>)"
    return re.sub(r"<td\b.*?</td>", lambda cell: re.sub(names, name, cell[0]), html, flags=re.S)


def together(html: str) -> str:
    """A number on one line with its unit or ×, but in tables, whose columns may be narrow.

    >>> together("<p title='2 × 3'><b>1.30</b> × torch, 2 % of 8 × 512<table><td>8 × 512")
    "<p title='2 × 3'><b>1.30</b>\\xa0× torch, 2\\xa0% of 8\\xa0×\\xa0512<table><td>8 × 512"
    """
    return re.sub(_APART, lambda found: "\xa0" if found[0] == " " else found[0], html, flags=re.S)


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
    """Mark the terms of the glossary, and say where a line may break."""
    html = glossary.first_only(html, page.file.src_uri, _terms)
    return together(breakable(rooted(html, page.url)))


def on_env(env, config, files):
    """Fill the pages of whole files. Show the search what it is to read of the others."""
    env.bytecode_cache = FileSystemBytecodeCache()
    root, template = _root(config), env.get_template("source.html")
    for path in listing.paths(root):
        file, up = files.get_file_from_path(source.page_of(path)), ".." + "/.." * path.count("/")
        around = {"config": config, "nav": _nav, "page": None, "base_url": up}
        shown = {name: rooted(text, file.url) for name, text in listing.whole(path, root).items()}
        file.content_string = template.render(around | shown)
    for page in (file.page for file in files.documentation_pages()):
        _unread[page.file.src_uri] = page.content
        page.content = search.prose(page.content)
    return env


on_env.mkdocs_priority = -100  # when references have been resolved


def on_page_context(context, page, **_):
    """Put back what the search has not read: plugins, and with them the search, come before
    hooks."""
    page.content = _unread.pop(page.file.src_uri)
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


def on_post_page(output, page, config):
    """Name the page's layout on its body, where style sheets look for it; and drop the indentation
    of the navigation, a tenth of a page's bytes."""
    before, article, rest = output.partition("<article")
    output = re.sub(r"\n\s+", "\n", before) + article + rest
    layout = page.meta.get("layout")
    return output.replace("<body ", f'<body class="page-{layout}" ', 1) if layout else output
