"""What the front page shows of the data: a sentence, the figure, and a small picture per door."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import NamedTuple

from softmax_bench import traffic
from softmax_bench.report import (
    LEVEL,
    best_peer,
    by_case,
    geometric_mean,
    ratio,
    standing,
)
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks import ranks
from softmax_site.benchmarks.data import n_cols, newest, of_suite, runs_used, time_text
from softmax_site.benchmarks.page import Fragment, measured_by
from softmax_site.benchmarks.suites import random
from softmax_site.benchmarks.words import percent, stand, times
from softmax_site.figures import share

SUITES = ("forward", "backward")


class Result(NamedTuple):
    """What all cases of the two suites say together."""

    gpu: str
    versions: str
    day: str
    libraries: tuple[str, ...]
    """Those that ours is compared with, as the pages name them."""
    ahead: int
    level: int
    behind: int
    of_copy: float
    """Median share of the copy's speed."""
    over_best: float
    """Geometric mean over the best other library."""

    @property
    def cases(self) -> int:
        """How many were compared."""
        return self.ahead + self.level + self.behind


def rows_of(data: dict) -> list[dict]:
    """The rows that the sentence speaks of."""
    return [row for suite in SUITES for row in of_suite(data, suite)]


def result(data: dict) -> Result:
    """Every case with another library's answer counts, those without one of ours as behind."""
    rows = rows_of(data)
    stand = {"ahead": 0, "level": 0, "behind": 0}
    factors, shares = [], []
    for group in by_case(rows).values():
        peer = best_peer(group)
        if CHOOSER not in group or peer is None:
            continue
        factor, of_copy = ratio(group, peer), ratio(group, COPY)
        stand[standing(factor)] += 1
        factors += [factor] if factor else []
        shares += [of_copy] if of_copy else []
    run = data["environments"][runs_used(data, rows)[-1]]
    present = {row["provider"] for row in rows}
    return Result(
        run["gpu"].removeprefix("NVIDIA "),
        f"torch {short(run['torch'])}, Triton {short(run['triton'])}",
        time_text(max(row["utc"] for row in rows)).split()[0],
        tuple(label_of(name) for name in LIBRARIES if name in present),
        **stand,
        of_copy=sorted(shares)[len(shares) // 2],
        over_best=geometric_mean(factors) or 0.0,
    )


def short(version: str) -> str:
    """A version without what it mends.

    >>> short("2.11.0+cu130")
    '2.11'
    """
    return ".".join(version.split(".")[:2])


def claim(found: Result) -> str:
    """The result in Markdown, wins and losses alike."""
    others = f"{', '.join(found.libraries[:-1])} and {found.libraries[-1]}"
    return (
        "Softmax must read its input and write its result once. On an NVIDIA "
        f"{found.gpu}, a data-centre GPU, these kernels do so at **{found.of_copy:.2f} of a plain "
        f"copy’s speed** (median of {found.cases} cases, forward and backward) and at "
        f"**{found.over_best:.2f} × the speed of the best of** {others} (geometric mean): faster "
        f"in {found.ahead} cases, level within {100 * LEVEL:.0f} % in {found.level}, slower in "
        f"{found.behind}."
    )


def caption(found: Result) -> str:
    """How the figure was made."""
    return (
        f"Forward pass, {share.DTYPE} (numbers of 16 bits); odd lengths in bold; = is level. "
        f"One {found.gpu}, {found.versions}, {found.day}."
    )


def limits(data: dict | None, over_ranks: dict | None) -> str:
    """When not to use it, as a list in Markdown; `over_ranks` was measured over several GPUs."""
    items = []
    host: dict[str, dict[str, float]] = {}
    for row in of_suite(data, "host_time") if data else []:
        if row["us"]:
            host.setdefault(row["direction"], {})[row["provider"]] = row["us"]["p50"]
    pairs = [
        f"{call[CHOOSER]:.0f} µs against {call['torch']:.0f}{when}"
        for direction, when in (("forward", ""), ("forward_grad", " if a gradient is wanted"))
        if CHOOSER in (call := host.get(direction, {})) and "torch" in call
    ]
    if pairs:
        items.append(
            "**For small tensors, one call at a time.** Below about a million numbers it takes "
            "longer to start a kernel than to run it, and [starting ours](benchmarks/host-time.md) "
            "takes longer than starting torch’s: "
            f"{', '.join(pairs)}."
        )
    rows = of_suite(data, "strided") if data else []
    apart = [row for row in rows if row["layout"] == "contiguous"]
    strided = stand(apart) if data else None
    if strided and strided.losses:
        factor, _, peer = strided.losses[0]
        worst = f", at worst {times(factor)} × the speed of {label_of(peer)}" if factor else ""
        items.append(
            "**Over a long dimension that is not the last.** Slower than the best other library in "
            f"[{strided.behind} of {strided.cases} cases](benchmarks/strides.md){worst}."
        )
    items += [
        "**As a part of something larger.** Attention should compute its softmax in one kernel "
        "with the matrix products, as [FlashAttention](kernels/flash-attention.md) does. Under "
        "`torch.compile`, rows of more than 1,024 elements are not fused with the operations "
        "around them.",
        *unlucky(data),
        *of_few_rows(over_ranks),
        *untimed(data),
        "**For speed on other hardware.** Everything was measured on one kind of GPU. On a CPU "
        "the functions call PyTorch’s own.",
    ]
    return "\n".join(f"- {item}" for item in items) + "\n"


def of_few_rows(over_ranks: dict | None) -> list[str]:
    """The loss over several GPUs where it is behind, if it is."""
    found = list(ranks.points(over_ranks)) if over_ranks else []
    factors = [factor for point in found if (factor := point.factor(ranks.LOSS))]
    behind = [factor for factor in factors if standing(factor) == "behind"]
    if not behind:
        return []
    return [
        "**For a loss of few rows over several GPUs.** There [the "
        "processor](kernels/from-lane-to-cluster.md#how-long-it-takes) takes longer than the GPU; "
        f"at worst {times(min(behind))} × the speed of the best other."
    ]


def untimed(data: dict | None) -> list[str]:
    """What no one has timed: softmax with maps, unless a case of it was."""
    rows = of_suite(data, "loss_head", op="mapped_softmax", provider=CHOOSER) if data else []
    if any(row["us"] for row in rows):
        return []
    return [
        "**For the speed of [masks and scales](kernels/maps.md).** They are tested, but have not "
        "been timed yet."
    ]


def drawn(data: dict | None) -> list[random.Group]:
    """The cells that the newest seed drew and that were compared."""
    rows = of_suite(data, "random") if data else []
    return random.compared(random.newest_seed(rows)) if rows else []


def at_random(data: dict) -> str:
    """How ours stands at shapes that nobody chose, as the end of the figure's caption."""
    groups = drawn(data)
    if not groups:
        return ""
    _, behind, level = random.standings(groups)
    text = (
        f" On {len(groups)} [random shapes](benchmarks/random.md): at least level in "
        f"{percent(level)}, slower in {behind}"
    )
    if ran := [group for group in groups if random.compiler_ran(group)]:
        name, level = label_of("torch.compile"), random.standings(ran)[2]
        text += f"; where {name} ran, at least level in {percent(level)}"
    return f"{text}."


def unlucky(data: dict | None) -> list[str]:
    """Shapes drawn at random in which another library is faster."""
    groups = drawn(data)
    behind = random.standings(groups)[1] if groups else 0
    if not behind:
        return []
    worst = min(random.values(groups, random.over_best))
    return [
        "**At any shape, without measuring.** On [shapes drawn at random](benchmarks/random.md) "
        f"another library was faster in {behind} of {len(groups)} cases; ours had at worst "
        f"{times(worst)} × its speed."
    ]


def figure(data: dict) -> str:
    """The figure in two widths, of which the style sheet shows one."""
    every = share.rows(data)
    alt = f'role="img" aria-label="{share.alt(every)}"'
    return (
        '<div class="copy-share" data-search-exclude>\n'
        '<p class="figure-title">Share of a plain copy’s speed, by row length</p>\n'
        + share.svg(every, 640, 17, f'class="for-wide" {alt}')
        + "\n"
        + share.svg(share.few(every), 358, 21, f'class="for-narrow" {alt}')
        + "\n</div>\n"
    )


def _picture(width: int, *parts: str) -> str:
    return (
        '<div class="door-picture" data-search-exclude>'
        f'<svg viewBox="0 0 {width} 56" width="{width}" height="56" aria-hidden="true">'
        f"{''.join(parts)}</svg>\n</div>\n"
    )


def _cell(x: float, y: float, size: tuple[float, float], colour: str, tint: float) -> str:
    width, height = size
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5" '
        f'fill="var(--{colour})" fill-opacity="{tint:.2f}"/>'
    )


