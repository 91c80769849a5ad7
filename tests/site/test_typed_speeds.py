"""No speed is typed: what pages show of one comes from the data, in `[[rendered …]]` fragments and
as `{{ names }}`.

Read are the sources of all that pages show: Markdown, the code that they include or show whole with
its comments and docstrings, the words of the modules that make fragments, and the reasons that
fragments quote.
"""

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


FOLDERS = ("src", "examples", "exercises", "docs/_cells")
CODE = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
EXCUSED: dict[str, dict[str, str]] = {
    "docs/benchmarks/attention.md": {"740 TFLOP": "what the authors of FlashAttention-3 report"},
    "docs/benchmarks/random.md": {"10 µs": "below which a warm cache is timed as well: a rule"},
    "docs/reference/sources.md": {"900 GB/s": "what a source says it measured, on another GPU"},
    "src/softmax_bench/measure.py": {"20 ms": "how long a queue may get", "5, ms": "an argument"},
}
"""By file: what is no speed of ours although it looks like one, and why."""
MADE = re.compile(r"<!-- made from the data -->.*?<!-- until here -->", re.S)
"""A part of the README that another test compares with the data."""


def typed_speeds(text: str) -> list[str]:
    """The speeds that a text types: as a page might, or as a bare share in a comment.

    >>> typed_speeds("way = 4  # 2^18: 0.94"), typed_speeds("half = 0.55  # of the block")
    (['# 2^18: 0.94'], [])
    """
    joined = re.sub(r"\n\s*#?\s*", " ", text)
    return [match[0] for match in (*CLAIM.finditer(joined), *SHARE.finditer(text))]


@pytest.mark.parametrize("claim", [
    "1.4× faster", "1.4x faster", "1.2 x faster", "92 % of peak", "92% of the copy",
    "0.92 of a copy", "1.22 × the best other", "4,111 GB/s", "12 µs", "12 us", "3 times as fast",
    "twice: 2 times the speed", "# 2^18: 0.94", "# on average 1.6 % slower than",
    "# not copied: 1.00",
])  # fmt: skip
def test_typed_speeds_are_recognised(claim):
    assert typed_speeds(f"# so: {claim}")
    assert claim.startswith("#") or typed_speeds(claim.replace(" ", "\n    # "))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_speed_is_typed_on_a_page(path):
    name, text = path.relative_to(ROOT).as_posix(), MADE.sub("", path.read_text("utf8"))
    claims, excused = {match[0] for match in CLAIM.finditer(text)}, EXCUSED.get(name, {})
    typed = sorted(claims - {*excused})
    assert not typed, f"{name}: typed by hand: {typed[0]!r}"
    assert {*excused} <= claims, "excused, and not there"


def test_no_speed_is_typed_in_what_pages_show_of_code_or_make_of_data():
    found = {}
    for path in CODE:
        name = path.relative_to(ROOT).as_posix()
        found[name] = {*typed_speeds(path.read_text("utf8"))} - {*EXCUSED.get(name, {})}
    reasons = (ROOT / REASONS).read_text("utf8")
    found[REASONS] = {*typed_speeds(reasons), *re.findall(r"\b0\.\d\d\b", reasons)}
    assert not any(found.values()), {name: each for name, each in found.items() if each}
