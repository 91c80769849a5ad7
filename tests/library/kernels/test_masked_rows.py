"""Rows with maps as they are compiled for an H200, without a GPU."""

from __future__ import annotations

import pytest

from softmax_bench.compilation import Compilation, compiled

pytestmark = pytest.mark.slow

SCORES = """
x = torch.empty(2, 4, {n_cols}, {n_cols}, dtype=torch.bfloat16, requires_grad={gradient})
"""
LOSS = """
x = {x}.requires_grad_()
t = torch.zeros(len(x), dtype=torch.int64)
cross_entropy(x, t, scale=0.5, softcap=30.0)
"""
EVERYTHING = """
mask = torch.ones(1, 1, 4096, 4096, dtype=torch.bool)
scale, sink = torch.ones(2, 4, 4096, 1, requires_grad=True), torch.ones(4, requires_grad=True)
y = softmax(x, scale=scale, softcap=30.0, where=mask, {more}safe=True, sink=sink)
"""


def of_scores(call: str, n_cols: int, gradient: bool = False) -> list[Compilation]:
    """The kernels of masked rows that a call launches."""
    found = compiled(SCORES.format(n_cols=n_cols, gradient=gradient) + call)
    return [each for each in found if each.kernel == "masked_rows_kernel"]


def test_whole_vectors_and_no_spills():
    gradient = "torch.autograd.grad(y, (x, scale, sink), y.detach())"
    (causal,) = of_scores("softmax(x, scale=0.5, causal=True)", 1024)
    (everything,) = of_scores(EVERYTHING.format(more="causal=True, "), 4096)
    _, back = of_scores(EVERYTHING.format(more="") + gradient, 4096, gradient=True)
    for result in (causal, everything, back):
        assert result.load_bits == result.store_bits == 128
        assert result.spill_bytes == 0 and result.registers <= 128
    _, walked = compiled(LOSS.format(x="torch.empty(2000, 128_256, dtype=torch.bfloat16)"))
    assert walked.constants["OP"] == "cross_entropy_gradient"
    assert "cp.async.cg" in walked.assembly  # moves 16 bytes, while the tile before is computed
    assert walked.store_bits == 128 and walked.spill_bytes == 0 and walked.registers <= 64


def test_a_mask_is_read_in_the_vectors_of_x_and_remembered_by_nobody():
    """Places that are remembered take registers; threads that hold other elements than they write
    exchange them, by way of shared memory where there are several warps."""
    mask = "softmax(x, scale=0.5, where=torch.ones(1, 1, *x.shape[2:], dtype=torch.bool){more})"
    expanded = "[..., :1].expand(1, 1, *x.shape[2:])"
    (masked,) = of_scores(mask.format(more=""), 1024)
    (by_element,) = of_scores(mask.format(more=expanded), 1024)
    (causal,) = of_scores("softmax(x, scale=0.5, causal=True)", 1024)
    (three,) = of_scores(mask.format(more=""), 3000)
    for result in (masked, causal, three):
        assert result.registers <= 72 and result.shared_bytes <= 64
    # Four each, and again for a row without a sum.
    assert masked.global_loads == {"ld.global.v2.b32": 8, "ld.global.v4.b32": 8}
    assert by_element.global_loads == {"ld.global.b8": 64, "ld.global.v4.b32": 8}
    assert three.num_warps == 4


@pytest.mark.parametrize("shape", ["(1024, 2**21 + 8).T", "(128_256, 2**15).T", "(1, 2**31 + 8)"])
@pytest.mark.parametrize("gpu", ["sm_90", "gfx942"])
def test_wide_indices_compile(shape, gpu):
    """With rows of which a program has several, and with chunks of rows whose columns 31 bits do
    not count: in one launch or two."""
    x = "torch.empty" + shape.replace(")", ", dtype=torch.bfloat16)", 1)
    found = [each for each in compiled(LOSS.format(x=x), gpu) if "MAPS" in each.constants]
    assert len(found) == (2 if "31" in shape else 1)
    for result in found:
        assert result.constants["HOW"].wide_index and result.spill_bytes == 0
