"""The worked example in one view: forward, Jacobian, backward and online, as small tinted
matrices."""

from __future__ import annotations

import numpy as np

from softmax_site.computed import worked
from softmax_site.markdown import to_mathml


def _cell(value: float, digits: int, scale: float) -> str:
    text = f"{value:.{digits}f}".replace("-", "−")
    tint = min(abs(value) / scale, 1.0)
    minus = ' class="minus"' if value < 0 else ""
    return f'<td{minus} style="--tint:{tint:.2f}">{text}</td>'


def _matrix(latex: str, says: str, values: np.ndarray, digits: int = 4) -> list[str]:
    scale = float(np.abs(values).max())
    rows = [
        "<tr>" + "".join(_cell(value, digits, scale) for value in row) + "</tr>"
        for row in values.tolist()
    ]
    caption = f"<figcaption>{to_mathml(latex, display=False)}<br>{says}</figcaption>"
    return [
        "<figure>",
        caption,
        '<table class="matrix"><tbody>',
        *rows,
        "</tbody></table>",
        "</figure>",
    ]


def generate() -> dict[str, str]:
    """Four rows of figures, in the order in which the site explains them."""
    forward, jacobian, backward = worked.forward(), worked.jacobian(), worked.backward()
    statistics = [np.array([[step.m, step.d] for step in worked.online(row)]) for row in (0, 1)]
    groups = [
        (
            "Forward",
            _matrix("X", "two rows of input", worked.X, 0)
            + _matrix(
                "e^{X - m}", "shifted by each row’s maximum, then exponentiated", forward["e"]
            )
            + _matrix("d", "row sums", forward["d"])
            + _matrix("Y", "softmax: each row adds up to 1", forward["y"]),
        ),
        (
            "Jacobian",
            _matrix(
                r"\partial y / \partial x \text{, row 1}",
                "symmetric; its rows add up to 0",
                jacobian[0],
            )
            + _matrix(
                r"\partial y / \partial x \text{, row 2}", "never built by a kernel", jacobian[1]
            ),
        ),
        (
            "Backward",
            _matrix(r"\mathrm{d}Y", "the gradient that arrives", worked.DY, 1)
            + _matrix(r"\langle y, \mathrm{d}y \rangle", "one number per row", backward["s"])
            + _matrix(
                r"\mathrm{d}X", "the gradient that leaves: each row adds up to 0", backward["dx"]
            ),
        ),
        (
            "Online",
            _matrix(r"(m, d) \text{, row 1}", "after 1, 2 and 3 columns", statistics[0])
            + _matrix(
                r"(m, d) \text{, row 2}", "the last line is the row’s m and d", statistics[1]
            ),
        ),
    ]
    lines = []
    for name, figures in groups:
        lines += [f'<p class="worked-name">{name}</p>', '<div class="worked">', *figures, "</div>"]
    return {"docs/_computed/worked-view.md": "\n".join(lines) + "\n"}
