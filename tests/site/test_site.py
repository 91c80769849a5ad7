"""The built site: it builds strictly and loads nothing from outside."""

import ast
import functools
import html
import re

import pytest
from markdown import Markdown

from site_build import ROOT, html_of, read, site_config
from softmax_site import equations, modules


def test_what_is_rendered_is_on_the_pages(site):
    """Charts and raw rows too, which are put aside while Markdown and the search read a page."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf8")
        assert "wzxhzdk" not in text, page
        assert "[[rendered" not in re.sub(r"<code\b[^>]*>.*?</code>", "", text), page
    forward = (site / "benchmarks/forward/index.html").read_text("utf8")
    assert '<div class="plot' in forward and '<table class="bench-table"' in forward
    assert (site / "assets/bench/forward.csv").is_file()
    search = (site / "search/search_index.json").read_text("utf8")
    assert "the best other library" in search and "GB/s: ours" not in search


def test_nothing_is_loaded_from_outside(site):
    """Of a site that was built strictly, without torch, triton and network."""
    for page in site.rglob("*.html"):
        outside = [url for url in read(page).loads if re.match(r"(?:\w+:)?//", url)]
        assert not outside, f"{page.relative_to(site)} loads {outside}"
    for style in site.rglob("*.css"):
        text = style.read_text("utf8")
        outside = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^)\"']+)", text)
        assert not outside, f"{style.relative_to(site)} loads {outside}"


def test_every_equation_has_a_test():
    """That every test has an equation, `test_equations.py` says."""
    untested = [each.label for each in equations.load(ROOT) if each.test is None]
    assert not untested, f"{untested} have no test in {equations.TESTS}"


def test_every_comment_that_names_an_equation_is_in_the_index():
    """Also one that says something else first, as `# why; eq: label` does."""
    written = [
        f"{path.relative_to(ROOT).as_posix()}:{at + 2}"
        for path in (ROOT / "src").rglob("*.py")
        for at, line in enumerate(path.read_text("utf8").splitlines())
        if re.search(r"^\s*#.*\beq: ", line)
    ]
    indexed = {lines.where for each in equations.load(ROOT) for lines in each.code}
    assert written and set(written) == indexed


def test_equations_lead_to_their_code_and_test_and_back(site):
    """From the home of an equation and from the index, to lines that lead to it."""

    @functools.cache
    def links(page: str) -> set[str]:
        return set(re.findall(r'href="([^"]*)"', (site / page).read_text("utf8")))

    def line(where: equations.Lines) -> str:
        """The line of a whole file with what is above it, as HTML."""
        text = (site / f"source/{where.path}.html").read_text("utf8")
        above = text.index(f'id="L{where.first - 1}"')
        return text[above : text.index(f'id="L{where.first + 1}"')]

    for equation in equations.load(ROOT):
        for where in (*equation.code, equation.test):
            for page in (html_of(equation.page), "reference/equations/index.html"):
                target = f"../../source/{where.path}.html#L{where.first}"
                assert target in links(page), f"{page} does not lead to {where.where}"
            assert f"#{equation.anchor}" in line(where), where.where


def test_display_mathematics_is_always_labelled():
    for page in (ROOT / "docs").rglob("*.md"):
        text = equations.without_fences(page.read_text("utf8"))
        assert not re.search(r"\$\$|\\\[|\\begin\{equation", text), (
            f"{page.name}: use /// equation | label"
        )


def test_every_public_name_is_on_the_page_of_the_api():
    """`__all__` of the library and of its integrations, but for the two constants, which need no
    page."""
    exported = []
    for package in ("triton_softmax", "triton_softmax/integrations"):
        tree = ast.parse((ROOT / "src" / package / "__init__.py").read_text("utf8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                exported += ast.literal_eval(node.value)
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference/api.md").read_text("utf8"), re.M)
    constants = {"__version__"}
    assert {name.rpartition(".")[2] for name in shown} == set(exported) - constants


def test_every_module_that_is_read_is_among_the_internals(site):
    anchors = read(site / "reference/internals/index.html").anchors
    names = {*modules.load(ROOT)}
    assert len(names) == len(list((ROOT / "src").rglob("*.py")))
    listed = {name for name in names if name.startswith(modules.LISTED)}
    assert len(listed) > 50 and listed <= anchors


def test_a_dotted_name_links_to_code():
    links = modules.Links(ROOT)
    where = "/source/src/triton_softmax/plan/launch.py"
    assert links["triton_softmax.plan.launch"][0].startswith(where)
    where, line = links["triton_softmax.plan.launch.workspace"][0].split("#L")
    text = (ROOT / where.removeprefix("/source/").removesuffix(".html")).read_text("utf8")
    assert text.split("\n")[int(line) - 1].startswith("class Workspace")
    assert links["softmax_bench.traffic"][0] == "/source/src/softmax_bench/traffic.py.html#L1"
    assert {"src/softmax_bench/ranks.py"} <= modules.linked(ROOT)
    for unknown in ("triton_softmax.plan.launch.nosuch", "nosuch.module", "word"):
        assert unknown not in links
    assert "triton_softmax.functional.softmax" not in links  # which the page of the API has


def test_the_mathematics_font_has_every_character_of_a_formula(site):
    """It is a subset. Accents that the whole font lacks as well come from elsewhere."""
    style = (site / "assets/site.css").read_text("utf8")
    ranges = re.search(r"unicode-range:([^;]+);", style[style.index("STIXTwoMath.woff2") :])
    assert ranges
    has = set("\u02c6\u02d9\u02dc")
    for first, last in re.findall(r"U\+(\w+)(?:-(\w+))?", ranges[1]):
        has |= {chr(code) for code in range(int(first, 16), int(last or first, 16) + 1)}
    assert "∑" in has and "𝓐" not in has
    for page in site.rglob("*.html"):
        for formula in re.findall(r"<math\b.*?</math>", page.read_text("utf8"), re.S):
            lacking = set(html.unescape(re.sub(r"<[^>]*>", "", formula))) - has - {"\n"}
            assert not lacking, f"{page.relative_to(site)}: {lacking}"


@pytest.mark.parametrize(
    "text, error",
    [
        (r"The sum $\nosuchcommand{x}$.", "nosuchcommand"),
        (r"By \eqref{nowhere}.", "no equation is labelled 'nowhere'"),
        ('--8<-- "src/softmax_tutorial/reference.py:nowhere"', "nowhere.* could not be"),
    ],
)
def test_what_a_page_cannot_show_stops_its_conversion(text, error):
    config = site_config()
    page = Markdown(extensions=config.markdown_extensions, extension_configs=config.mdx_configs)
    with pytest.raises(Exception, match=error):
        page.convert(text)
