"""Several programs for one row: the word they exchange, the row they make together, and what a
program does without partners.

The interpreter runs one program after another, so the first program of a row finds no words and
goes on without partners, as on a GPU where they do not run. With words from an earlier run in the
workspace, or in two launches, it takes the way that a GPU usually takes.
"""

import math

import pytest
import torch
import triton
import triton.language as tl

from kernel_cases import (
    DEVICE,
    INTERPRETED,
    assert_near,
    dtype_name,
    expected_backward,
    expected_forward,
    matrix,
    quiet,
    watch_accesses,
)
from triton_softmax.kernels.split_rows import (
    look_assembly,
    look_constraints,
    pack_sum,
    pack_word,
    softmax_backward_split_rows_kernel,
    softmax_forward_split_rows_kernel,
    unpack_word,
)

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
SIXTEEN = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=dtype_name)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
INF, NAN = float("inf"), float("nan")
ONE = ((True, True),)
TWO = ((True, False), (False, True))  # publish, then write
POLLS = 1024


def launch(
    kernel,
    tensors,
    *,
    log,
    edges=None,
    pairs=False,
    chunk=32,
    passes=ONE,
    words=None,
    polls=POLLS,
    programs=None,
    ahead=False,
    lag=False,
    **extra,
):
    n_rows, n_cols = tensors[0].shape
    vector = 16 // tensors[0].dtype.itemsize
    strides = [tensor.stride(0) for tensor in tensors]
    assert len({stride % vector for stride in strides}) == 1, "rows in step"
    if edges is None:
        edges = bool(n_cols % vector or strides[0] % vector)
    n_chunks = triton.cdiv(n_cols, chunk)
    n_tasks = n_rows * n_chunks
    assert ahead or programs is None, "without AHEAD a program for each task"
    if words is None:
        words = torch.zeros(n_tasks, dtype=torch.int64, device=tensors[0].device)
    # On a GPU every thread needs a lane of its own to look with.
    n_words = max(triton.next_power_of_2(n_chunks), 1 if INTERPRETED else 128)
    for publish, write in passes:
        kernel[(programs or n_tasks,)](
            *tensors,
            words,
            *strides,
            n_rows,
            n_cols,
            n_chunks,
            chunk,
            polls,
            LOG=log,
            VECTOR=vector,
            EDGES=edges,
            PAIRS=pairs,
            HOLD=False,
            **extra,
            AHEAD=ahead,
            LAG=lag,
            WAIT=not INTERPRETED and passes == ONE,
            NAP=0,
            PUBLISH=publish,
            WRITE=write,
            BLOCK=triton.next_power_of_2(chunk),
            WORDS=n_words,
            LOOKS=max(1, n_words // 128),
        )
    return tensors[-1]


def blank(like, gap=0):
    return matrix(*like.shape, like.dtype, gap=gap).fill_(NAN)


def forward(x, *, gap=0, keep=False, **options):
    return launch(softmax_forward_split_rows_kernel, (x, blank(x, gap)), EXP=keep, **options)


def backward(y, dy, *, gap=0, **options):
    return launch(softmax_backward_split_rows_kernel, (y, dy, blank(y, gap)), **options)


def slack(dtype, log):
    return 1e-5 if dtype == torch.float32 else 1e-2 if log else 1e-4


@triton.jit
def round_trip_kernel(m_ptr, d_ptr, word_ptr, m_out, d_out, sum_ptr, N: tl.constexpr):
    lanes = tl.arange(0, N)
    word = pack_word(tl.load(m_ptr + lanes), tl.load(d_ptr + lanes))
    tl.store(word_ptr + lanes, word)
    m, d = unpack_word(word)
    tl.store(m_out + lanes, m)
    tl.store(d_out + lanes, d)
    tl.store(sum_ptr, pack_sum(tl.load(d_ptr)))


def round_trip(m, d):
    n = triton.next_power_of_2(len(m))
    m = torch.tensor([*m, *[m[0]] * (n - len(m))], device=DEVICE)
    d = torch.tensor([*d, *[d[0]] * (n - len(d))], device=DEVICE)
    words = torch.zeros(n, dtype=torch.int64, device=DEVICE)
    m_out, d_out, total = (
        torch.empty_like(m),
        torch.empty_like(d),
        torch.zeros(1, dtype=torch.int64, device=DEVICE),
    )
    round_trip_kernel[(1,)](m, d, words, m_out, d_out, total, N=n)
    assert torch.equal(m_out.view(torch.int32), m.view(torch.int32)), "every bit of m"
    assert torch.equal(d_out.view(torch.int32), d.view(torch.int32)), "every bit of d"
    return words, total


def test_a_word_holds_every_bit_of_a_summary():
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-45,
        -1e-45,
        3.4e38,
        -3.4e38,
        INF,
        -INF,
        NAN,
        -NAN,
        math.pi,
        -1e30,
        1e30,
        0.1,
    ]
    round_trip([m for m in values for _ in values], [d for _ in values for d in values])


