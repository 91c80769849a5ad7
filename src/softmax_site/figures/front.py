"""The front page of the repository and the picture of a shared link: made from the data, committed
because they are shown where nothing is built."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from softmax_site.benchmarks import quoted
from softmax_site.benchmarks.data import newest
from softmax_site.benchmarks.values import filled
from softmax_site.figures import moving, share

README = "README.md"
SOCIAL = "docs/assets/social.png"
DRAWINGS = {scheme: f"docs/assets/share-{scheme}.svg" for scheme in ("light", "dark")}
TITLE = "Share of a plain copy's speed, by row length"
SANS = 'font-family="Inter, system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif"'
_MADE = re.compile(r"(<!-- made from the data -->\n).*?(<!-- until here -->)", re.S)


def drawings(root: Path) -> dict[str, str]:
    """The figure as files of their own, by path, in both schemes."""
    every = share.rows(newest(root)[1])
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
    return filled(found[1].strip(), quoted.load(root), bare=True)


def readme(root: Path) -> str:
    """The README with what the home page says of the data."""
    alt = share.alt(share.rows(newest(root)[1]))
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


def social_page(root: Path) -> str:
    """The picture of a shared link as a page of 1,200 by 630 pixels that needs nothing else."""
    data = newest(root)[1]
    names = quoted.load(root)
    grid, machine = names["grid"], names["machine"]
    colours = share.palettes(root)["light"]
    drawn = share.svg(share.rows(data), 640, 19, "width='640'", TITLE)
    numbers = f"""
<p><b>{grid.of_copy.mean:.2f}</b> of a plain copy's speed</p>
<p><b>{grid.over_best:.2f} ×</b> the best other library</p>
<p class="quiet">Geometric means. {machine.gpu}, {grid.cases} cases: {grid.ahead} ahead,
{grid.level} level, {grid.behind} behind</p>"""
    return share.alone(
        f"""<!doctype html><meta charset="utf-8"><style>
@font-face {{ font-family: serif4; src: url("fonts/SourceSerif4.woff2"); font-weight: 200 900 }}
@font-face {{ font-family: inter; src: url("fonts/Inter.woff2"); font-weight: 100 900 }}
body {{ margin: 0; width: 1200px; height: 630px; display: grid; align-items: center;
  grid-template-columns: 440px 640px; gap: 40px; padding: 0 40px; box-sizing: border-box;
  background: var(--paper); color: var(--ink); font-family: inter; overflow: hidden }}
h1 {{ font: 600 54px/1.08 serif4; margin: 0 0 34px; letter-spacing: -0.01em }}
p {{ font-size: 22px; margin: 6px 0 }} b {{ color: var(--ours); font: 600 40px serif4 }}
.quiet {{ color: var(--quiet); font-size: 18px; line-height: 1.45; margin-top: 20px }}
.name {{ font-weight: 650; font-size: 20px; margin-bottom: 26px }}
</style><div><p class="name">triton_softmax</p>
<h1>Softmax, from the Jacobian to the speed of a copy</h1>{numbers}</div>{drawn}""",
        colours,
    )


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
