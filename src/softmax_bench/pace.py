"""Why launches have two speeds: `python -m softmax_bench pace`.

A copy whose programs stamp when they begin and end is timed by events, like everything here. What
its programs took, from the first begin to the last end, and what passed besides, between the events
and the kernel, are told apart; so are even and odd launches, and the pace of the clock.
"""

from __future__ import annotations

from statistics import median

import torch
import triton
import triton.language as tl

from softmax_bench import results

FORMAT = "triton-softmax-pace/1"
MIB = (4, 64, 256)
LAUNCHES = 400
BLOCK = 4096


@triton.jit
def register(NAME: tl.constexpr):
    """A special register of 64 bits: %globaltimer in nanoseconds, or %clock64 in cycles."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, " + NAME + ";", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def stamped_copy(x_ptr, y_ptr, stamps_ptr, BLOCK: tl.constexpr):
    """Copy a block, and store begin, end (ns) and the cycles between them."""
    begin, first = register("%globaltimer"), register("%clock64")
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))
    tl.debug_barrier()
    last, end = register("%clock64"), register("%globaltimer")
    stamps_ptr += 3 * tl.program_id(0)
    tl.store(stamps_ptr, begin)
    tl.store(stamps_ptr + 1, end)
    tl.store(stamps_ptr + 2, last - first)


def even_and_odd(values: list[float]) -> dict[str, float]:
    """Medians of all launches, of the even and of the odd ones.

    >>> even_and_odd([1.0, 2.0, 1.0, 2.0, 1.0])
    {'all': 1.0, 'even': 1.0, 'odd': 2.0, 'apart': 1.0}
    """
    found = {"all": median(values), "even": median(values[::2]), "odd": median(values[1::2])}
    found["apart"] = abs(found["odd"] - found["even"])
    return {name: round(value, 3) for name, value in found.items()}


def taken_apart(events: list[float], stamps: torch.Tensor) -> dict:
    """What launches took: the events (µs), the kernel, the rest, and the clock (GHz).

    Args:
        events: microseconds between the events of each launch.
        stamps: (launches, programs, 3), int64: begin and end in nanoseconds, and cycles.
    """
    begin, end, cycles = stamps.unbind(-1)
    inside = [each / 1e3 for each in (end.amax(1) - begin.amin(1)).tolist()]
    clock = (cycles.sum(1) / (end - begin).sum(1)).tolist()
    return {
        "events": even_and_odd(events),
        "inside": even_and_odd(inside),
        "outside": even_and_odd([a - b for a, b in zip(events, inside, strict=True)]),
        "ghz": {"low": round(min(clock), 3), "high": round(max(clock), 3)},
    }


def measured(mib: int) -> dict:
    """One size: a copy of so many MiB, its cache cold, in one queue."""
    x = torch.randn(mib * 2**18, device="cuda")
    y, flush = torch.empty_like(x), torch.empty(2**28, dtype=torch.uint8, device="cuda")
    grid = (x.numel() // BLOCK,)
    stamps = torch.zeros(LAUNCHES, *grid, 3, dtype=torch.int64, device="cuda")
    stamped_copy[grid](x, y, stamps[0], BLOCK)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
    torch.cuda._sleep(40_000_000)  # until the host has queued everything
    for (start, end), into in zip(pairs, stamps, strict=True):
        flush.zero_()
        start.record()
        stamped_copy[grid](x, y, into, BLOCK)
        end.record()
    torch.cuda.synchronize()
    events = [start.elapsed_time(end) * 1e3 for start, end in pairs]
    return {"mib": mib, **taken_apart(events, stamps.cpu())}


def run(commit: str | None) -> dict:
    """The file: every size, with the machine and the largest differences of even and odd."""
    sizes = [measured(mib) for mib in MIB]
    parts = ("inside", "outside")
    return {
        "format": FORMAT,
        "utc": results.now(),
        "commit": commit or results.git_commit(),
        "machine": results.machine(),
        "launches": LAUNCHES,
        "apart": {part: max(size[part]["apart"] for size in sizes) for part in parts},
        "sizes": sizes,
    }
