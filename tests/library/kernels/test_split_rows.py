"""Several programs for one row: the word they exchange, the row they make together, and what a
program does without partners.

The interpreter runs one program after another, so the first program of a row finds no words and
goes on without partners, as on a GPU where they do not run. With words from an earlier run in the
workspace, or in two launches, it takes the way that a GPU usually takes.
"""

import itertools
import math

import pytest
import torch
import triton
import triton.language as tl

from geometries import FORMS, rows_of
from kernel_cases import (
    DEVICE,
    INF,
    INTERPRETED,
    NAN,
    OPERATIONS,
    assert_as_torch,
    assert_near,
    assert_result,
    expected,
    hostile,
    matrix,
    quiet,
)
from triton_softmax.kernels.device.exchange import (
    _poll_assembly,
    _poll_constraints,
    pack_word,
    publish,
    unpack_word,
)
from triton_softmax.operations.softmax import SOFTMAX_VJP

pytestmark = quiet


def run(operation, inputs, **options):
    """In chunks of 32 columns."""
    return FORMS["split_rows"](operation, inputs, **{"chunk": 32, **options})


# --- the word


@triton.jit
def round_trip_kernel(m_ptr, d_ptr, word_ptr, m_out, d_out, N: tl.constexpr):
    lanes = tl.arange(0, N)
    word = pack_word(tl.load(m_ptr + lanes), tl.load(d_ptr + lanes))
    tl.store(word_ptr + lanes, word)
    m, d = unpack_word(word)
    tl.store(m_out + lanes, m)
    tl.store(d_out + lanes, d)


@triton.jit
def publish_sum_kernel(total_ptr, word_ptr, OP: tl.constexpr):
    lanes = tl.arange(0, 2)
    total = tl.load(total_ptr + lanes)
    publish(word_ptr + lanes, 2, 0.0, (total, 2 * total), lanes < 1, OP, True)


def round_trip(m, d):
    n = triton.next_power_of_2(len(m))
    m = torch.tensor([*m, *[m[0]] * (n - len(m))], device=DEVICE)
    d = torch.tensor([*d, *[d[0]] * (n - len(d))], device=DEVICE)
    words = torch.zeros(n, dtype=torch.int64, device=DEVICE)
    m_out, d_out = torch.empty_like(m), torch.empty_like(d)
    round_trip_kernel[(1,)](m, d, words, m_out, d_out, N=n)
    assert torch.equal(m_out.view(torch.int32), m.view(torch.int32)), "every bit of m"
    assert torch.equal(d_out.view(torch.int32), d.view(torch.int32)), "every bit of d"
    return words


def test_a_word_holds_every_bit_of_a_summary():
    values = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, -3.4e38]
    values += [INF, -INF, NAN, -NAN, math.pi, -1e30, 1e30, 0.1]
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
    assert (round_trip(*zip(*summaries, strict=True)) != 0).all()
    assert round_trip([0.0], [0.0])[0] == 0, "the one pair that would be mistaken"


@pytest.mark.parametrize("total", [0.0, -0.0, 1.0, -3.0, NAN, INF])
def test_no_sum_of_the_backward_pass_is_zero(total):
    """Where there is no maximum, 1 stands in its place; what is masked out is left alone."""
    words = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    totals = torch.tensor([total, total], device=DEVICE)
    publish_sum_kernel[(1,)](totals, words[2:], OP=SOFTMAX_VJP)
    first, second = round_trip([1.0, 1.0], [total, 2 * total]).tolist()
    assert words.tolist() == [0, 0, first, 0, second, 0] and first and second


# --- the row


HALVES = itertools.cycle((torch.float16, torch.bfloat16))


@pytest.mark.parametrize("operation, dtype", list(zip(OPERATIONS, HALVES)), ids=str)
def test_pairs_change_nothing(operation, dtype):
    inputs = rows_of(operation, 2, 43, dtype)
    assert torch.equal(run(operation, inputs, pairs=True), run(operation, inputs))


@pytest.mark.parametrize(
    "operation, dtype",
    [("softmax", torch.float16), ("log_softmax", torch.bfloat16), ("logsumexp", torch.float16)],
    ids=str,
)
def test_pairs_of_special_values(operation, dtype):
    """Every element of a pair keeps its sign, its infinity, its NaN."""
    x = torch.full((6, 64), -INF, dtype=dtype)
    x[0, 0::2], x[1, 1::2] = 1.0, -1.0
    x[2] = torch.linspace(-8, 8, 64)
    x[3, 7], x[4, 40], x[5, 3:9] = NAN, INF, -65504.0
    x = x.to(DEVICE)
    assert_near(run(operation, (x,), pairs=True), expected(operation, (x,)), atol=1e-2)


