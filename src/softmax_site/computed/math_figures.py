"""The figures of the mathematics as SVG: every number in them comes from the reference functions.

A panel is at most 340 pixels wide, so that its type is as large on a phone as on a desk; a figure
puts panels side by side where there is room. Colours come from the style sheet.
"""

from __future__ import annotations

import math
from html import escape

import numpy as np

from triton_softmax.reference import (
    exp_shifted,
    merge,
    softmax_jacobian,
    softmax_naive_numpy,
    softmax_vjp,
)

WIDTH = 340
U = 2.0**-24
"""Unit roundoff of float32."""

WORKED = np.array([1.0, 2.0, 3.0])
"""The first row of the worked example."""
ROW = np.array([1.0, 2.0, 3.0, 0.5, 2.4])
DY = np.array([0.1, 0.6, -0.4, 0.2, 0.5])
"""A row of five and a gradient for it, with enough contrast to be seen."""
SHIFTS = (-2.0, 0.0, 2.0)
TEMPERATURES = (0.5, 1.0, 2.0)
LEAVES = (2.0, 1.0, 4.0, -1.0)
LENGTHS = tuple(2**power for power in range(2, 19, 2))
OFFSETS = tuple(10.0**power for power in range(7))


# --- drawing --------------------------------------------------------------------------------------


def number(value: float, digits: int) -> str:
    """With a true minus sign.

    >>> number(-0.25, 3), number(2.0, 0)
    ('−0.250', '2')
    """
    return f"{value:.{digits}f}".replace("-", "−")


def text(x: float, y: float, content: str, css: str = "", anchor: str = "middle") -> str:
    """One line of text."""
    css = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{css}>{escape(content)}</text>'


