"""Nothing that a page shows as Python is left unchecked in silence."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import markdown
import pytest
from markdown_it import MarkdownIt
from pytest_markdown_docs.plugin import (
    FenceSyntax,
    extract_fence_tests,
    parse_superfences_block_info,
)

from site_build import ROOT, code_blocks, html_of, of_class, pages, site_config, tree
from softmax_playground import cells
from softmax_site import source
from softmax_site.equations import navigated

PAGES = [*pages(), ROOT / "README.md"]


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def html(page, site) -> str:
    """A page of the site as it is built, and another file by Python-Markdown, set up likewise."""
    if page.is_relative_to(ROOT / "docs"):
        return (site / html_of(page)).read_text("utf8")
    config = site_config()
    renderer = markdown.Markdown(
        extensions=config.markdown_extensions, extension_configs=config.mdx_configs
    )
    return renderer.convert(page.read_text("utf8"))


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
def test_every_python_block_that_is_shown_is_run(page, html, pytestconfig):
    text, apart = page.read_text("utf8"), {"excerpt", "doc-signature"}
    shown = [
        language in ("python", "pycon") and not apart & {*classes}
        for language, classes, _ in code_blocks(html)
    ]
    # A fence that the renderer takes for a paragraph, or that has another name for Python.
    assert not re.search(r"<p>\s*(```|~~~)", html), "a fence is shown as text"
    other = {"py", "python3", "py3", "ipython", "pycon3"} & {
        each.lower() for each, *_ in fences(text)
    }
    assert not other, f"call the language python or pycon, not {other}"
    parser = pytestconfig.hook.pytest_markdown_docs_markdown_it()
    run = list(extract_fence_tests(parser, text, 0, page, fence_syntax=FenceSyntax.superfences))
    assert len(run) == sum(shown) - len(unrun(text))


def test_few_fences_are_not_run_and_each_gives_its_reason():
    total = left_out = 0
    for page in PAGES:
        text = page.read_text("utf8")
        lines = text.splitlines()
        for line in unrun(text):
            above = next(each for each in reversed(lines[:line]) if each.strip())
            assert re.search(r"<!-- notest: \S.+ -->", above), f"{page_id(page)}:{line + 1}"
            left_out += 1
        total += sum(language in ("python", "pycon") for language, *_ in fences(text))
        assert not re.search(r"^[ >]*@(triton\.)?(jit|autotune|heuristics)\b", text, re.M), page
    assert left_out <= 0.05 * total


def test_sections_of_the_source_are_well_formed():
    for path in (ROOT / "src").rglob("*.py"):
        file = source.read(page_id(path), ROOT)
        for name in file.edges:
            assert file.section(name).first, "which raises where a section is empty or has no end"


def test_included_code_equals_the_source(site):
    """Each block of a built page that includes a file, or a section of one, holds it to the
    letter."""
    form = re.compile(r'(?<!;)--8<-- "((?:src|tests)/[\w/]+\.py)(?::([\w-]+))?"')
    compared = 0
    for page in PAGES[:-1]:
        included = form.findall(page.read_text("utf8"))
        if not included:
            continue
        blocks = code_blocks((site / html_of(page)).read_text("utf8"))
        shown = "\n".join(text for *_, text in blocks)
        for path, name in included:
            file = source.read(path, ROOT)
            first, last = file.section(name)[:2] if name else (1, len(file.lines))
            lines = [file.lines[at - 1] for at in range(first, last + 1) if not file.marker(at)]
            expected = textwrap.dedent("\n".join(lines)).strip("\n")
            assert expected in shown, f"{page_id(page)} does not show {path}:{name}"
            compared += 1
    assert compared, "no page includes code"


def code_of(line: Element) -> str:
    """The text of a line but for its number and its links to equations."""
    parts = [line.text or ""]
    for each in line:
        if not {"num", "chips"} & {*each.get("class", "").split()}:
            parts.append(code_of(each))
        parts.append(each.tail or "")
    return "".join(parts)


def listed(html: str) -> Iterator[tuple[str, int, str]]:
    """The lines of the pieces that a page shows: file, number and text, in order."""
    for line in of_class(tree(html), "line"):
        if line.tag == "span":
            path, _, number = of_class(line, "num")[0].get("href", "").partition("#L")
            path = path.partition("source/")[2].removesuffix(".html")
            yield path, int(number), code_of(line).rstrip()


def pieces(page: Path) -> list[re.Match]:
    return list(source.DIRECTIVE.finditer(page.read_text("utf8")))


def test_pieces_equal_the_source(site):
    """Each line of a piece is, but for its indentation, the line of the file that its number
    names, and no line of the section is left out but the comments that became links."""
    compared = 0
    for page in PAGES[:-1]:
        directives = pieces(page)
        if not directives:
            continue
        lines = {}
        for path, number, text in listed((site / html_of(page)).read_text("utf8")):
            lines[path, number] = text
            line = (ROOT / path).read_text("utf8").splitlines()[number - 1]
            assert text.strip() == line.strip() or text.strip() == line.partition(";")[0].strip()
        for match in directives:
            file, piece, _ = source.named(match[0][len("[[code ") : -2], ROOT)
            for number in range(piece.first, piece.last + 1):
                line = file.lines[number - 1]
                if number in file.in_docstrings:
                    continue  # the page of the file has it
                if line.strip() and not re.match(r"\s*# (--8<--|eq: )", line):
                    assert (match["path"], number) in lines, f"{page_id(page)}: {line}"
                    compared += 1
    assert compared


def in_cells(page: Path) -> set[tuple[str, str]]:
    """The sections that cells of a page have whole: file and name."""
    found = set()
    for name in re.findall(r"\[\[run ([\w/-]+)", page.read_text("utf8")):
        text = (ROOT / cells.FOLDER / f"{name}.py").read_text("utf8")
        found |= set(re.findall(r"^# code: (\S+?):(\S+)$", text, re.M))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if pieces(page)], ids=page_id)
def test_the_pieces_of_a_page_are_whole_sections(page):
    """A page that shows a paragraph of a section shows each once and in their order. If the kernel
    is the tutorial's it shows all of them: a line that moves to another piece, or to none, is seen.
    Where a cell of the page has the kernel whole, paragraphs may be left out that say nothing new
    since the rung before. Of a kernel of the library, or of attention, the page shows what
    carries its idea, and links the file."""
    shown: dict[tuple[str, str], list[int]] = {}
    since: dict[tuple[str, str], str] = {}
    for match in pieces(page):
        if match["since"]:
            since[match["path"], match["name"]] = match["since"]
        parts = source.read(match["path"], ROOT).paragraphs(match["name"])
        first = int(match["first"] or 1)
        last = int(match["last"] or match["first"] or len(parts))
        shown.setdefault((match["path"], match["name"]), []).extend(range(first, last + 1))
    for (path, name), numbers in shown.items():
        parts = source.read(path, ROOT).paragraphs(name)
        assert numbers == sorted(set(numbers)), f"{page_id(page)}: {path}:{name}"
        if path.startswith(("src/triton_softmax/", "src/softmax_tutorial/attention/")):
            continue
        file = source.read(path, ROOT)
        left_out = {*range(1, len(parts) + 1)} - {*numbers}
        if left_out:
            beside_a_cell = (path, name) in in_cells(page) and (path, name) in since
            assert beside_a_cell, f"{page_id(page)}: {path}:{name}"
            beside = Path(path).with_name(f"{since[path, name]}.py").as_posix()
            new = source.changed(file, name, source.read(beside, ROOT))
            for part in (parts[number - 1] for number in left_out):
                lines = {*range(part.first, part.last + 1)}
                assert not new & lines, f"{page_id(page)}: {path}:{name}"
        whole, covered = file.section(name), sum(part.last - part.first + 1 for part in parts)
        lines = file.lines[whole.first - 1 : whole.last]
        assert covered >= sum(bool(line.strip()) for line in lines)


def longest(element: Element) -> Iterator[int]:
    """The lines of each block of code below an element that one sees at once: pieces of a file
    without what is folded. Cells and exercises are editors, and scroll."""
    classes = set(element.get("class", "").split())
    if {"run-cell", "exercise"} & classes or (element.tag == "details" and "code" in classes):
        return
    if "listing" in classes:
        lines = of_class(element, "line")
        inside = [line for fold in of_class(element, "listing-fold") for line in fold.iter()]
        yield len([line for line in lines if line not in inside])
    elif element.tag == "pre":
        yield "".join(element.itertext()).strip("\n").count("\n") + 1
    else:
        for each in element:
            yield from longest(each)


def test_no_more_than_fifteen_lines_of_code_stand_beside_a_paragraph(site):
    wrong = {}
    for page in navigated(ROOT):
        if page != "reference/api.md":
            (article,) = tree((site / html_of(page)).read_text("utf8")).iter("article")
            wrong |= {f"{page}: {lines} lines": lines for lines in longest(article) if lines > 15}
    assert not wrong