# Exponentials that a program keeps while it waits, in place of the elements.


@pytest.mark.parametrize(
    "n_cols, dtype", [(64, torch.float16), (75, torch.bfloat16), (75, torch.float32)], ids=str
)
def test_exponentials_kept_instead_of_elements(n_cols, dtype):
    inputs = rows_of("softmax", 2, n_cols, dtype)
    assert_result("softmax", run("softmax", inputs, keep_terms=True), inputs)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_minus_infinity_fills_a_chunk(place):
    x = matrix(2, 96, torch.float32)
    x[0, place * 32 : (place + 1) * 32] = -INF
    x[1, : place * 32] = -INF
    x[1, (place + 1) * 32 :] = -INF
    assert_result("softmax", run("softmax", (x,), keep_terms=True), (x,))


@pytest.mark.parametrize("places", [(0, 1, 2), (1, 20, 39)], ids=["edge", "everywhere"])
def test_hostile_rows_as_torch(places):
    """In one chunk, with exponentials of 0 in the other, or in both."""
    x = hostile(41, places, fill=0.0)
    assert_as_torch("softmax", run("softmax", (x,), keep_terms=True), (x,))


@pytest.mark.parametrize("programs, published", [(1, False), (2, True), (3, False)])
def test_exponentials_of_the_chunk_that_is_written(published, programs):
    """With the next chunk already on its way, the maximum that goes with the exponentials is still
    the written chunk's own."""
    x = matrix(3, 69, torch.float32) * torch.tensor([[1.0], [100.0], [-30.0]], device=DEVICE)
    words = torch.zeros(9, dtype=torch.int64, device=DEVICE)
    first = run("softmax", (x,), keep_terms=True, words=words)
    assert_result("softmax", first, (x,))
    how = {"keep_terms": True, "depth": 1, "programs": programs}
    y = run("softmax", (x,), **how, words=words if published else None)
    assert torch.equal(y, first)


# --- partners


@pytest.mark.parametrize(
    "operation, programs, depth",
    [
        ("softmax", 1, 1),
        ("softmax", 7, 2),
        ("softmax_backward", 2, 2),
        ("logsumexp", 2, 1),
        ("logsumexp", 1, 2),
    ],
)
def test_any_number_of_programs(operation, programs, depth):
    """6 tasks in 2 rows: each is done once and alike, by whomever, in step or not, with words of
    others or without."""
    inputs = rows_of(operation, 2, 69, torch.float32)
    how = {"depth": depth, "programs": programs}
    result = run(operation, inputs)
    assert_result(operation, result, inputs)
    words = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    assert torch.equal(run(operation, inputs, **how, words=words), result), "nothing published"
    before = words.clone()
    assert (before != 0).all(), "all published"
    words[4] = 0
    again = run(operation, inputs, **how, words=words)
    assert torch.equal(again, result), "one word missing: half in step, half without partners"
    assert torch.equal(words, before)
    again = run(operation, inputs, **how, apart=True)
    assert torch.equal(again, result), "two launches"


def test_words_that_are_there_are_not_computed_again():
    """A false word shows in the result: it was read, and not replaced by anyone but its own
    program."""
    x = torch.zeros(1, 64, device=DEVICE)
    words = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    words[1] = round_trip([0.0], [96.0])[0]
    y = run("softmax", (x,), words=words)
    if INTERPRETED:  # on a GPU the programs race
        assert_near(y[:, :32], torch.full((1, 32), 1 / 128), atol=1e-6)
    right = torch.full((1, 32), 1 / 64, device=DEVICE)
    assert_near(y[:, 32:], right, atol=1e-6 if INTERPRETED else 1.0)


@pytest.mark.parametrize("n_words, backoff", [(1, 0), (1, 500), (4, 0)])
def test_what_a_thread_does_while_it_waits(n_words, backoff):
    """One load for each word, all of them in one round; a sleep only if there is one; out of the
    loop together."""
    text = _poll_assembly(n_words, backoff)
    assert text.count("ld.relaxed.gpu.global.b64") == n_words
    assert text.count("nanosleep") == bool(backoff)
    assert not backoff or f"nanosleep.u32 {backoff};" in text
    assert text.index("vote.sync.any.pred") < text.index("bra.uni POLL")
    constraints = ["=&l"] * n_words + ["l"] * n_words + ["r"] * n_words
    assert _poll_constraints(n_words).split(",") == constraints
    assert f"${3 * n_words}" not in text and f"${2 * n_words}" in text, (
        "an operand for each constraint"
    )
