"""The worked example as small tinted matrices, one view for each step of its page, and as matrices
of its formulas."""

from __future__ import annotations

import json

import numpy as np

from softmax_site.computed import worked
from softmax_site.equations import to_mathml
from softmax_site.templates import filled


def _matrix(latex: str, says: str, values: np.ndarray, digits: int = 4) -> str:
    scale, symbol = float(np.abs(values).max()), to_mathml(latex, display=False)
    rows = values.tolist()
    return filled("matrix", symbol=symbol, says=says, rows=rows, scale=scale, digits=digits)


def _latex(values: np.ndarray, digits: int = 4) -> str:
    r"""A matrix for a formula.

    >>> _latex(np.array([[1.0, 2.0], [0.5, 0.25]]), 1)
    '\\begin{pmatrix} 1.0 & 2.0 \\\\ 0.5 & 0.2 \\end{pmatrix}'
    """
    rows = (" & ".join(f"{entry:.{digits}f}" for entry in row) for row in values)
    return " ".join((r"\begin{pmatrix}", r" \\ ".join(rows), r"\end{pmatrix}"))


def generate() -> dict[str, str]:
    """One view by path for each section of the page."""
    forward, jacobian, backward = worked.forward(), worked.jacobian(), worked.backward()
    statistics = [np.array([[step.m, step.d] for step in worked.online(row)]) for row in (0, 1)]
    views = {
        "docs/_computed/worked-forward.md": _matrix(
            r"\mathbf{m}", "the largest entry of each row", forward["m"], 0
        )
        + _matrix(r"E = e^{X - \mathbf{m}}", "shifted, then exponentiated", forward["e"])
        + _matrix(r"\mathbf{d}", "row sums of E", forward["d"])
        + _matrix("Y", "each row adds up to 1", forward["y"]),
        "docs/_computed/worked-online.md": _matrix(
            r"(m_i, d_i) \text{, row 1}", "after 1, 2 and 3 columns", statistics[0]
        )
        + _matrix(r"(m_i, d_i) \text{, row 2}", "the last line is of the whole row", statistics[1]),
        "docs/_computed/worked-jacobian.md": _matrix(
            r"J \text{ of row 1}", "symmetric; its rows add up to 0", jacobian[0]
        )
        + _matrix(r"J \text{ of row 2}", "no kernel builds it", jacobian[1]),
        "docs/_computed/worked-backward.md": _matrix(
            r"Y \odot \mathit{dY}", "entry by entry", backward["y dy"]
        )
        + _matrix(r"\mathbf{s}", "its row sums", backward["s"])
        + _matrix(r"\mathit{dY} - \mathbf{s}", "above or below the mean", backward["dy - s"])
        + _matrix(r"\mathit{dX}", "each row adds up to 0", backward["dx"]),
    }
    matrices = {
        "X": _latex(worked.X, 0),
        "dY": _latex(worked.DY, 1),
        "Y": _latex(forward["y"]),
        "dX": _latex(backward["dx"]),
    }
    views = {path: f'<div class="worked">\n{text}</div>\n' for path, text in views.items()}
    return views | {"docs/_computed/worked.json": json.dumps(matrices, indent=1) + "\n"}
