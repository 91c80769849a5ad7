"""Every geometry in each of its forms: any operation on small tensors by a choice of our own,
launched as a plan launches it.

Tiles and chunks are smaller than any that are chosen, so that few elements make several of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton._C.libtriton.interpreter import load
from triton.runtime.interpreter import TensorHandle

from kernel_cases import DEVICE, INTERPRETED, NAN, OPERATIONS, matrix, operands
from triton_softmax.config import Choice
from triton_softmax.config.constants import RowTile, SplitRows, SplitStrided, StridedTile, TwoPass
from triton_softmax.operations.operation import Operation
from triton_softmax.plan import launches_of

Inputs = tuple[torch.Tensor, ...]
CHUNK = 16
LANES = 1 if INTERPRETED else 128
"""On a GPU every thread that polls needs a word of its own."""


def rows_of(operation: str, n_rows: int, n_cols: int, dtype=torch.float32) -> Inputs:
    """Inputs whose rows start at different distances from a vector, in step with each other."""
    return operands(operation, n_rows, n_cols, dtype, gaps=(0, 2 * (16 // dtype.itemsize)))


# --- choices, from the columns, the elements of a vector, and whether rows have edges


def whole(n_cols: int) -> int:
    return max(16, triton.next_power_of_2(n_cols))


def packed_rows(n_cols, vector, edges, *, tiles=1, rows=4, of=1) -> Choice:
    """`of` is the vector, where something divides all rows."""
    how = RowTile(rows, 16 if tiles > 1 else whole(n_cols), of, False, tiles)
    return Choice("packed_rows", how, 4)


def aligned_rows(n_cols, vector, edges, *, tiles=1, rows=4) -> Choice:
    body = n_cols // vector * vector
    how = RowTile(rows, 16 if tiles > 1 else whole(body), vector, False, tiles, edges=True)
    return Choice("aligned_rows", how, 4)


def split_rows(
    n_cols, vector, edges, *, chunk=16, depth=0, pairs=False, keep_terms=False, apart=False
) -> Choice:
    n_chunks = triton.cdiv(n_cols, chunk)
    words = max(triton.next_power_of_2(n_chunks), LANES)
    how = SplitRows(
        block=triton.next_power_of_2(chunk),
        vector=vector,
        edges=edges,
        pairs=pairs,
        barrier=pairs and not INTERPRETED,
        keep_terms=keep_terms,
        depth=depth,
        wait=not INTERPRETED and not apart,
        backoff=0,
        publish=True,
        write=True,
        words=words,
        polls=max(1, words // 128),
    )
    return Choice("split_rows", how, 4, n_chunks=n_chunks, chunk_cols=chunk, apart=apart)


def strided(n_cols, vector, edges, *, inner=4, cols=0, of=1, wide=False) -> Choice:
    """`inner` strands side by side, of which a program holds all, in tiles of `cols` if given; `of`
    is the vector."""
    tiles = triton.cdiv(n_cols, cols) if cols else 1
    return Choice("strided", StridedTile(cols or whole(n_cols), inner, of, False, wide, tiles), 4)


def split_strided(n_cols, vector, edges, *, inner=4, cols=CHUNK, of=1, wide=False) -> Choice:
    n_chunks = triton.cdiv(n_cols, cols)
    chunks = max(triton.next_power_of_2(n_chunks), LANES // inner)
    polls = max(1, chunks * inner // 128)
    how = SplitStrided(
        cols, inner, of, False, wide, wait=not INTERPRETED, chunks=chunks, polls=polls
    )
    return Choice("split_strided", how, 4, n_chunks=n_chunks)


def two_pass(
    n_cols, vector, edges, *, inner=4, cols=4, tiles=2, of=1, wide=False, apart=False
) -> Choice:
    """All steps of so many tiles of `cols` in one launch; or, apart, chunks of two steps."""
    step = cols * tiles
    chunk = 2 * step if apart else triton.cdiv(n_cols, step) * step
    n_chunks = triton.cdiv(n_cols, chunk)
    how = TwoPass(cols, inner, of, wide, publish=True, write=True, tiles=tiles)
    return Choice("two_pass", how, 4, n_chunks=n_chunks, chunk_cols=chunk, apart=n_chunks > 1)


# --- launches


class Form(NamedTuple):
    """A geometry in one of its forms; called with inputs that are laid out for it."""

    choose: Callable[..., Choice]
    options: dict = {}
    float64: bool = True
    """Whether it takes float64, whose summaries do not fit the words that programs exchange."""

    @property
    def by_columns(self) -> bool:
        return self.choose in (strided, split_strided, two_pass)

    @property
    def exchanges(self) -> bool:
        """Whether programs tell each other of their parts."""
        return self.choose in (split_rows, split_strided, two_pass)

    def lay_out(self, inputs: Inputs) -> Inputs:
        """Rows as they are, or as columns whose elements lie apart, amid NaN."""

        def columns(x: torch.Tensor) -> torch.Tensor:
            return (matrix(*x.T.shape, x.dtype, gap=3).copy_(x.T) if x.dim() > 1 else x)[None]

        return tuple(map(columns, inputs)) if self.by_columns else inputs

    def launch(
        self,
        op: Operation,
        inputs: Inputs,
        outs: Inputs,
        *,
        words: torch.Tensor | None = None,
        programs: int | None = None,
        **options,
    ) -> None:
        """Write the results of an operation.

        Args:
            op: the operation.
            inputs, outs: (n_rows, n_cols), or (n_outer, n_cols, n_inner); numbers of the row
                without the columns.
            words: workspace in place of a fresh one, whose contents are those of old memory where
                nothing is read before it is written.
            programs: how many, whatever the choice says; more than there are tasks, for example.
            options: of the choice.
        """
        x = inputs[0]
        n_rows, n_cols = x.shape[:2]
        vector = 16 // min(x.element_size(), outs[0].element_size())
        strides = [each.stride(0) for each in (*inputs, *outs)]
        of_elements = [each.stride(0) for each in (*inputs, *outs) if each.dim() == x.dim()]
        edges = any(n % vector for n in (n_cols, *of_elements))
        choice = self.choose(n_cols, vector, edges, **{**self.options, **options})
        if self.by_columns:
            spread = [
                t if t.dim() == 3 else t.unsqueeze(1).expand(x.shape) for t in (*inputs, *outs)
            ]
            strides, cols, inner = zip(*(each.stride() for each in spread), strict=True)
            across = cols, (x.shape[2], *inner)
        else:
            across = ()
            in_step = len({stride % vector for stride in of_elements}) == 1
            assert in_step or choice.kernel == "packed_rows"
        launches, workspace = launches_of(op, choice, (n_rows, *strides), n_cols, *across)
        if workspace is not None and words is None:
            words = workspace.take(x.device) if workspace.zeroed else used(workspace.n_words)
        for launch in launches:
            launch.grid = programs or launch.grid
            launch.run(inputs, outs, *(() if words is None else (words,)))

    def __call__(
        self, operation: str, inputs: Inputs, *, out_dtype: torch.dtype | None = None, **options
    ) -> torch.Tensor:
        """The result, a row of it for each row. It lies amid NaN and is NaN itself before."""
        op, x = OPERATIONS.get(operation, operation), inputs[0]
        out_dtype = out_dtype or x.dtype
        if self.by_columns:
            shape = (1, x.shape[2]) if op.reduces else x.shape
            out = torch.full(shape, NAN, dtype=out_dtype, device=DEVICE)
            self.launch(op, inputs, (out,), **options)
            return out[0].T if out.dim() > 2 else out[0]
        width = 1 if op.reduces else x.shape[1]
        gap = x.stride(0) - x.shape[1] + 16 // min(x.element_size(), out_dtype.itemsize)
        out = matrix(len(x), width, out_dtype, gap=gap).fill_(NAN)  # in step with x
        out = out[:, 0] if op.reduces else out
        self.launch(op, inputs, (out,), **options)
        return out


def used(n_words: int) -> torch.Tensor:
    """Words as others have left them: every summary among them is NaN."""
    return torch.full((n_words,), -1, dtype=torch.int64, device=DEVICE)


FORMS = {
    "packed_rows": Form(packed_rows),
    "packed_rows-tiles": Form(packed_rows, {"tiles": 3, "rows": 2}),
    "aligned_rows": Form(aligned_rows),
    "aligned_rows-tiles": Form(aligned_rows, {"tiles": 3, "rows": 2}),
    "split_rows": Form(split_rows, float64=False),
    "split_rows-pipeline": Form(split_rows, {"depth": 1}, float64=False),
    "split_rows-two-launches": Form(split_rows, {"apart": True}, float64=False),
    "strided": Form(strided),
    "strided-tiles": Form(strided, {"cols": CHUNK}),
    "split_strided": Form(split_strided, float64=False),
    "two_pass": Form(two_pass),
    "two_pass-apart": Form(two_pass, {"apart": True}),
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


# --- launches as on a GPU, in the interpreter


def emulated(assembly, constraints, args, dtype, is_pure, pack):
    """What the assembly of the kernels does, for float16."""
    first, *others = (each.handle.data for each in args)
    if "prefetch" in assembly:
        first = np.zeros(first.shape, np.int32)
    elif "POLL" in assembly:
        assert "nanosleep.u32 -" not in assembly
        first = load(first.view(np.uint64), first != 0, np.ones_like(first), first.dtype)
    elif "max.f16x2" in assembly:
        halves = [np.atleast_1d(each).view(np.float16) for each in (first, *others)]
        first = np.fmax(*halves).view(np.int32).reshape(first.shape)
    elif assembly == "mul.rn.f32 $0, $1, $2;":
        first = first * others[0]
    else:
        assert assembly == "mov.b32 $0, $1;"
    shape = args[0].type.is_block() and args[0].type.shape
    return tl.tensor(TensorHandle(first, dtype), tl.block_type(dtype, shape) if shape else dtype)


def as_on_a_gpu(monkeypatch) -> None:
    """Programs prefetch, wait and hide what they hold; NumPy stands in for their assembly."""
    monkeypatch.setitem(globals(), "INTERPRETED", False)
    monkeypatch.setattr(tl, "inline_asm_elementwise", emulated)
