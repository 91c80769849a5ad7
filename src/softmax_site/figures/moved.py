"""What each rung moves, pass by pass: read off the traces of its kernels in the small Triton."""

from __future__ import annotations

from pathlib import Path

from softmax_playground import cells, kernel_source, small_triton
from softmax_playground.small_triton import Tensor, library

ROWS, COLS = 2, 6
TILE = {"BLOCK_ROWS": 2, "BLOCK_COLS": 4}

LAUNCHES = {
    "forward": {
        "single_block": ("single_block", (COLS,), {"BLOCK_SIZE": 8}),
        "three_loops": ("three_loops", (ROWS, COLS), TILE),
        "two_loops": ("two_loops", (ROWS, COLS), TILE),
    },
    "backward": {
        "single_block": ("single_block", (COLS,), {"BLOCK_SIZE": 8}),
        "three_loops": ("two_loops", (ROWS, COLS), TILE),
        "two_loops": ("two_loops", (ROWS, COLS), TILE),
    },
}
"""For each direction and rung: the module of its kernel, sizes, constants."""
LINES = {"forward": "naive", "backward": "naive-backward"}
"""The cells in which every line of PyTorch is a kernel."""


def kernel(root: Path, module: str, name: str) -> small_triton.Kernel:
    """A kernel of the tutorial, as the small Triton runs it."""
    module = f"softmax_tutorial.{module}"
    return library.load(kernel_source.needed(root / "src", [(module, name)]))[module][name]


def launched(root: Path, way: str, rung: str) -> small_triton.Trace:
    """The trace of a rung's kernel."""
    module, sizes, constants = LAUNCHES[way][rung]
    names = ("x", "y") if way == "forward" else ("y", "dy", "dx")
    tensors = [Tensor([[0.25] * COLS] * ROWS, name=each) for each in names]
    programs = 1 if "BLOCK_ROWS" in constants else ROWS
    strides = [each.stride(0) for each in tensors]
    run = kernel(root, module, f"softmax_{way}_{module}_kernel")
    return run[(programs,)](*tensors, *strides, *sizes, LOG=False, **constants)


def in_lines(root: Path, way: str) -> small_triton.Trace:
    """The trace of the naive lines, each a kernel."""
    cell = cells.read(root, LINES[way])
    with small_triton.record() as trace:
        for text in cell.texts():
            small_triton.run(text, Tensor=Tensor, empty=small_triton.empty, inf=float("inf"))
    return trace


def passes(trace: small_triton.Trace) -> list[tuple[str, str, str]]:
    """What a trace moves: ("read" or "write", the tensor, "MN" or "M") for the n-th time that each
    element of a tensor is read or written, in the order in which these begin."""
    found: dict[tuple, int] = {}
    times: dict[tuple, int] = {}
    for access in trace.accesses:
        for place in access.places:
            here = (access.kind, access.tensor.name, place)
            times[here] = times.get(here, 0) + 1
            one = (access.kind, access.tensor.name, times[here], access.tensor.shape)
            found[one] = found.get(one, 0) + 1
    out = []
    for (kind, name, _, (rows, cols)), elements in found.items():
        assert elements == rows * cols, f"{name} is not {kind}ed as a whole"
        out.append(({"load": "read", "store": "write"}[kind], name, "M" if cols == 1 else "MN"))
    return out


def moved(root: Path) -> dict[str, dict[str, list[tuple[str, str, str]]]]:
    """The passes of every rung, by direction."""
    return {
        way: {"naive": passes(in_lines(root, way))}
        | {rung: passes(launched(root, way, rung)) for rung in LAUNCHES[way]}
        for way in LINES
    }
