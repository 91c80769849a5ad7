"""Softmax of a long row by several programs at once: still one read and one write, at any length.

A row that does not fit into the registers of one multiprocessor fits into those of several. It is
cut into chunks. A program keeps its chunk in registers, and publishes the chunk's summary: one (m,
d) pair, packed into one 64-bit word. It waits until all words of its row are there, merges them,
and writes its chunk from registers. The input is read once.

The word is the whole message. A word that is zero has not been published (the workspace starts as
zeros, and no summary is zero: d is at least 1, or m is -inf, or one of them is NaN), and a 64-bit
    word arrives whole. So no fence is needed: nobody who has read the word needs anything else from
    its sender.

As many programs are launched as the device holds, and each goes on to its next chunk when it is
done with one. So it asks for that chunk before it waits, and memory is busy meanwhile. A task is
one chunk of one row; of P programs, program p does the tasks p, p + P, p + 2P, …

Waiting is a courtesy, not a condition. A program that has waited long enough summarises the missing
chunks itself, publishes them, and does its other tasks in the same way. A summary is a function of
the input alone, so it does not matter who computes it or if several do. Hence every program
finishes whatever the others do. The kernel even runs in the interpreter, one program after another.

A row with more chunks than programs is done in two launches of the same kernel: the first only
    publishes, the second finds all words there and only writes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .aligned_rows import edge_of_row, round_up
from .online import exp_shifted, hold


# --8<-- [start:word]
@triton.jit
def pack_word(m, d):
    """A summary as one 64-bit word: the bits of m (float32) in the high half, those of d (float32)
    in the low half."""
    high = m.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | (d.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def unpack_word(word):
    """(m, d) from a word of `pack_word`."""
    m = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    d = word.to(tl.int32).to(tl.float32, bitcast=True)
    return m, d


# --8<-- [end:word]


# --8<-- [start:ask]
@triton.jit
def ask_for_word(words_ptr, task, n_tasks, WAIT: tl.constexpr):
    """Bring the word of a task into the L2 cache while the chunk is loaded; else it comes from
    memory when the task is published, and all wait for it."""
    if WAIT:
        address = (words_ptr + tl.minimum(task, n_tasks - 1)).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [address],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


# --8<-- [end:ask]


# --8<-- [start:wait]
@triton.constexpr_function
def look_assembly(n_words, nap):
    """PTX that sleeps `nap` nanoseconds, then looks for n_words words at once, again while a thread
    of the warp misses one and looks are left.

    Operands: n_words words, out; as many addresses, 0 for a word that is not wanted; as many copies
        of the number of further looks.
    """
    each = range(n_words)
    lines = [
        ".reg .pred again, " + ", ".join(f"missing{i}" for i in each) + ";",
        ".reg .s32 looks;",
        f"mov.b32 looks, ${2 * n_words};",
    ]
    for i in each:
        lines += [f"setp.ne.s64 missing{i}, ${n_words + i}, 0;", f"mov.b64 ${i}, 1;"]
    lines += [f"nanosleep.u32 {nap};"] if nap else []
    lines += ["LOOK:"]
    lines += [f"@missing{i} ld.relaxed.gpu.global.b64 ${i}, [${n_words + i}];" for i in each]
    lines += [f"setp.eq.s64 missing{i}, ${i}, 0;" for i in each]
    lines += ["mov.pred again, missing0;"]
    lines += [f"or.pred again, again, missing{i};" for i in each[1:]]
    # All threads of a warp look together, so that they go on together.
    lines += [
        "vote.sync.any.pred again, again, 0xffffffff;",
        "sub.s32 looks, looks, 1;",
        "setp.ge.and.s32 again, looks, 0, again;",
    ]
    return "{\n" + "\n".join([*lines, "@again bra.uni LOOK;"]) + "\n}"


@triton.constexpr_function
def look_constraints(n_words):
    """The constraints of the operands of `look_assembly`."""
    return ",".join(["=&l"] * n_words + ["l"] * n_words + ["r"] * n_words)


@triton.jit
def row_words(
    words_ptr,
    task,
    n_chunks,
    max_polls,
    WAIT: tl.constexpr,
    NAP: tl.constexpr,
    WORDS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """The words of the row of a task, zero where one is missing, 1 past the last chunk.

    Args:
        words_ptr: n_chunks words (int64) per row, zero where nothing is published.
        task: a chunk of the row.
        n_chunks: words of a row.
        max_polls: how often to look again for words that are missing (WAIT).
        WAIT: look again; NVIDIA only.
        NAP: nanoseconds before the first look, which leaves the cache to those who still read.
        WORDS: lanes, a power of two, at least n_chunks, and at least the number of threads, so that
            no two threads ask for the same word.
        LOOKS: WORDS over the number of threads: words that a thread asks for at once.
    """
    lane = tl.arange(0, WORDS)
    words_ptr += task // n_chunks * n_chunks
    if WAIT:
        # Past the last chunk there is nothing to ask for: the address is 0.
        address = tl.where(lane < n_chunks, (words_ptr + lane).to(tl.int64), 0)
        return tl.inline_asm_elementwise(
            look_assembly(LOOKS, NAP),
            look_constraints(LOOKS),
            [address, tl.zeros_like(lane) + max_polls],
            dtype=tl.int64,
            is_pure=False,
            pack=LOOKS,
        )
    else:
        return tl.load(words_ptr + lane, mask=lane < n_chunks, other=1, volatile=True)


# --8<-- [end:wait]


# --8<-- [start:chunk]
@triton.jit
def chunk_offsets(
    begin, n_cols, chunk, chunk_cols, VECTOR: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """Offsets and mask of a chunk of the row's body, in units of WIDTH elements (2 to move pairs of
    16-bit elements as one number).

    The body starts on a vector and chunk_cols is a multiple of VECTOR, so every chunk starts on
    one.
    """
    chunk_cols = chunk_cols // VECTOR * VECTOR
    start = round_up(begin, VECTOR) + chunk * chunk_cols
    end = tl.minimum(start + chunk_cols, (begin + n_cols) // VECTOR * VECTOR)
    # Dividing by VECTOR and multiplying by VECTOR // WIDTH keeps the alignment in sight of the
    # compiler.
    offsets = start // VECTOR * (VECTOR // WIDTH) + tl.arange(0, BLOCK // WIDTH)
    return offsets, offsets < end // VECTOR * (VECTOR // WIDTH)


@triton.jit
def load_chunk(ptr, offsets, mask, OTHER: tl.constexpr, PAIRS: tl.constexpr):
    """The chunk as it lies in memory: elements, or (PAIRS) 32-bit numbers of two 16-bit elements
    each, `other` being OTHER twice.

    A pair takes one register where two converted elements would take two, and a program spends its
    wait with the chunk in registers.
    """
    if PAIRS:
        element: tl.constexpr = ptr.dtype.element_ty
        other = tl.full((1,), OTHER, tl.float32).to(element).to(tl.int16, bitcast=True).to(tl.int32)
        other = (other & 0xFFFF) | (other << 16)
        return tl.load(ptr.to(tl.pointer_type(tl.int32)) + offsets, mask=mask, other=other)
    else:
        return tl.load(ptr + offsets, mask=mask, other=OTHER)


@triton.jit
def chunk_values(raw, ELEMENT: tl.constexpr, PAIRS: tl.constexpr):
    """The elements of a loaded chunk as float32, in memory order."""
    if PAIRS:
        if ELEMENT == tl.bfloat16:
            # bfloat16 is the upper half of a float32
            low = (raw << 16).to(tl.float32, bitcast=True)
            high = (raw & -65536).to(tl.float32, bitcast=True)
        else:
            low = raw.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
            high = (raw >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
        return tl.interleave(low, high)
    else:
        return raw.to(tl.float32)


@triton.jit
def rounded(x, FROM: tl.constexpr, TO: tl.constexpr):
    """Elements of type FROM, given as float32, rounded to type TO and float32 again."""
    if FROM == TO:
        return x
    else:
        return x.to(TO).to(tl.float32)


# --8<-- [end:chunk]


# --8<-- [start:task]
@triton.jit
def load_task(
    ptr,
    row_stride,
    task,
    n_tasks,
    n_cols,
    n_chunks,
    chunk_cols,
    OTHER: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(chunk, edge) of a task, as they lie in memory. The row's edge, if rows have one, belongs to
    chunk 0. Past the last task nothing is read."""
    begin = (task // n_chunks).to(tl.int64) * row_stride
    n_cols = tl.where(task < n_tasks, n_cols, 0)
    offsets, mask = chunk_offsets(
        begin, n_cols, task % n_chunks, chunk_cols, VECTOR, BLOCK, 2 if PAIRS else 1
    )
    raw = load_chunk(ptr, offsets, mask, OTHER, PAIRS)
    if EDGES:
        cols, edge_mask = edge_of_row(begin, tl.where(task % n_chunks == 0, n_cols, 0), VECTOR)
        edge = tl.load(ptr + begin + cols, mask=edge_mask, other=OTHER)
    else:
        edge = tl.full((2 * VECTOR,), OTHER, tl.float32).to(ptr.dtype.element_ty)
    return raw, edge


@triton.jit
def blank_like(x):
    """Zeros of the shape and type of x."""
    return tl.zeros(x.shape, tl.float32).to(x.dtype)


# --8<-- [end:task]


# --8<-- [start:forward-summary]
@triton.jit
def max_of_pairs(a, b):
    """The larger of the low and of the high halves of two 32-bit numbers that are pairs of
    bfloat16: one instruction for four elements."""
    return tl.inline_asm_elementwise(
        "max.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def max_of_half_pairs(a, b):
    """`max_of_pairs` for float16."""
    return tl.inline_asm_elementwise(
        "max.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def chunk_max(raw, ELEMENT: tl.constexpr, PAIRS: tl.constexpr, HOLD: tl.constexpr):
    """The largest element of a loaded chunk, as float32; a NaN is not one."""
    if PAIRS and HOLD:
        if ELEMENT == tl.bfloat16:
            pair = tl.reduce(raw, 0, max_of_pairs)
        else:
            pair = tl.reduce(raw, 0, max_of_half_pairs)
        low = pair.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
        high = (pair >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
        return tl.maximum(low, high)
    else:
        return tl.max(chunk_values(raw, ELEMENT, PAIRS), axis=0)


@triton.jit
def summarise_chunk(
    raw,
    edge,
    X_TYPE: tl.constexpr,
    Y_TYPE: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    EXP: tl.constexpr,
):
    """(kept, m, d): a chunk's summary, edge included, and what to keep of the chunk until the row's
    summary is known.

    That is the chunk as loaded, or (EXP) its exponentials exp(x - m), of which one multiplication
    by exp(m - m_row) / d_row makes the result.
    """
    raw = hold(raw, HOLD)
    # Rounding keeps the order, so the largest element may be rounded last.
    m = rounded(chunk_max(raw, X_TYPE, PAIRS, HOLD), X_TYPE, Y_TYPE)
    x_edge = rounded(edge.to(tl.float32), X_TYPE, Y_TYPE)
    if EDGES:
        m = tl.maximum(m, tl.max(x_edge, axis=0))
    raw = hold(raw, HOLD)
    e = exp_shifted(rounded(chunk_values(raw, X_TYPE, PAIRS), X_TYPE, Y_TYPE), m)
    d = tl.sum(e, axis=0)
    if EDGES:
        d += tl.sum(exp_shifted(x_edge, m), axis=0)
    if EXP:
        kept = e
    else:
        kept = raw
    return kept, m, d


# --8<-- [end:forward-summary]


# --8<-- [start:forward-merge]
@triton.jit
def add_both(a1, b1, a2, b2):
    """Combine function of two sums that are taken together."""
    return a1 + a2, b1 + b2


@triton.jit
def merge_words(
    words_ptr,
    task,
    n_chunks,
    max_polls,
    WAIT: tl.constexpr,
    NAP: tl.constexpr,
    WORDS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """(m, d, missing): the summary of a task's row from its words, and how many of them are
    missing; the summary is right if none is."""
    words = row_words(words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS)
    m_chunks, d_chunks = unpack_word(words)
    live = tl.arange(0, WORDS) < n_chunks
    m_chunks = tl.where(live, m_chunks, float("-inf"))
    # eq: merge
    m = tl.max(m_chunks, axis=0)
    terms = tl.where(live, d_chunks, 0.0) * exp_shifted(m_chunks, m)
    d, missing = tl.reduce((terms, (words == 0).to(tl.int32)), 0, add_both)
    return m, d, missing


# --8<-- [end:forward-merge]


# --8<-- [start:forward-finish]
@triton.jit
def softmax_value(x, m, d, LOG: tl.constexpr):
    """Softmax (LOG: its logarithm) of elements x of a row whose summary is (m, d)."""
    if LOG:
        # eq: log-softmax-definition
        return (x - m) - tl.log(d)
    else:
        # eq: softmax-safe
        return exp_shifted(x, m) * (1.0 / d)


@triton.jit
def write_chunk(
    y_ptr,
    task,
    kept,
    edge,
    m_own,
    m,
    d,
    x_row_stride,
    y_row_stride,
    n_cols,
    n_chunks,
    chunk_cols,
    X_TYPE: tl.constexpr,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    EXP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a task's chunk, given what was kept of it, the maximum m_own that its exponentials were
    computed with (EXP), and its row's summary."""
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    row = (task // n_chunks).to(tl.int64)
    y_begin = row * y_row_stride
    offsets, mask = chunk_offsets(y_begin, n_cols, task % n_chunks, chunk_cols, VECTOR, BLOCK, 1)
    if EXP:
        y = kept * (exp_shifted(m_own, m) * (1.0 / d))
    else:
        y = softmax_value(
            rounded(chunk_values(hold(kept, HOLD), X_TYPE, PAIRS), X_TYPE, y_type), m, d, LOG
        )
    tl.store(y_ptr + offsets, y.to(y_type), mask=mask)
    if EDGES:
        cols, edge_mask = edge_of_row(
            row * x_row_stride, tl.where(task % n_chunks == 0, n_cols, 0), VECTOR
        )
        y_edge = softmax_value(rounded(edge.to(tl.float32), X_TYPE, y_type), m, d, LOG)
        tl.store(y_ptr + y_begin + cols, y_edge.to(y_type), mask=edge_mask)


# --8<-- [end:forward-finish]


# --8<-- [start:forward]
@triton.jit(
    do_not_specialize=[
        "x_row_stride",
        "y_row_stride",
        "n_rows",
        "n_cols",
        "n_chunks",
        "chunk_cols",
        "max_polls",
    ]
)
def softmax_forward_split_rows_kernel(
    x_ptr,
    y_ptr,
    words_ptr,
    x_row_stride,
    y_row_stride,
    n_rows,
    n_cols,
    n_chunks,
    chunk_cols,
    max_polls,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    EXP: tl.constexpr,
    AHEAD: tl.constexpr,
    LAG: tl.constexpr,
    WAIT: tl.constexpr,
    NAP: tl.constexpr,
    PUBLISH: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Softmax (LOG: its logarithm) of rows cut into chunks, a task each.

    Args:
        x_ptr: input, rows of n_cols elements; a multiple of VECTOR elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        words_ptr: workspace of n_chunks int64 words per row, zero at the start of the (first)
            launch.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next, equal to x_row_stride modulo VECTOR.
        n_rows: number of rows; the number of tasks, n_rows · n_chunks, and twice the number of
            programs fit 31 bits together.
        n_cols: number of columns.
        n_chunks: chunks per row.
        chunk_cols: columns of a chunk, a multiple of VECTOR, at most BLOCK.
        max_polls: how often to look again for missing words before doing without the others.
        LOG: write log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        EDGES: rows do not all start and end on a vector.
        PAIRS: hold 16-bit elements as pairs, see `load_chunk`.
        HOLD: see `hold`.
        EXP: keep exponentials and not elements, see `summarise_chunk`; not with LOG, nor with LAG,
            and only with PUBLISH.
        AHEAD: ask for the next chunk before waiting. Else there are as many programs as tasks.
        LAG: write a task's chunk after the next task is published: more registers, less waiting.
        WAIT, NAP, WORDS, LOOKS: see `row_words`.
        PUBLISH, WRITE: both in a single launch; in two launches the first has PUBLISH, the second
            WRITE.
        BLOCK: a power of two.
    """
    x_type: tl.constexpr = x_ptr.dtype.element_ty
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    lowest: tl.constexpr = float("-inf")
    n_tasks = n_rows * n_chunks
    programs = tl.num_programs(0)
    task = tl.program_id(0)
    end = n_tasks
    if LAG:
        end += programs

    ask_for_word(words_ptr, task, n_tasks, WAIT)
    raw, edge = load_task(
        x_ptr,
        x_row_stride,
        task,
        n_tasks,
        n_cols,
        n_chunks,
        chunk_cols,
        lowest,
        VECTOR,
        EDGES,
        PAIRS,
        BLOCK,
    )
    old, old_edge = blank_like(raw), blank_like(edge)
    missing = 0
    while (task < end) & (missing == 0):
        new, new_edge, m_own = raw, edge, 0.0
        if PUBLISH:
            new, m_own, d_own = summarise_chunk(raw, edge, x_type, y_type, EDGES, PAIRS, HOLD, EXP)
            tl.atomic_xchg(
                words_ptr + task, pack_word(m_own, d_own), mask=task < n_tasks, sem="relaxed"
            )
        # From here on the next chunk is on its way.
        if AHEAD:
            ask_for_word(words_ptr, task + programs, n_tasks, WAIT)
            raw, edge = load_task(
                x_ptr,
                x_row_stride,
                task + programs,
                n_tasks,
                n_cols,
                n_chunks,
                chunk_cols,
                lowest,
                VECTOR,
                EDGES,
                PAIRS,
                BLOCK,
            )
        if LAG:
            ready, kept, kept_edge = task - programs, old, old_edge
            old, old_edge = new, new_edge
        else:
            ready, kept, kept_edge = task, new, new_edge
        if WRITE and ready >= 0:
            m, d, missing = merge_words(
                words_ptr, ready, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS
            )
            if missing == 0:
                write_chunk(
                    y_ptr, ready, kept, kept_edge, m_own, m, d, x_row_stride, y_row_stride, n_cols, n_chunks, chunk_cols,
                    x_type, LOG, VECTOR, EDGES, PAIRS, HOLD, EXP, BLOCK,
                )  # fmt: skip
        task += programs

    if missing > 0:
        # Some partner is not running. What is left is done without partners: whatever is missing is
        # computed here.
        task -= programs
        if LAG:
            task -= programs
        while task < n_tasks:
            for step in range(n_chunks):
                # Start with the own chunk, so that programs that help the same row share the work.
                other = task // n_chunks * n_chunks + (task + step) % n_chunks
                if tl.atomic_add(words_ptr + other, 0, sem="relaxed") == 0:
                    raw, edge = load_task(
                        x_ptr,
                        x_row_stride,
                        other,
                        n_tasks,
                        n_cols,
                        n_chunks,
                        chunk_cols,
                        lowest,
                        VECTOR,
                        EDGES,
                        PAIRS,
                        BLOCK,
                    )
                    _, m, d = summarise_chunk(raw, edge, x_type, y_type, EDGES, PAIRS, HOLD, False)
                    tl.atomic_xchg(words_ptr + other, pack_word(m, d), sem="relaxed")
            m, d, missing = merge_words(
                words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS
            )
            while missing > 0:
                m, d, missing = merge_words(
                    words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS
                )
            kept, kept_edge = load_task(
                x_ptr,
                x_row_stride,
                task,
                n_tasks,
                n_cols,
                n_chunks,
                chunk_cols,
                lowest,
                VECTOR,
                EDGES,
                PAIRS,
                BLOCK,
            )
            m_own = 0.0
            if EXP:
                kept, m_own, _ = summarise_chunk(
                    kept, kept_edge, x_type, y_type, EDGES, PAIRS, HOLD, EXP
                )
            write_chunk(
                y_ptr, task, kept, kept_edge, m_own, m, d, x_row_stride, y_row_stride, n_cols, n_chunks, chunk_cols,
                x_type, LOG, VECTOR, EDGES, PAIRS, HOLD, EXP, BLOCK,
            )  # fmt: skip
            task += programs


# --8<-- [end:forward]


# --8<-- [start:backward-summary]
@triton.jit
def product(a, b, WAIT: tl.constexpr):
    """a·b, rounded. Whether a compiler fuses a multiplication with the addition that follows may
    depend on the code around it, and so would the bits of a summary that is computed in two places
    (WAIT, NVIDIA only)."""
    if WAIT:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return a * b


@triton.jit
def summarise_gradient(
    raw_y,
    raw_dy,
    y_edge,
    dy_edge,
    Y_TYPE: tl.constexpr,
    DY_TYPE: tl.constexpr,
    LOG: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    WAIT: tl.constexpr,
):
    """A chunk's share of the row's sum of y·dy (LOG: of dy), edge included."""
    terms = chunk_values(hold(raw_dy, HOLD), DY_TYPE, PAIRS)
    if not LOG:
        terms = product(terms, chunk_values(hold(raw_y, HOLD), Y_TYPE, PAIRS), WAIT)
    s = tl.sum(terms, axis=0)
    if EDGES:
        terms = dy_edge.to(tl.float32)
        if not LOG:
            terms = product(terms, y_edge.to(tl.float32), WAIT)
        s += tl.sum(terms, axis=0)
    return s


@triton.jit
def pack_sum(s):
    """A partial sum as a word that is never zero: 1.0 where a summary has its m."""
    return pack_word(tl.full((), 1.0, tl.float32), s)


@triton.jit
def add_words(
    words_ptr,
    task,
    n_chunks,
    max_polls,
    WAIT: tl.constexpr,
    NAP: tl.constexpr,
    WORDS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """(s, missing): the sum of a task's row from its words, and how many of them are missing; the
    sum is right if none is."""
    words = row_words(words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS)
    _, s_chunks = unpack_word(words)
    s_chunks = tl.where(tl.arange(0, WORDS) < n_chunks, s_chunks, 0.0)
    return tl.reduce((s_chunks, (words == 0).to(tl.int32)), 0, add_both)


# --8<-- [end:backward-summary]


# --8<-- [start:backward-finish]
@triton.jit
def softmax_gradient(y, dy, s, LOG: tl.constexpr):
    """dx from elements of y and dy and the row's sum s."""
    if LOG:
        # eq: log-softmax-vjp
        return dy - exp_shifted(y, 0.0) * s
    else:
        # eq: softmax-vjp
        return y * (dy - s)


@triton.jit
def write_gradient(
    dx_ptr,
    task,
    raw_y,
    raw_dy,
    y_edge,
    dy_edge,
    s,
    y_row_stride,
    dx_row_stride,
    n_cols,
    n_chunks,
    chunk_cols,
    Y_TYPE: tl.constexpr,
    DY_TYPE: tl.constexpr,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a task's chunk of dx, given y and dy as loaded, and its row's sum."""
    dx_type: tl.constexpr = dx_ptr.dtype.element_ty
    row = (task // n_chunks).to(tl.int64)
    dx_begin = row * dx_row_stride
    offsets, mask = chunk_offsets(dx_begin, n_cols, task % n_chunks, chunk_cols, VECTOR, BLOCK, 1)
    y = chunk_values(hold(raw_y, HOLD), Y_TYPE, PAIRS)
    dy = chunk_values(hold(raw_dy, HOLD), DY_TYPE, PAIRS)
    tl.store(dx_ptr + offsets, softmax_gradient(y, dy, s, LOG).to(Y_TYPE).to(dx_type), mask=mask)
    if EDGES:
        cols, edge_mask = edge_of_row(
            row * y_row_stride, tl.where(task % n_chunks == 0, n_cols, 0), VECTOR
        )
        dx_edge = softmax_gradient(y_edge.to(tl.float32), dy_edge.to(tl.float32), s, LOG)
        tl.store(dx_ptr + dx_begin + cols, dx_edge.to(Y_TYPE).to(dx_type), mask=edge_mask)


# --8<-- [end:backward-finish]


# --8<-- [start:backward]
@triton.jit
def load_gradient_task(
    y_ptr,
    dy_ptr,
    y_row_stride,
    dy_row_stride,
    task,
    n_tasks,
    n_cols,
    n_chunks,
    chunk_cols,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(y, dy, y_edge, dy_edge) of a task, see `load_task`."""
    y, y_edge = load_task(
        y_ptr,
        y_row_stride,
        task,
        n_tasks,
        n_cols,
        n_chunks,
        chunk_cols,
        0.0,
        VECTOR,
        EDGES,
        PAIRS,
        BLOCK,
    )
    dy, dy_edge = load_task(
        dy_ptr,
        dy_row_stride,
        task,
        n_tasks,
        n_cols,
        n_chunks,
        chunk_cols,
        0.0,
        VECTOR,
        EDGES,
        PAIRS,
        BLOCK,
    )
    return y, dy, y_edge, dy_edge


@triton.jit(
    do_not_specialize=[
        "y_row_stride",
        "dy_row_stride",
        "dx_row_stride",
        "n_rows",
        "n_cols",
        "n_chunks",
        "chunk_cols",
        "max_polls",
    ]
)
def softmax_backward_split_rows_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    words_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_rows,
    n_cols,
    n_chunks,
    chunk_cols,
    max_polls,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    AHEAD: tl.constexpr,
    LAG: tl.constexpr,
    WAIT: tl.constexpr,
    NAP: tl.constexpr,
    PUBLISH: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) of rows cut into chunks, a task
    each.

    Args:
        y_ptr: output of the forward pass, rows of n_cols elements; a multiple of VECTOR elements.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        words_ptr: workspace of n_chunks int64 words per row, zero at the start of the (first)
            launch.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next, equal to y_row_stride modulo VECTOR.
        dx_row_stride: elements from one row of dx to the next, likewise.
        n_rows: number of rows; the number of tasks, n_rows · n_chunks, and twice the number of
            programs fit 31 bits together.
        n_cols: number of columns.
        n_chunks: chunks per row.
        chunk_cols: columns of a chunk, a multiple of VECTOR, at most BLOCK.
        max_polls: how often to look again for missing words before computing them here.
        LOG: y is log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        EDGES: rows do not all start and end on a vector.
        PAIRS: hold 16-bit elements as pairs, see `load_chunk`.
        HOLD: see `hold`.
        AHEAD: ask for the next chunk before waiting. Else there are as many programs as tasks.
        LAG: write a task's chunk after the next task is published: more registers, less waiting.
        WAIT, NAP, WORDS, LOOKS: see `row_words`.
        PUBLISH, WRITE: as in the forward kernel.
        BLOCK: a power of two.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    dy_type: tl.constexpr = dy_ptr.dtype.element_ty
    n_tasks = n_rows * n_chunks
    programs = tl.num_programs(0)
    task = tl.program_id(0)
    end = n_tasks
    if LAG:
        end += programs

    ask_for_word(words_ptr, task, n_tasks, WAIT)
    y, dy, y_edge, dy_edge = load_gradient_task(
        y_ptr,
        dy_ptr,
        y_row_stride,
        dy_row_stride,
        task,
        n_tasks,
        n_cols,
        n_chunks,
        chunk_cols,
        VECTOR,
        EDGES,
        PAIRS,
        BLOCK,
    )
    old_y, old_dy, old_y_edge, old_dy_edge = (
        blank_like(y),
        blank_like(dy),
        blank_like(y_edge),
        blank_like(dy_edge),
    )
    missing = 0
    while (task < end) & (missing == 0):
        if PUBLISH:
            s = summarise_gradient(
                y, dy, y_edge, dy_edge, y_type, dy_type, LOG, EDGES, PAIRS, HOLD, WAIT
            )
            tl.atomic_xchg(words_ptr + task, pack_sum(s), mask=task < n_tasks, sem="relaxed")
        if LAG:
            ready, kept_y, kept_dy, kept_y_edge, kept_dy_edge = (
                task - programs,
                old_y,
                old_dy,
                old_y_edge,
                old_dy_edge,
            )
            old_y, old_dy, old_y_edge, old_dy_edge = y, dy, y_edge, dy_edge
        else:
            ready, kept_y, kept_dy, kept_y_edge, kept_dy_edge = task, y, dy, y_edge, dy_edge
        # From here on the next chunk is on its way.
        if AHEAD:
            ask_for_word(words_ptr, task + programs, n_tasks, WAIT)
            y, dy, y_edge, dy_edge = load_gradient_task(
                y_ptr, dy_ptr, y_row_stride, dy_row_stride, task + programs, n_tasks, n_cols, n_chunks, chunk_cols,
                VECTOR, EDGES, PAIRS, BLOCK,
            )  # fmt: skip
        if WRITE and ready >= 0:
            s, missing = add_words(words_ptr, ready, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS)
            if missing == 0:
                write_gradient(
                    dx_ptr, ready, kept_y, kept_dy, kept_y_edge, kept_dy_edge, s, y_row_stride, dx_row_stride, n_cols, n_chunks,
                    chunk_cols, y_type, dy_type, LOG, VECTOR, EDGES, PAIRS, HOLD, BLOCK,
                )  # fmt: skip
        task += programs

    if missing > 0:
        # As in the forward kernel.
        task -= programs
        if LAG:
            task -= programs
        while task < n_tasks:
            for step in range(n_chunks):
                other = task // n_chunks * n_chunks + (task + step) % n_chunks
                if tl.atomic_add(words_ptr + other, 0, sem="relaxed") == 0:
                    y, dy, y_edge, dy_edge = load_gradient_task(
                        y_ptr, dy_ptr, y_row_stride, dy_row_stride, other, n_tasks, n_cols, n_chunks, chunk_cols,
                        VECTOR, EDGES, PAIRS, BLOCK,
                    )  # fmt: skip
                    s = summarise_gradient(
                        y, dy, y_edge, dy_edge, y_type, dy_type, LOG, EDGES, PAIRS, HOLD, WAIT
                    )
                    tl.atomic_xchg(words_ptr + other, pack_sum(s), sem="relaxed")
            s, missing = add_words(words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS)
            while missing > 0:
                s, missing = add_words(
                    words_ptr, task, n_chunks, max_polls, WAIT, NAP, WORDS, LOOKS
                )
            y, dy, y_edge, dy_edge = load_gradient_task(
                y_ptr,
                dy_ptr,
                y_row_stride,
                dy_row_stride,
                task,
                n_tasks,
                n_cols,
                n_chunks,
                chunk_cols,
                VECTOR,
                EDGES,
                PAIRS,
                BLOCK,
            )
            write_gradient(
                dx_ptr, task, y, dy, y_edge, dy_edge, s, y_row_stride, dx_row_stride, n_cols, n_chunks,
                chunk_cols, y_type, dy_type, LOG, VECTOR, EDGES, PAIRS, HOLD, BLOCK,
            )  # fmt: skip
            task += programs


# --8<-- [end:backward]
