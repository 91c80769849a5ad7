"""Every geometry, launched by hand: any operation on small tensors, without dispatch.

A tile here is smaller than any that is chosen, so that a few elements make several programs, chunks
and tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton

from kernel_cases import DEVICE
from triton_softmax.config.space import (
    RowTile,
    SplitRows,
    SplitStrided,
    StridedTile,
    TwoPass,
)
from triton_softmax.kernels.split_rows import split_rows_kernel
from triton_softmax.kernels.split_strided import split_strided_kernel
from triton_softmax.kernels.strided import strided_kernel
from triton_softmax.kernels.tile import tile_kernel
from triton_softmax.kernels.two_pass import two_pass_kernel
from triton_softmax.operations.operation import Operation

Inputs = tuple[torch.Tensor, ...]
BLOCK_INNER = 4


class Geometry(NamedTuple):
    """A kernel and one way to launch it."""

    label: str
    kernel: str
    """Its module in `kernels`."""
    launch: Callable[..., None]
    """Takes an operation, its inputs, the results, and the words of the workspace if it has any."""
    dim: int = 1
    """Along which the operation runs, of (n_rows, n_cols) and of (n_outer, n_cols, n_inner)."""
    shape: tuple[int, ...] = (3, 77)
    """An odd length, several programs, and chunks of which the last is not full."""
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
    """Some that it takes: all, or those of which a summary fits one word."""
    n_words: int = 0
    """Of the workspace, in which programs look for the summaries of others."""
    zeroed: bool = True
    """Whether they look for words that nobody may have written."""

    def workspace(self) -> tuple[torch.Tensor, ...]:
        """The words, if there are any; rubbish if they need not be zero."""
        fill = 0 if self.zeroed else -1
        words = torch.full((self.n_words,), fill, dtype=torch.int64, device=DEVICE)
        return (words,) if self.n_words else ()

    def __call__(self, op: Operation, *inputs: torch.Tensor) -> torch.Tensor:
        """The result; what is not written stays NaN."""
        shape = list(inputs[0].shape)
        if op.reduces:
            del shape[self.dim]
        out = torch.full(shape, float("nan"), dtype=inputs[0].dtype, device=inputs[0].device)
        self.launch(op, inputs, (out,), *self.workspace())
        return out


def row_strides(inputs: Inputs) -> tuple[int, ...]:
    return tuple(x.stride(0) for x in inputs)


def tile(*, vector: int, edges: bool):
    """Whole rows, two to a program."""

    def launch(op: Operation, inputs: Inputs, outs: Inputs) -> None:
        n_rows, n_cols = inputs[0].shape
        how = RowTile(2, triton.next_power_of_2(n_cols), vector, barrier=False, edges=edges)
        tile_kernel[(triton.cdiv(n_rows, how.block_rows),)](
            inputs, outs, row_strides(inputs), row_strides(outs), n_rows, n_cols, op, how
        )

    return launch


def split_rows(*, depth: int = 0, keep_terms: bool = False, two_launches: bool = False):
    """Rows in chunks of 20 columns. With a pipeline, three programs do all of them."""
    chunk_cols = 20

    def launch(op: Operation, inputs: Inputs, outs: Inputs, words: torch.Tensor) -> None:
        n_rows, n_cols = inputs[0].shape
        n_chunks = triton.cdiv(n_cols, chunk_cols)
        how = SplitRows(
            block=triton.next_power_of_2(chunk_cols),
            vector=4,
            edges=True,
            pairs=inputs[0].element_size() == 2,
            barrier=False,
            keep_terms=keep_terms and op.finish_terms is not None,
            depth=depth,
            wait=False,
            backoff=0,
            publish=True,
            write=True,
            words=128,
            polls=1,
        )
        launches = (how,)
        if two_launches:
            launches = how._replace(write=False), how._replace(publish=False)
        for part in launches:
            split_rows_kernel[(3 if depth else n_rows * n_chunks,)](
                inputs,
                outs,
                words,
                row_strides(inputs),
                row_strides(outs),
                n_rows,
                n_cols,
                n_chunks,
                chunk_cols,
                0,
                op,
                part,
            )

    return launch


def triples(inputs: Inputs, outs: Inputs, op: Operation) -> tuple[tuple, tuple]:
    """Strides along (outer, column, inner) of the inputs and of the results."""

    def of(x: torch.Tensor) -> tuple[int, int, int]:
        return x.stride() if x.dim() == 3 else (x.stride(0), 0, x.stride(1))

    return tuple(map(of, inputs)), tuple(map(of, outs))


def groups_of_columns(x: torch.Tensor) -> int:
    return x.shape[0] * triton.cdiv(x.shape[2], BLOCK_INNER)


def strided(op: Operation, inputs: Inputs, outs: Inputs) -> None:
    _, n_cols, n_inner = inputs[0].shape
    how = StridedTile(
        block_cols=triton.next_power_of_2(n_cols),
        block_inner=BLOCK_INNER,
        vector=1,
        barrier=False,
        wide_index=False,
    )
    strided_kernel[(groups_of_columns(inputs[0]),)](
        inputs, outs, *triples(inputs, outs, op), n_cols, n_inner, op, how
    )


def split_strided(op: Operation, inputs: Inputs, outs: Inputs, words: torch.Tensor) -> None:
    _, n_cols, n_inner = inputs[0].shape
    how = SplitStrided(
        block_cols=32,
        block_inner=BLOCK_INNER,
        vector=1,
        barrier=False,
        wide_index=False,
        wait=False,
        chunks=4,
        polls=1,
    )
    n_chunks = triton.cdiv(n_cols, how.block_cols)
    programs = groups_of_columns(inputs[0]) * n_chunks
    split_strided_kernel[(programs,)](
        inputs, outs, words, *triples(inputs, outs, op), n_cols, n_inner, n_chunks, 0, op, how
    )


def two_pass(*, n_chunks: int):
    """Tiles of 16 elements, in one launch, or in two that cut the dimension into chunks."""

    def launch(op: Operation, inputs: Inputs, outs: Inputs, words: torch.Tensor) -> None:
        _, n_cols, n_inner = inputs[0].shape
        how = TwoPass(
            block_cols=16,
            block_inner=BLOCK_INNER,
            vector=1,
            wide_index=False,
            publish=True,
            write=True,
        )
        programs = groups_of_columns(inputs[0]) * n_chunks
        launches = (how,)
        if n_chunks > 1:
            launches = how._replace(write=False), how._replace(publish=False)
        for part in launches:
            two_pass_kernel[(programs,)](
                inputs,
                outs,
                words,
                *triples(inputs, outs, op),
                n_cols,
                n_inner,
                n_chunks,
                triton.cdiv(n_cols, n_chunks),
                op,
                part,
            )

    return launch


COLUMNS = (2, 77, 5)

GEOMETRIES = (
    Geometry("packed_rows", "tile", tile(vector=1, edges=False)),
    Geometry("aligned_rows", "tile", tile(vector=4, edges=True)),
    *(
        Geometry(label, "split_rows", split_rows(**how), dtypes=(dtype,), n_words=3 * 4)
        for label, dtype, how in (
            ("split_rows-depth-0", torch.float16, {"depth": 0}),
            ("split_rows-depth-1", torch.float32, {"depth": 1}),
            ("split_rows-depth-2", torch.float32, {"depth": 2}),
            ("split_rows-keep-terms", torch.float32, {"depth": 1, "keep_terms": True}),
            ("split_rows-two-launches", torch.float32, {"two_launches": True}),
        )
    ),
    Geometry("strided", "strided", strided, shape=COLUMNS),
    Geometry(
        "split_strided",
        "split_strided",
        split_strided,
        shape=COLUMNS,
        dtypes=(torch.float32,),
        n_words=2 * 2 * 3 * BLOCK_INNER,
    ),
    *(
        Geometry(
            label,
            "two_pass",
            two_pass(n_chunks=n_chunks),
            shape=COLUMNS,
            n_words=2 * 2 * n_chunks * 2 * BLOCK_INNER,
            zeroed=False,
        )
        for label, n_chunks in (("two_pass-one-launch", 1), ("two_pass-two-launches", 3))
    ),
)
"""Each geometry, in each of its forms."""