def matrix() -> str:
    """The Jacobian of softmax at (1, 2, 3): blue adds, orange takes away."""
    weights = [exp(x) for x in (1, 2, 3)]
    y = [weight / sum(weights) for weight in weights]
    entries = [[y[i] * ((i == j) - y[j]) for j in range(3)] for i in range(3)]
    top = max(abs(entry) for line in entries for entry in line)
    return _picture(
        56,
        *(
            _cell(
                19 * j,
                19 * i,
                (17, 17),
                "ours" if entry > 0 else "behind",
                0.15 + 0.85 * abs(entry) / top,
            )
            for i, line in enumerate(entries)
            for j, entry in enumerate(line)
        ),
    )


def bars() -> str:
    """Bytes that each rung of the ladder moves; the last one moves what it must."""
    names = ("naive", "three_loops", "two_loops", "single_block")
    heights = [traffic.FORWARD[name].elements(4096, 4096) for name in names]
    shapes = [
        _cell(
            15 * at,
            56 - 56 * height / max(heights),
            (12, 56 * height / max(heights)),
            "ours" if name == names[-1] else "best",
            1 if name == names[-1] else 0.35 + 0.15 * at,
        )
        for at, (name, height) in enumerate(zip(names, heights))
    ]
    return _picture(57, *shapes)


