"""One length of six

kind: find the shape
level: 2
minutes: 5
teaches: look for the size that a constant silently bounds

This kernel merges the maxima of chunks of 8 columns with a tile of four lanes. For which of the
`n_cols` 8, 16, 24, 30, 32 and 33 does it miss a column?

hint: How many chunks does each of the six lengths have?
"""

import triton
import triton.language as tl

# start
ANSWER = ...
# solved
ANSWER = 33
# end


@triton.jit
def largest_kernel(m_ptr, y_ptr, n_cols):
    """m has the maximum of every 8 columns."""
    chunks = tl.arange(0, 4)
    m = tl.load(m_ptr + chunks, mask=chunks < (n_cols + 7) // 8, other=-float("inf"))
    tl.store(y_ptr, tl.max(m, axis=0))


# ---- check ----
from softmax_playground.checker.judge import Wrong, needs, number


def check(names, lab):
    lengths, failing = (8, 16, 24, 30, 32, 33), []
    for n in lengths:
        maxima = [float(min(8 * (i + 1), n)) for i in range((n + 7) // 8)]
        m, y = lab.tensor(maxima, "m"), lab.empty((1,), "y")
        lab.launch(needs(names, "largest_kernel"), (1,), m, y, n)
        try:
            lab.compare(y, [float(n)])
        except Wrong:
            failing.append(n)
    said = "Right: 33 columns are five chunks, and the tile has four lanes."
    return number(names, failing[0], said, among=lengths)


WRONG = [
    (32, "32 columns are four chunks, and there are four lanes."),
    (30, "30 columns are four chunks, the last of which has 6; its maximum is as good as any."),
    (24, "24 columns are three chunks, and the mask switches the fourth lane off."),
    (5, "Five chunks are too many; which length has five?"),
    (8, "One chunk: three lanes are masked, and hold −∞."),
]
