"""A limit that no grid has

An article takes 65,536 for the largest grid of a GPU, and so for the most rows. That is a limit which libraries put on a block; the first dimension of a grid ends at 2³¹ − 1.
"""
MAX_GRID = 65_536  # wrong
MAX_GRID = 2**31 - 1  # right


def grid(n_rows):
    if n_rows > MAX_GRID:
        raise ValueError(f"{n_rows} rows: there are at most {MAX_GRID} programs")
    return (n_rows,)


expect(grid(70_000), [70_000])