def heat(data: dict) -> str:
    """Ours against the best other library: a row per direction and type, a column per length."""
    lines = [(suite, dtype) for suite in SUITES for dtype in ("float32", "bfloat16")]
    cells = []
    for i, (suite, dtype) in enumerate(lines):
        groups = list(by_case(of_suite(data, suite, dtype=dtype, op="softmax")).values())
        groups.sort(key=lambda group: n_cols(next(iter(group.values()))))
        for j, group in enumerate(groups):
            peer = best_peer(group)
            factor = ratio(group, peer) if peer else None
            stand = standing(factor)
            colour = {"ahead": "ours", "level": "torch", "behind": "behind"}[stand]
            tint = 0.25 if stand == "level" else min(1, 0.35 + 0.8 * abs(log(factor or 0.5)))
            cells.append(_cell(4.4 * j, 14.3 * i, (3.6, 12.6), colour, tint))
    return _picture(88, *cells)


def fragments(root: Path) -> dict[str, Fragment]:
    """What the front page includes."""
    found = newest(root)
    data = found[1] if found else None
    out = {
        "door-matrix": Fragment(matrix()),
        "door-bars": Fragment(bars()),
        "home-limits": Fragment(limits(data, ranks.read(root))),
    }
    if data is None or not share.rows(data):
        return out | {
            name: Fragment("")
            for name in ("home-claim", "home-figure", "home-caption", "door-heat")
        }
    numbers = result(data)
    return out | {
        "home-claim": Fragment(f"{claim(numbers)}\n"),
        "home-figure": Fragment(figure(data)),
        "home-caption": Fragment(
            f"{caption(numbers)} [Every shape](benchmarks/index.md).{at_random(data)}\n"
            "{ .figure-caption }\n",
            measured_by(rows_of(data)),
        ),
        "door-heat": Fragment(heat(data)),
    }
