"""What a causal loop need not visit

kind: predict
level: 2
minutes: 4
teaches: where the loop over keys ends under a causal mask

Causal attention over 4,096 queries and as many keys. A program takes 128 queries; its loop takes 64
keys at a time and skips tiles in which its queries see nothing. How many tiles do all programs
visit together?

hint: Program p has the queries 128 · p to 128 · p + 127, and query i sees the keys 0 to i.

hint: So program p ends after 2 · (p + 1) tiles. There are 32 programs.
"""

# start
ANSWER = ...
# solved
ANSWER = 1056
# end

# ---- check ----
from softmax_playground.checker.judge import number


def check(names, lab):
    count = sum([-(-(128 * (p + 1)) // 64) for p in range(4096 // 128)])
    said = f"Right: {count} tiles of 2048, and only the last two of a program need the mask."
    return number(names, count, said)


WRONG = [
    (2048, "That is every tile: 32 programs × 64. Each ends at its last query's key."),
    (1024, "Half of all tiles: but those that the diagonal cuts are visited too."),
    (528, "That is with 128 keys a tile: here it takes two of 64 for 128 keys."),
    (992, "Program 0 visits two tiles, not none: its queries see the keys 0 to 127."),
    (1040, "The last of its 128 queries sees the last of 128 keys: two tiles at the diagonal."),
    (32, "That is the number of programs."),
]
