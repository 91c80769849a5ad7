"""The command `python -m softmax_site.figures`: write what is committed of the figures."""

from __future__ import annotations

from pathlib import Path

from softmax_site.figures import front, moving

ROOT = Path(__file__).resolve().parents[3]


def main() -> None:
    """Write the drawings, the README's part, the first pictures of the figures that move and, where
    they are no longer true, the pictures of shared links. The last two need Chromium."""
    texts = {**front.drawings(ROOT), front.README: front.readme(ROOT), **moving.frames(ROOT)}
    for path, text in texts.items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text, "utf8")
    for path, page in front.social_pages(ROOT).items():
        target = ROOT / path
        if not target.is_file() or not target.read_bytes().endswith(front.digest(page)):
            target.write_bytes(front.photograph(page, ROOT))


if __name__ == "__main__":
    main()
