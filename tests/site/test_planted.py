"""Mistakes that once stood on the pages for a day without a test that failed, planted again."""

import pytest

from held import faults
from site_build import ROOT

PLANTED = [
    ("math/vjp.md", r"\odot \bigl( \mathit{dy} - \langle", r"\odot \bigl( \mathit{dy} + \langle"),
    ("math/online.md", r"d_{i-1}\, e^{m_{i-1} - m_i} + e", r"d_{i-1}\, e^{m_i - m_{i-1}} + e"),
    ("math/jacobian.md", r"J_{ij} = y_i\, (\delta_{ij} - y_j)", r"J_{ij} = y_i (\delta_{ij} - y_i)"),  # noqa: E501
    ("benchmarks/method.md", "at least 80 % of its roof", "at least 90 % of its roof"),
    ("kernels/primer.md", "four of its 32 bytes", "eight of its 32 bytes"),
    ("one-row.md", "second and the third tile", "second and the fourth tile"),
    ("reference/sources.md", "2^{31} - 1", "2^{32} - 1"),
    ("reference/sources.md", "row sums 0.2036", "row sums 0.2136"),
    ("reference/sources.md", "5MN + 2M", "6MN + 2M"),
    ("reference/sources.md", "some 6,000 columns", "some 8,000 columns"),
    ("kernels/two-loops.md", "costs two more exponentials", "costs three more exponentials"),
    ("kernels/naive.md", "move four times that", "move five times that"),
    ("kernels/backward.md", "$5MN$ move", "$6MN$ move"),
    ("kernels/single-block.md", "at most 64 registers", "at most 128 registers"),
    ("kernels/several-gpus.md", "take 64 bytes a row", "take 16 bytes a row"),
    ("reference/glossary.md", "32 banks", "64 banks"),
    ("practice/mistakes.md", "27 programs", "26 programs"),
    ("practice/mistakes.md", "27 mistakes", "26 mistakes"),
    ("kernels/attention.md", "516 bytes", "518 bytes"),
]  # fmt: skip


@pytest.mark.parametrize("page, right, wrong", PLANTED)
def test_a_planted_mistake_is_noticed(page, right, wrong):
    """Matrices of the worked example are not typed, and times are `test_benchmarks`' business."""
    text = (ROOT / "docs" / page).read_text("utf8")
    assert right in text and not faults(f"docs/{page}", text)
    assert faults(f"docs/{page}", text.replace(right, wrong, 1))
