"""The site's own Markdown: equations, their index, and what is generated.

Nothing here imports torch or triton, so the documentation can be built where
neither is installed.  `equations` reads labels, tests and kernel comments;
`markdown` is the Python-Markdown extension that renders them; `regenerate`
writes the committed files that are computed from the library.
"""
