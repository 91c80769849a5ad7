"""What the sources get wrong, each shown by computing it (docs/reference/sources.md lists them).

A test first reproduces what the source prints or does, and then shows what is right.
"""

import math
import re

import numpy as np
import pytest
import torch

from kernel_cases import DEVICE, quiet
from softmax_bench.traffic import FORWARD, NAIVE_LINES, best_gain, count_elements
from softmax_site.computed import worked
from softmax_site.computed.compiled import single_block as single_block_of
from softmax_tutorial import flash_attention, single_block, three_loops, two_loops
from softmax_tutorial.reference import softmax_naive_torch

# --- D, the worked example ------------------------------------------------------------------------


def test_printed_row_sums_do_not_add_up():
    """D4: the printed sums are not the sums of the printed products; the difference is not
    rounding."""
    step = worked.backward()
    assert worked.PRINTED["y dy"].sum(axis=1).round(4).tolist() == [0.5235, 0.4718]
    assert np.allclose(step["s"][:, 0], [0.5236174206, 0.4717750424], atol=5e-11)
    assert (np.abs(worked.PRINTED["s"] - step["s"]) > 0.2).all()


def test_two_digits_follow_from_rounded_factors():
    """D4: one product is printed as 0.4656 and one denominator as 1.1536; both end in 7."""
    product, printed = worked.backward()["y dy"], worked.PRINTED["y dy"]
    assert np.argwhere(product.round(4) != printed).tolist() == [[0, 2]]
    assert (product[0, 2].round(4), printed[0, 2]) == (0.4657, 0.4656)
    assert worked.forward()["d"][1, 0].round(4) == 1.1537


def test_printed_gradient_is_right_but_does_not_follow_from_the_printed_sums():
    """D4: the printed dX is that of autograd; with the printed sums it would be another, whose
    rows do not sum to 0."""
    x = torch.tensor(worked.X, requires_grad=True)
    torch.softmax(x, dim=1).backward(torch.tensor(worked.DY))
    assert np.array_equal(x.grad.numpy().round(4), worked.PRINTED["dx"])
    right = [[-0.4236, -0.3236, 0.1764], [-0.2718, -0.1718, 0.0282]]
    assert np.array_equal(worked.backward()["dy - s"].round(4), right)
    wrong = worked.from_printed_sums()
    assert np.abs(wrong - worked.PRINTED["dx"]).max() > 0.1
    assert (np.abs(wrong.sum(axis=1)) > 0.1).all()


def test_naive_traffic_is_5mn_and_not_7mn_reads():
    """B1: the printed lines read 5MN + 2M elements and write 3MN + 3M, where the source adds them
    up to 7MN and 3MN + 2M; counted while they run. Ours take `amax` and write no positions."""
    for m, n in ((7, 3), (1823, 781)):
        x = torch.randn(m, n)
        with count_elements() as count:
            naive_as_printed(x, exponent_of_z=True)
        assert count.reads == 5 * m * n + 2 * m != 7 * m * n
        assert count.writes == 3 * m * n + 3 * m != 3 * m * n + 2 * m
        ours = [(line.reads(m, n), line.writes(m, n)) for line in NAIVE_LINES.values()]
        assert [*map(sum, zip(*ours))] == [count.reads, count.writes - m]
        naive = FORWARD["naive"]
        assert [naive.reads(m, n), naive.writes(m, n)] == [count.reads, count.writes - m]


def test_best_gain_over_naive_is_little_over_4_and_not_5():
    """B1: (8MN + 5M) / 2MN = 4 + 2.5/N, with `amax` 4 + 2/N; the source promises
    (7MN + 3MN + 2M) / 2MN, which is about 5."""
    for m, n in ((4096, 128), (1823, 781), (1, 50_257)):
        assert (8 * m * n + 5 * m) / (2 * m * n) == pytest.approx(4 + 2.5 / n)
        assert best_gain(m, n) == pytest.approx(4 + 2 / n)
        assert (7 * m * n + 3 * m * n + 2 * m) / (2 * m * n) == pytest.approx(5 + 1 / n)


