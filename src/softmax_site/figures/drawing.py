"""Rectangles, lines and words that make a figure. Classes in `site.css` give them their colours,
in light and dark."""

from __future__ import annotations

from html import escape


class Drawing:
    """An SVG of a fixed size, in pixels, that shrinks with the page.

    >>> drawing = Drawing(40, 20, "A box.")
    >>> drawing.box(1, 1, 38, 18, "reads", "x")
    >>> drawing.svg().count("<rect")
    1
    """

    def __init__(self, width: float, height: float, alt: str):
        self.width, self.height, self.alt = width, height, alt
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, kind: str, label: str = "") -> None:
        """A rectangle of a kind, that is a class of the style sheet, with a word in its middle."""
        self.parts.append(
            f'<rect class="d-{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="1.5"/>'
        )
        if label:
            self.text(x + w / 2, y + h / 2, label, f"on-{kind}", "middle")

    def text(
        self, x: float, y: float, label: str, kind: str = "ink", anchor: str = "start"
    ) -> None:
        """A word, its middle at the height y."""
        self.parts.append(
            f'<text class="d-{kind}" x="{x:g}" y="{y:g}" dy="0.35em" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> None:
        """A straight line."""
        self.parts.append(f'<path class="d-{kind}" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A line with a head, upright or level."""
        dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        left = f"{x2 - 5 * dx - 3.5 * dy:g} {y2 - 5 * dy - 3.5 * dx:g}"
        right = f"{x2 - 5 * dx + 3.5 * dy:g} {y2 - 5 * dy + 3.5 * dx:g}"
        self.parts.append(
            f'<path class="d-arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}M{left}L{x2:g} {y2:g}L{right}"/>'
        )

    def svg(self) -> str:
        """The picture, with its description for those who do not see it."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" role="img" aria-label="{escape(self.alt)}">'
            f"{''.join(self.parts)}</svg>"
        )


def figure(drawings: list[Drawing], caption: str) -> str:
    """One or more drawings side by side, with a caption, as HTML that a page includes.

    >>> print(figure([Drawing(4, 4, "Nothing.")], "Nothing at all."), end="")
    <div class="drawing">
    <figure><div class="drawing-parts"><svg viewBox="0 0 4 4" width="4" height="4" role="img" \
aria-label="Nothing."></svg></div><figcaption>Nothing at all.</figcaption></figure>
    </div>
    """
    pictures = "".join(drawing.svg() for drawing in drawings)
    return (
        f'<div class="drawing">\n<figure><div class="drawing-parts">{pictures}</div>'
        f"<figcaption>{caption}</figcaption></figure>\n</div>\n"
    )
