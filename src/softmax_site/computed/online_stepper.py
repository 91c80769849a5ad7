"""The figure of the online recurrence: a trace of the shipped `merge`, run by Triton one column at
a time."""

from __future__ import annotations

import json

import numpy as np
import torch
import triton
import triton.language as tl

from softmax_site.computed import worked
from softmax_site.markdown import to_mathml
from triton_softmax import reference
from triton_softmax.kernels.device.monoid import exp_shifted, merge

LONGER = (2.0, 1.0, 4.0, -1.0, 3.0, 5.0, 0.0)
HEADS = ("i", "x_i", "m_i", "e^{m_{i-1} - m_i}", "e^{x_i - m_i}", "d_i")


@triton.jit
def _trace_kernel(x_ptr, trace_ptr, n_cols):
    """Fold a row into (m, d) with `merge`; write m, d, the scale and the term after every
    column."""
    m = tl.full((), float("-inf"), tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for i in range(n_cols):
        x = tl.load(x_ptr + i)
        m_before = m
        m, d = merge(m, d, x, x * 0 + 1)
        tl.store(trace_ptr + 4 * i + 0, m)
        tl.store(trace_ptr + 4 * i + 1, d)
        tl.store(trace_ptr + 4 * i + 2, exp_shifted(m_before, m))
        tl.store(trace_ptr + 4 * i + 3, exp_shifted(x, m))


def trace(row: tuple[float, ...]) -> list[dict[str, float]]:
    """Run the kernel over one row, check it against the reference, and return its steps to four
    digits."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.tensor(row, dtype=torch.float32, device=device)
    out = torch.full((len(row), 4), float("nan"), device=device)
    _trace_kernel[(1,)](x, out, len(row))
    steps = out.cpu().numpy()
    expected = [
        (step.m, step.d, step.scale, step.term) for step in reference.online_steps(np.array(row))
    ]
    np.testing.assert_allclose(steps, expected, rtol=1e-6)
    names = ("m", "d", "scale", "term")
    return [
        {"x": x_i} | {name: round(float(value), 4) for name, value in zip(names, step)}
        for x_i, step in zip(row, steps)
    ]


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _whole(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _table(name: str, steps: list[dict[str, float]]) -> list[str]:
    heads = "".join(f'<th scope="col">{to_mathml(head, display=False)}</th>' for head in HEADS)
    lines = [
        '<table class="stepper-table">',
        f"<caption>{name}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for i, step in enumerate(steps, 1):
        cells = [
            str(i),
            _whole(step["x"]),
            _whole(step["m"]),
            *(_number(step[key]) for key in ("scale", "term", "d")),
        ]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return [*lines, "</tbody>", "</table>"]


def generate() -> dict[str, str]:
    """The tables, and the same steps as data for the script that makes them move."""
    rows = [*map(tuple, worked.X.tolist()), LONGER]
    names = [
        f"Row {i} of the worked example: ({', '.join(map(_whole, row))})"
        for i, row in enumerate(rows, 1)
    ]
    names[-1] = f"A longer row: ({', '.join(map(_whole, LONGER))})"
    traces = [trace(row) for row in rows]
    lines = ['<div class="stepper">']
    for name, steps in zip(names, traces):
        lines += _table(name, steps)
    data = json.dumps(
        [{"name": name, "steps": steps} for name, steps in zip(names, traces)], ensure_ascii=False
    )
    lines += [f'<script type="application/json">{data}</script>', "</div>"]
    return {"docs/_computed/online-stepper.md": "\n".join(lines) + "\n"}
