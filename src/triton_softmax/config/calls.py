"""Describe a call in numbers: the device, the operation's traits, and how elements lie in memory.

This is all that a choice depends on. A comment explains each field where its name first occurs; the
name means the same everywhere.
"""

from typing import NamedTuple

VECTOR_BYTES = 16  # the widest access of one thread
LINE_BYTES = 128  # a line of the cache

# Occupancy limits of a multiprocessor that hold on every NVIDIA architecture from sm_80 on.
REGISTERS, RESIDENT_WARPS, RESIDENT_PROGRAMS = 65536, 48, 16

MOST_SIDE_BY_SIDE = 1024  # columns side by side in any tile
MOST_DOUBLINGS = 5  # so that at most 32 lines count as one
# Lines that folding leaves: of fewer, a chunk's partials take more than a sixteenth of the bytes
# of 16-bit elements.
SHORTEST_FOLDED = 128


def ceil_div(n: int, divisor: int) -> int:
    """Return n / divisor, rounded up.

    >>> ceil_div(8, 4), ceil_div(9, 4)
    (2, 3)
    """
    return -(-n // divisor)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least n.

    >>> [next_power_of_2(n) for n in (0, 1, 2, 3, 4097)]
    [1, 1, 2, 4, 8192]
    """
    power = 1
    while power < n:
        power *= 2
    return power


class Device(NamedTuple):
    """The device that a kernel will run on."""

    multiprocessors: int = 132  # streaming multiprocessors, compute units
    # Elsewhere than on NVIDIA GPUs, kernels set no register limit, use no assembly, and never wait
    # for each other.
    nvidia: bool = False

    def resident_programs(self, registers: int, num_warps: int) -> int:
        """Return how many programs with these registers per thread and warps are resident at once.

        >>> [Device(132).resident_programs(*of) for of in ((128, 4), (32, 4), (32, 1))]
        [528, 1584, 2112]
        """
        registers = ceil_div(registers, 8) * 8  # the allocation granularity
        by_registers = REGISTERS // (registers * 32 * num_warps)
        on_one = min(by_registers, RESIDENT_WARPS // num_warps, RESIDENT_PROGRAMS)
        return on_one * self.multiprocessors


class Traits(NamedTuple):
    """The properties of an operation that a choice depends on.

    >>> softmax, log_softmax = Traits(inputs=1, keeps_terms=True), Traits(inputs=1)
    >>> softmax_vjp, logsumexp = Traits(inputs=2), Traits(inputs=1, reduces=True)
    >>> log_softmax_vjp = Traits(inputs=2, exp_in_finish=True)
    """

    inputs: int  # tensors read: 1 forward, 2 for a vector-Jacobian product
    # The result follows from the summed terms, so a program that waits may keep these and need not
    # recompute them. True of softmax alone.
    keeps_terms: bool = False
    # The epilogue needs an exponential, and registers for it, that the sums do not.
    exp_in_finish: bool = False
    reduces: bool = False  # the results are row scalars only
    # The result must not depend on the order of summation. Sums within a program do not; rows on
    # several programs must be cut alike, however many rows there are.
    any_order: bool = False
    numbers: int = 0  # row scalars that take registers: 4 of a loss's gradient, 5 with three sums


class Rows(NamedTuple):
    """Rows of adjacent elements."""

    n_rows: int
    n_cols: int
    itemsize: int  # bytes of the widest input element, as kept in registers
    vector: int  # elements per access, if rows may have edges
    edges: bool  # some rows start or end within a vector
    divisor: int  # elements per access, if no row may have edges

    def without_edges(self) -> "Rows":
        """Return the rows with narrower accesses, which divide every row."""
        return self._replace(vector=self.divisor, edges=False)

    def in_whole(self) -> "Rows":
        """Return the rows with the accesses that move all of them: what divides every row, unless
        they have edges."""
        return self if self.edges else self.without_edges()


class Modified(NamedTuple):
    """Rows with score modifiers."""

    n_rows: int
    n_cols: int
    held: int  # bytes read per position, over all tensors with elements
    vector: int  # elements per access that lengths and strides allow
    adjacent: bool  # the elements of a row are adjacent in all tensors
    wide_index: bool  # offsets in a row, or the number of rows, need 64 bits


class Columns(NamedTuple):
    """A non-inner reduction: the middle dimension of separate elements (n_outer, n_cols,
    n_inner)."""

    n_outer: int
    n_cols: int
    n_inner: int
    itemsize: int
    vector: int  # elements per access across columns
    stated_vector: int  # the vector as a kernel constant: 1 if Triton infers it by itself
    wide_index: bool  # offsets within one outer slice need 64 bits
    # Elements that divide lines if 1, 2, 4, … lines of n_inner elements, which are adjacent in
    # memory, count as one; empty if they may not.
    lines: tuple[int, ...] = ()

    def folded(self, to_cache_lines: bool) -> tuple["Columns", int]:
        """Return the columns with so many lines as one that accesses move whole vectors, and how
        many these are: one if they do already. Or, as far as they can be, multiples of a cache
        line, of which `SHORTEST_FOLDED` are left.

        >>> odd = columns_of(1, 8000, 51, 2, (0, 0), ((0, 51, 1),) * 2)
        >>> odd.folded(False)[1], odd.folded(True)[1], odd.folded(True)[0].vector
        (8, 32, 8)
        """
        whole, lines = VECTOR_BYTES // self.itemsize, self.lines
        if self.vector >= whole or not lines:
            return self, 1
        if to_cache_lines:
            lines = lines[: max(1, (self.n_cols // SHORTEST_FOLDED).bit_length())]
        most = max(lines) if to_cache_lines else min(max(lines), whole)
        at = next(at for at, divisor in enumerate(lines) if divisor >= most)
        vector = min(most, whole)
        folded = self._replace(n_cols=self.n_cols >> at, n_inner=self.n_inner << at, vector=vector)
        return folded._replace(stated_vector=vector, lines=()), 1 << at

    def side_by_side(self, wide: int) -> int:
        """Return the columns side by side in a tile: at most `wide`, hardly more than there are."""
        return min(wide, next_power_of_2(self.n_inner))

    def groups(self, block_inner: int) -> int:
        """Return the number of groups of `block_inner` columns side by side."""
        return self.n_outer * ceil_div(self.n_inner, block_inner)


def vector_of_lines(itemsize: int, addresses: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Return the elements per access that divide all counts: the largest power of two, up to a
    whole vector.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: address of each tensor's first element.
        counts: lengths and strides in elements, except the strides of adjacent elements.

    >>> vector_of_lines(2, (0, 512), (196, 4116)), vector_of_lines(4, (0, 512), (1024, 65536))
    (4, 4)
    >>> vector_of_lines(4, (4, 512), (1024, 65536))  # the first tensor is unaligned
    1
    """
    if any(address % VECTOR_BYTES for address in addresses):
        return 1
    return divisor_of(counts, VECTOR_BYTES // itemsize)


def divisor_of(counts: tuple[int, ...], most: int) -> int:
    """Return the largest power of two, up to `most`, that divides all counts.

    >>> divisor_of((24, 0), 64), divisor_of((24, 0), 4)
    (8, 4)
    """
    while any(count % most for count in counts):
        most //= 2
    return most


def rows_of(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    held: int | None = None,
) -> Rows:
    """Describe rows of adjacent elements.

    Args:
        n_rows, n_cols: numbers of rows and columns.
        itemsize, held: bytes of the narrowest element in any tensor, 8 only if all are float64; and
            of the widest input element, as programs keep inputs in registers.
        addresses, strides: of each tensor's first element; its row stride, in elements.

    >>> rows_of(9, 50257, 2, (0, 512), (50257, 50257)).vector
    8
    >>> rows_of(9, 50257, 2, (0, 512), (50264, 50257)).vector  # rows out of step
    1
    """
    # Rows that may have edges take whole vectors: tensors must be aligned, and rows of the same
    # index equally far from a vector in all of them.
    apart = tuple([stride - strides[0] for stride in strides])
    vector = vector_of_lines(itemsize, addresses, apart)
    vector = vector if vector * itemsize == VECTOR_BYTES else 1
    edges = bool(n_cols % vector) or any(stride % vector for stride in strides)
    # An access that divides everything leaves no edges, but is seldom a whole vector.
    divisor = vector_of_lines(itemsize, addresses, (n_cols,) + tuple(strides))
    return Rows(n_rows, n_cols, held or itemsize, vector, edges, divisor)


def columns_of(
    n_outer: int,
    n_cols: int,
    n_inner: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[tuple[int, int, int], ...],
    held: int | None = None,
) -> Columns:
    """Describe a non-inner reduction: the middle dimension of (n_outer, n_cols, n_inner). `strides`
    are each tensor's along these, any number, including 0; the other arguments are as in
    `rows_of`."""
    counts = (n_inner,) + tuple([each[0] for each in strides] + [each[1] for each in strides])
    vector = vector_of_lines(itemsize, addresses, counts)
    stated = 1 if all(count % 16 == 0 for count in counts) else vector
    last = max([(n_cols - 1) * each[1] + (n_inner - 1) * each[2] for each in strides])
    # The last tile reaches beyond the last column.
    wide_index = max(last, n_inner + MOST_SIDE_BY_SIDE - 1) >= 2**31
    lines: tuple[int, ...] = ()
    if n_inner > 1 and all(each[1:] == (n_inner, 1) for each in strides):
        steps = [each[0] for each in strides]
        folds = [at for at in range(MOST_DOUBLINGS + 1) if n_cols % 2**at == 0]
        if not any(address % VECTOR_BYTES for address in addresses):
            lines = tuple(
                [divisor_of((n_inner << at, *steps), LINE_BYTES // itemsize) for at in folds]
            )
    shape = n_outer, n_cols, n_inner, held or itemsize
    return Columns(*shape, vector, stated, wide_index, lines)
