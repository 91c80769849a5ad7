"""The figure of the page on several GPUs: one merge at six places."""

from __future__ import annotations

from softmax_site.figures.drawing import Drawing, figure

PLACES = (
    ("elements in a thread", 8, "p0", "registers"),
    ("threads in a warp", 8, "p0", "shuffles"),
    ("warps in a program", 4, "p1", "shared memory"),
    ("programs on a GPU", 4, "p1", "words in L2"),
    ("GPUs in a machine", 4, "p2", "NVLink, one message"),
    ("machines", 2, "p3", "network, the same message"),
)
"""What merges, how many are drawn, in which shade, and what the pairs pass through."""

HEIGHT = 46


def merges() -> str:
    """The pairs (m, d) of parts become the pair of the whole, at each place alike."""
    drawing = Drawing(
        640,
        HEIGHT * len(PLACES) + 4,
        "Six rows, from the elements of a thread to machines. In each, several boxes, the pairs of "
        "parts, lead to one box, the pair of them together, which is a part in the row below.",
    )
    for place, (name, count, kind, through) in enumerate(PLACES):
        y = 4 + place * HEIGHT
        drawing.text(0, y + 12, name)
        each = 176 / count
        for part in range(count):
            drawing.box(160 + part * each, y, each - 3, 24, kind)
        drawing.arrow(342, y + 12, 372, y + 12)
        drawing.box(378, y, 58, 24, kind, "(m, d)")
        drawing.text(450, y + 12, through, "quiet")
        if place + 1 < len(PLACES):
            drawing.line(407, y + 25, 407, y + 34)
            drawing.line(407, y + 34, 180, y + 34)
            drawing.arrow(180, y + 34, 180, y + HEIGHT - 1)
    return figure(
        [drawing],
        "One merge, six places. The pair that comes out of a row is one of the parts in the row "
        "below; only what the pairs pass through differs.",
    )
