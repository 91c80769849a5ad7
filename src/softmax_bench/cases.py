"""What is measured: every suite as a list of cases, as plain data without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from softmax_bench.case import ITEM_SIZE, Case
from softmax_bench.random_shapes import draw
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, PROVIDERS, RUNGS

__all__ = ["ITEM_SIZE", "SUITES", "Case", "select"]

ELEMENTS = 2**27
"""Elements of a tensor in the suites over many rows: 512 MiB in float32, far more than any L2
cache."""

COLUMNS = (
    32,
    33,
    64,
    128,
    129,
    781,
    1000,
    1024,
    4096,
    8192,
    16384,
    32001,
    32768,
    50257,
    65536,
    131072,
    151643,
    262144,
    1048576,
    4194304,
)


def many_rows(n_cols: int) -> tuple[int, int]:
    """The shape with `n_cols` columns whose tensor has about `ELEMENTS` elements.

    >>> many_rows(1024)
    (131072, 1024)
    """
    return max(1, ELEMENTS // n_cols), n_cols


def _grid(suite: str, direction: str) -> list[Case]:
    cases = []
    for n_cols in COLUMNS:
        for dtype in ("float32", "bfloat16"):
            cases.append(Case(suite, many_rows(n_cols), dtype, direction))
    for n_cols in (128, 1024, 16384, 50257, 131072):
        cases.append(Case(suite, many_rows(n_cols), "float16", direction))
    return cases


def forward() -> list[Case]:
    """Many rows, every row length, against every library."""
    return _grid("forward", "forward")


def backward() -> list[Case]:
    """The vector-Jacobian product on the same shapes."""
    return _grid("backward", "backward")


def few_rows() -> list[Case]:
    """Rows too few to fill a GPU with one program each."""
    cases = []
    for direction in ("forward", "backward"):
        for n_rows in (1, 8, 64):
            for n_cols in (32768, 131072, 1048576):
                cases.append(Case("few_rows", (n_rows, n_cols), "float32", direction))
        for n_rows, n_cols in (
            (1, 131072),
            (8, 131072),
            (64, 131072),
            (1, 50257),
            (8, 151643),
            (1, 1048576),
        ):
            cases.append(Case("few_rows", (n_rows, n_cols), "bfloat16", direction))
    return cases


def host_time() -> list[Case]:
    """Time on the host for one call, on a tensor small enough that the GPU never holds it up."""
    providers = (CHOOSER, *LIBRARIES)
    return [
        Case("host_time", (64, 512), "float32", direction, providers=providers)
        for direction in ("forward", "forward_grad", "forward_backward")
    ]


COMPILE_SWEEP = 1000
"""Different row lengths in the suite `compiles`."""


def compiles() -> list[Case]:
    """How many kernels get compiled over many different row lengths."""
    return [
        Case(
            "compiles", (256, COMPILE_SWEEP), dtype, direction, inputs="sweep", providers=(CHOOSER,)
        )
        for dtype in ("float32", "bfloat16", "float16")
        for direction in ("forward", "backward")
    ]


ACCURACY_INPUTS = (
    "normal",
    "wide",
    "offset",
    "masked",
    "spike",
    "equal",
    "very_negative",
    "all_masked",
)
"""Inputs of the suite `accuracy`; `inputs.make_input` says what each one holds."""


def accuracy() -> list[Case]:
    """Largest error against float64, on friendly and on hostile inputs."""
    providers = (CHOOSER, *LIBRARIES)
    cases = []
    for n_cols in (1024, 4096, 50257, 131072, 1048576):
        for dtype in ("float32", "bfloat16", "float16"):
            if dtype == "float16" and n_cols != 4096:
                continue
            for inputs in ACCURACY_INPUTS:
                cases.append(
                    Case("accuracy", (16, n_cols), dtype, inputs=inputs, providers=providers)
                )
            cases.append(Case("accuracy", (16, n_cols), dtype, "backward", providers=providers))
    return cases


LADDER_COLUMNS = (256, 1024, 4096, 16384, 50257, 65536, 262144)


def ladder() -> list[Case]:
    """Every rung on the same shapes."""
    providers = (COPY, CHOOSER, "torch", *(rung for rung in RUNGS if rung != "strided"))
    return [
        Case("ladder", many_rows(n_cols), dtype, direction, providers=providers)
        for direction in ("forward", "backward")
        for dtype in ("float32", "bfloat16")
        for n_cols in LADDER_COLUMNS
    ]


def strided() -> list[Case]:
    """A reduced dimension that is not the last, and rows that do not lie next to each other."""
    cases = []
    for direction in ("forward", "backward"):
        for dtype in ("float32", "bfloat16"):
            cases += [
                Case("strided", (4096, 32768), dtype, direction, dim=0),
                Case("strided", (1024, 131072), dtype, direction, dim=0),
                Case("strided", (32768, 4096), dtype, direction, dim=0),
                Case("strided", (131072, 1024), dtype, direction, dim=0),
                Case("strided", (262144, 64), dtype, direction, dim=0),
                Case("strided", (2048, 300, 196), dtype, direction, dim=1),
                Case("strided", (64, 1024, 2048), dtype, direction, dim=1),
                Case("strided", (512, 4096, 64), dtype, direction, dim=1),
                Case("strided", (8192, 16384), dtype, direction, layout="row_strided"),
                Case("strided", (2048, 50257), dtype, direction, layout="row_strided"),
            ]
    return [replace(case, providers=(*case.providers, "strided")) for case in cases]


def log_softmax() -> list[Case]:
    """`log_softmax` and `logsumexp` on part of the grid."""
    cases = []
    for n_cols in (1024, 16384, 50257, 131072, 1048576):
        for dtype in ("float32", "bfloat16"):
            shape = many_rows(n_cols)
            cases.append(Case("log_softmax", shape, dtype, op="log_softmax"))
            cases.append(Case("log_softmax", shape, dtype, "backward", op="log_softmax"))
            cases.append(Case("log_softmax", shape, dtype, op="logsumexp"))
    # Log-sum-exp reads only, and so has less to hide behind: more lengths, odd ones among them.
    for n_cols in (33, 128, 781, 4096, 20000, 262144):
        for dtype in ("float32", "bfloat16"):
            cases.append(Case("log_softmax", many_rows(n_cols), dtype, op="logsumexp"))
    for n_cols in (1024, 50257):
        cases.append(Case("log_softmax", many_rows(n_cols), "float16", op="logsumexp"))
    return cases


ARTICLE_ROWS = 4096
ARTICLE_COLUMNS = (
    *(128 * i for i in range(2, 100)),
    16384,
    20480,
    24576,
    32768,
    40960,
    49152,
    57344,
    61440,
    65536,
    65664,
    81920,
    98304,
)


def article() -> list[Case]:
    """4096 rows with 128·i columns, i from 2 to 99, and on past 60,000 columns; the naive line is
    in it too."""
    providers = (COPY, CHOOSER, "torch", "naive", "single_block", "two_loops")
    return [
        Case("article", (ARTICLE_ROWS, n_cols), "float32", providers=providers)
        for n_cols in ARTICLE_COLUMNS
    ]


BATCH_ROWS = (1, 8, 64, 256, 1024, 4096, 16384, 65536)
BATCH_COLUMNS = 1024


def batch() -> list[Case]:
    """Forward and backward across batch sizes at a fixed row length."""
    providers = (COPY, CHOOSER, "torch", "torch.compile", "naive", "single_block")
    return [
        Case("batch", (n_rows, BATCH_COLUMNS), "float32", direction, providers=providers)
        for direction in ("forward", "backward")
        for n_rows in BATCH_ROWS
    ]


def random(seed: int = 0) -> list[Case]:
    """Cells that a seed draws: every kind of length, size and layout."""
    return draw(seed)


def longest() -> list[Case]:
    """Rows past every limit: too long to split, of float64, apart in memory."""
    cases = []
    for direction in ("forward", "backward"):
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
        ):
            cases.append(
                Case(
                    "longest", shape, dtype, direction, dim=dim, providers=(COPY, CHOOSER, "torch")
                )
            )
    return cases


MODES = ("default", "reduce-overhead")
"""Of `torch.compile`, in the suite `compiled`."""


def compiled() -> list[Case]:
    """Host time of a step inside `torch.compile`: x · ½ → softmax → · 2, ours and torch's."""
    return [
        Case("compiled", shape, dtype, direction, inputs=mode, providers=(CHOOSER, "torch"))
        for shape, dtype in (
            ((64, 512), "float32"),
            ((32, 333, 333), "bfloat16"),
            ((64, 5000), "bfloat16"),
        )
        for direction in ("forward", "forward_backward")
        for mode in MODES
    ]


