"""How the words that programs publish are read, in split rows and split strands alike."""

from __future__ import annotations

from .vectors import ceil_div, next_power_of_2

MAX_POLLS = 1024
"""How often a program polls again for missing words before it does without its partners: many times
what a row takes, so that it only ever happens when they are not running."""


def lanes_and_polls(n_chunks: int, num_warps: int, width: int = 1) -> tuple[int, int]:
    """(lanes, polls): a tile of lanes × width that reads a word in each lane, and how many of its
    words are polled by one thread, at once.

    Args:
        n_chunks: chunks, each with `width` words.
        num_warps: warps of the program that reads.
        width: words of a chunk, a power of two: 1 for a row, the strands of a tile for strands.

    There are as many lanes as threads at least, so that no two threads poll the same word.

    >>> lanes_and_polls(16, num_warps=4), lanes_and_polls(300, num_warps=4)
    ((128, 1), (512, 4))
    >>> lanes_and_polls(9, num_warps=8, width=32)
    (16, 2)
    """
    threads = 32 * num_warps
    lanes = max(next_power_of_2(n_chunks), ceil_div(threads, width))
    return lanes, lanes * width // threads
