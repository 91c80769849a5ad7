"""The kinds of calls that are slower than they should be, and what could make them faster: the list
that `python -m softmax_bench tune --kinds` works through.

A kind has shapes to search on, others on which what was found must hold, and the ways to try. A way
is a line of text in the columns of `measured.txt`, so that one that wins can be copied there:

* `block registers warps terms depth pause` cuts rows into chunks;
* `tall wide warps` cuts columns into chunks;
* `cols warps` holds whole rows, in tiles of so many columns;
* `tiles` stands for all ways to hold whole rows, or columns, that the model thinks fast.

What bounds a call, on an H200 that copies at 4.2 TB/s, and so what is worth trying:

* **A floor.** From event to event an empty kernel takes 4.6 µs. A call with a copy below 10 µs is
  this floor and a chain of waits: a load from memory (0.8 µs), the reduction, a word published in
  the L2 cache and read by others (0.7 µs each way), a store. Nothing but a shorter chain helps: one
  program for a row has no exchange, but moves a row at the speed of one multiprocessor, about 50
  bytes a nanosecond. And after a cold start the instructions come from memory as well. Code grows
  with the elements of a thread, so few elements and more warps may win although reductions need
  barriers then.
* **Bytes in flight.** Half of 4.2 TB/s is read, and a read takes 1 µs under load: 2 MB must be on
  their way, 16 KB a multiprocessor. A program that waits for its partners reads nothing, so others
  have to: a chunk of 8,192 16-bit elements moves 32 KB, about 1 µs of a multiprocessor's share,
  and one program lives 6 to 8 µs. That takes eight of them at once (64 registers × 128 threads),
  or half as many that load their next chunk before they wait (depth 1), at twice the registers.
* **Room.** Register files hold 33 MB. A row of 1,500,000 float32 elements takes 12 MB backward,
  that is 18 with what addresses and exponentials need: hardly two rows at a time, and while the
  programs of one wait, those of the other are all that loads. Small chunks in flight (depth 1) cost
  as much room as large ones that wait. To drop a chunk and read it again from the L2 cache would
  need no room, but 5 passes through that cache for 3 through memory: at the 5.5 to 6 TB/s that it
  reads with, no more than 0.75 to 0.8 of a copy, which is what there is now. Shared memory, as
  large as the registers, is idle; a Triton kernel can keep nothing in it by name.
* **Waves.** The last chunks of all leave the device idle. 8 rows of a million columns in chunks of
  8,192 are 976 programs; 396 run at once, which takes three turns for 2.5 turns of work. `even`
  before a line stretches or shrinks chunks so that turns come out full.
* **The same bits.** A batch-invariant sum adds integers, at some four instructions an element more,
  and its chunks are cut by the length of a row alone. Where the plain call holds a row in one
  program (16,384 columns), or a column in one tile, chunks pay for an exchange too. Only `block`
  and `tall` change bits; registers, warps and depth are free.

All kinds take about three minutes on an H200, half a minute of which 16 processors compile:

    python -m softmax_bench tune --kinds '*' --out slow.json --processes 16 --seconds 300
    python -m softmax_bench tune --report slow.json
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Calls that the same lines of a table decide."""

    cells: str  # names of shapes to search on, as `tune --shapes` takes them
    held_out: str  # names of others, on which nothing is chosen
    ways: str  # a way a line


def _of(prefix: str, *shapes: str, suffix: str = "") -> str:
    return " ".join(f"{prefix}/{shape}{suffix}" for shape in " ".join(shapes).split())


SOFTMAX, VJP = "softmax/forward/bfloat16", "softmax/backward/bfloat16"
SOFTMAX32, VJP32 = "softmax/forward/float32", "softmax/backward/float32"

