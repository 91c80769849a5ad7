"""What production kernels take of a multiprocessor: registers and spills, case by case.

The cases are what the chooser picks on an H200 for one shape of each geometry, for every operation.
Their table is committed, so that a change of a device function shows what it costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from softmax_bench.compilation import Compilation, Request, compile_many, geometry_request
from triton_softmax.choose import Choice, Device, Traits, choose_rows, choose_strided
from triton_softmax.plan import OPERATIONS

PATH = Path(__file__).resolve().parents[2] / "tests/library/kernels/compiled.json"
H200 = Device(132, nvidia=True)
ITEMSIZE = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}

SHAPES: dict[str, tuple[int, ...]] = {
    "packed_rows": (100_000, 4096),
    "aligned_rows": (100_000, 4097),
    "split_rows": (100_000, 2**17),
    "split_rows, few and odd": (8, 2**20 - 1),
    "strided": (64, 128, 256),
    "split_strided": (16, 4096, 64),
    "strided_loops": (4, 200_000, 64),
}
"""(n_rows, n_cols), or (n_outer, n_cols, n_inner), by the geometry that is chosen for it."""


class Case(NamedTuple):
    """A kernel as it is launched for a shape."""

    geometry: str
    operation: str
    dtype: str
    shape: tuple[int, ...]
    choice: Choice

    @property
    def requests(self) -> list[Request]:
        """One compilation for each launch, for sm_90."""
        return [
            geometry_request(
                self.choice.kernel,
                self.operation,
                self.dtype,
                how,
                num_warps=self.choice.num_warps,
                max_registers=self.choice.max_registers,
                # As the columns and strides of the shapes here are.
                aligned="strided" in self.choice.kernel,
            )
            for how in self.choice.launches
        ]


def traits_of(operation: str) -> Traits:
    """What a choice has to know of an operation."""
    op = OPERATIONS[operation]
    return Traits(op.inputs, op.finish_terms is not None, op.exp_in_finish, op.reduces)


def choose(operation: str, dtype: str, shape: tuple[int, ...], device: Device = H200) -> Choice:
    """The choice for contiguous tensors."""
    op, itemsize = OPERATIONS[operation], ITEMSIZE[dtype]
    moved = op.inputs + (not op.reduces)
    common = {"traits": traits_of(operation), "addresses": (0,) * moved, "device": device}
    if len(shape) == 2:
        return choose_rows(*shape, itemsize, strides=(shape[1],) * moved, **common)
    n_outer, n_cols, n_inner = shape
    return choose_strided(
        n_outer,
        n_cols,
        n_inner,
        itemsize,
        outer_strides=(n_cols * n_inner,) * moved,
        col_strides=(n_inner,) * moved,
        inner_strides=(1,) * moved,
        **common,
    )


def cases() -> list[Case]:
    """Every operation on every geometry in two dtypes, and softmax in the third."""
    return [
        Case(geometry, operation, dtype, shape, choose(operation, dtype, shape))
        for geometry, shape in SHAPES.items()
        for operation in OPERATIONS
        for dtype in ("bf16", "fp32", "fp16")
        if dtype != "fp16" or operation == "softmax"
    ]


def row(case: Case, request: Request, result: Compilation) -> dict[str, object]:
    """A line of the table."""
    return {
        "geometry": case.geometry,
        "operation": case.operation,
        "dtype": case.dtype,
        "constants": " ".join(
            f"{name}={int(value)}" for name, value in request.constants["HOW"]._asdict().items()
        ),
        "num_warps": request.num_warps,
        "max_registers": request.max_registers,
        "registers": result.registers,
        "spill_bytes": result.spill_bytes,
    }


def text(rows: list[dict[str, object]]) -> str:
    """The table as JSON, one case a line."""
    return "[\n" + ",\n".join(json.dumps(each) for each in rows) + "\n]\n"


def table() -> str:
    """The table, compiled anew."""
    flat = [(case, request) for case in cases() for request in case.requests]
    results = compile_many([request for _, request in flat])
    return text([row(*pair, result) for pair, result in zip(flat, results, strict=True)])
