"""The front page of the repository and the pictures of shared links: made from the data, committed
because they are shown where nothing is built."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from softmax_site import templates
from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.data import measurements
from softmax_site.benchmarks.values import filled
from softmax_site.figures import moving, share, trips

README = "README.md"
CARDS = {
    "": "Softmax, from its formula to the speed of a copy",
    "Tutorial": "From the formula of softmax to attention, one idea a page",
    "Practice": "Exercises on softmax and its kernels, checked in the page",
    "Use it in…": "Softmax at the speed of a copy, in the code that you have",
    "Benchmarks": "Softmax in Triton, measured beside other libraries",
    "Reference": "Softmax in Triton: every function, every edge case",
}
"""What the picture of a shared link says, by the section of the navigation that the page is in."""
DRAWINGS = {scheme: f"docs/assets/share-{scheme}.svg" for scheme in ("light", "dark")}
TITLE = "Share of a plain copy's speed, by row length"
SANS = 'font-family="Inter, system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif"'
_MADE = re.compile(r"(<!-- made from the data -->\n).*?(<!-- until here -->)", re.S)


def drawings(root: Path) -> dict[str, str]:
    """The figure as files of their own, by path, in both schemes."""
    every = share.rows(measurements(root))
    words = f'xmlns="http://www.w3.org/2000/svg" width="720" {SANS} role="img"'
    drawn = share.svg(every, 640, 17, f'{words} aria-label="{share.alt(every)}"', TITLE)
    return {
        path: share.alone(drawn, share.palettes(root)[scheme]) for scheme, path in DRAWINGS.items()
    }


def said(root: Path, part: str) -> str:
    """A part of the home page, with its numbers, as text without HTML."""
    home = (root / "docs/index.md").read_text("utf8")
    found = re.search(rf"<!-- {part} -->(.*?)<!-- /{part} -->", home, re.S)
    if found is None:
        raise ValueError(f"docs/index.md has no part <!-- {part} -->")
    names = quoted.load(root)
    return filled(found[1].strip(), names, bare=True, unsaid=names.unsaid)


def readme(root: Path) -> str:
    """The README with what the home page says of the data."""
    alt = share.alt(share.rows(measurements(root)))
    made = f"""{said(root, "claim")}

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{DRAWINGS["dark"]}">
  <img src="{DRAWINGS["light"]}" width="720" alt="{alt}">
</picture>

{said(root, "caption")}
"""
    text = (root / README).read_text("utf8")
    changed, count = _MADE.subn(lambda found: found[1] + made + found[2], text)
    if count != 1:
        raise ValueError(f"{README} has no place for what is made from the data")
    return changed


def card(section: str) -> str:
    """Where the picture of the links to a section lies; to no section, that of the site.

    >>> card("Use it in…"), card("")
    ('assets/social-use.png', 'assets/social.png')
    """
    word = section.lower().partition(" ")[0] if section in CARDS else ""
    return f"assets/social{word and '-' + word}.png"


def social_pages(root: Path) -> dict[str, str]:
    """The picture of a shared link to each section, by path, as a page of 1,200 by 630 pixels that
    needs nothing else: trips through memory, and for benchmarks the shares of a copy's speed."""
    names, every, colours = quoted.load(root), trips.rows(root), share.palettes(root)["light"]
    beside = share.svg(share.rows(measurements(root)), 640, 19, "width='640'", TITLE)
    given = {"grid": names["grid"], "machine": names["machine"]}
    given |= {"title": trips.title(every), "trips": trips.svg(every, 900, "width='1110'")}
    out = {}
    for section, words in CARDS.items():
        drawn = beside if section == "Benchmarks" else ""
        page = templates.filled("social", words=words, drawn=drawn, **given)
        out[f"docs/{card(section)}"] = share.alone(page, colours)
    return out


def digest(page: str) -> bytes:
    """What the picture says it was made of."""
    return hashlib.sha256(page.encode()).hexdigest().encode()


def photograph(page: str, root: Path) -> bytes:
    """The page as Chromium shows it, a PNG with the page's digest after its end."""
    # Beside the fonts, since a page without an address may load no files.
    source = root / "docs/assets/social.html"
    source.write_text(page, "utf8")
    try:
        with moving.tab(width=1200, height=630) as view:
            view.goto(source.as_uri())
            view.evaluate("document.fonts.ready")
            return view.screenshot() + digest(page)
    finally:
        source.unlink()