def naive_as_printed(x, exponent_of_z=False):
    """The lines of the source, in which the shifted z is computed and then left unused."""
    x_max = torch.max(x, axis=1)[0]
    z = x - x_max[:, None]
    numerator = torch.exp(z if exponent_of_z else x)
    denominator = numerator.sum(1)
    return numerator / denominator[:, None]


def test_naive_as_printed_overflows_above_88():
    """B1: exp of x and not of x - max: NaN as soon as an entry exceeds 88.72 in float32."""
    below, above = torch.tensor([[88.72, 0.0]]), torch.tensor([[88.73, 0.0]])
    assert naive_as_printed(below).isfinite().all()
    assert naive_as_printed(above).isnan().any()
    for x in (below, above, 100 * above):
        assert torch.equal(softmax_naive_torch(x), torch.softmax(x, dim=1))
    assert math.log(torch.finfo(torch.float32).max) == pytest.approx(88.7228, abs=1e-4)


@quiet
def test_the_block_must_exceed_the_columns_and_not_the_rows():
    """B2: "greater than the number of rows N" means columns: the block covers one row, however
    many there are."""
    for n_rows, n_cols in ((40, 3), (2, 70)):
        x = torch.randn(n_rows, n_cols, device=DEVICE)
        assert single_block._block_for(n_cols) >= n_cols
        torch.testing.assert_close(single_block.softmax_forward(x), torch.softmax(x, dim=1))
    assert single_block._block_for(3) < 40


def test_swapped_strides_read_other_rows():
    """B2: with the two row strides in the other order, a kernel reads x at the rows of y."""
    storage = np.arange(80.0)
    x_row_stride, y_row_stride, n_rows, n_cols = 16, 8, 5, 8

    def rows_read(stride_xm):
        return np.stack([storage[m * stride_xm + np.arange(n_cols)] for m in range(n_rows)])

    x = storage.reshape(n_rows, x_row_stride)[:, :n_cols]
    assert np.array_equal(rows_read(stride_xm=x_row_stride), x)
    assert not np.array_equal(rows_read(stride_xm=y_row_stride), x)


def test_a_check_through_a_cross_entropy_accepts_y_times_dy():
    """A8: with the default tolerances, the gradient through the mean cross-entropy of the output
    cannot be told from one without the inner product; through a normal dy it can."""
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        x = torch.randn(256, 512, generator=random).requires_grad_()
        y = torch.softmax(x, dim=1)
        target = torch.randint(512, (256,), generator=random)
        loss = torch.nn.CrossEntropyLoss()(y, target)
        dy, dx = torch.autograd.grad(loss, (y, x), retain_graph=True)
        torch.testing.assert_close(y * dy, dx)
        assert ((y * dy - dx) / dx).abs().median() > 0.5 and dx.abs().median() < 1e-8
        dy = torch.randn(256, 512, generator=random)
        (dx,) = torch.autograd.grad(y, x, dy)
        with pytest.raises(AssertionError, match="not close"):
            torch.testing.assert_close(y * dy, dx)


def test_the_two_benchmarks_count_bytes_differently():
    """A9 counts 2·M·N elements, which is read once and written once, B4 M·N: the same time reads
    twice as fast."""
    for m, n in ((4096, 256), (4096, 12672)):
        assert FORWARD["single_block"].elements(m, n) == 2 * m * n


def long_softmax_from_zero(x, m_start):
    """The puzzles' loop over one row in tiles of 32, in PyTorch, with the running maximum started
    at `m_start`."""
    m, d = torch.tensor(m_start), torch.tensor(0.0)
    for tile in x.split(32):
        m_new = torch.maximum(m, tile.max())
        d = d * torch.exp(m - m_new) + torch.exp(tile - m_new).sum()
        m = m_new
    return torch.exp(x - m) / d