def rect(x: float, y: float, w: float, h: float, css: str, more: str = "") -> str:
    """A box."""
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" '
        f'height="{max(h, 0.5):.1f}"{more}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg(height: float, says: str, parts: list[str]) -> str:
    """A panel; `says` is read aloud in its place."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(says, quote=True)}">{"".join(parts)}</svg>'
    )


def figure(panels: list[str], caption: str) -> str:
    """Panels side by side above a caption."""
    body = "\n".join(panels)
    return (
        '<figure class="plot" data-search-exclude>\n<div class="plot-panels">\n'
        f"{body}\n</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
    )


def bars(
    values: np.ndarray, left: float, zero: float, unit: float, pitch: float, css: str, digits: int
) -> list[str]:
    """Bars from a line at height `zero`, `unit` pixels for 1, each with its number."""
    width = pitch * 0.72
    out = [line(left, zero, left + pitch * len(values), zero, "axis")]
    for at, value in enumerate(values.tolist()):
        x, height = left + pitch * (at + 0.14), abs(value) * unit
        kind = "behind" if value < 0 and css == "ours" else css
        out.append(rect(x, zero - height if value >= 0 else zero, width, height, kind))
        y = zero - height - 4 if value >= 0 else zero + height + 12
        out.append(text(x + width / 2, y, number(value, digits), "small"))
    return out


# --- softmax --------------------------------------------------------------------------------------


def shifts_and_temperatures() -> str:
    """What softmax does not see, and what it sees very well."""

    def panel(title, rows, names, zero, unit, says):
        column, out = WIDTH / len(rows), [text(0, 13, title, "title", "start")]
        for at, (row, name) in enumerate(zip(rows, names)):
            left = at * column + 5
            out.append(text(left + 51, 36, name))
            out += bars(row, left, zero, unit, 34, "neutral", 1 if "τ" in name else 0)
            out += bars(softmax_naive_numpy(row), left, 266, 82, 34, "ours", 3)
        out.append(text(5, 172, "softmax", "", "start"))
        return svg(276, says, out)

    y = ", ".join(number(value, 3) for value in softmax_naive_numpy(WORKED))
    sharp, _, flat = (softmax_naive_numpy(WORKED / tau).max() for tau in TEMPERATURES)
    shifted = panel(
        "A constant added: nothing changes",
        [WORKED + c for c in SHIFTS],
        [f"x {'+' if c >= 0 else '−'} {abs(c):.0f}" for c in SHIFTS],
        128,
        13,
        f"The row (1, 2, 3), shifted by −2, 0 and 2: softmax is {y} each time.",
    )
    heated = panel(
        "A factor: sharper or flatter",
        [WORKED / tau for tau in TEMPERATURES],
        [f"τ = {tau:g}" for tau in TEMPERATURES],
        146,
        14,
        "The row (1, 2, 3) divided by a temperature of 0.5, 1 and 2: the largest output falls from "
        f"{number(sharp, 3)} to {number(flat, 3)}.",
    )
    return figure(
        [shifted, heated],
        "Above, the input in grey; below, its softmax in blue. First, a shift of the whole row; "
        "then the row divided by a temperature τ. Drawn from <code>softmax_naive_numpy</code>.",
    )


# --- the Jacobian ---------------------------------------------------------------------------------


def jacobian() -> str:
    """A row, its softmax, and every derivative."""
    y = softmax_naive_numpy(ROW)
    J = softmax_jacobian(y)
    n, scale = len(y), np.abs(J).max()
    row = [text(0, 13, "x", "title", "start")]
    row += bars(ROW, 30, 128, 29, 56, "neutral", 1)
    row += [text(0, 158, "y = softmax(x)", "title", "start")]
    row += bars(y, 30, 266, 160, 56, "ours", 3)
    heat = [text(0, 13, "J: how y (down) answers to x (across)", "title", "start")]
    for j in range(n):
        heat.append(text(64 + 55 * j, 40, f"x{'₁₂₃₄₅'[j]}"))
    for i in range(n):
        heat.append(text(14, 71 + 46 * i, f"y{'₁₂₃₄₅'[i]}"))
        for j in range(n):
            kind = "ours" if J[i, j] >= 0 else "behind"
            tint = f' fill-opacity="{0.06 + 0.4 * abs(J[i, j]) / scale:.2f}" rx="3"'
            heat.append(rect(38 + 55 * j, 46 + 46 * i, 52, 43, kind, tint))
            label = ("+" if J[i, j] >= 0 else "") + number(J[i, j], 3)
            heat.append(text(64 + 55 * j, 72 + 46 * i, label, "cell"))
    return figure(
        [
            svg(276, f"A row of five numbers and its softmax; the largest is {y.max():.3f}.", row),
            svg(
                276,
                "The Jacobian of that row as a table of 25 numbers: positive on the diagonal, "
                "negative elsewhere, largest where the largest output meets itself: "
                f"{number(J.max(), 3)}.",
                heat,
            ),
        ],
        "The Jacobian of a row of five. Blue and a plus sign: the output grows with the input; "
        "orange and a minus sign: it shrinks. Each row and each column adds up to 0. Drawn from "
        "<code>softmax_jacobian</code>.",
    )


def vjp() -> str:
    """The gradient that arrives, its mean, and the gradient that leaves."""
    y = softmax_naive_numpy(ROW)
    s, dx = float(y @ DY), softmax_vjp(y, DY)
    arrives = [text(0, 13, "dy arrives; the line is its mean s", "title", "start")]
    arrives += bars(DY, 30, 112, 100, 56, "neutral", 1)
    arrives += [
        line(30, 112 - 100 * s, 310, 112 - 100 * s, "mean"),
        text(338, 116 - 100 * s, number(s, 3), "small", "end"),
    ]
    leaves = [text(0, 13, "dx leaves", "title", "start")]
    leaves += bars(dx, 30, 80, 300, 56, "ours", 3)
    return figure(
        [
            svg(176, f"Five numbers dy, and their mean {s:.3f} with the weights y.", arrives),
            svg(
                176,
                "Five numbers dx: "
                + ", ".join(number(value, 3) for value in dx)
                + "; they add up to 0.",
                leaves,
            ),
        ],
        "The row of five whose Jacobian the page before shows. What is above the mean comes out "
        "positive, "
        "what is below it negative, each in proportion to its share <i>y</i>. The third input has "
        "the largest share and moves most. Drawn from <code>softmax_vjp</code>.",
    )


# --- the monoid -----------------------------------------------------------------------------------

Node = tuple[float, float, tuple]
"""m, d, and the nodes that were merged into it."""


def join(left: Node, right: Node) -> Node:
    """The merge of two nodes."""
    m, d = merge(left[0], left[1], right[0], right[1])
    return float(m), float(d), (left, right)


def chain() -> Node:
    """From left to right."""
    nodes: list[Node] = [(x, 1.0, ()) for x in LEAVES]
    while len(nodes) > 1:
        nodes[:2] = [join(*nodes[:2])]
    return nodes[0]


def balanced() -> Node:
    """In pairs."""
    nodes: list[Node] = [(x, 1.0, ()) for x in LEAVES]
    while len(nodes) > 1:
        nodes = [join(*nodes[at : at + 2]) for at in range(0, len(nodes), 2)]
    return nodes[0]


def merges() -> str:
    """The same row merged in two orders."""

    def draw(title: str, root: Node) -> str:
        boxes, edges, leaf = [], [], iter(range(len(LEAVES)))

        def place(node: Node) -> tuple[float, float]:
            m, d, children = node
            spots = [(child, place(child)) for child in children]
            if children:
                # As far right as its right child, or in the middle of two trees of a size.
                same = bool(children[0][2]) == bool(children[1][2])
                x = (spots[0][1][0] + spots[1][1][0]) / 2 if same else spots[1][1][0]
                y = max(spot[1] for _, spot in spots) + 74
            else:
                x, y = 42 + 85 * next(leaf), 44
            for (child_m, _, _), (child_x, child_y) in spots:
                factor = float(exp_shifted(child_m, m))
                edges.append(line(child_x, child_y + 18, x, y - 18, "edge"))
                at = 0.5 if child_x != x else 0.42
                label_x, label_y = child_x + at * (x - child_x), (child_y + y) / 2
                shift = -16 if child_x < x else 16 if child_x > x else 19
                edges.append(text(label_x + shift, label_y + 4, f"×{factor:.3g}", "small"))
            boxes.append(rect(x - 38, y - 18, 76, 36, "node" if children else "leaf", ' rx="5"'))
            boxes.append(text(x, y - 3, f"m = {number(m, 0)}", "cell"))
            boxes.append(text(x, y + 12, f"d = {number(d, 4 if children else 0)}", "cell"))
            return x, y

        place(root)
        says = f"{title}: four numbers are merged into m = {root[0]:.0f}, d = {root[1]:.4f}."
        return svg(306, says, [text(0, 13, title, "title", "start"), *edges, *boxes])

    row = ", ".join(number(x, 0) for x in LEAVES)
    return figure(
        [draw("One after the other", chain()), draw("In pairs", balanced())],
        f"The row ({row}) merged in two orders. Each number starts as the pair (x, 1). An edge "
        "shows what the denominator at its upper end is multiplied by: 1 on the side of the larger "
        "maximum, less on the other. The result is the same. Drawn from <code>merge</code>.",
    )


# --- rounding -------------------------------------------------------------------------------------


def rounded(t: np.ndarray, function) -> np.ndarray:
    """A function of float32 numbers, rounded once."""
    return function(t.astype(np.float64)).astype(np.float32)


def tree_sum(t: np.ndarray) -> np.float32:
    """A sum in a balanced tree; each addition is rounded. The length is a power of two."""
    while len(t) > 1:
        t = t[0::2] + t[1::2]
    return t[0]


def length_errors(trials: int = 8) -> list[dict[str, float]]:
    """By length: the largest error of the largest output among some rows, and the bounds, in u."""
    out = []
    for n in LENGTHS:
        random, worst = np.random.default_rng(n), {"chain": 0.0, "tree": 0.0}
        for _ in range(trials):
            x = random.normal(size=n).astype(np.float32)
            exact = np.exp(x.astype(np.float64) - float(x.max()))
            e = rounded(x - x.max(), np.exp)
            for name, d in (
                ("chain", np.add.accumulate(e, dtype=np.float32)[-1]),
                ("tree", tree_sum(e)),
            ):
                y = float(np.float32(1) / d)
                worst[name] = max(worst[name], abs(y * float(exact.sum()) - 1) / U)
        # eq: softmax-error-bound, entropy-identity
        heights = {"chain": n - 1, "tree": math.log2(n)}
        bounds = {f"{name} bound": math.log(n) + 2 + h + 1 for name, h in heights.items()}
        out.append({"n": n, **worst, **bounds})
    return out


def offset_errors() -> list[dict[str, float]]:
    """By offset: the largest error of exp(x - m), scaled first and subtracted first, with
    bounds."""
    out, c = [], np.float32(math.log2(math.e))
    spread = 3 * np.random.default_rng(0).normal(size=4096)
    for offset in OFFSETS:
        x = (offset + spread).astype(np.float32)
        m, wide = x.max(), x.astype(np.float64)
        exact, distance = np.exp(wide - float(m)), float(m) - wide.min()

        def worst(e, exact=exact):
            return float(np.abs(e / exact - 1).max())

        out.append(
            {
                "offset": offset,
                # eq: exp2-scale-first-error, exp2-subtract-first-error
                "first": worst(rounded(x * c - m * c, np.exp2)),
                "first bound": U * (2 * float(np.abs(wide).max()) + 2 * distance + 1),
                "after": worst(rounded((x - m) * c, np.exp2)),
                "after bound": U * (3 * distance + 1),
            }
        )
    return out


def log_plot(
    title: str,
    says: str,
    rows: list[dict[str, float]],
    x: str,
    ticks: dict[float, str],
    series: list[tuple[str, str, str]],
    y_ticks: dict[float, str],
    x_title: str,
) -> str:
    """Measured dots and dashed bounds over logarithmic axes; (key, style, label) of each series."""
    left, right, top, bottom = 44, 332, 34, 214
    xs = [math.log(row[x]) for row in rows]
    low, high = math.log(min(y_ticks)), math.log(max(y_ticks))

    def x_at(value):
        return left + (right - left) * (math.log(value) - xs[0]) / (xs[-1] - xs[0])

    def y_at(value):
        return bottom - (bottom - top) * (math.log(max(value, min(y_ticks))) - low) / (high - low)

    out = [text(0, 13, title, "title", "start")]
    for value, label in y_ticks.items():
        out.append(line(left, y_at(value), right, y_at(value), "grid"))
        out.append(text(left - 6, y_at(value) + 4, label, "small", "end"))
    for value, label in ticks.items():
        anchor = "end" if value == rows[-1][x] else "middle"
        out.append(text(x_at(value), bottom + 16, label, "small", anchor))
    out.append(text((left + right) / 2, bottom + 34, x_title))
    for key, css, label in series:
        for name, kind in ((f"{key} bound", "bound"), (key, "measured")):
            path = " ".join(f"{x_at(row[x]):.1f},{y_at(row[name]):.1f}" for row in rows)
            out.append(f'<polyline class="{kind} {css}" points="{path}"/>')
        for row in rows:
            place = f'cx="{x_at(row[x]):.1f}" cy="{y_at(row[key]):.1f}"'
            out.append(f'<circle class="dot {css}" {place} r="3"/>')
        middle = rows[len(rows) // 2]
        # What is worse is named above its bound, what is better below its dots.
        y = y_at(middle[key]) + 18 if css == "ours" else y_at(middle[f"{key} bound"]) - 8
        out.append(text(x_at(middle[x]) - 6, y, label, f"label {css}", "end"))
    return svg(256, says, out)


def rounding() -> str:
    """The error of a row over its length, and of one exponential over the row's offset."""
    lengths, offsets = length_errors(), offset_errors()
    last, far = lengths[-1], offsets[-1]
    by_length = log_plot(
        "Error of an output over the length, in u",
        f"Over the length the bound of a sum in order grows to {last['chain bound']:,.0f} u and "
        f"the measured error to {last['chain']:,.0f} u; in a tree to {last['tree bound']:.0f} and "
        f"{last['tree']:.1f} u.",
        lengths,
        "n",
        {2**power: f"2{exponent}" for power, exponent in ((2, "²"), (10, "¹⁰"), (18, "¹⁸"))},
        [("chain", "behind", "in order"), ("tree", "ours", "in a tree")],
        {0.1: "0.1", 1.0: "1", 1e2: "100", 1e4: "10⁴", 1e6: "10⁶"},
        "length N",
    )
    by_offset = log_plot(
        "Error of one exponential over the offset",
        "Over the offset the error of scaling first grows up to "
        f"{far['first']:.0e}; that of subtracting first stays near {far['after']:.0e}.",
        offsets,
        "offset",
        {1.0: "1", 1e3: "1,000", 1e6: "10⁶"},
        [("first", "behind", "scaled first"), ("after", "ours", "subtracted first")],
        {1e-8: "10⁻⁸", 1e-6: "10⁻⁶", 1e-4: "10⁻⁴", 1e-2: "10⁻²", 1.0: "1"},
        "offset of the row",
    )
    return figure(
        [by_length, by_offset],
        "Dots: measured in float32, the worst of the rows tried. Dashed: the bound of this page. "
        "Over the length: rows of normal numbers, the largest output of each. Over the offset: one "
        "row of 4,096 numbers, moved away from zero. All axes are logarithmic.",
    )


def generate() -> dict[str, str]:
    """Every figure by its path."""
    return {
        "docs/_computed/figure-softmax.md": shifts_and_temperatures(),
        "docs/_computed/figure-jacobian.md": jacobian(),
        "docs/_computed/figure-vjp.md": vjp(),
        "docs/_computed/figure-merge.md": merges(),
        "docs/_computed/figure-rounding.md": rounding(),
    }
