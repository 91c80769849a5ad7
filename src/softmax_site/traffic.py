"""The memory traffic of the PyTorch lines, as tables."""

from __future__ import annotations

from softmax_bench import traffic


def naive(lines: tuple[traffic.Line, ...], total: traffic.Traffic) -> str:
    """One row per line of PyTorch."""
    rows = ["| line | elements |", "| --- | --- |"]
    rows += [f"| `{line.code}` | {line.traffic} |" for line in lines]
    return "\n".join([*rows, f"| together | {total} |", ""])


def tables() -> dict[str, str]:
    """The tables by the name that a page includes them by."""
    return {
        "traffic-naive-forward": naive(traffic.NAIVE_LINES, traffic.FORWARD["naive"]),
        "traffic-naive-backward": naive(traffic.NAIVE_BACKWARD_LINES, traffic.BACKWARD["naive"]),
    }