def test_no_summary_is_zero():
    """d is at least 1, or m is -inf, or one of them is NaN."""
    summaries = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (0.0, NAN),
        (-INF, 0.0),
        (-INF, NAN),
        (INF, NAN),
        (NAN, NAN),
        (0.0, INF),
        (1e30, 1.0),
    ]
    words, _ = round_trip(*zip(*summaries, strict=True))
    assert (words != 0).all()
    assert round_trip([0.0], [0.0])[0][0] == 0, "the one pair that would be mistaken"


@pytest.mark.parametrize("total", [0.0, -0.0, 1.0, -3.0, NAN, INF])
def test_no_sum_of_the_backward_pass_is_zero(total):
    _, word = round_trip([1.0], [total])
    assert word != 0


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("n_cols", [1, 8, 9, 31, 32, 33, 64, 65])
def test_forward_and_backward(n_cols, dtype, log):
    vector = 16 // dtype.itemsize
    n_rows = 1 if n_cols % 8 == 0 else 2  # the second starts between two vectors
    x, dy = (
        matrix(n_rows, n_cols, dtype),
        matrix(n_rows, n_cols, dtype, gap=2 * vector, scale=1.0, seed=1),
    )
    y = forward(x, log=log, gap=vector)
    assert_near(y, expected_forward(x, log=log), atol=1e-2 if log and dtype.itemsize == 2 else None)
    assert_near(backward(y, dy, log=log), expected_backward(y, dy, log=log), atol=slack(dtype, log))


@BOTH
@SIXTEEN
@pytest.mark.parametrize("n_cols", [64, 75])
def test_pairs_change_nothing(n_cols, dtype, log):
    x, dy = matrix(2, n_cols, dtype), matrix(2, n_cols, dtype, seed=1)
    y = forward(x, log=log)
    assert torch.equal(forward(x, log=log, pairs=True), y)
    assert torch.equal(backward(y, dy, log=log, pairs=True), backward(y, dy, log=log))


@BOTH
@SIXTEEN
def test_pairs_of_special_values(dtype, log):
    """Every element of a pair keeps its sign, its infinity, its NaN."""
    x = torch.full((6, 64), -INF, dtype=dtype)
    x[0, 0::2], x[1, 1::2] = 1.0, -1.0
    x[2] = torch.linspace(-8, 8, 64)
    x[3, 7], x[4, 40], x[5, 3:9] = NAN, INF, -65504.0
    x = x.to(DEVICE)
    assert_near(forward(x, log=log, pairs=True), expected_forward(x, log=log), atol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("n_cols", [64, 75])
def test_exponentials_kept_instead_of_elements(n_cols, dtype):
    x = matrix(2, n_cols, dtype)
    assert_near(forward(x, log=False, keep=True), expected_forward(x))


@pytest.mark.parametrize("keep", [False, True], ids=["elements", "exponentials"])
@pytest.mark.parametrize("place", range(4))
def test_minus_infinity_fills_a_chunk(place, keep):
    x = matrix(2, 128, torch.float32)
    x[0, place * 32 : (place + 1) * 32] = -INF
    x[1, : place * 32] = -INF
    x[1, (place + 1) * 32 :] = -INF
    assert_near(forward(x, log=False, keep=keep), expected_forward(x))


@BOTH
@pytest.mark.parametrize("keep", [False, True], ids=["elements", "exponentials"])
@pytest.mark.parametrize("where", [0, 40, 70], ids=["edge", "middle", "end"])
def test_edges_as_torch(where, keep, log):
    """Three values in a row of -inf (exponentials: of zeros): in one chunk, and seen by all."""
    if keep and log:
        pytest.skip("exponentials do not give logarithms")
    triples = [
        [0.0, -INF, 1.0],
        [-INF] * 3,
        [0.0, INF, 1.0],
        [0.0, NAN, 1.0],
        [1e30, -1e30, 1e30],
        [-1e30, -1e30, -1e30],
    ]
    x = torch.full((len(triples), 73), 0.0 if keep else -INF)
    x[:, where : where + 3] = torch.tensor(triples)
    x = x.to(DEVICE)
    assert_near(forward(x, log=log, keep=keep), (torch.log_softmax if log else torch.softmax)(x, 1))


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=dtype_name)
@pytest.mark.parametrize("n_cols", [96, 101])
def test_two_passes_give_the_same_bits(n_cols, dtype, log):
    x, dy = matrix(1, n_cols, dtype), matrix(1, n_cols, dtype, seed=1)
    y = forward(x, log=log)
    assert torch.equal(forward(x, log=log, passes=TWO), y)
    assert torch.equal(backward(y, dy, log=log, passes=TWO), backward(y, dy, log=log))