def loss_head() -> list[Case]:
    """Losses, log-probabilities and softmax with maps, with everybody who has them."""
    both = ("forward", "forward_backward")
    losses = (COPY, CHOOSER, "torch", "torch.compile", "liger", "quack")
    found = [
        Case("loss_head", (max(64, 2**29 // n_cols), n_cols), dtype, direction, "cross_entropy")
        for n_cols in (1000, 4099, 32000, 50257, 128256, 151643, 262144)
        for dtype in ("bfloat16", "float32")
        for direction in both
    ]
    found.append(
        Case("loss_head", (4096, 128256), "bfloat16", both[1], "cross_entropy", inputs="in_place")
    )
    cases = [replace(case, providers=losses) for case in found]
    logits = (8192, 151936)
    some = (COPY, CHOOSER, "torch", "torch.compile")
    for direction in both:
        cases.append(
            Case("loss_head", logits, "bfloat16", direction, "token_logprobs", providers=some)
        )
    layer = (COPY, CHOOSER, "torch", "liger")
    cases.append(
        Case("loss_head", logits, "bfloat16", both[1], "linear_cross_entropy", providers=layer)
    )
    with_plain = (*some, "packed_rows")
    for shape in ((8, 16, 1024, 1024), (2, 16, 4096, 4096)):
        for maps in ("mask", "causal"):
            cases.append(
                Case(
                    "loss_head",
                    shape,
                    "bfloat16",
                    op="mapped_softmax",
                    inputs=maps,
                    providers=with_plain,
                )  # fmt: skip
            )
    rows = (128, 151936)
    cases.append(
        Case(
            "loss_head",
            rows,
            "float32",
            op="mapped_softmax",
            inputs="temperature",
            providers=with_plain,
        )  # fmt: skip
    )
    return cases


SUITES: dict[str, Callable[..., list[Case]]] = {
    "compiles": compiles,  # first, while nothing is compiled in the process yet
    "forward": forward,
    "backward": backward,
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
    "random": random,
    "loss_head": loss_head,
}
"""Suite names in the order in which they run."""


def select(
    suites: list[str] | None = None,
    providers: list[str] | None = None,
    dtypes: list[str] | None = None,
    columns: list[int] | None = None,
    seed: int = 0,
) -> list[Case]:
    """The cases of the named suites, narrowed to providers, dtypes and row lengths; `seed` draws
    those of the suite `random`."""
    unknown = set(suites or ()) - set(SUITES)
    if unknown:
        raise ValueError(
            f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}"
        )
    unknown = set(providers or ()) - set(PROVIDERS)
    if unknown:
        raise ValueError(
            f"no such provider: {', '.join(sorted(unknown))}; there are {', '.join(PROVIDERS)}"
        )
    chosen = []
    for name in SUITES:
        if suites and name not in suites:
            continue
        for case in SUITES[name](seed) if name == "random" else SUITES[name]():
            if dtypes and case.dtype not in dtypes:
                continue
            if columns and case.n_cols not in columns:
                continue
            if providers:
                kept = tuple(p for p in case.providers if p in providers or p == COPY)
                if not any(p != COPY for p in kept) and COPY not in providers:
                    continue
                case = replace(case, providers=kept)
            chosen.append(case)
    return chosen
