"""Calls of `kernels.mapped_rows`: from tensors as they lie to a launch, remembered as plans are.

Whatever a map takes is a view in the shape of x, broadcast by strides of 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .choose.mapped import NO_SCALE, ONE_SCALE, SCALES, Maps, choose_mapped
from .choose.vectors import ceil_div, vector_of_lines
from .kernels.mapped_rows import mapped_rows_kernel
from .launch import Launch, Memo, Workspace, cuda_index, current_device
from .layout import collapse
from .operations.operation import Operation, in_any_order
from .plan import _device_of
from .ways import Way

_calls = Memo()

CACHED = 1 << 23
"""Bytes of mask and bias that stay in the cache beside all rows that go by."""


class _Call:
    """The launches for tensors that lie alike.

    Args:
        op, maps: the compile-time constants.
        views: inputs and then results, all in the shape of x.
        n_inputs: how many are inputs.
        along: which have elements along a row.
        scale: if it is one number.
        dim: of the rows.
    """

    def __init__(
        self,
        op: Operation,
        maps: Maps,
        views: list[Tensor],
        n_inputs: int,
        along: list[bool],
        scale: float,
        dim: int,
    ):
        x = views[0]
        n_cols = x.shape[dim]
        one_row = [(1,) * (1 + len(views))]
        groups = collapse(x.shape, [view.stride() for view in views], dim)[::-1] or one_row
        n_rows = math.prod([group[0] for group in groups])
        of_maps = [i for i in range(op.inputs + op.numbers + maps.x, n_inputs) if along[i]]
        rows_of_maps = math.prod(g[0] for g in groups if any(g[1 + i] for i in of_maps))
        bytes_of_maps = rows_of_maps * n_cols * sum(views[i].element_size() for i in of_maps)
        if bytes_of_maps > CACHED and not maps.causal:
            # Rows with the same mask and bias follow each other, and find these in the cache.
            groups.sort(key=lambda group: any(group[1 + i] for i in of_maps))
        # A row of one element has no stride, and the part of a result has one for chunks.
        steps = [
            (1 if n_cols == 1 else view.stride(dim)) if elements else 0
            for view, elements in zip(views, along, strict=True)
        ]
        of_elements = [i for i, elements in enumerate(along) if elements]
        adjacent = all(steps[i] <= 1 for i in of_elements)
        counts = [n_cols, *(group[1 + i] for group in groups for i in of_elements)]
        numeric = [views[i].element_size() for i in of_elements if views[i].dtype != torch.bool]
        addresses = tuple(views[i].data_ptr() for i in of_elements)
        choice = choose_mapped(
            n_rows,
            n_cols,
            sum(views[i].element_size() for i in of_elements if i < n_inputs),
            vector_of_lines(min(numeric), addresses, tuple(counts)) if adjacent else 1,
            adjacent=adjacent,
            wide_index=max(n_cols * max(1, *steps), 2 * n_rows) >= 2**31,
            any_order=op.any_order,
            device=_device_of(x),
        )
        self.n_chunks = choice.n_chunks
        self.index = cuda_index(x)
        if maps.of_scale:
            steps[n_inputs + op.results + maps.of_mapped] = n_rows
        strides = tuple((step, *(group[1 + i] for group in groups)) for i, step in enumerate(steps))
        sizes = tuple(group[0] for group in groups)
        shape = (n_rows, n_cols, x.shape[-2] if maps.causal else 1)
        chunks = (choice.n_chunks, choice.chunk_cols)
        numbers = (strides[:n_inputs], strides[n_inputs:], sizes, shape, chunks, scale)
        # Fused, a product would be rounded in one place and not in another.
        options = {"num_warps": choice.num_warps, "enable_fp_fusion": False}
        programs = ceil_div(n_rows, choice.how.block_rows) * choice.n_chunks
        n_words = (1 + op.sums) * programs * choice.how.block_rows if choice.n_chunks > 1 else 1
        self.workspace = Workspace(n_words, zeroed=False)
        self.launches = []
        for how in choice.launches:
            constants = {"OP": op, "MAPS": maps, "HOW": how}
            self.launches.append(Launch(mapped_rows_kernel, programs, numbers, constants, options))

    def __call__(self, inputs: tuple[Tensor, ...], outs: tuple[Tensor, ...]) -> None:
        if self.index >= 0 and self.index != current_device():
            with torch.cuda.device(self.index):
                return self(inputs, outs)
        words = self.workspace.take(inputs[0].device)
        for launch in self.launches:
            launch.run(inputs, outs, words)


def run(
    op: Operation,
    elements: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    way: Way,
    dim: int,
    dtype: torch.dtype,
    *,
    before: bool = True,
    after: bool = False,
    empty: float = 0.0,
    x: Tensor | None = None,
    of_mapped: torch.dtype | None = None,
    of_scale: bool = False,
    of_sink: bool = False,
    invariant: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The results of an operation with maps.

    Args:
        op: the operation.
        elements, numbers: its inputs; elements in one shape, which is not empty, with any strides,
            numbers in that shape without `dim`.
        way: the maps.
        dim: of the rows, counted from the front.
        dtype: of the elements of the result; of the numbers if there are none.
        before, after, empty: see `Maps`.
        x: the elements before the maps, if the operation does not have them.
        of_mapped: dtype of the gradient at the mapped elements, if it is wanted.
        of_scale, of_sink: which other gradients are.
        invariant: the same bits for a row in every batch.
        out: where to write the elements of the result.

    Returns:
        The operation's results; then the gradient at the mapped elements, that at the scale (with 1
        along `dim`), and what that at the sink follows from (without `dim`), as far as wanted.
    """
    first = elements[0]
    if first.dim() == 0:
        elements = tuple([each.reshape(1) for each in elements])
        values: list[Any] = [t.reshape(1) if isinstance(t, Tensor) else t for t in way]
        way = Way(*values)
        x = None if x is None else x.reshape(1)
        results = run(
            op, elements, numbers, way, 0, dtype, before=before, after=after, empty=empty, x=x,
            of_mapped=of_mapped, of_scale=of_scale, of_sink=of_sink, invariant=invariant,
            out=None if out is None else out.view(1),
        )  # fmt: skip
        return tuple([each.reshape(()) for each in results])
    shape = first.shape
    without = shape[:dim] + shape[dim + 1 :]
    op = in_any_order(op) if invariant else op
    wide = torch.promote_types(dtype, torch.float32)
    scale = way.scale
    if isinstance(scale, float) and scale != 1.0 and wide == torch.float64:
        # A number of a launch has 24 bits.
        scale = torch.full((), scale, dtype=wide, device=first.device)
    of_rows = isinstance(scale, Tensor)
    maps = Maps(
        before,
        after,
        SCALES if of_rows else NO_SCALE if scale == 1.0 else ONE_SCALE,
        way.softcap or 0.0,
        way.bias is not None,
        way.where is not None,
        way.causal,
        before and way.sink is not None,
        way.safe,
        empty,
        x is not None,
        of_mapped is not None,
        of_scale,
        of_sink,
    )
    inputs, views, along = [*elements, *numbers], [], []
    for i, each in enumerate(inputs):
        views.append(each if i < len(elements) else each.unsqueeze(dim).expand(shape))
        along.append(i < len(elements))
    further = [(x, True), (way.bias, True), (way.where, True)]
    further += [(scale if of_rows else None, False), (way.sink if before else None, False)]
    for each, has_elements in further:
        if isinstance(each, Tensor):
            inputs.append(each)
            views.append(each.expand(shape))
            along.append(has_elements)
    kinds: list[tuple[bool, torch.dtype]] = [] if op.reduces else [(True, dtype)]
    kinds += [(False, wide)] * op.row_results
    kinds += [] if of_mapped is None else [(True, of_mapped)]
    kinds += [(False, wide)] * (of_scale + of_sink)
    key = (
        op, maps, dim, dtype, scale if not of_rows else None, shape, of_mapped, first.get_device(),
        None if out is None else (out.stride(), out.data_ptr() & 15),
        *((view.stride(), view.dtype, view.data_ptr() & 15) for view in views),
    )  # fmt: skip

    def prepare() -> _Call:
        outs = [torch.empty(shape if e else without, dtype=t, device="meta") for e, t in kinds]
        if out is not None:
            outs[0] = out
        results = [
            t if e else t.unsqueeze(dim).expand(shape)
            for (e, _), t in zip(kinds, outs, strict=True)
        ]
        number = 1.0 if of_rows else float(scale)  # pyright: ignore[reportArgumentType]
        flags = along + [e for e, _ in kinds]
        return _Call(op, maps, views + results, len(views), flags, number, dim)

    call = _calls.of(key, prepare)
    outs = []
    for i, (has_elements, kind) in enumerate(kinds):
        if i == 0 and out is not None:
            outs.append(out)
            continue
        size: Any = shape if has_elements else without
        if of_scale and i == op.results + (of_mapped is not None):
            size = (call.n_chunks, *without)
        outs.append(torch.empty(size, dtype=kind, device=first.device))
    call(tuple(inputs), tuple(outs))
    if of_scale:
        at = op.results + (of_mapped is not None)
        outs[at] = outs[at].sum(0).unsqueeze(dim)
    return tuple(outs)
