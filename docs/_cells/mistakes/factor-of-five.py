"""Does one kernel move a fifth of what five lines move?

The lines move 8MN + 5M elements and the kernel 2MN, a gain of a little over 4. Triton's first tutorial expects 5 (B1).
"""
M, N = 1823, 781
reads = 5 * M * N + 2 * M
writes = 3 * M * N + 3 * M
gain = (reads + writes) / (2 * M * N)

expect(gain, 5.0, within=0.5)  # wrong
expect(gain, 4 + 2.5 / N)  # right
