"""What is measured: every suite as a list of cases, as plain data without torch."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from softmax_bench.case import Case
from softmax_bench.random_shapes import SEED, draw
from softmax_bench.roster import CHOOSER, COPY, EVERYWHERE, PROVIDERS, RUNGS
from softmax_bench.schema import DataError

ELEMENTS = 2**27
"""Elements of a tensor in the suites over many rows: 512 MiB in float32, far more than any L2
cache."""

COLUMNS = (32, 33, 64, 128, 129, 781, 1000, 1024, 4096, 8192, 16384, 32001, 32768, 50257, 65536)
COLUMNS += (131072, 151643, 262144, 1048576, 4194304)

ARTICLE_COLUMNS = (
    *(128 * i for i in range(2, 100)),
    *(16384, 20480, 24576, 32768, 40960, 49152, 57344, 61440, 65536, 65664, 81920, 98304),
)

TYPES = ("float32", "bfloat16")
BOTH = ("forward", "backward")
FORWARD = ("forward",)
WITH_GRADIENT = ("forward_backward",)

OURS_AND_TORCH = (COPY, CHOOSER, "torch")
WITHOUT_COPY = (CHOOSER, *EVERYWHERE)

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

MODES = ("default", "reduce-overhead")
"""Of `torch.compile`, in the suite `compiled`."""


def many_rows(*n_cols: int) -> list[tuple[int, int]]:
    """The shapes with so many columns whose tensors have about `ELEMENTS` elements.

    >>> many_rows(1024, 50257)
    [(131072, 1024), (2670, 50257)]
    """
    return [(max(1, ELEMENTS // each), each) for each in n_cols]


def each(
    shapes: Iterable[tuple[int, ...]],
    dtypes: Iterable[str] = TYPES,
    directions: Iterable[str] = BOTH,
    **fields: Any,
) -> list[Case]:
    """A case for each direction, type and shape; all else is alike. `SUITES` names the suite."""
    return [
        Case("", shape, dtype, direction, **fields)
        for direction in directions
        for dtype in dtypes
        for shape in shapes
    ]


def also(name: str, cases: list[Case], asked: Callable[[Case], bool]) -> list[Case]:
    """The cases, with one library more in some."""
    return [
        replace(case, providers=(*case.providers, name)) if asked(case) else case for case in cases
    ]


def grid(direction: str) -> list[Case]:
    """Many rows, every row length, against every library."""
    half = many_rows(128, 1024, 16384, 50257, 131072)
    found = each(many_rows(*COLUMNS), TYPES, [direction]) + each(half, ["float16"], [direction])
    tuned = range(256, 2**15 + 1) if direction == "forward" else ()  # by Helion's authors
    return also("helion", found, lambda case: case.n_cols in tuned)


def few_rows() -> list[Case]:
    """Rows too few to fill a GPU with one program each."""
    wide = [(n_rows, n_cols) for n_rows in (1, 8, 64) for n_cols in (32768, 131072, 1048576)]
    narrow = ((1, 131072), (8, 131072), (64, 131072), (1, 50257), (8, 151643), (1, 1048576))
    found = each(wide, ["float32"]) + each(narrow, ["bfloat16"])
    # FlashInfer answers in float32, without a backward pass.
    of_flashinfer = ("float32", "forward")
    return also("flashinfer", found, lambda case: (case.dtype, case.direction) == of_flashinfer)


def accuracy() -> list[Case]:
    """Largest error against float64, on friendly and on hostile inputs."""
    shapes = [(16, n_cols) for n_cols in (1024, 4096, 50257, 131072, 1048576)]
    found = []
    for of, dtypes in ((shapes, TYPES), (shapes[1:2], ["float16"])):
        found += each(of, dtypes, ["backward"], providers=WITHOUT_COPY)
        for inputs in INPUTS:
            found += each(of, dtypes, FORWARD, inputs=inputs, providers=WITHOUT_COPY)
    return found


def strided() -> list[Case]:
    """A reduced dimension that is not the last, and rows that do not lie next to each other: where
    the last one is reduced, other rows lie between them."""
    who = (COPY, CHOOSER, *EVERYWHERE, "strided")
    first = ((4096, 32768), (1024, 131072), (32768, 4096), (131072, 1024), (262144, 64))
    middle = ((2048, 300, 196), (64, 1024, 2048), (512, 4096, 64))
    last = ((8192, 16384), (2048, 50257))
    return [
        *each(first, dim=0, providers=who),
        *each(middle, dim=1, providers=who),
        *each(last, layout="row_strided", providers=who),
    ]


def log_softmax() -> list[Case]:
    """`log_softmax` and `logsumexp` on part of the grid."""
    long = many_rows(1024, 16384, 50257, 131072, 1048576)
    # Log-sum-exp reads only, and so has less to hide behind: more lengths, odd ones among them.
    more = many_rows(33, 128, 781, 4096, 20000, 262144)
    return [
        *each(long, op="log_softmax"),
        *each([*long, *more], TYPES, FORWARD, op="logsumexp"),
        *each([long[0], long[2]], ["float16"], FORWARD, op="logsumexp"),
    ]


def longest() -> list[Case]:
    """Rows past every limit: too long to split, of float64, apart in memory."""
    shapes = {
        ("bfloat16", -1): [(1, 2**26 + 3), (8, 2**26 + 3), (1, 2**30 + 1)],
        ("float32", -1): [(1, 2**27)],
        ("float64", -1): [(1000, 20_000), (16, 2**22)],
        ("float32", 0): [(2**25, 4)],
        ("float64", 0): [(2**20, 64)],
        ("bfloat16", 1): [(64, 2**20, 2)],
    }
    return [
        case
        for (dtype, dim), of in shapes.items()
        for case in each(of, [dtype], dim=dim, providers=OURS_AND_TORCH)
    ]


def compiled() -> list[Case]:
    """Host time of a step inside `torch.compile`: x · ½ → softmax → · 2, ours and torch's."""
    of_type = {"float32": [(64, 512)], "bfloat16": [(32, 333, 333), (64, 5000)]}
    fields = {"directions": (*FORWARD, *WITH_GRADIENT), "providers": (CHOOSER, "torch")}
    return [
        case
        for dtype, shapes in of_type.items()
        for mode in MODES
        for case in each(shapes, [dtype], inputs=mode, **fields)
    ]