@quiet
@pytest.mark.parametrize("rung", [three_loops, two_loops], ids=["three_loops", "two_loops"])
def test_a_running_maximum_must_start_at_minus_infinity(rung):
    """C1, C2: started at 0, a row of very negative numbers becomes 0/0; started at -∞ it is
    right."""
    for x in (torch.tensor([-1000.0, -1001.0]), torch.linspace(-500, -400, 70)):
        expected = torch.softmax(x, dim=0)
        assert long_softmax_from_zero(x, 0.0).isnan().all()
        torch.testing.assert_close(long_softmax_from_zero(x, float("-inf")), expected)
        torch.testing.assert_close(rung.softmax_forward(x[None].to(DEVICE))[0].cpu(), expected)
    y = torch.softmax(torch.tensor([-1000.0, -1001.0]), dim=0)
    torch.testing.assert_close(y.round(decimals=4), torch.tensor([0.7311, 0.2689]))


def test_an_exponential_in_two_halves_overflows():
    """C1: exp(x - m) = exp(x - m/2) / exp(m/2) is true, and useless in float32: at x = m = 200
    both sides of the quotient are infinite. In float64 they are not, and agree."""
    x = torch.tensor(200.0)
    halves = torch.exp(x - x / 2) / torch.exp(x / 2)
    assert halves.isnan() and torch.exp(x - x) == 1
    wide = x.double()
    halves = torch.exp(wide - wide / 2) / torch.exp(wide / 2)
    torch.testing.assert_close(halves, torch.exp(wide - wide))


@quiet
def test_a_million_is_not_infinity():
    """C3: with -10⁶ in place of -∞, scores below it vanish, and all weights with them; the kernel
    has no such limit."""
    q, k, v = (
        torch.tensor([-1e4]),
        torch.tensor([200.0, 200.0001, 200.0002]),
        torch.tensor([1.0, 2.0, 4.0]),
    )
    scores = q[:, None] * k
    assert (scores < -1e6).all()
    m = torch.maximum(torch.tensor(-1e6), scores.max())
    weights = torch.exp(scores - m)
    assert (weights.sum() == 0) and (weights @ v / weights.sum()).isnan().all()
    expected = torch.softmax(scores, dim=1) @ v
    o = flash_attention.attention_forward(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE)).cpu()
    torch.testing.assert_close(o, expected)


def test_past_the_limit_registers_spill_and_nothing_iterates():
    """A9: beyond 65,536 columns Triton does not cut the input into pieces and iterate: each thread
    spills registers."""
    fits, at_cap, past = (single_block_of(size, 32) for size in (32768, 65536, 131072))
    assert fits.spill_bytes == 0
    assert 0 < at_cap.spill_bytes < past.spill_bytes
    assert at_cap.registers == past.registers == 64  # all that 1,024 threads can have each
    for result, size in ((fits, 32768), (at_cap, 65536), (past, 131072)):
        assert sum(result.global_loads.values()) == size // 1024  # one an element: unrolled
        assert not re.search(r"\bbra\b", result.assembly)  # and no loop


def test_65536_limits_a_block_of_one_library_and_no_grid():
    """A5: 65,536 bounds neither the block that Triton takes nor the rows of a grid, whose x
    dimension ends at 2³¹ - 1."""
    assert single_block.MAX_COLS == 2**20
    assert single_block._block_for(65_537) == 131_072
    with pytest.raises(ValueError, match="1,048,576 columns"):
        single_block._block_for(2**20 + 1)


@pytest.mark.gpu
def test_a_grid_goes_past_65536():
    """A5: 70,000 programs along x, on the device."""
    x = torch.randn(70_000, 16, device="cuda")
    torch.testing.assert_close(single_block.softmax_forward(x), torch.softmax(x, dim=1))


def test_65504_is_exp_of_11_09():
    """A: the largest float16 is exp(11.09), up to the two digits shown; exp(11) is 59,874."""
    assert torch.finfo(torch.float16).max == 65504
    assert round(math.log(65504), 2) == 11.09
    assert round(math.exp(11)) == 59874
    assert np.exp(np.float64(11.0)).astype(np.float16) < 65504
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(np.float64(11.1)).astype(np.float16))
