"""Figures as SVG, drawn when the site is built; their colours come from the style sheet."""
