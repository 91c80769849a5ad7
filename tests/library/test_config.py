"""Which kernel and how: what every choice keeps to, on both sides of every measured threshold."""

import itertools
import random
from pathlib import Path
from typing import get_type_hints

import pytest

from triton_softmax import config, plan
from triton_softmax.config import (
    Choice,
    Device,
    Modified,
    Traits,
    columns_of,
    rows_of,
    splitting,
)
from triton_softmax.config import choose as chooser
from triton_softmax.config.calls import Columns, Rows, next_power_of_2
from triton_softmax.config.constants import TILE_KERNELS as TILES
from triton_softmax.config.constants import SplitStrided, TwoPass
from triton_softmax.config.measured import ANY, TABLES
from triton_softmax.operations import OPERATIONS

H200 = Device(132, nvidia=True)
DEVICES = {"any": Device(), "H200": H200, "one": Device(1, True), "A100": Device(108, True)}
NAMES = ("softmax", "log_softmax", "logsumexp")
SOFTMAXES = {name + end: OPERATIONS[name + end] for name in NAMES for end in ("", "_backward")}
TRAITS = {name: plan.traits_of(op) for name, op in SOFTMAXES.items()}
TRAITS |= {"invariant": Traits(1, True, any_order=True), "loss": Traits(1, numbers=4)}
TRAITS |= {"invariant backward": Traits(2, any_order=True)}
SOFTMAX, SOFTMAX_VJP, LOGSUMEXP = (
    TRAITS[name] for name in ("softmax", "softmax_backward", "logsumexp")
)

on_every_device = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
of_every_kind = pytest.mark.parametrize("traits", TRAITS.values(), ids=TRAITS)
of_every_size = pytest.mark.parametrize("itemsize", [2, 4, 8])


def thresholds(prefix: tuple[str, ...], names: tuple[str, ...]) -> list[float]:
    """The limits of these numbers in the tables whose names begin like this."""
    limits = [
        limit
        for table, lines in TABLES.items()
        if table.startswith(prefix)
        for line in lines
        for limit in line.limits
        if limit.name in names
    ]
    return sorted({n for limit in limits for n in (limit.low, limit.high) if 0 < n < ANY})


def around(numbers) -> list[int]:
    return sorted({max(1, int(n) + step) for n in numbers for step in (-1, 0, 1)})


def of_load(loads, device: Device) -> list[int]:
    return around([1, 7, *(load * device.multiprocessors for load in loads), 2**20])


OF_ROWS = ("row", "split", "one", "without")
LENGTHS = around([*thresholds(OF_ROWS, ("cols", "body")), *(2**k for k in range(23)), 2**24])
LOADS = thresholds(OF_ROWS, ("load", "load_2048", "load_4096", "load_8192"))
COLUMNS = around([*thresholds(("column",), ("cols", "power")), *(2**k for k in range(18)), 10**6])


def is_power_of_2(n: int) -> bool:
    return n >= 1 and n & (n - 1) == 0


def rows_apart(n_rows, n_cols, itemsize, traits, gap=0, address=0) -> Rows:
    """Rows as a choice sees them: those of inputs lie `gap` elements apart."""
    strides = (n_cols + gap,) * traits.inputs + (n_cols,) * (not traits.reduces)
    addresses = (address,) + (0,) * (len(strides) - 1)
    return rows_of(n_rows, n_cols, itemsize, addresses, strides)


def choose(n_rows, n_cols, itemsize, traits=SOFTMAX, device=H200, name=None, **lie) -> Choice:
    rows = rows_apart(n_rows, n_cols, itemsize, traits, **lie)
    return chooser.chosen(rows, traits, device, name)


def check_launch(choice: Choice, n_groups: int, device: Device) -> None:
    """It can be launched: plain numbers, whose programs are counted in 31 bits."""
    assert choice.programs(n_groups) < 2**31 and 1 <= choice.num_warps <= 32
    assert is_power_of_2(choice.num_warps)
    assert choice.max_registers is None or (device.nvidia and choice.max_registers <= 255)
    for how in choice.launches:
        assert {n: type(value) for n, value in how._asdict().items()} == get_type_hints(type(how))
        assert device.nvidia or not (getattr(how, "wait", False) or getattr(how, "barrier", False))
    if choice.apart:
        publish, *merge, write = choice.launches
        assert len(merge) == (choice.kernel == "two_pass")
        assert publish._replace(publish=False, write=True) == write and not publish.write
        assert not getattr(publish, "wait", False), "all words are there, and nobody waits"


