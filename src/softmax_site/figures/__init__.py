"""Figures as SVG, whose colours come from the style sheet: for pages, drawn when the site is built,
and for the repository's front page, committed (`python -m softmax_site.figures`)."""
