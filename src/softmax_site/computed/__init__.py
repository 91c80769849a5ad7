"""What a page shows of the compiler's output or of a kernel's run, committed in `docs/_computed/`.

Each module has a function `generate` that returns texts by path. `python -m softmax_site.computed`
writes them, and a test runs the same functions and compares, so none goes stale unseen. This is the
one part of `softmax_site` that imports the library, torch and triton.
"""

from __future__ import annotations

NAMES = (
    *("compiled", "primer", "road", "rounding_table", "split_rows_trace", "usual_shapes"),
    *("warp_groups_trace", "worked_views"),
)
