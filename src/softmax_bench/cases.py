"""What is measured: every suite as a list of cases, as plain data without torch."""

# pyright: reportArgumentType=false
from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from softmax_bench.case import ITEM_SIZE, Case
from softmax_bench.random_shapes import SEED, draw
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, PROVIDERS, RUNGS
from softmax_bench.schema import DataError

__all__ = ["ITEM_SIZE", "SUITES", "Case", "select"]

ELEMENTS = 2**27
"""Elements of a tensor in the suites over many rows: 512 MiB in float32, far more than any L2
cache."""

COLUMNS = (32, 33, 64, 128, 129, 781, 1000, 1024, 4096, 8192, 16384, 32001, 32768, 50257, 65536)
COLUMNS += (131072, 151643, 262144, 1048576, 4194304)

BOTH = ("forward", "backward")
TYPES = ("float32", "bfloat16")
OURS_AND_TORCH = (COPY, CHOOSER, "torch")
WITHOUT_COPY = (CHOOSER, *LIBRARIES)


def many_rows(n_cols: int) -> tuple[int, int]:
    """The shape with `n_cols` columns whose tensor has about `ELEMENTS` elements.

    >>> many_rows(1024)
    (131072, 1024)
    """
    return max(1, ELEMENTS // n_cols), n_cols


def each(
    suite: str,
    shapes: Iterable[tuple[int, ...]],
    dtypes: Iterable[str] = TYPES,
    directions: Iterable[str] = BOTH,
    **fields,
) -> list[Case]:
    """A case for each direction, type and shape; all else is alike."""
    return [
        Case(suite, shape, dtype, direction, **fields)
        for direction in directions
        for dtype in dtypes
        for shape in shapes
    ]


def grid(direction: str) -> list[Case]:
    """Many rows, every row length, against every library."""
    half = map(many_rows, (128, 1024, 16384, 50257, 131072))
    return each(direction, list(map(many_rows, COLUMNS)), TYPES, [direction]) + each(
        direction, half, ["float16"], [direction]
    )


def few_rows() -> list[Case]:
    """Rows too few to fill a GPU with one program each."""
    wide = [(n_rows, n_cols) for n_rows in (1, 8, 64) for n_cols in (32768, 131072, 1048576)]
    narrow = ((1, 131072), (8, 131072), (64, 131072), (1, 50257), (8, 151643), (1, 1048576))
    return each("few_rows", wide, ["float32"]) + each("few_rows", narrow, ["bfloat16"])


def host_time() -> list[Case]:
    """Time on the host for one call, on a tensor small enough that the GPU never holds it up."""
    directions = ("forward", "forward_grad", "forward_backward")
    return each("host_time", [(64, 512)], ["float32"], directions, providers=WITHOUT_COPY)


COMPILE_SWEEP = 1000
"""Different row lengths in the suite `compiles`."""


def compiles() -> list[Case]:
    """How many kernels get compiled over many different row lengths."""
    shapes, dtypes = [(256, COMPILE_SWEEP)], (*TYPES, "float16")
    return each("compiles", shapes, dtypes, inputs="sweep", providers=(CHOOSER,))


INPUTS = {
    "normal": "normal, σ = 1",
    "wide": "normal, σ = 30",
    "offset": "normal plus a large constant",
    "masked": "−∞ beyond a prefix that differs by row",
    "spike": "one value far above the others",
    "equal": "all equal",
    "very_negative": "normal minus 1000",
    "all_masked": "one row all −∞",
}
"""Inputs of the suite `accuracy`, in words; `inputs.changed` makes them."""


def accuracy() -> list[Case]:
    """Largest error against float64, on friendly and on hostile inputs."""
    shapes = [(16, n_cols) for n_cols in (1024, 4096, 50257, 131072, 1048576)]
    found = []
    for of, dtypes in ((shapes, TYPES), (shapes[1:2], ["float16"])):
        found += each("accuracy", of, dtypes, ["backward"], providers=WITHOUT_COPY)
        for inputs in INPUTS:
            more = {"inputs": inputs, "providers": WITHOUT_COPY}
            found += each("accuracy", of, dtypes, ["forward"], **more)
    return found


LADDER_COLUMNS = (256, 1024, 4096, 16384, 50257, 65536, 262144)


def ladder() -> list[Case]:
    """Every rung on the same shapes."""
    providers = (*OURS_AND_TORCH, *(rung for rung in RUNGS if rung != "strided"))
    return each("ladder", list(map(many_rows, LADDER_COLUMNS)), providers=providers)


STRIDED = {
    0: ((4096, 32768), (1024, 131072), (32768, 4096), (131072, 1024), (262144, 64)),
    1: ((2048, 300, 196), (64, 1024, 2048), (512, 4096, 64)),
    -1: ((8192, 16384), (2048, 50257)),
}
"""Shapes of the suite `strided` by the reduced dimension; where it is the last one, other rows lie
between the rows."""


def strided() -> list[Case]:
    """A reduced dimension that is not the last, and rows that do not lie next to each other."""
    found, providers = [], (COPY, CHOOSER, *LIBRARIES, "strided")
    for dim, shapes in STRIDED.items():
        layout = "row_strided" if dim == -1 else "contiguous"
        found += each("strided", shapes, dim=dim, layout=layout, providers=providers)
    return found


def log_softmax() -> list[Case]:
    """`log_softmax` and `logsumexp` on part of the grid."""
    long = [many_rows(n_cols) for n_cols in (1024, 16384, 50257, 131072, 1048576)]
    # Log-sum-exp reads only, and so has less to hide behind: more lengths, odd ones among them.
    more = [many_rows(n_cols) for n_cols in (33, 128, 781, 4096, 20000, 262144)]
    reads = {"directions": ["forward"], "op": "logsumexp"}
    found = each("log_softmax", long, op="log_softmax")
    found += each("log_softmax", [*long, *more], **reads)
    return found + each("log_softmax", [long[0], long[2]], ["float16"], **reads)


ARTICLE_COLUMNS = (
    *(128 * i for i in range(2, 100)),
    *(16384, 20480, 24576, 32768, 40960, 49152, 57344, 61440, 65536, 65664, 81920, 98304),
)


def article() -> list[Case]:
    """4096 rows with 128·i columns, i from 2 to 99, and on past 60,000 columns; the naive line is
    in it too."""
    providers = (*OURS_AND_TORCH, "naive", "single_block", "two_loops")
    shapes = [(4096, n_cols) for n_cols in ARTICLE_COLUMNS]
    return each("article", shapes, ["float32"], ["forward"], providers=providers)


def batch() -> list[Case]:
    """Forward and backward across batch sizes at a fixed row length."""
    providers = (*OURS_AND_TORCH, "torch.compile", "naive", "single_block")
    shapes = [(n_rows, 1024) for n_rows in (1, 8, 64, 256, 1024, 4096, 16384, 65536)]
    return each("batch", shapes, ["float32"], providers=providers)


def longest() -> list[Case]:
    """Rows past every limit: too long to split, of float64, apart in memory."""
    return [
        case
        for shape, dtype, dim in (
            ((1, 2**26 + 3), "bfloat16", -1),
            ((8, 2**26 + 3), "bfloat16", -1),
            ((1, 2**27), "float32", -1),
            ((1, 2**30 + 1), "bfloat16", -1),
            ((1000, 20_000), "float64", -1),
            ((16, 2**22), "float64", -1),
            ((2**25, 4), "float32", 0),
            ((2**20, 64), "float64", 0),
            ((64, 2**20, 2), "bfloat16", 1),
        )
        for case in each("longest", [shape], [dtype], dim=dim, providers=OURS_AND_TORCH)
    ]


MODES = ("default", "reduce-overhead")
"""Of `torch.compile`, in the suite `compiled`."""


def compiled() -> list[Case]:
    """Host time of a step inside `torch.compile`: x · ½ → softmax → · 2, ours and torch's."""
    shapes = {(64, 512): "float32", (32, 333, 333): "bfloat16", (64, 5000): "bfloat16"}
    directions, providers = ("forward", "forward_backward"), (CHOOSER, "torch")
    return [
        case
        for shape, dtype in shapes.items()
        for mode in MODES
        for case in each("compiled", [shape], [dtype], directions, inputs=mode, providers=providers)
    ]


def loss_head() -> Iterable[Case]:
    """Losses, log-probabilities and softmax with maps, with everybody who has them."""
    both = ("forward", "forward_backward")
    some = (*OURS_AND_TORCH, "torch.compile")
    types, logits = ("bfloat16", "float32"), (8192, 151936)

    def case(op, shape, direction, *more, dtype=types[0], inputs="normal", who=some) -> Case:
        providers = (*who, *more)
        return Case("loss_head", shape, dtype, direction, op, inputs=inputs, providers=providers)

    losses = ("liger", "quack")
    for n_cols in (1000, 4099, 32000, 50257, 128256, 151643, 262144):
        shape = max(64, 2**29 // n_cols), n_cols
        for dtype in types:
            for direction in both:
                yield case("cross_entropy", shape, direction, *losses, dtype=dtype)
    yield case("cross_entropy", (4096, 128256), both[1], *losses, inputs="in_place")
    for direction in both:
        yield case("token_logprobs", logits, direction)
    yield case("linear_cross_entropy", logits, both[1], "liger", who=OURS_AND_TORCH)
    for shape in ((8, 16, 1024, 1024), (2, 16, 4096, 4096)):
        for inputs in ("mask", "causal"):
            yield case("mapped_softmax", shape, both[0], "packed_rows", inputs=inputs)
    temperature = {"dtype": types[1], "inputs": "temperature"}
    yield case("mapped_softmax", (128, 151936), both[0], "packed_rows", **temperature)


SUITES: dict[str, Callable[..., list[Case]]] = {
    "compiles": compiles,  # first, while nothing is compiled in the process yet
    "forward": lambda: grid("forward"),
    "backward": lambda: grid("backward"),
    "few_rows": few_rows,
    "host_time": host_time,
    "ladder": ladder,
    "strided": strided,
    "accuracy": accuracy,
    "log_softmax": log_softmax,
    "article": article,
    "batch": batch,
    "longest": longest,
    "compiled": compiled,
    "random": draw,
    "loss_head": lambda: list(loss_head()),
}
"""Suite names in the order in which they run."""


def select(
    patterns: Sequence[str] = ("*",), providers: Sequence[str] = PROVIDERS, seed: int = SEED
) -> list[Case]:
    """The cases whose names fit a pattern, narrowed to providers, beside whom the copy is measured.

    Args:
        patterns: such as forward/* or */bfloat16/*; the first word is the suite.
        providers: some of `PROVIDERS`.
        seed: draws the suite `random`.

    Raises:
        DataError: a pattern fits no case, or there is no such provider.
    """
    suites = (draw(seed) if name == "random" else suite() for name, suite in SUITES.items())
    every = [case for suite in suites for case in suite]
    named: set[str] = set()
    for pattern in patterns:
        if not (found := fnmatch.filter([case.id for case in every], pattern)):
            raise DataError(f"no case fits {pattern}; suites are {', '.join(SUITES)}")
        named |= {*found}
    if unknown := ", ".join(sorted({*providers} - {*PROVIDERS})):
        raise DataError(f"no such provider: {unknown}; there are {', '.join(PROVIDERS)}")
    return [
        replace(case, providers=tuple(who for who in case.providers if who in (*providers, COPY)))
        for case in every
        if case.id in named and {*case.providers} & {*providers}
    ]
