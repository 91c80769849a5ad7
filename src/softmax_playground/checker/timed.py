"""How long an exercise's softmax takes on the matrix of the ladder, predicted from what it moves:
runs under CPython and MicroPython.

A number that is read or written takes its share of the time of a measured copy. One that is read
again costs less where the rows of all programs that run at once fit into the L2 cache.
"""

from ..small_triton.right import listed

WITHIN = 0.15
"""How far a prediction may be off; the page *On your GPU* shows by how much it is for each rung."""
COLS = 1024
"""Columns of the row whose accesses are counted: of the matrix they are as many for each number."""
THREADS = 2048
"""Of one multiprocessor."""


class MatrixLaunch:
    """How a softmax kernel is launched on a matrix, a row per program.

    Args:
        kernel: the reader's.
        whole: whether its tile holds a row; else it holds a quarter.
        counts_rows: whether it takes the number of rows, as `rows.in_tiles` has it.
    """

    def __init__(self, kernel, whole, counts_rows=False):
        self.kernel, self.counts_rows = kernel, counts_rows
        # As the rungs "single block" and "three loops" have them.
        self.tiles, self.warps = (1, 16) if whole else (4, 8)

    def __call__(self, launch, x, y, rows, cols):
        """Run it by `launch(kernel, grid, *arguments, **constants)`."""
        sizes, constants = (cols,), {"BLOCK": cols // self.tiles}
        if self.counts_rows:
            sizes, constants = (rows, cols), {"ROWS": 1, "COLS": constants["BLOCK"]}
        launch(self.kernel, (rows,), x, y, *sizes, num_warps=self.warps, **constants)


def counted(launch, lab):
    """(numbers moved, those of them that were moved before, lanes of an access), the first two for
    each number of a row. `lab` runs the small Triton."""
    launch(lab.launch, lab.tensor([[0.0] * COLS], "x"), lab.empty((1, COLS), "y"), 1, COLS)
    moved = lab.count("load") + lab.count("store")
    return moved / COLS, (moved - len(lab.seen)) / COLS, moved / lab.accesses


def predicted(basis, moved, again, warps):
    """Microseconds that a kernel takes on the matrix of the ladder.

    Args:
        basis: what was measured, as `softmax_tutorial.ladder_table.basis` has it.
        moved, again: as `counted` has them.
        warps: of a program.
    """
    rows_at_once = basis["multiprocessors"] * (THREADS // (32 * warps))
    cached = rows_at_once * basis["row_bytes"] <= basis["l2_bytes"]
    price = basis["again"] if cached else 1.0
    return dict(basis["rungs"])["copy"] * (moved - again + again * price) / 2


def place(us, rungs, within):
    """Where a time stands among (label, time) of the rungs, in words."""
    order = sorted([(time, label) for label, time in rungs if label != "copy"])
    level = [label for time, label in order if abs(us / time - 1) <= within]
    slower = [label for time, label in order if time > us and label not in level]
    faster = [label for time, label in order if time < us and label not in level]
    faster.reverse()
    named = ("level with", level), ("faster than", slower), ("slower than", faster)
    return "; ".join([f"{words} {listed(labels)}" for words, labels in named if labels])


def said(basis, launch, lab):
    """(microseconds or None, what to say of the time of a kernel that is right)."""
    moved, again, lanes = counted(launch, lab)
    why = ""
    if lanes < COLS / launch.tiles / 4:
        why = "it moves a tile in many small loads or stores, so instructions decide, not bytes"
    elif again and launch.tiles == 1:
        why = "it loads x again while the row is in registers, and the compiler may merge the loads"
    if why:
        return None, f"No time is predicted: {why}."
    us = predicted(basis, moved, again, launch.warps)
    return us, (
        f"It moves {moved:.3g} numbers for each one of the matrix. So {basis['matrix']} should take"
        f" it {us:.0f} µs on an {basis['gpu']}, give or take {100 * WITHIN:.0f} %:"
        f" {place(us, basis['rungs'], WITHIN)}."
    )
