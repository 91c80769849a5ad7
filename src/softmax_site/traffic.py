"""The memory traffic of the rungs and of the PyTorch lines, as tables."""

from __future__ import annotations

from softmax_bench import traffic

EXAMPLE = (4096, 4096, 4)


def naive(lines: tuple[traffic.Line, ...], total: traffic.Traffic) -> str:
    """One row per line of PyTorch."""
    rows = ["| line | elements |", "| --- | --- |"]
    rows += [f"| `{line.code}` | {line.traffic} |" for line in lines]
    return "\n".join([*rows, f"| together | {total} |", ""])


def rungs() -> str:
    """One row per implementation, with an example in bytes."""
    M, N, itemsize = EXAMPLE
    rows = [
        f"| rung | forward | backward | bytes forward, {M:,} × {N:,} float32 |",
        "| --- | --- | --- | ---: |",
    ]
    for name, forward in traffic.FORWARD.items():
        rows.append(
            f"| `{name}` | {forward.formula} | {traffic.BACKWARD[name].formula} "
            f"| {forward.bytes(M, N, itemsize):,} |"
        )
    return "\n".join([*rows, ""])


def tables() -> dict[str, str]:
    """The tables by the name that a page includes them by."""
    return {
        "traffic-rungs": rungs(),
        "traffic-naive-forward": naive(traffic.NAIVE_LINES, traffic.FORWARD["naive"]),
        "traffic-naive-backward": naive(traffic.NAIVE_BACKWARD_LINES, traffic.BACKWARD["naive"]),
    }
