"""Exchange summaries between programs that hold chunks of the same row.

A summary is one 64-bit status word. Zero means not yet published: the workspace starts as zeros,
and no summary packs to zero. A 64-bit word arrives whole, so it is the entire message and needs no
fence: its reader needs nothing else from the sender.

Waiting is optional: after MAX_POLLS polls a program recomputes the missing partials itself (the
recompute fallback). A summary depends on the input alone, so any program, or several, may compute
it; and every program finishes, whatever the others do.
"""

import triton
import triton.language as tl

from .summaries import to_common_maximum


@triton.jit
def pack_word(m, total):
    """Pack a summary into a word: the bits of m in the high half, of the sum in the low half."""
    high = m.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | (total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def unpack_word(word):
    """Unpack a word into (m, total), float32."""
    m = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    total = word.to(tl.int32).to(tl.float32, bitcast=True)
    return m, total


@triton.jit
def word_of(m, total, WITH_MAXIMUM: tl.constexpr):
    """Pack a sum with m, or with a 1 in its place."""
    if WITH_MAXIMUM:
        return pack_word(m, total)
    else:
        return pack_word(tl.full(total.shape, 1.0, tl.float32), total)


@triton.jit
def publish(pointers, apart, m, totals, mask, OP: tl.constexpr, POLLED: tl.constexpr):
    """Publish summaries to polling partners (POLLED) or a second launch: m and the first sum in one
    word, and each further sum in another, `apart` words on.

    No word is 0: a sum of exponentials is at least 1, unless m is −∞ or either is NaN; and the
    other words have a 1 in the place of m.
    """
    LAST: tl.constexpr = len(totals) - 1
    # In reverse, so that a reader of the first word most likely finds the others.
    for back in tl.static_range(len(totals)):
        word = word_of(m, totals[LAST - back], OP.shifted and back == LAST)
        if POLLED:
            tl.atomic_xchg(pointers + (LAST - back) * apart, word, mask=mask, sem="relaxed")
        else:
            tl.store(pointers + (LAST - back) * apart, word, mask=mask)


@triton.jit
def publish_missing(pointers, apart, m, totals, OP: tl.constexpr):
    """Publish summaries on behalf of partners, unless they have done so by now: one that has may,
    in place, also have overwritten the input read here, and then its own word stands."""
    LAST: tl.constexpr = len(totals) - 1
    for back in tl.static_range(len(totals)):
        word = word_of(m, totals[LAST - back], OP.shifted and back == LAST)
        tl.atomic_cas(pointers + (LAST - back) * apart, word - word, word, sem="relaxed")


@triton.jit
def sum_over_ranks(pointers, mask, apart, RANKS: tl.constexpr):
    """The sum of numbers in the lines of all ranks, which are so many elements apart."""
    total = tl.load(pointers, mask=mask, other=0.0)
    for _ in tl.static_range(1, RANKS):
        pointers += apart
        total += tl.load(pointers, mask=mask, other=0.0)
    return total


@triton.jit
def prefetch(pointers, WAIT: tl.constexpr):
    """Prefetch words into the L2 cache while the elements are loaded. Otherwise publishing would
    fetch them from memory while all partners wait."""
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
def _poll_assembly(n_words, backoff, across_gpus=False):
    """PTX that polls n_words words at once, written by programs on this GPU, or also on others.

    It first sleeps `backoff` nanoseconds, which leaves the cache to programs that still load. It
    repeats while any thread of the warp misses a word and polls remain.

    Operands: n_words words (out); as many addresses, 0 for unwanted words; as many copies of the
    number of further polls.
    """
    each, scope = range(n_words), "sys" if across_gpus else "gpu"
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
        # The warp votes, so that all its threads continue together.
        "vote.sync.any.pred again, again, 0xffffffff;",
        "sub.s32 polls, polls, 1;",
        "setp.ge.and.s32 again, polls, 0, again;",
        "@again bra.uni POLL;",
    ]
    return "{\n" + "\n".join(lines) + "\n}"


@triton.constexpr_function
def _poll_constraints(n_words):
    """The operand constraints of `_poll_assembly`."""
    return ",".join(["=&l"] * n_words + ["l"] * n_words + ["r"] * n_words)


@triton.jit
def poll(
    pointers, wanted, max_polls, WAIT: tl.constexpr, BACKOFF: tl.constexpr, AT_ONCE: tl.constexpr,
    ACROSS_GPUS: tl.constexpr = False,
):  # fmt: skip
    """Read status words: 0 if one is missing, 1 if it is not wanted.

    The program branches on which are missing, so all its threads must agree. Hence no two threads
    may poll the same word: one could find it and the other not.

    Args:
        pointers: pointers to the words, at least as many as the program has threads.
        wanted: the mask of words to read.
        max_polls: how often to poll again for missing words (WAIT).
        WAIT: poll again; NVIDIA only.
        BACKOFF: nanoseconds before the first poll.
        AT_ONCE: words per thread.
        ACROSS_GPUS: programs on other GPUs write them, as in `examples/symmetric_memory.py`. (A
            string would do as the argument, but not as its default: Triton 3.6 refuses that.)
    """
    if WAIT:
        addresses = tl.where(wanted, pointers.to(tl.int64), 0)
        return tl.inline_asm_elementwise(
            _poll_assembly(AT_ONCE, BACKOFF, ACROSS_GPUS),
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
    """(m, totals): the maximum of partials along an axis, and their sums rescaled to it, not yet
    added up; 0 outside `live`. `words` are status words, a block per sum."""
    m_parts, _ = unpack_word(words[0])
    totals = ()
    for k in tl.static_range(len(words)):
        totals = totals + (tl.where(live, unpack_word(words[k])[1], 0.0),)
    m = 0.0
    if OP.shifted:
        m, totals = to_common_maximum(tl.where(live, m_parts, float("-inf")), totals, AXIS, OP)
    return m, totals
