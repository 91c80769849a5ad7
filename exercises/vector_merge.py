"""Two answers to one query

kind: fill in
level: 2
minutes: 8
teaches: what log-sum-exp is for: merging attention over parts of the keys

Two programs have computed attention for the same query, each over its half of the keys. A program
hands over its output `o`, a list of numbers that is already divided, and `lse`, the log-sum-exp of
its scores. [Merge](../math/attention.md#what-log-sum-exp-is-for) them. A half without keys has the
output 0 and the lse −∞, and at least one half has keys.

hint: The share of the first half is exp(lse_a − lse), with the lse of all keys.

hint: lse is M + log(exp(lse_a − M) + exp(lse_b − M)), where M is the larger of the two.
"""

import math


def merge(a, b):
    """(o, lse) of two halves of the keys in; (o, lse) over all keys out."""
    o_a, lse_a = a
    o_b, lse_b = b
    # start
    lse = ...
    o = ...
    # solved
    larger = max(lse_a, lse_b)
    lse = larger + math.log(math.exp(lse_a - larger) + math.exp(lse_b - larger))
    o = [x * math.exp(lse_a - lse) + y * math.exp(lse_b - lse) for x, y in zip(o_a, o_b)]
    # end
    return o, lse


# ---- check ----
from softmax_playground.checker.judge import compare_calls, needs
from softmax_playground.checker.rows import random_row
from softmax_playground.small_triton.right import INF, logsumexp, softmax


def check(names, lab):
    function = needs(names, "merge")
    halves = [[0.5, 2.0, -1.0], [3.0], [-2000.0, -2001.0], [1500.0, 1500.0], []]
    calls = []
    for i in range(len(halves)):
        for j in range(len(halves)):
            rows, parts = [halves[i], halves[j]], []
            if not halves[i] + halves[j]:
                continue
            for row, seed in zip(rows, (i, 10 + j)):
                values = [random_row(3, 20 * seed + at, -2.0, 5.0) for at in range(len(row))]
                weights = softmax(row) if row else []
                o = [sum([w * v[c] for w, v in zip(weights, values)]) for c in range(3)]
                parts.append((o, logsumexp(row) if row else -INF, values))
            every = softmax(rows[0] + rows[1])
            values = parts[0][2] + parts[1][2]
            o = [sum([w * v[c] for w, v in zip(every, values)]) for c in range(3)]
            a, b = parts[0][:2], parts[1][:2]
            why = "A half is empty here." if [] in rows else ""
            if not why and 1500.0 in rows[0] + rows[1]:
                why = "exp(1500) overflows: relative to the larger of the two."
            right = o, logsumexp(rows[0] + rows[1])
            for part in (0, 1):
                call = lambda a=a, b=b, part=part: function(a, b)[part]  # noqa: E731
                what = f"{('o', 'lse')[part]} of {len(rows[0])} and {len(rows[1])} keys"
                calls.append((what, call, right[part], why))
    compare_calls(calls)
    return "Right: so programs, or GPUs, need not have seen the same keys."


LSE = "larger + math.log(math.exp(lse_a - larger) + math.exp(lse_b - larger))"
O = "[x * math.exp(lse_a - lse) + y * math.exp(lse_b - lse) for x, y in zip(o_a, o_b)]"
WRONG = [
    (O, "[x + y for x, y in zip(o_a, o_b)]", "Each o is a mean of its own: weigh it by its share."),
    (
        O,
        "[(x + y) / 2 for x, y in zip(o_a, o_b)]",
        "The halves count by the weight of their keys, not alike.",
    ),
    (
        O,
        "[x * math.exp(lse_a - larger) + y * math.exp(lse_b - larger) for x, y in zip(o_a, o_b)]",
        "The shares do not add up to 1: relative to lse, not to the larger.",
    ),
    (LSE, "lse_a + lse_b", "What is added are the sums of exponentials, not their logarithms."),
    (LSE, "larger", "The smaller part counts too: log(exp(lse_a − M) + exp(lse_b − M))."),
    (
        LSE,
        "math.log(math.exp(lse_a) + math.exp(lse_b))",
        "exp overflows: relative to the larger of the two.",
    ),
    (
        LSE,
        LSE.replace("larger + ", ""),
        "The maximum that was subtracted comes back.",
    ),
    (
        O,
        "[x * math.exp(lse_b - lse) + y * math.exp(lse_a - lse) for x, y in zip(o_a, o_b)]",
        "Each half is weighed by its own lse.",
    ),
]
