"""70,000 rows of 1,000 columns: too many for a limit of 65,536?

Libraries such as Liger Kernel put this limit on a block, so on the columns. The article takes it for the largest grid (A5), whose first dimension ends at 2³¹ − 1.
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
