"""How programs that hold parts of the same row learn of each other's summaries.

A summary is one 64-bit word. A word that is zero has not been published (the workspace starts as
zeros, and no summary is zero), and a word arrives whole. So the word is the whole message, and no
fence is needed: nobody who has read it needs anything else from its sender.

Waiting is optional: after MAX_POLLS polls a program recomputes the missing partials itself. A
summary is a function of the input alone, so it does not matter who computes it, or if several do;
and so every program finishes, whatever the others do.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .summaries import to_common_maximum


@triton.jit
def pack_word(m, total):
    """A summary as one word: the bits of m in the high half, those of the sum in the low half."""
    high = m.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | (total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def unpack_word(word):
    """(m, total) of a word, float32."""
    m = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    total = word.to(tl.int32).to(tl.float32, bitcast=True)
    return m, total


@triton.jit
def word_of(m, total, WITH_MAXIMUM: tl.constexpr):
    """A sum as a word, with m or with a 1 beside it."""
    if WITH_MAXIMUM:
        return pack_word(m, total)
    else:
        return pack_word(tl.full(total.shape, 1.0, tl.float32), total)


@triton.jit
def publish(pointers, apart, m, totals, mask, OP: tl.constexpr, POLLED: tl.constexpr):
    """Write summaries where partners poll for them (POLLED), or where a second launch reads them:
    m and the first sum as one word, and every further sum as one more, `apart` words behind.

    None of them is the word 0: a sum of exponentials is at least 1, or m is −∞, or one of them is
    NaN; and where there is no maximum, and beside a further sum, is a 1.
    """
    LAST: tl.constexpr = len(totals) - 1
    # In reverse: who has seen the first word finds the others.
    for back in tl.static_range(len(totals)):
        word = word_of(m, totals[LAST - back], OP.shifted and back == LAST)
        if POLLED:
            tl.atomic_xchg(pointers + (LAST - back) * apart, word, mask=mask, sem="relaxed")
        else:
            tl.store(pointers + (LAST - back) * apart, word, mask=mask)


@triton.jit
def publish_missing(pointers, apart, m, totals, OP: tl.constexpr):
    """The same in place of partners, where these have not published it by now.

    Who has published may also have written its result over what was read here; then what was
    computed from that is dropped.
    """
    LAST: tl.constexpr = len(totals) - 1
    for back in tl.static_range(len(totals)):
        word = word_of(m, totals[LAST - back], OP.shifted and back == LAST)
        tl.atomic_cas(pointers + (LAST - back) * apart, word - word, word, sem="relaxed")


@triton.jit
def prefetch(pointers, WAIT: tl.constexpr):
    """Bring words into the L2 cache while the elements are loaded.

    Else they come from memory when they are published, and all partners wait for that.
    """
    if WAIT:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [pointers.to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.constexpr_function
def _poll_assembly(n_words, backoff, scope="gpu"):
    """PTX that polls for n_words words at once, which programs of the scope write.

    It sleeps `backoff` nanoseconds first, which leaves the cache to those who still read. It polls
    again while a thread of the warp misses a word and polls are left.

    Operands: n_words words, out; as many addresses, 0 for a word that is not wanted; as many copies
    of the number of further polls.
    """
    each = range(n_words)
    lines = [
        ".reg .pred again, " + ", ".join(f"missing{i}" for i in each) + ";",
        ".reg .s32 polls;",
        f"mov.b32 polls, ${2 * n_words};",
    ]
    for i in each:
        lines += [f"setp.ne.s64 missing{i}, ${n_words + i}, 0;", f"mov.b64 ${i}, 1;"]
    lines += [f"nanosleep.u32 {backoff};"] if backoff else []
    lines += ["POLL:"]
    lines += [f"@missing{i} ld.relaxed.{scope}.global.b64 ${i}, [${n_words + i}];" for i in each]
    lines += [f"setp.eq.s64 missing{i}, ${i}, 0;" for i in each]
    lines += ["mov.pred again, missing0;"]
    lines += [f"or.pred again, again, missing{i};" for i in each[1:]]
    lines += [
        # All threads of a warp poll together, so that they go on together.
        "vote.sync.any.pred again, again, 0xffffffff;",
        "sub.s32 polls, polls, 1;",
        "setp.ge.and.s32 again, polls, 0, again;",
        "@again bra.uni POLL;",
    ]
    return "{\n" + "\n".join(lines) + "\n}"


@triton.constexpr_function
def _poll_constraints(n_words):
    """The constraints of the operands of `_poll_assembly`."""
    return ",".join(["=&l"] * n_words + ["l"] * n_words + ["r"] * n_words)


@triton.jit
def poll(
    pointers,
    wanted,
    max_polls,
    WAIT: tl.constexpr,
    BACKOFF: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SCOPE: tl.constexpr = "gpu",
):
    """Words, zero where one is missing, 1 where none is wanted.

    What to do next depends on which are missing, so all threads have to agree on it. Therefore no
    two threads may poll for the same word: one could find it and the other not.

    Args:
        pointers: of the words; at least as many as the program has threads.
        wanted: which of them.
        max_polls: how often to poll again for those that are missing (WAIT).
        WAIT: poll again; NVIDIA only.
        BACKOFF: nanoseconds before the first poll.
        AT_ONCE: words that a thread polls for at once: their number over that of the threads.
        SCOPE: "gpu", or "sys" where programs on other GPUs write them.
    """
    if WAIT:
        addresses = tl.where(wanted, pointers.to(tl.int64), 0)
        return tl.inline_asm_elementwise(
            _poll_assembly(AT_ONCE, BACKOFF, SCOPE),
            _poll_constraints(AT_ONCE),
            [addresses, tl.zeros_like(addresses).to(tl.int32) + max_polls],
            dtype=tl.int64,
            is_pure=False,
            pack=AT_ONCE,
        )
    else:
        return tl.load(pointers, mask=wanted, other=1, volatile=True)


@triton.jit
def unpack_summaries(words, live, AXIS: tl.constexpr, OP: tl.constexpr):
    """(m, totals): the maximum of all parts along an axis, and their sums relative to it, 0 for
    parts that do not count.

    Args:
        words: of the parts, a tuple with those of each sum.
        live: which of them count.
    """
    m_parts, _ = unpack_word(words[0])
    totals = ()
    for k in tl.static_range(len(words)):
        totals = totals + (tl.where(live, unpack_word(words[k])[1], 0.0),)
    m = 0.0
    if OP.shifted:
        m, totals = to_common_maximum(tl.where(live, m_parts, float("-inf")), totals, AXIS, OP)
    return m, totals