def check_chunks(choice: Choice, n_cols: int, device: Device, lanes: int, polled: int) -> None:
    """Chunks hold all columns, none is idle, all words are read, and all that wait run at once."""
    chunk = choice.chunk_cols or choice.how.block_cols
    assert chunk * choice.n_chunks >= n_cols
    if choice.how.wait and choice.n_chunks > 1:
        resident = device.resident_programs(choice.max_registers, choice.num_warps)
        assert choice.n_chunks <= min(lanes, resident)
    assert is_power_of_2(lanes) and choice.how.polls * 32 * choice.num_warps == polled


def check_rows(choice: Choice, rows: Rows, device: Device, any_order: bool = False) -> None:
    how, n_cols = choice.how, rows.n_cols
    groups = rows.n_rows
    if choice.kernel in TILES:
        edges = choice.kernel == TILES[1]
        body = n_cols // how.vector * how.vector if edges else n_cols
        assert how.vector == (rows.vector if edges else rows.divisor)
        assert all(map(is_power_of_2, (how.block_cols, how.block_rows)))
        assert how.block_cols % how.vector == 0
        assert how.tiles in (1, 2, 3, 4, 5, 6, *range(8, 33, 2))
        assert how.tiles * how.block_cols >= body and how.block_rows * how.block_cols <= 2**16
        groups = -(-groups // how.block_rows)
    elif choice.kernel == "split_rows":
        assert rows.itemsize < 8 and choice.chunk_cols <= how.block and how.words >= choice.n_chunks
        assert choice.chunk_cols % how.vector == 0 and not (how.depth == 2 and how.keep_terms)
        assert not how.edges or how.vector == 16 // rows.itemsize
        assert choice.n_chunks <= splitting.MAX_CHUNKS
        check_chunks(choice, n_cols, device, how.words, how.words)
        groups = min(groups, 2**16) if any_order else groups
    else:
        assert choice.kernel == "two_pass"
        assert choice.chunk_cols * choice.n_chunks >= n_cols
        assert rows.itemsize == 8 or n_cols > splitting.MAX_SPLIT_COLS or groups > 2**20
    check_launch(choice, groups, device)


@on_every_device
@of_every_kind
@of_every_size
def test_rows_on_both_sides_of_every_threshold(itemsize, traits, device):
    """Every call gets a choice, and a possible one."""
    counts = of_load(LOADS, device)
    random.Random(0).shuffle(counts)
    lies = itertools.cycle(((0, 0), (1, 0), (0, itemsize), (16 // itemsize, 0)))
    counts = itertools.cycle(counts)
    for n_cols, _ in itertools.product(LENGTHS, range(2)):
        (gap, address), n_rows = next(lies), next(counts)
        if n_rows * n_cols > 2**40:
            n_rows = max(1, 2**40 // n_cols)
        rows = rows_apart(n_rows, n_cols, itemsize, traits, gap, address)
        choice = choose(n_rows, n_cols, itemsize, traits, device, gap=gap, address=address)
        check_rows(choice, rows, device, traits.any_order)


def check_columns(choice: Choice, columns: Columns, device: Device) -> None:
    how = choice.how
    fold = getattr(how, "fold", 1)
    lines, n_cols = fold * columns.n_inner, columns.n_cols // fold
    assert n_cols * fold == columns.n_cols and how.wide_index == columns.wide_index
    if fold == 1:
        assert how.vector == columns.stated_vector
    else:
        assert how.vector > columns.vector and lines % how.vector == 0
        assert n_cols >= 128 or not choice.apart, "partials are few beside elements"
    assert is_power_of_2(how.block_cols) and is_power_of_2(how.block_inner)
    if choice.kernel == "strided":
        assert how.tiles * how.block_cols >= n_cols and choice.n_chunks == 1
        assert how.block_inner >= min(8, next_power_of_2(columns.n_inner))
    elif choice.kernel == "split_strided":
        assert columns.itemsize < 8 and device.nvidia
        check_chunks(choice, n_cols, device, how.chunks, how.chunks * how.block_inner)
    else:
        spread = fold > 1 and lines > how.block_inner
        assert choice.kernel == "two_pass" and choice.apart == (choice.n_chunks > 1 or spread)
        step = how.tiles * how.block_cols
        assert choice.chunk_cols % step == 0, "steps do not reach into the next chunk"
        assert choice.chunk_cols * (choice.n_chunks - 1) < n_cols
        assert how.merged * how.at_once == 4096 and is_power_of_2(how.merged)
    groups = columns.n_outer * -(-lines // how.block_inner)
    check_launch(choice, groups, device)


@on_every_device
@of_every_kind
@of_every_size
def test_columns_on_both_sides_of_every_threshold(itemsize, traits, device):
    loads = thresholds(("column",), ("load", "programs"))
    outers = itertools.cycle([*of_load(loads, device)[:-3], 5000])
    inners = itertools.cycle((1, 7, 12, 32, 33, 64, 5000))
    lies = itertools.cycle([(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)])
    for n_cols, _ in itertools.product(COLUMNS, range(4)):
        n_inner, (after_slices, after_lines, step) = next(inners), next(lies)
        along = step * n_inner + after_lines
        steps = n_cols * along + after_slices, along, step
        size = next(outers), n_cols, n_inner
        columns = columns_of(*size, itemsize, (0, 0), (steps, steps))
        dense = (after_lines, step) == (0, 1)
        assert bool(columns.lines) == (dense and n_inner > 1), "others are not folded"
        assert not columns_of(*size, itemsize, (0, itemsize), (steps, steps)).lines, "unaligned"
        choice = chooser.chosen(columns, traits, device)
        if getattr(choice.how, "fold", 1) > 1:
            assert steps[0] % choice.how.vector == 0, "slices start on a vector"
        check_columns(choice, columns, device)
        assert not traits.any_order or getattr(choice.how, "fold", 1) == 1


def test_where_folding_begins_and_slices_do():
    def choice(n_outer: int, n_cols: int, n_inner: int):
        steps = n_cols * n_inner, n_inner, 1
        columns = columns_of(n_outer, n_cols, n_inner, 2, (0, 0), (steps, steps))
        return chooser.chosen(columns, SOFTMAX, Device())

    assert [choice(1, n, 7).how.fold for n in (2**17, 2**17 + 16, 2**17 + 1)] == [32, 16, 1]
    assert [choice(1, n, 4097).how.fold for n in (128 * 512 + 32, 2048 + 32)] == [32, 16]
    few, many = (choice(n, 1920, 10) for n in (131, 132))  # as many as multiprocessors
    assert many.kernel == "two_pass" and not many.apart and few.kernel == "strided"


@on_every_device
def test_modified_rows_on_both_sides_of_every_threshold(device):
    loads = thresholds(("masked",), ("load",))
    held = around(thresholds(("masked",), ("held",)))
    for n_cols, bytes_of_one in itertools.product(COLUMNS, held):
        for n_rows, adjacent in itertools.product(of_load(loads, device), (False, True)):
            masked = Modified(n_rows, n_cols, bytes_of_one, 4, adjacent, wide_index=False)
            choice = chooser.chosen(masked, SOFTMAX, device)
            how = choice.how
            assert is_power_of_2(how.block_rows) and is_power_of_2(how.block_cols)
            if how.whole:
                assert how.tiles * how.block_cols >= n_cols and choice.n_chunks == 1
            assert choice.chunk_cols * choice.n_chunks >= n_cols
            check_launch(choice, -(-n_rows // how.block_rows), device)


# --- what the tables say


@pytest.mark.parametrize("table", TABLES)
def test_a_line_of_a_table_says_all_that_its_head_asks(table):
    text = Path(config.__file__).with_name("measured.txt").read_text("utf8")
    lines = text.partition(f"[{table}]\n")[2].partition("\n[")[0].split("\n")
    head, *rest = [line.split() for line in lines if line.strip() and line[0] != "#"]
    assert rest and all(len(line) == len(head) for line in rest), "a cell for every name"
    assert all(line.index("|") == head.index("|") for line in rest)
    assert len(TABLES[table]) == len(rest)
    assert all(limit.low <= limit.high for line in TABLES[table] for limit in line.limits)


def test_what_takes_registers_beside_the_elements_leaves_none_for_the_next_chunk():
    """Row scalars are such."""
    depths = [choose(64, 300_000, 2, each).how.depth for each in (Traits(1), TRAITS["loss"])]
    assert depths == [1, 0]


def test_two_launches_where_chunks_cannot_all_run():
    n_cols = 528 * 8192 + 8
    choice = choose(10**5, n_cols, 2)
    assert choice.apart and not choice.how.wait
    launches, workspace = plan.launches_of(SOFTMAXES["softmax"], choice, (10**5, 0, 0), n_cols)
    assert [launch.constants["HOW"] for launch in launches] == list(choice.launches)
    assert workspace.n_words == 10**5 * choice.n_chunks and not workspace.zeroed


@of_every_size
@pytest.mark.parametrize("edges", [0, 1])
def test_more_rows_get_no_fewer_rows_a_program(edges, itemsize):
    """A program takes several only where there are enough for every multiprocessor."""
    for n_cols in (n for n in LENGTHS if n <= 1024):
        sides = []
        for n_rows in of_load(LOADS, H200):
            rows = rows_apart(n_rows, n_cols, itemsize, SOFTMAX)
            if not edges or rows.vector > 1:
                rows = rows._replace(edges=True) if edges else rows.without_edges()
                sides.append(chooser.row_tile(rows, SOFTMAX, H200).how.block_rows)
        assert sides == sorted(sides), n_cols


# --- the same bits in every batch


@pytest.mark.parametrize("nvidia", [True, False])
@pytest.mark.parametrize("traits", [SOFTMAX, SOFTMAX_VJP, LOGSUMEXP])
def test_chunks_of_invariant_calls_do_not_depend_on_the_number_of_rows(traits, nvidia):
    traits, device = traits._replace(any_order=True), Device(132, nvidia)
    counts, longest = of_load(LOADS, device), splitting.INVARIANT_TILE_COLS
    for n_cols, itemsize in itertools.product(LENGTHS, (2, 4, 8)):
        found = {choose(n_rows, n_cols, itemsize, traits, device) for n_rows in counts}
        cut = {(each.n_chunks, each.chunk_cols) for each in found if each.kernel not in TILES}
        assert len(cut) == 1 or all(each.kernel in TILES for each in found)
        assert {each.how.block <= 2**13 for each in found if each.kernel == "split_rows"} <= {True}
        assert all(each.kernel in TILES for each in found) == (n_cols <= longest)
    lines = (64, 4), (9001, 1)  # and the elements of an access
    for n_cols, itemsize, (n_inner, vector) in itertools.product(COLUMNS, (2, 4), lines):
        columns = Columns(1, n_cols, n_inner, itemsize, vector, vector, False)
        wanted = chooser.measured_columns(columns, traits, device)
        assert n_cols > 2048 or wanted.kernel == "strided"
        for more in (columns._replace(n_outer=16), columns._replace(n_outer=1000)):
            assert chooser.measured_columns(more, traits, device) == wanted
    for n_cols in COLUMNS:
        masked = [Modified(n_rows, n_cols, 4, 4, True, False) for n_rows in counts]
        assert len({chooser.chosen(each, traits, device) for each in masked}) == 1


# --- other GPUs, which get what the tables say


@of_every_kind
@of_every_size
def test_a_gpu_gets_what_another_gets_for_as_many_rows_per_multiprocessor(itemsize, traits):
    """Where no program waits, so that it does not matter how many are resident at once."""
    a100, tiles = DEVICES["A100"], 0
    for n_cols, load in itertools.product(LENGTHS, (1, 2, 8, 64)):
        rows = rows_apart(load, n_cols, itemsize, traits)
        ours, other = (
            chooser.chosen(rows._replace(n_rows=load * each.multiprocessors), traits, each)
            for each in (H200, a100)
        )
        waits = {"split_rows", "two_pass"} & {ours.kernel, other.kernel}
        assert waits or ours == other, (n_cols, load)
        tiles += not waits
        columns = Columns(load, n_cols, 32, itemsize, 1, 1, False)
        ours, other = (
            chooser.chosen(columns._replace(n_outer=load * each.multiprocessors), traits, each)
            for each in (H200, a100)
        )
        assert ours.kernel == other.kernel
        assert ours.kernel != "strided" or ours == other, (n_cols, load)
    assert tiles > len(LENGTHS)


# --- what is asked for by name


@pytest.mark.parametrize("n_cols", [2**31 - 1, 2**31 - 2**22, 2**31 - 2**22 - 1])
def test_a_loop_counts_to_the_end_of_its_last_tile(n_cols):
    """A counter of 32 bits holds no 2³¹, where the last of the tiles may end."""
    columns = columns_of(1, n_cols, 1, 2, (0, 0), ((n_cols, 1, 1),) * 2)
    choice = chooser.chosen(columns, SOFTMAX, H200)
    assert choice.kernel == "two_pass" and not columns.wide_index
    assert choice.how.wide_index == (choice.n_chunks * choice.chunk_cols >= 2**31)


@pytest.mark.parametrize("shape", [(1, 2**30 + 1, 1), (1, 1, 2**30 + 1), (1, 2**29 + 1, 2**29 + 1)])
def test_offsets_take_64_bits_where_the_last_does(shape):
    """It is 2³¹ here, and less without the last element."""
    n_outer, n_cols, n_inner = shape
    less = (n_outer, max(1, n_cols - 1), n_inner if n_cols > 1 else n_inner - 1)
    for size, wide in ((shape, True), (less, False)):
        assert columns_of(*size, 4, (0, 0), ((0, 2, 2),) * 2).wide_index == wide


def test_more_chunks_than_are_possible_are_refused():
    """Other refusals are in `test_dispatch.py`."""
    with pytest.raises(ValueError, match="split_rows splits .* at most 16,777,216 columns"):
        choose(4096, 2**24 + 1, 4, name="split_rows")


# --- what a planner makes of a choice


@pytest.mark.parametrize("chunks, width, warps", [(1, 1, 4), (129, 1, 4), (513, 1, 2), (9, 32, 4)])
def test_every_thread_polls_words_of_its_own(chunks, width, warps):
    lanes, polls = splitting.lanes_and_polls(chunks, warps, width)
    assert is_power_of_2(lanes) and lanes >= chunks and polls * 32 * warps == lanes * width
    if width == 1:
        how = choose(3, 4096, 4, name="split_rows").how._replace(words=lanes, polls=polls)
        choice = Choice("split_rows", how, warps, None, chunks, 1024)
        sizes = (3, 9, 9), chunks * 1024
    else:
        how = SplitStrided(256, width, 1, False, False, True, lanes, polls)
        choice = Choice("split_strided", how, warps, 128, chunks)
        sizes = (3, 700, 500), chunks * 256, (10, 20), (100, 1, 2)
    (launch,), workspace = plan.launches_of(SOFTMAXES["softmax"], choice, *sizes)
    assert launch.constants == {"OP": SOFTMAXES["softmax"], "HOW": how}
    assert launch.numbers[-1] == splitting.MAX_POLLS
    assert workspace.n_words == launch.grid * width and workspace.zeroed


@pytest.mark.parametrize("op", SOFTMAXES.values(), ids=SOFTMAXES)
def test_loops_publish_before_they_write(op):
    n_tensors = op.inputs + 1
    outer, inner = (3, *(0,) * n_tensors), (100, *(1,) * n_tensors)
    how = TwoPass(64, 32, vector=4, wide_index=False, publish=True, write=True)
    choice = Choice("two_pass", how, 4, None, 5, 128, None, apart=True)
    made, workspace = plan.launches_of(op, choice, outer, 600, (100,) * n_tensors, inner)
    n_launches = 2 if op.reduces else 3  # column scalars are written where they are merged
    assert [launch.constants["HOW"] for launch in made] == [*choice.launches][:n_launches]
    assert [launch.grid for launch in made] == [3 * 4 * 5, 3 * 25, 3 * 4 * 5][:n_launches]
    assert workspace.n_words == 2 * 3 * 5 * 100 and not workspace.zeroed


@pytest.mark.parametrize("device", [Device(), H200], ids=["any", "H200"])
def test_few_kernels_for_lengths_of_every_magnitude(device):
    """A kernel is compiled for each different constant and option."""
    lengths = {round(2 ** (18 * i / 332)) for i in range(333)}
    for n_rows, itemsize, traits in itertools.product((1, 128, 4096), (2, 4), TRAITS.values()):
        choices = [choose(n_rows, n, itemsize, traits, device) for n in lengths]
        kernels = {(each.kernel, *each[2:4], how) for each in choices for how in each.launches}
        assert len(kernels) <= 88