@BOTH
@pytest.mark.parametrize("n_cols", [96, 101])
@pytest.mark.parametrize("published", ["none", "first", "last", "all"])
def test_doing_without_partners_does_not_change_a_bit(published, n_cols, log):
    """Words that are there are believed, words that are not are computed; whoever does it, they are
    the same."""
    x, dy = matrix(1, n_cols, torch.float32), matrix(1, n_cols, torch.float32, seed=1)
    n_chunks = triton.cdiv(n_cols, 32)
    y = matrix(1, n_cols, torch.float32, seed=2)
    for run in (
        lambda **how: forward(x, log=log, **how),
        lambda **how: backward(y, dy, log=log, **how),
    ):
        words = torch.zeros(n_chunks, dtype=torch.int64, device=DEVICE)
        result = run(words=words)
        before = words.clone()
        assert (before != 0).all(), "all published"
        keep = {
            "none": slice(0, 0),
            "first": slice(0, 1),
            "last": slice(n_chunks - 1, None),
            "all": slice(None),
        }[published]
        words.zero_()
        words[keep] = before[keep]
        assert torch.equal(run(words=words, polls=-1), result)
        assert torch.equal(words, before)


SCHEDULES = pytest.mark.parametrize("lag", [False, True], ids=["ahead", "lag"])


@SCHEDULES
@pytest.mark.parametrize("programs, log", [(1, False), (3, True), (7, False), (13, True)])
def test_any_number_of_programs(programs, log, lag):
    """12 tasks in 3 rows: each is done once and alike, by whomever, in step or not, with words of
    others or without."""
    x, dy = matrix(3, 101, torch.float32), matrix(3, 101, torch.float32, seed=1)
    y = matrix(3, 101, torch.float32, seed=2)
    how = {"log": log, "ahead": True, "lag": lag, "programs": programs}
    for run in (lambda **how: forward(x, **how), lambda **how: backward(y, dy, **how)):
        words = torch.zeros(12, dtype=torch.int64, device=DEVICE)
        result = run(log=log, words=words)
        assert torch.equal(run(**how), result), "nothing published at first"
        before = words.clone()
        assert torch.equal(run(**how, words=words), result), "everything published at first"
        assert torch.equal(words, before)
        words[5] = 0
        assert torch.equal(run(**how, words=words), result), (
            "one word missing: half in step, half without partners"
        )
        assert torch.equal(words, before)
        assert torch.equal(run(**how, passes=TWO), result), "two launches"


@pytest.mark.parametrize("programs", [1, 3, 4])
@pytest.mark.parametrize("published", [False, True], ids=["none", "all"])
def test_exponentials_of_the_chunk_that_is_written(published, programs):
    """With the next chunk already asked for, the maximum that goes with the exponentials is still
    the written chunk's own."""
    x = matrix(3, 101, torch.float32) * torch.tensor([[1.0], [100.0], [-30.0]], device=DEVICE)
    words = torch.zeros(12, dtype=torch.int64, device=DEVICE)
    first = forward(x, log=False, keep=True, words=words)
    assert_near(first, expected_forward(x))
    y = forward(
        x, log=False, keep=True, ahead=True, programs=programs, words=words if published else None
    )
    assert torch.equal(y, first)


@pytest.mark.parametrize("n_words, nap", [(1, 0), (1, 500), (4, 0)])
def test_what_a_thread_does_while_it_waits(n_words, nap):
    """One load for each word, all of them in one round; a sleep only if there is one; out of the
    loop together."""
    text = look_assembly(n_words, nap)
    assert text.count("ld.relaxed.gpu.global.b64") == n_words
    assert text.count("nanosleep") == bool(nap) and (not nap or f"nanosleep.u32 {nap};" in text)
    assert text.index("vote.sync.any.pred") < text.index("bra.uni LOOK")
    assert (
        look_constraints(n_words).split(",")
        == ["=&l"] * n_words + ["l"] * n_words + ["r"] * n_words
    )
    assert f"${3 * n_words}" not in text and f"${2 * n_words}" in text, (
        "an operand for each constraint"
    )


def test_words_that_are_there_are_not_computed_again():
    """A false word shows in the result: it was read, and not replaced by anyone but its own
    program."""
    x = torch.zeros(1, 64, device=DEVICE)
    words = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    words[1] = round_trip([0.0], [96.0])[0][0]
    y = forward(x, log=False, words=words)
    if INTERPRETED:  # on a GPU the programs race
        assert_near(y[:, :32], torch.full((1, 32), 1 / 128), atol=1e-6)
    assert_near(
        y[:, 32:], torch.full((1, 32), 1 / 64, device=DEVICE), atol=1e-6 if INTERPRETED else 1.0
    )


@BOTH
@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize("n_cols", [5, 64, 75])
def test_every_element_is_written_once_and_nothing_else_read(n_cols, log):
    x, dy = (
        matrix(3, n_cols, torch.float16, gap=8),
        matrix(3, n_cols, torch.float16, gap=16, seed=1),
    )
    words = torch.zeros(3 * 3, dtype=torch.int64)
    with watch_accesses() as accesses:
        y = forward(x, log=log, gap=24, words=words, pairs=False)
    accesses.assert_reads_only(x, words)
    accesses.assert_writes_once(y)
    words.zero_()
    with watch_accesses() as accesses:
        dx = backward(y, dy, log=log, words=words)
    accesses.assert_reads_only(y, dy, words)
    accesses.assert_writes_once(dx)
