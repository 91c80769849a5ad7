"""Figures that are drawn from data: for pages when the site is built, and for the repository's
front page, committed (`python -m softmax_site.figures`)."""
