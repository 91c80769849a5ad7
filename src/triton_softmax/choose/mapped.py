"""Rows with maps: the constants of their geometry, and what it is chosen by."""

from __future__ import annotations

from typing import NamedTuple

from .device import Device
from .vectors import ceil_div, next_power_of_2

NO_SCALE, ONE_SCALE, SCALES = 0, 1, 2
"""`Maps.scaled`: not, by a number, by a number for each row."""


# --8<-- [start:maps]
class Maps(NamedTuple):
    """What happens to the elements before an operation sees them, or to a gradient behind it; in
    the order in which it happens. A kernel takes it as a single compile-time constant, `MAPS`."""

    before: bool = True
    """The first input of the operation is mapped; else it is taken as it is."""

    after: bool = False
    """The elements of the result are a gradient at the mapped elements, and become that at the
    elements."""

    scaled: int = NO_SCALE
    softcap: float = 0.0
    """The cap; 0 is none."""
    bias: bool = False
    where: bool = False
    causal: bool = False
    sink: bool = False
    safe: bool = False
    empty: float = 0.0
    """The result at a masked place."""

    x: bool = False
    """The elements before the maps are an input of their own."""
    of_mapped: bool = False
    """The gradient at the mapped elements is a result as well."""
    of_scale: bool = False
    """So is that at the scale of a row, a number for each chunk."""
    of_sink: bool = False
    """So is what the gradient at the sink follows from: forward the sink's share, backward the sum
    of the row."""


# --8<-- [end:maps]


class MappedRows(NamedTuple):
    """Whole rows in one program's registers, or rows walked along twice: `mapped_rows`."""

    block_rows: int
    """Rows per program, a power of two."""

    block_cols: int
    """Columns of a tile, a power of two."""

    whole: bool
    """The tiles have room for whole rows, which are read once."""

    vector: int
    """Divides the length of a row and all strides between rows; where these are all multiples of 16
    Triton sees it by itself."""

    wide_index: bool
    """Offsets in a row, or the number of rows, need 64 bits."""

    tiles: int = 1
    """How many lie side by side to hold whole rows."""

    stages: int = 1
    """Where rows are walked along, one more than the tiles that are on their way meanwhile."""

    publish: bool = True
    """Summarise the chunk, and leave its summary in the workspace if there are two launches. False
    in the second of them."""

    write: bool = True
    """Merge the summaries and write the chunk. False in the first of two launches."""


class MappedChoice(NamedTuple):
    """How `mapped_rows` is launched."""

    how: MappedRows
    """The constants."""
    num_warps: int
    n_chunks: int
    chunk_cols: int
    kernel: str = "mapped_rows"

    @property
    def launches(self) -> tuple[MappedRows, ...]:
        """The constants of each launch, in order."""
        if self.n_chunks == 1:
            return (self.how,)
        return self.how._replace(write=False), self.how._replace(publish=False)


ELEMENTS = 8192
"""Of a tile at most. Rows are walked along in tiles of a quarter: then many programs run at once,
each with its next tiles on their way."""

BYTES_PER_THREAD = 64
"""Of the elements of a row that are read: few warps, since a reduction within one needs no
barrier."""

SIDE_BY_SIDE = 16
"""Rows of a tile if the elements of a row do not lie side by side: then rows, as a rule, do."""


def choose_mapped(
    n_rows: int,
    n_cols: int,
    held: int,
    vector: int,
    *,
    adjacent: bool,
    wide_index: bool,
    any_order: bool,
    device: Device,
) -> MappedChoice:
    """The choice for rows with maps.

    Args:
        n_rows: number of rows.
        n_cols: number of columns.
        held: bytes of all elements that are read of one place.
        vector: elements per access that lengths and strides allow.
        adjacent: the elements of a row lie side by side in all tensors.
        wide_index: offsets in a row, or the number of rows, need 64 bits.
        any_order: the choice must not depend on the number of rows.
        device: what the kernel will run on.

    >>> from triton_softmax.choose import Device
    >>> facts = dict(adjacent=True, wide_index=False, any_order=False, device=Device(132))
    >>> choose_mapped(8 * 16 * 1024, 1024, 2, 8, **facts).how[:3]
    (1, 1024, True)
    >>> choose_mapped(10_000, 3000, 2, 8, **facts).how[:2]  # of which three make a row
    (1, 1024)
    >>> choose_mapped(4, 128_256, 4, 4, **facts).n_chunks  # few long rows are cut into chunks
    32
    """
    elements = ELEMENTS if held <= 8 else ELEMENTS // 2
    least_rows = 1 if adjacent else SIDE_BY_SIDE
    power = next_power_of_2(n_cols)
    per_warp = 32 * BYTES_PER_THREAD // min(4, next_power_of_2(held + 1) // 2)
    if power * least_rows <= elements:
        block_cols = max(16, power)
        block_rows = max(least_rows, 1024 // block_cols)
        while not any_order and block_rows > 1 and n_rows < block_rows * device.multiprocessors:
            block_rows //= 2
        num_warps = max(1, min(16, block_rows * block_cols // per_warp))
        how = MappedRows(block_rows, block_cols, True, vector, wide_index)
        if adjacent and power >= 1024 and 4 * n_cols <= 3 * power:
            num_warps = min(num_warps, power // 4 // (32 * vector))
            how = how._replace(block_cols=power // 4, tiles=3)
        return MappedChoice(how, num_warps, 1, power)
    programs = ceil_div(n_rows, least_rows)
    few = 8 * programs < 7 * device.multiprocessors and not any_order
    block_cols, num_warps = ELEMENTS // 4, 4
    if not adjacent:
        block_cols = elements // 2 // least_rows
        num_warps = max(1, min(16, elements // per_warp))
    elif held <= 4 and not (few or any_order) and n_rows <= 2 * device.multiprocessors:
        # A multiprocessor has a row or two, and needs more of these at a time to be busy.
        block_cols, num_warps = ELEMENTS, 8
    how = MappedRows(least_rows, block_cols, False, vector, wide_index, stages=3 if adjacent else 1)
    tiles = ceil_div(n_cols, block_cols)
    if few:
        wanted = ceil_div(2 * device.multiprocessors, programs)
        tiles = min(tiles, max(2, ceil_div(tiles, wanted)))
    chunk_cols = tiles * block_cols
    return MappedChoice(how, num_warps, ceil_div(n_cols, chunk_cols), chunk_cols)