KINDS = {
    "few": Kind(
        _of(SOFTMAX, "8x20480 12x17920 1x120064 4x140032 2x96000"),
        _of(SOFTMAX, "8x19584 31x15808 1x113024 4x152064"),
        """tiles
        2048 32
        4096 16
        4096 32
        8192 32
        512 128 1 0 0 0
        1024 128 1 0 0 0
        1024 128 2 0 0 0
        1024 128 4 0 0 0
        2048 128 1 1 0 0
        2048 128 2 0 0 0
        2048 128 4 0 0 0
        2048 128 8 0 0 0
        4096 128 2 1 0 0
        4096 128 4 0 0 0
        4096 128 8 0 0 0
        4096 128 16 0 0 0
        8192 128 8 0 0 0
        8192 128 16 0 0 0""",
    ),
    "few-backward": Kind(
        _of(VJP, "8x20480 24x16000 1x120064 4x140032"),
        _of(VJP, "8x19584 31x15808 1x113024 4x152064"),
        """tiles
        2048 32
        4096 16
        4096 32
        8192 32
        512 128 1 0 0 0
        512 128 2 0 0 0
        1024 168 1 0 0 0
        1024 128 2 0 0 0
        1024 128 4 0 0 0
        2048 128 4 0 0 0
        2048 128 8 0 0 0
        4096 168 4 0 0 0
        4096 128 8 0 0 0
        4096 128 16 0 0 0
        8192 128 8 0 0 0
        8192 128 16 0 0 0""",
    ),
    "few-float32": Kind(
        _of(SOFTMAX32, "8x20480 1x120064 4x140032"),
        _of(SOFTMAX32, "8x19584 1x113024"),
        """4096 16
        4096 32
        512 128 1 0 0 0
        1024 128 1 0 0 0
        1024 128 2 0 0 0
        1024 128 4 0 0 0
        2048 128 2 0 0 0
        2048 128 4 0 0 0
        2048 128 8 0 0 0
        4096 128 4 0 0 0
        4096 128 8 0 0 0
        4096 128 16 0 0 0""",
    ),
    "few-float32-backward": Kind(
        _of(VJP32, "8x20480 1x120064 4x140032"),
        _of(VJP32, "8x19584 1x113024"),
        """4096 32
        512 128 1 0 0 0
        512 128 2 0 0 0
        1024 128 2 0 0 0
        1024 128 4 0 0 0
        2048 168 2 0 0 0
        2048 128 4 0 0 0
        2048 128 8 0 0 0
        4096 168 4 0 0 0
        4096 128 8 0 0 0
        4096 128 16 0 0 0""",
    ),
    "long": Kind(
        _of(SOFTMAX, "480x140032 320x210048 180x380032"),
        _of(SOFTMAX, "523x128256 256x262144 168x400000"),
        """4096 48 4 0 0 0
        4096 64 2 0 0 0
        4096 64 4 0 1 0
        4096 80 2 0 1 0
        8192 48 8 0 0 0
        8192 64 4 0 0 0
        8192 64 4 0 0 300
        8192 64 8 0 1 0
        8192 64 8 0 2 0
        8192 56 4 0 0 0
        8192 72 4 0 0 0
        8192 72 4 0 1 0
        8192 80 4 0 1 0
        8192 80 4 0 1 300
        8192 96 4 0 1 0
        8192 96 4 0 2 0
        16384 64 8 0 0 0
        16384 64 16 0 1 0
        16384 80 8 0 0 0
        16384 80 8 0 1 0
        16384 96 8 0 1 0
        16384 128 4 0 0 0
        32768 64 16 0 0 0
        even 8192 64 4 0 0 0
        even 8192 80 4 0 1 0
        even 16384 80 8 0 1 0""",
    ),
    "long-backward": Kind(
        _of(VJP, "480x140032 320x210048 180x380032"),
        _of(VJP, "523x128256 256x262144 168x400000"),
        """2048 96 2 0 0 0
        4096 80 4 0 0 0
        4096 96 4 0 1 0
        4096 128 2 0 0 0
        4096 128 4 0 1 0
        4096 128 4 0 2 0
        8192 80 8 0 0 0
        8192 96 4 0 0 0
        8192 112 4 0 0 0
        8192 128 4 0 0 0
        8192 168 4 0 1 0
        8192 128 8 0 1 0
        16384 96 8 0 0 0
        16384 128 8 0 0 0
        16384 128 8 0 1 0
        even 8192 128 4 0 0 0
        even 4096 128 4 0 1 0
        even 16384 128 8 0 1 0""",
    ),
    "long-edges": Kind(
        _of(SOFTMAX, "448x150010 180x380002"),
        _of(SOFTMAX, "440x151646 170x400002"),
        """2048 72 1 0 0 300
        4096 64 2 0 0 0
        4096 80 2 0 1 0
        8192 64 4 0 0 0
        8192 80 4 0 0 0
        8192 80 4 0 0 300
        8192 96 4 0 1 0
        8192 96 4 0 1 500
        16384 80 8 0 0 0
        16384 96 8 0 1 0
        16384 128 8 0 1 0""",
    ),
    "long-edges-backward": Kind(
        _of(VJP, "448x150010 180x380002"),
        _of(VJP, "440x151646 170x400002"),
        """2048 96 2 0 0 0
        4096 96 4 0 1 0
        4096 128 4 0 1 0
        4096 128 4 0 2 0
        8192 96 8 0 0 0
        8192 128 4 0 0 0
        8192 168 4 0 1 0
        8192 128 8 0 1 0
        16384 128 8 0 0 0
        16384 128 8 0 1 0""",
    ),
    "millions": Kind(
        _of(SOFTMAX, "40x1700000 31x2097152"),
        _of(SOFTMAX, "33x2000000"),
        """8192 64 4 0 0 0
        8192 80 4 0 1 0
        8192 96 4 0 1 0
        16384 64 8 0 0 0
        16384 64 16 0 1 0
        16384 80 8 0 0 0
        16384 80 8 0 1 0
        16384 80 8 0 1 500
        16384 96 8 0 1 0
        16384 128 8 0 2 0
        16384 128 4 0 0 0
        32768 64 16 0 0 0
        32768 80 16 0 1 0
        even 16384 80 8 0 1 0
        even 32768 64 16 0 0 0""",
    ),
    "millions-backward": Kind(
        _of(VJP, "40x1700000 9x920000"),
        _of(VJP, "33x2000000 8x1000000"),
        """4096 128 4 0 2 0
        8192 112 4 0 0 0
        8192 128 4 0 0 0
        8192 168 4 0 1 0
        8192 128 8 0 1 0
        16384 96 8 0 0 0
        16384 128 8 0 0 0
        16384 128 8 0 1 0
        16384 128 8 0 1 500
        16384 112 16 0 1 0
        32768 112 16 0 0 0
        even 8192 128 4 0 0 0
        even 16384 128 8 0 1 0
        even 16384 112 16 0 1 0""",
    ),
    "float32": Kind(
        _of(SOFTMAX32, "44x1400000 20x1700000"),
        _of(SOFTMAX32, "45x1500000"),
        """4096 64 4 0 0 0
        4096 96 4 0 1 0
        4096 128 4 0 2 0
        8192 96 4 1 0 0
        8192 96 4 0 0 0
        8192 128 4 0 0 0
        8192 80 8 0 1 0
        8192 168 4 0 1 0
        8192 128 8 0 2 0
        16384 96 8 0 0 0
        16384 128 8 0 1 0
        16384 80 16 0 1 0
        even 8192 96 4 0 0 0""",
    ),
    "float32-backward": Kind(
        _of(VJP32, "40x1400000 9x920000"),
        _of(VJP32, "40x1500000 8x1000000"),
        """2048 128 4 0 2 0
        4096 96 4 0 0 0
        4096 168 4 0 1 0
        4096 128 8 0 2 0
        4096 168 4 0 2 0
        8192 168 4 0 0 0
        8192 104 8 0 0 0
        8192 128 8 0 0 0
        8192 128 8 0 1 0
        8192 168 8 0 1 0
        16384 104 16 0 0 0
        16384 128 16 0 1 0
        even 8192 168 4 0 0 0
        even 4096 168 4 0 1 0
        even 16384 128 16 0 1 0""",
    ),
    "short": Kind(_of(SOFTMAX, "140000x282 160000x278"), _of(SOFTMAX, "146150x286"), "tiles"),
    "short-backward": Kind(_of(VJP, "400000x78 440000x70"), _of(VJP, "430184x74"), "tiles"),
    "invariant-columns": Kind(
        _of(SOFTMAX, "1920x4480 14336x576", suffix="/dim0/invariant"),
        _of(SOFTMAX, "2048x4096 16384x512", suffix="/dim0/invariant"),
        """tiles
        128 8 4
        256 8 4
        256 16 4
        256 32 4
        256 32 8
        512 8 4
        512 16 4
        512 16 8
        512 32 8
        512 32 16
        1024 8 8
        1024 16 8
        1024 32 16""",
    ),
    "invariant-16384": Kind(
        _of(SOFTMAX, "1920x17408 64x17408 900x16640", suffix="/invariant"),
        _of(SOFTMAX, "2048x16384 64x16384", suffix="/invariant"),
        """2048 64 1 0 0 0
        2048 80 1 0 0 0
        2048 40 2 0 0 0
        2048 48 2 0 0 0
        2048 64 2 0 0 0
        2048 80 2 0 1 0
        2048 40 4 0 0 0
        2048 64 4 0 1 0
        2048 96 1 0 1 0
        4096 80 2 0 0 0""",
    ),
    "invariant-128256": Kind(
        _of(SOFTMAX, "1000x131072 480x140032", suffix="/invariant"),
        _of(SOFTMAX, "1024x128256", suffix="/invariant"),
        """2048 64 1 0 0 0
        2048 64 2 0 0 0
        4096 56 4 0 0 0
        4096 64 2 0 0 0
        4096 72 2 0 0 0
        4096 80 2 0 0 0
        4096 80 4 0 1 0
        4096 128 2 0 1 0
        8192 64 8 0 0 0
        8192 80 4 0 0 0
        8192 96 4 0 0 0
        8192 128 4 0 1 0""",
    ),
    "invariant-backward": Kind(
        _of(VJP, "2048x49153 1500x60001", suffix="/invariant"),
        _of(VJP, "2048x50257", suffix="/invariant"),
        """2048 80 2 0 0 0
        2048 96 2 0 0 0
        2048 128 1 0 0 0
        2048 128 2 0 1 0
        4096 80 4 0 0 0
        4096 96 4 0 0 0
        4096 128 2 0 0 0
        4096 128 4 0 1 0
        8192 80 8 0 0 0
        8192 96 8 0 0 0
        8192 128 4 0 0 0""",
    ),
    "invariant-float32-backward": Kind(
        _of(VJP32, "1x140032 64x140032 300x131072", suffix="/invariant"),
        _of(VJP32, "1x128256 256x151936", suffix="/invariant"),
        """1024 128 2 0 0 0
        1024 168 1 0 0 0
        2048 96 4 0 0 0
        2048 128 2 0 0 0
        2048 128 4 0 0 0
        2048 168 2 0 0 0
        4096 128 4 0 0 0
        4096 168 4 0 0 0
        4096 96 8 0 0 0""",
    ),
    "invariant-millions": Kind(
        _of(SOFTMAX, "28x1100003 100x350080", suffix="/invariant"),
        _of(SOFTMAX, "30x1000003 100x300000", suffix="/invariant"),
        """2048 96 1 0 0 0
        4096 80 4 0 1 0
        4096 96 4 0 0 0
        8192 96 4 0 1 0
        8192 128 4 0 1 0
        8192 136 4 0 1 500
        8192 96 8 0 1 0
        8192 80 8 0 0 0
        8192 104 4 0 0 0""",
    ),
}
"""In the order in which they are worked through."""
