"""Choose the kernel of a call and its constants: from numbers to a `Choice`.

The [tables][triton_softmax.config.measured] of measured constants decide on every device. They were
measured on H100 and H200 GPUs; elsewhere nobody has measured what they reach.
"""

from typing import Any

from . import splitting
from .calls import Columns, Device, Modified, Rows, Traits, ceil_div, next_power_of_2
from .constants import TILE_KERNELS, Choice, ModifiedRows, RowTile, StridedTile, TwoPass
from .measured import first, holding

BUSY_WARPS = 32  # of a multiprocessor, with loops
MANY_ROWS = 2**20  # fills any device; stands in where the choice must not depend on the count


def chosen(
    call: Rows | Modified | Columns, traits: Traits, device: Device, kernel: str | None = None
) -> Choice:
    """Return the choice for a call, by the tables; or that of a `kernel`, to compare them on rows:
    "packed_rows", "aligned_rows" or "split_rows".

    Raises:
        ValueError: the kernel does not support this shape.
    """
    if kernel is not None and isinstance(call, Rows):
        return named(kernel, call, traits, device)
    if isinstance(call, Modified):
        return modified_rows(call, traits, device)
    if isinstance(call, Rows):
        return measured_rows(call, traits, device)
    return measured_columns(call, traits, device)


def facts_of(call: Rows | Modified | Columns, traits: Traits, device: Device) -> dict[str, Any]:
    """Return a call as the columns of the tables; `load` is rows, or 32 columns, a
    multiprocessor."""
    groups = call.groups(32) if isinstance(call, Columns) else call.n_rows
    facts = call._asdict()
    facts.update(traits._asdict())
    facts.update(cols=call.n_cols, terms=traits.keeps_terms, exp=traits.exp_in_finish)
    power = next_power_of_2(call.n_cols)
    facts.update(power=power, full=call.n_cols == power, load=groups / device.multiprocessors)
    if isinstance(call, Columns):
        facts.update(slice=call.n_cols * call.n_inner)
    facts["programs"] = groups * ceil_div(call.n_cols, 512) / device.multiprocessors
    for block in (2048, 4096, 8192):
        facts[f"of_{block}"] = ceil_div(call.n_cols, block)
        facts[f"load_{block}"] = groups * facts[f"of_{block}"] / device.multiprocessors
    return facts


# --- rows of adjacent elements


def named(kernel: str, rows: Rows, traits: Traits, device: Device) -> Choice:
    """Return the choice for rows on a kernel by name."""
    split, edges = kernel == "split_rows", kernel == "aligned_rows"
    longest = splitting.MAX_SPLIT_COLS if split else splitting.MAX_TILE_COLS
    if split and rows.itemsize == 8:
        raise ValueError(
            "split_rows packs its summaries as two float32 numbers and does not take float64"
        )
    if rows.n_cols > longest:
        verb = "splits" if split else "holds"
        raise ValueError(
            f"{kernel} {verb} rows of at most {longest:,} columns, not {rows.n_cols:,}"
        )
    if edges and rows.vector == 1:
        raise ValueError(
            "aligned_rows needs tensors that start on 16 bytes and row strides that agree modulo a "
            "vector"
        )
    if split:
        return split_rows(rows.in_whole(), traits, device)
    rows = rows._replace(edges=True) if edges else rows.without_edges()
    return row_tile(rows, traits, device)


