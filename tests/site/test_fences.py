"""Nothing that a page shows as Python is left unchecked in silence."""

from __future__ import annotations

import re
from pathlib import Path

import markdown
import pytest
from markdown_it import MarkdownIt
from pytest_markdown_docs.plugin import (
    FenceSyntax,
    extract_fence_tests,
    parse_superfences_block_info,
)

from site_build import SECTION, code_blocks, html_of, pages, sections, site_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*pages(), ROOT / "README.md"]


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def renderer():
    """Python-Markdown as `mkdocs.yml` sets it up."""
    config = site_config()
    return markdown.Markdown(
        extensions=config.markdown_extensions, extension_configs=config.mdx_configs
    )


def fences(text: str):
    """(language, options, line) of each fence that CommonMark sees, nested ones included."""
    for token in MarkdownIt("commonmark").disable("code").parse(text):
        if token.type == "fence":
            language, *options = parse_superfences_block_info(token.info) or [""]
            yield language, options, token.map[0]


def unrun(text: str) -> list[int]:
    return [
        line
        for language, options, line in fences(text)
        if language in ("python", "pycon") and "notest" in options
    ]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_python_block_that_is_shown_is_run(page, renderer, pytestconfig):
    text = page.read_text("utf8")
    html = renderer.reset().convert(text)
    shown = [
        classes for language, classes, _ in code_blocks(html) if language in ("python", "pycon")
    ]
    shown = [classes for classes in shown if "excerpt" not in classes]
    # A fence that the renderer takes for a paragraph, or that has another name for Python, shows
    # here.
    assert not re.search(r"<p>\s*(```|~~~)", html), "a fence is shown as text"
    other = [
        language
        for language, _, _ in fences(text)
        if language.lower() in ("py", "python3", "py3", "ipython", "pycon3")
    ]
    assert not other, f"call the language python or pycon, not {other}"
    parser = pytestconfig.hook.pytest_markdown_docs_markdown_it()
    run = list(extract_fence_tests(parser, text, 0, page, fence_syntax=FenceSyntax.superfences))
    assert len(run) == len(shown) - len(unrun(text))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_fence_that_is_not_run_gives_its_reason(page):
    lines = page.read_text("utf8").splitlines()
    for line in unrun("\n".join(lines)):
        above = next((text for text in reversed(lines[:line]) if text.strip()), "")
        assert re.search(r"<!-- notest: \S.+ -->", above), (
            f"{page_id(page)}:{line + 1} has no <!-- notest: reason -->"
        )


def test_few_fences_are_not_run():
    texts = [page.read_text("utf8") for page in PAGES]
    total = sum(
        language in ("python", "pycon") for text in texts for language, _, _ in fences(text)
    )
    assert sum(len(unrun(text)) for text in texts) <= 0.05 * total


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_no_kernel_is_typed_on_a_page(page):
    assert not re.search(
        r"^[ >]*@(triton\.)?(jit|autotune|heuristics)\b", page.read_text("utf8"), re.M
    )


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=page_id)
def test_sections_of_the_source_are_well_formed(path):
    for name, text in sections(path).items():
        assert text.strip(), f"section {name} is empty"


def test_included_code_equals_the_source(site):
    """Each block of a built page that includes a section holds that section of `src/`, to the
    letter."""
    compared = 0
    for page in PAGES[:-1]:
        included = SECTION.findall(page.read_text("utf8"))
        if not included:
            continue
        shown = "\n".join(
            text for _, _, text in code_blocks((site / html_of(page)).read_text("utf8"))
        )
        for path, name in included:
            source = ROOT / path
            expected = sections(source)[name] if name else source.read_text("utf8")
            lines = expected.splitlines()
            indent = min(
                (len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0
            )
            expected = "\n".join(line[indent:] for line in lines).strip("\n")
            assert expected in shown, f"{page_id(page)} does not show {path}:{name}"
            compared += 1
    assert compared
