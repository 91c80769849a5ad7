"""What the alignment of rows does to the loads and stores of the single-block kernel."""

from __future__ import annotations

import triton

from softmax_bench.compilation import Request, compile_many

KERNEL = "triton_softmax.kernels.single_block:softmax_forward_single_block_kernel"
INTEGERS = ("x_row_stride", "y_row_stride", "n_cols")


def request(aligned: bool) -> Request:
    """The forward kernel on 1,024 float32 elements for sm_90."""
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", **dict.fromkeys(INTEGERS, "i32")}
    return Request(
        KERNEL,
        signature,
        {"LOG": False, "BLOCK_SIZE": 1024},
        "sm_90",
        aligned=INTEGERS if aligned else (),
    )


def generate() -> dict[str, str]:
    """A table of instructions by alignment."""
    lines = ["| row stride and length | loads | stores |", "| --- | --- | --- |"]
    for label, result in zip(
        ("multiples of 16", "anything"), compile_many([request(True), request(False)])
    ):
        cells = [
            ", ".join(f"{n} × `{name}`" for name, n in table.items())
            for table in (result.global_loads, result.global_stores)
        ]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    lines += [
        "",
        "Per thread, for 1,024 float32 elements on 4 warps, compiled for sm_90 by Triton "
        f"{triton.__version__}.",
        "",
    ]
    return {"docs/_computed/single-block-width.md": "\n".join(lines)}
