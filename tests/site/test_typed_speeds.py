"""No speed is typed: what pages show of one comes from the data, in `[[rendered …]]` fragments and
as `{{ names }}`.

The sources of pages are read, and so is every built page, with what is included in it: sections and
files of `src/`, docstrings, comments. What stands between the comments that the build puts around a
fragment, or in the element that it puts around a number, is made from the data and is left out; the
words that make it are read in `src/`.
"""

import ast
import html
import json
import re

import pytest

from site_build import ROOT
from softmax_site.benchmarks.data import REASONS

CLAIM = re.compile(
    r"""
    # twice: 2 × the speed, 1.4x faster, 3 times as fast
    \d[\d.,]*\s*(?:×|x\b|times\b|-?fold\b)\s*
        (?:as\s+)?(?:faster|slower|quicker|speed|fast\b|slow\b|the\s+speed)
    # 92 % of the copy, 12 % slower
    | \d[\d.,]*\s*%\s*(?:faster|slower|quicker
        |of\s+(?:an?\s+|the\s+)?(?:plain\s+)?(?:peak|copy|bandwidth|memory|speed|roof))
    # 3,914 GB/s, 12 µs
    | \d[\d.,]*\s*(?:[GMT]i?B/s|[GT]FLOPS?|[µμ]s\b|us\b|ms\b|microseconds?|milliseconds?)
    # 0.92 of a copy, 1.2 of torch's speed
    | \b\d\.\d+\s*(?:of|×|x)\s+(?:an?\s+|the\s+)?(?:plain\s+)?(?:copy|torch|best\s+other|roof)
    """,
    re.X | re.I,
)
SHARE = re.compile(r"#[^\n]*?\b(?:0\.\d\d|1\.00)\b")
"""A bare share, as a comment of the code may note it."""

FRAGMENT = re.compile(r"<!-- rendered [\w-]+ -->.*?<!-- /rendered -->", re.S)
NUMBER = re.compile(r'<data value="[^"]*">[^<]*</data>')
HIDDEN = re.compile(r"<(script|style|nav|svg|a(?= class=\"num\"))\b.*?</\1>", re.S)
"""What is no text of the page, such as the number of a line of code."""
BLOCK = re.compile(r"</?(?:p|li|t[dhr]|h\d|div|pre|summary|dd|dt|figcaption|caption)\b[^>]*>")
COMMENT = re.compile(r'<span class="c1">(.*?)</span>', re.S)

EXCUSED: dict[str, dict[str, str]] = {
    "benchmarks/attention": {"740 TFLOP": "what the authors of FlashAttention-3 report"},
    "benchmarks/random": {"10 µs": "below which a warm cache is timed as well: a rule"},
    "reference/sources": {"900 GB/s": "what a source says it measured, on another GPU"},
}
"""By page: what is no speed of ours although it looks like one, and why."""
MADE = re.compile(r"<!-- made from the data -->.*?<!-- until here -->", re.S)
"""A part of the README that another test compares with the data."""


def typed_speed(text: str) -> str | None:
    """The first speed that a text types: as a page might, or as a bare share in a comment.

    >>> typed_speed("way = 4  # 2^18: 0.94"), typed_speed("half = 0.55  # of the block")
    ('# 2^18: 0.94', None)
    """
    claim = CLAIM.search(re.sub(r"\n\s*#?\s*", " ", text)) or SHARE.search(text)
    return claim and claim[0]


def speeds_of(page: str) -> set[str]:
    """The speeds that a built page types."""
    content = page.partition("<article")[2].partition("</article>")[0] or page
    content = HIDDEN.sub(" ", NUMBER.sub("", FRAGMENT.sub(" ", content)))
    comments = [html.unescape(re.sub("<[^>]*>", "", each)) for each in COMMENT.findall(content)]
    found = {match[0] for each in comments if (match := SHARE.search(each))}
    for part in BLOCK.split(content):
        text = re.sub(r"\s+#?\s*", " ", html.unescape(re.sub("<[^>]*>", "", part)))
        found |= {match[0] for match in CLAIM.finditer(text)}
    return found


@pytest.mark.parametrize("claim", [
    "1.4× faster", "1.4x faster", "1.2 x faster", "92 % of peak", "92% of the copy",
    "0.92 of a copy", "1.22 × the best other", "4,111 GB/s", "12 µs", "12 us", "3 times as fast",
    "twice: 2 times the speed", "# 2^18: 0.94", "# on average 1.6 % slower than",
    "# not copied: 1.00",
])  # fmt: skip
def test_typed_speeds_are_recognised(claim):
    assert typed_speed(claim)
    comment = claim.startswith("#")
    shown = f'<span class="c1">{claim}</span>' if comment else claim.replace(" ", "\n  ")
    assert speeds_of(f"<article><p>so: {shown}</p></article>")


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"])
def test_no_speed_is_typed_on_a_page(page):
    """In Markdown, before anything is built."""
    name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
    claims = [match[0] for match in CLAIM.finditer(MADE.sub("", page.read_text("utf8")))]
    typed = [claim for claim in claims if claim not in EXCUSED.get(name, {})]
    assert not typed, f"{page.relative_to(ROOT)}: typed by hand: {typed[0]!r}"
    assert set(EXCUSED.get(name, {})) <= set(claims), "excused, and not there"


def test_no_speed_is_typed_in_what_a_built_page_shows(site):
    """Included code with its comments and docstrings, whole files, the API: all but fragments."""
    pages = {
        path.relative_to(site).as_posix(): path.read_text("utf8") for path in site.rglob("*.html")
    }
    for made in (FRAGMENT, NUMBER):
        assert sum(len(made.findall(text)) for text in pages.values()) > 100
    found = {
        page: speeds
        for page, text in pages.items()
        if (speeds := speeds_of(text) - set(EXCUSED.get(page.removesuffix("/index.html"), {})))
    }
    assert not found, f"typed by hand: {found}"


def test_no_speed_is_typed_in_the_words_that_fragments_are_made_of():
    """Strings of the modules that make them, and the reasons that they quote."""
    words = json.loads((ROOT / REASONS).read_text("utf8"))
    found = [case for case, reason in words.items() if re.search(r"\b0\.\d\d\b", reason)]
    for path in (ROOT / "src/softmax_site").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words[f"{path.relative_to(ROOT)}:{node.lineno}"] = node.value
    found += [where for where, text in words.items() if CLAIM.search(text)]
    assert not found, f"typed by hand: {found}"
