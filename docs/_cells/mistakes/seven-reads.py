"""Do five lines of softmax read 7MN elements?

The counts beside the lines of Triton's first tutorial add up to 5MN + 2M (B1).
"""
reads = {
    "row maximum": "x",
    "subtract": "xm",
    "exponentiate": "z",
    "row sum": "e",
    "divide": "ed",
}
M, N = 1823, 781
size = {"x": M * N, "z": M * N, "e": M * N, "m": M, "d": M}
counted = sum(size[tensor] for line in reads.values() for tensor in line)
expect(counted, 7 * M * N)  # wrong
expect(counted, 5 * M * N + 2 * M)  # right
