"""Rows that find mistakes, each with the reason why it is tried: runs under CPython and
MicroPython."""

from ..small_triton.right import INF, softmax
from .judge import Wrong
from .timed import MatrixLaunch

SMALLEST = -3.4028234663852886e38
"""The smallest finite float32."""

RISING = "The maximum grows along this row: what was summed before it has to be rescaled."
FALLING = "The maximum comes first in this row: the later maxima of tiles are smaller."
BELOW = "This row is far below 0: exp underflows unless shifted, and 0 is larger than all of it."
ABOVE = "This row is far above 0: exp overflows unless the maximum is subtracted before it."
MILLION = "This row is below −10⁶: only −∞ is below every number."
LOWEST = "This row holds the smallest float32 there is: only −∞ is below every number."
HOLES = "There are −∞ in this row, whose exponential is 0."
LATE = "This row begins with −∞ alone: m is still −∞ there, and −∞ − (−∞) is NaN."
EARLY = "This row ends with −∞ alone, after its maximum."
ONE = "This row is one number, whose share is exactly 1, and the sum of exponentials too."
MASKED = "Where tiles are full it is right: is the last column met, what do masked lanes hold?"
GAP = "The rows lie further apart than they are long."


def random_row(n, seed, low=-3.0, high=3.0):
    """Numbers in an order of their own, the same everywhere; exact in float32."""
    row, state = [], 12345 + 7919 * seed
    for _ in range(n):
        state = (1103515245 * state + 12345) % 2147483648
        row.append(low + (high - low) * (state >> 15) / 65536)
    return [round(1024 * x) / 1024 for x in row]


def hostile(n, seed=0):
    """Rows of n elements, and of each why it is tried."""
    some = random_row(n, seed, -2.0, 2.0)
    half = n // 2
    found = [
        (random_row(n, seed + 1), None),
        (random_row(n, seed + 2, 0.0, 9.0), None),
        ([0.5 * j for j in range(n)], RISING),
        ([-0.5 * j for j in range(n)], FALLING),
        ([x - 1000.0 for x in some], BELOW),
        ([x - 5000.0 for x in some], BELOW),
        ([x + 1000.0 for x in some], ABOVE),
        ([-INF if j % 3 == 1 else some[j] for j in range(n)], HOLES),
        ([-INF] * half + some[half:], LATE),
        (some[: n - half] + [-INF] * half, EARLY),
        ([-INF] * (n - 1) + [some[-1]], LATE),
        ([-2.0e6 - 0.5 * (j % 3) for j in range(n)], MILLION),
        ([SMALLEST] * n, LOWEST),
    ]
    return [row for row, _ in found], [why for _, why in found]


class Counted:
    """In the place of numbers: counts what is computed with them, and with all that comes of it."""

    def __init__(self):
        self.operations = 0

    def _counted(self, _=None):
        self.operations += 1
        return self

    __add__ = __sub__ = __mul__ = __truediv__ = __neg__ = _counted
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _counted


# ---- Kernels of usual kinds ----


def gradients(rows):
    """A gradient for each row, of no pattern, one of them constant and one far from 0."""
    found = [random_row(len(rows[i]), 100 + i, -1.0, 1.0) for i in range(len(rows))]
    found[0] = [2.0] * len(rows[0])
    found[-1] = [100.0 + x for x in found[-1]]
    return found


def one_block(lab, kernel, of=softmax, widths=((8, 8), (7, 8), (1, 8), (9, 16)), size=None):
    """Check `kernel(x, y, n_cols, BLOCK)` of a program per row; of one number nothing is rounded.

    Args:
        of: what is right of a row.
        widths: (n_cols, BLOCK), tried in turn.
        size: elements that it writes for a row, if they are not n_cols.
    """
    for i in range(len(widths)):
        n, block = widths[i]
        rows, why = hostile(n, n)
        if n == 1 or (n % block and i and not widths[0][0] % widths[0][1]):
            why = [each or (ONE if n == 1 else MASKED) for each in why]
        x = lab.tensor(rows, "x")
        y = lab.empty((len(rows), size or n) if size != 1 else (len(rows),), "y")
        lab.launch(kernel, (len(rows),), x, y, n, BLOCK=block)
        lab.compare(y, [of(row) for row in rows], why, digits=1e-4 * (n > 1))
    if of is softmax:
        lab.on_matrix = MatrixLaunch(kernel, widths[0][0] <= widths[0][1])


TILES = ((13, 11, 1, 4), (13, 13, 8, 4), (5, 12, 2, 4), (1, 9, 4, 8), (12, 5, 4, 2), (3, 1, 2, 4))
"""(rows, n_cols, ROWS, COLS)"""


def in_tiles(lab, kernel, reads, of=softmax, tiles=TILES):
    """Check `kernel(x, y, n_rows, n_cols, ROWS, COLS)`, which may read x `reads` times."""
    for height, n, tall, wide in tiles:
        rows, why = hostile(n, n)
        rows, why = rows[-height:], why[-height:]
        x, y = lab.tensor(rows, "x"), lab.empty((height, n), "y")
        lab.launch(kernel, (-(-height // tall),), x, y, height, n, ROWS=tall, COLS=wide)
        lab.compare(y, [of(row) for row in rows], why, digits=1e-4 * (n > 1))
        at_most(lab, "x", reads * height * n, "load", reads)
    lab.on_matrix = MatrixLaunch(kernel, False, True)


def at_most(lab, name, elements, kind="load", times=None):
    """Nothing if the last launch accessed no more elements of a tensor.

    Raises:
        Wrong: it did.
    """
    count = lab.count(kind, name)
    if count > elements:
        verb = "reads" if kind == "load" else "writes"
        rather = f"{times} times" if times and times > 1 else "once"
        enough = f"{elements} are enough: each {rather}" if elements else "need not"
        raise Wrong(f"The result is right, but it {verb} {count} elements of {name}, and {enough}.")