def loss_head() -> list[Case]:
    """Losses, log-probabilities and softmax with maps, with everybody who has them."""
    both, half, logits = (*FORWARD, *WITH_GRADIENT), ["bfloat16"], [(8192, 151936)]
    some = (*OURS_AND_TORCH, "torch.compile")
    with_losses = (*some, "liger", "quack", "transformer_engine")
    with_plain = (*some, "packed_rows")
    lengths = (1000, 4099, 32000, 50257, 128256, 151643, 262144)
    shapes = [(max(64, 2**29 // n_cols), n_cols) for n_cols in lengths]
    counted = [shape for shape in shapes if shape[1] in (32000, 128256)]
    scores = ((8, 16, 1024, 1024), (2, 16, 4096, 4096))

    def of(op: str, *grid: Iterable, who: tuple[str, ...], **fields: Any) -> list[Case]:
        return each(*grid, op=op, providers=who, **fields)

    in_place, layer = {"inputs": "in_place"}, (*OURS_AND_TORCH, "liger")
    temperature = {"inputs": "temperature", "who": (*with_plain, "flashinfer")}
    return [
        *of("cross_entropy", shapes, TYPES, both, who=with_losses),
        *of("cross_entropy", [(4096, 128256)], half, WITH_GRADIENT, who=with_losses, **in_place),
        *of("cross_entropy", counted, half, FORWARD, inputs="none_ignored", who=(*some, "helion")),
        *of("token_logprobs", logits, half, both, who=(*some, "trl")),
        *of("linear_cross_entropy", logits, half, WITH_GRADIENT, who=layer),
        *of("modified_softmax", scores, half, FORWARD, inputs="mask", who=with_plain),
        *of("modified_softmax", scores, half, FORWARD, inputs="causal", who=with_plain),
        *of("modified_softmax", [(128, 151936)], ["float32"], FORWARD, **temperature),
    ]


SUITES: dict[str, list[Case]] = {
    suite: [replace(case, suite=suite) for case in cases]
    for suite, cases in {
        # How many kernels are compiled over a thousand row lengths: first, before there are any.
        "compiles": each([(256, 1000)], (*TYPES, "float16"), inputs="sweep", providers=(CHOOSER,)),
        "forward": grid("forward"),
        "backward": grid("backward"),
        "random": draw(),
        "loss_head": loss_head(),
        "few_rows": few_rows(),
        # One call on a tensor so small that the GPU never holds up the host.
        "host_time": each(
            [(64, 512)],
            ["float32"],
            ("forward", "forward_grad", "forward_backward"),
            providers=WITHOUT_COPY,
        ),
        "log_softmax": log_softmax(),
        "strided": strided(),
        "compiled": compiled(),
        # Every rung on the same shapes.
        "ladder": each(
            many_rows(256, 1024, 4096, 16384, 50257, 65536, 262144),
            providers=(*OURS_AND_TORCH, *(rung for rung in RUNGS if rung != "strided")),
        ),
        # Forward and backward across batch sizes at a fixed row length.
        "batch": each(
            [(n_rows, 1024) for n_rows in (1, 8, 64, 256, 1024, 4096, 16384, 65536)],
            ["float32"],
            providers=(*OURS_AND_TORCH, "torch.compile", "naive", "single_block"),
        ),
        "longest": longest(),
        # 4096 rows of 128·i columns, i from 2 to 99, and on past 60,000; with the naive line.
        "article": each(
            [(4096, n_cols) for n_cols in ARTICLE_COLUMNS],
            ["float32"],
            FORWARD,
            providers=(*OURS_AND_TORCH, "naive", "single_block", "two_loops"),
        ),
        "accuracy": accuracy(),
    }.items()
}
"""The cases of each suite, in the order in which they run: what is quoted most comes first."""


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
    every = [case for cases in (SUITES | {"random": draw(seed)}).values() for case in cases]
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
