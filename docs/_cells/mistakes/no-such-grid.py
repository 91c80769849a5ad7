"""70,000 rows of 1,000 columns: too many for a limit of 65,536?

The article takes 65,536 for the largest grid (A5), but a grid's first dimension ends at 2³¹ − 1. Libraries such as Liger Kernel set this limit for a block, so for columns.
"""
LIMIT = 65_536


def block_for(n):
    block = triton.next_power_of_2(n)
    if block > LIMIT:
        raise ValueError(f"{n} needs a block of {block}, and {LIMIT} is the most")
    return block


n_rows, n_cols = 70_000, 1_000
expect(block_for(n_rows), 1024)  # wrong
expect(block_for(n_cols), 1024)  # right