def measured_rows(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Choose whole rows in one program, else chunks on several programs, else loops."""
    if not (traits.any_order and rows.n_cols > splitting.INVARIANT_TILE_COLS):
        facts = facts_of(rows, traits, device)
        # A body that began within a group of elements would add other elements first.
        within = traits.any_order and rows.edges and rows.divisor < splitting.group_of(rows.n_cols)
        no_edges = within or first("without_edges", facts) is not None
        rows = rows.without_edges() if no_edges else rows.in_whole()
        facts.update(edges=rows.edges, vector=rows.vector)
        if first("one_program", facts) is not None:
            return row_tile(rows, traits, device)
    one = rows._replace(n_rows=1) if traits.any_order else rows
    if not splitting.can_be_split(one):
        return row_loops(one, traits, device)
    return (split_invariant if traits.any_order else split_rows)(rows, traits, device)


def count_tiles(length: int, block_cols: int) -> int:
    """Return how many tiles cover a length: never seven, and of more than eight an even number, so
    that fewer kernels are compiled for each power of two."""
    tiles = max(1, ceil_div(length, block_cols))
    return tiles + (tiles == 7 or tiles > 8 and tiles % 2)


def row_tile(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Put whole rows into one program: `aligned_rows` if they have edges, else `packed_rows`. It
    takes enough rows to stay busy, unless that leaves too few programs to fill the device."""
    vector, edges = rows.vector, rows.edges
    body = rows.n_cols // vector * vector  # 4,097 columns have a body of 4,096
    power = next_power_of_2(body)
    facts = facts_of(rows, traits, device)
    facts.update(bytes=vector * rows.itemsize, body=body)
    facts.update(full=body == power, eighths=ceil_div(8 * body, power))
    facts["parts"] = first("row_parts", facts)["parts"]
    least = 16 if edges else splitting.group_of(rows.n_cols) if traits.any_order else 1
    block_cols = max(least, power // facts["parts"])
    tiles = count_tiles(body, block_cols)
    lanes = first("row_lanes", facts)
    enough_for_all = next_power_of_2(rows.n_rows // (2 * device.multiprocessors))
    block_rows = min(lanes["rows"], max(1, lanes["lanes"] // (block_cols if tiles == 1 else power)))
    block_rows = min(block_rows, max(enough_for_all, lanes["least"] // power))
    warps = first("row_warps", facts)
    num_warps = block_rows * block_cols // (32 * warps["each"])
    num_warps = max(warps["fewest"], min(warps["most"], num_warps))
    barrier = device.nvidia and first("row_barrier", facts) is not None
    how = RowTile(block_rows, block_cols, vector, barrier, tiles, edges)
    return Choice(TILE_KERNELS[edges], how, num_warps)


def split_rows(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Cut rows as the first candidate of the tables whose chunks are all resident at once; else use
    two launches."""
    facts = facts_of(rows, traits, device)
    few = first("split_few_rows", facts)
    for values in ([few] if few else []) + list(holding("split_rows", facts)):
        taken = splitting.Candidate(**values)
        if splitting.runs_at_once(rows.n_cols, taken, device):
            return splitting.split_as(taken, rows, traits, device)
    return splitting.split_in_two_launches(rows, traits, device)


def split_invariant(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Cut rows into chunks that do not depend on how many rows there are: a chunk's sums are
    relative to its own maximum."""
    measured: Any = first("split_invariant", facts_of(rows, traits, device))
    candidates = [splitting.Candidate(**measured)] if measured else []
    many: Any = holding("split_rows", facts_of(rows._replace(n_rows=MANY_ROWS), traits, device))
    for values in many:
        taken = splitting.Candidate(**values)
        block = min(taken.block, splitting.LONGEST_CHUNK)  # the most terms of an integer sum
        registers = taken.registers + splitting.INTEGER_SUM_REGISTERS
        candidates.append(taken._replace(block=block, registers=registers))
    for taken in candidates:
        if splitting.runs_at_once(rows.n_cols, taken, device, splitting.parts_of(rows.n_cols)):
            return splitting.split_as(taken, rows, traits, device)
    return splitting.split_in_two_launches(rows, traits, device)


def on_ranks(rows: Rows, traits: Traits, device: Device, ranks: int, sums: int = 1) -> Choice:
    """Cut a rank's part of rows into chunks for two launches, between which ranks send their words.
    `rows` are as long as the largest part; or, if sums must not depend on their order, as whole
    rows. So ranks decide alike on the number of chunks."""
    if traits.any_order:
        choice = split_invariant(rows, traits, device)
        choice = choice._replace(n_chunks=choice.n_chunks // ranks, parts=choice.parts // ranks)
    else:
        narrow = rows.itemsize == 2 and rows.vector > 1 and not rows.edges
        narrow = narrow and traits.inputs == sums == 1
        registers = 64 if narrow else 168 if rows.itemsize * traits.inputs == 8 else 128
        block = min(splitting.LONGEST_CHUNK, next_power_of_2(rows.n_cols))
        taken = splitting.Candidate(block, registers)
        choice = splitting.split_as(taken, rows, traits, device)
    how: Any = choice.how
    words, polls = splitting.lanes_and_polls(ranks * choice.n_chunks, choice.num_warps)
    how = how._replace(wait=False, depth=0, words=words, polls=polls, ranks=ranks)
    return choice._replace(how=how, max_programs=None, apart=True)


def in_one_loop(modified: Modified, traits: Traits, device: Device, ranks: int) -> Choice:
    """Read a rank's part of a row in the loop of one program, whatever its length: so that ranks
    need not know of each other how long their parts are."""
    tile: Any = first(
        "modified_loops", facts_of(modified._replace(n_rows=MANY_ROWS), traits, device)
    )
    cols = min(tile["cols"], max(16, next_power_of_2(modified.n_cols)))
    how = ModifiedRows(1, cols, False, modified.vector, modified.wide_index, stages=tile["stages"])
    warps = max(1, min(tile["warps"], cols // 64))
    steps = max(1, ceil_div(modified.n_cols, cols))
    choice = in_loops("modified_rows", how, warps, modified.n_cols, steps)
    how: Any = choice.how
    return choice._replace(how=how._replace(ranks=ranks), n_chunks=1, apart=True)


def row_loops(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Read rows in loops, as (n_rows, n_cols, 1): the fallback when no row kernel supports them."""
    columns = Columns(rows.n_rows, rows.n_cols, 1, rows.itemsize, 1, 1, wide_index=False)
    return two_pass(columns, traits, device)


# --- columns


def measured_columns(columns: Columns, traits: Traits, device: Device) -> Choice:
    """Choose slices that the cache holds, else split columns if all chunks are resident at once,
    else whole ones if they are short, else loops."""
    if traits.any_order:
        columns = columns._replace(n_outer=1)
    facts = facts_of(columns, traits, device)
    sliced = slices(columns, traits, device)
    if sliced:
        return sliced
    if device.nvidia and first("columns_split", facts) is not None:
        tile = first("column_chunks", facts)
        split = splitting.split_strided(tile["tall"], tile["wide"], tile["warps"], columns, device)
        if split:
            return split
    if first("columns_whole", facts) is not None:
        return strided_tile(columns, traits, device)
    return two_pass(columns, traits, device)


def strided_tile(columns: Columns, traits: Traits, device: Device) -> Choice:
    """Put whole columns into a tile, enough side by side to fill cache lines, or as many as
    registers allow."""
    facts = facts_of(columns, traits, device)
    power = next_power_of_2(columns.n_cols)
    least = splitting.group_of(columns.n_cols) if traits.any_order else 1
    block_cols = power if columns.n_cols == power else max(least, power // 8)
    tiles = ceil_div(columns.n_cols, block_cols)
    lines = first("column_lines", facts)
    block_inner = columns.side_by_side(max(lines["wide"], lines["lanes"] // power))
    facts["load"] = columns.groups(block_inner) / device.multiprocessors
    threads = first("column_threads", facts)
    while block_inner > 8 and columns.groups(block_inner) < device.multiprocessors:
        block_inner //= 2
    lanes = tiles * block_cols * block_inner
    num_warps = min(16, next_power_of_2(ceil_div(lanes, 32 * threads["each"])))
    barrier = device.nvidia and bool(lines["barrier"])
    tile = block_cols, block_inner, columns.stated_vector, barrier
    how = StridedTile(*tile, columns.wide_index, tiles)
    return Choice("strided", how, min(16, num_warps * threads["times"]))


def two_pass(
    columns: Columns, traits: Traits, device: Device, given: dict[str, int] | None = None
) -> Choice:
    """Read long columns twice, in enough chunks to keep the device busy; in tiles of the tables, or
    in others to compare them."""
    fold = 1
    if not traits.any_order:  # bits stay those of lines as they are
        columns, fold = columns.folded(to_cache_lines=True)
    tile: Any = given or first("column_loops", facts_of(columns, traits, device))
    block_inner = columns.side_by_side(tile["wide"])
    block_cols = tile["tall"] * tile["wide"] // block_inner  # the fewer columns, the taller
    busy = BUSY_WARPS * device.multiprocessors // (tile["warps"] * columns.groups(block_inner))
    n_chunks = max(1, min(busy, ceil_div(columns.n_cols, tile["tiles"] * block_cols)))
    shape = block_cols, block_inner, tile["tiles"], tile["warps"]
    return read_twice(columns, *shape, n_chunks, fold)


def slices(columns: Columns, traits: Traits, device: Device) -> Choice | None:
    """Read outer slices twice, a program each, which the cache holds the second time; None if lines
    do not fit a tile, or slices are too few."""
    columns, fold = columns.folded(to_cache_lines=False)
    if fold == 1 or traits.any_order or columns.n_outer < device.multiprocessors:
        return None
    tile = first("column_slices", facts_of(columns, traits, device) | {"fold": float(fold)})
    if tile is None:
        return None
    wide = next_power_of_2(columns.n_inner)
    tall = max(1, tile["lanes"] // wide)
    return read_twice(columns, tall, wide, tile["tiles"], tile["warps"], n_chunks=1, fold=fold)


def read_twice(
    columns: Columns, tall: int, wide: int, tiles: int, num_warps: int, n_chunks: int, fold: int
) -> Choice:
    """Read columns in loops over tiles of tall × wide elements, in about so many chunks. So many
    lines of the tensor count as one."""
    steps = ceil_div(columns.n_cols, n_chunks * tall * tiles)
    partials = fold * ceil_div(columns.n_cols, steps * tall * tiles)
    # 16, 64, 256 or 1,024: the fewer, the fewer kernels are compiled.
    at_once = max(16, min(1024, 4 ** ceil_div(partials.bit_length(), 2)))
    how = TwoPass(
        tall, wide, columns.stated_vector, columns.wide_index, publish=True, write=True,
        tiles=tiles, fold=fold, merged=4096 // at_once, at_once=at_once,
    )  # fmt: skip
    choice = in_loops("two_pass", how, num_warps, columns.n_cols, steps)
    # If lines are wider than a tile, columns are spread over programs.
    return choice._replace(apart=choice.apart or fold > 1 and columns.n_inner > wide)


def in_loops(kernel: str, how: Any, num_warps: int, n_cols: int, steps: int) -> Choice:
    """Cut columns into chunks of `steps` steps of a loop; several take launches of their own."""
    chunk_cols = steps * how.tiles * how.block_cols
    n_chunks = ceil_div(n_cols, chunk_cols)
    # The loop counter reaches the end of the last tile, beyond any offset.
    how = how._replace(wide_index=how.wide_index or n_chunks * chunk_cols >= 2**31)
    return Choice(kernel, how, num_warps, None, n_chunks, chunk_cols, None, n_chunks > 1)


# --- rows with score modifiers


def modified_rows(masked: Modified, traits: Traits, device: Device) -> Choice:
    """Choose by the tables: whole rows in one program, if it has room for them; else rows read
    twice, in chunks if there are few rows.

    >>> from triton_softmax.config import Device, Modified, Traits
    >>> def choice(n_rows, n_cols, held):
    ...     masked = Modified(n_rows, n_cols, held, vector=8, adjacent=True, wide_index=False)
    ...     return modified_rows(masked, Traits(inputs=1), Device(132))
    >>> choice(8 * 16 * 1024, 1024, held=2).how[:3], choice(10_000, 3000, held=2).how[:3]
    ((1, 1024, True), (1, 1024, True))
    >>> choice(4, 128_256, held=4).n_chunks
    32
    """
    facts = facts_of(masked, traits, device)
    n_rows, n_cols, _, vector, adjacent, wide_index = masked
    tile = first("modified_tiles", facts)
    power = next_power_of_2(n_cols)
    if power * tile["rows"] <= tile["lanes"]:
        block_cols = max(16, power)
        block_rows = max(tile["rows"], 1024 // block_cols)
        n_rows = MANY_ROWS if traits.any_order else n_rows
        while block_rows > 1 and n_rows < block_rows * device.multiprocessors:
            block_rows //= 2
        num_warps = max(1, min(16, block_rows * block_cols // (32 * tile["each"])))
        how = ModifiedRows(block_rows, block_cols, True, vector, wide_index)
        if adjacent and power >= 1024 and 4 * n_cols <= 3 * power:  # three tiles make a row
            num_warps = min(num_warps, power // 4 // (32 * vector))
            how = how._replace(block_cols=power // 4, tiles=3)
        return Choice("modified_rows", how, num_warps, chunk_cols=power)
    programs = ceil_div(n_rows, tile["rows"])
    facts["load"] = programs / device.multiprocessors
    loop = first("modified_loops", facts)
    shape = tile["rows"], loop["cols"], False, vector, wide_index
    how = ModifiedRows(*shape, stages=loop["stages"])
    parts = splitting.parts_of(n_cols) if traits.any_order else 1
    if parts > 1:
        each = n_cols // parts
        return Choice("modified_rows", how, loop["warps"], None, parts, each, None, True, parts)
    tiles = ceil_div(n_cols, loop["cols"])
    if first("modified_chunks", facts) is not None:
        wanted = ceil_div(2 * device.multiprocessors, programs)
        tiles = min(tiles, max(2, ceil_div(tiles, wanted)))
    return in_loops("modified_rows", how, loop["warps"], n_cols, tiles)
