"""What several GPUs run, through the compiler for one that is not there: nothing spills."""

from __future__ import annotations

import pytest
import triton

from softmax_bench.compilation import Compilation, compiled
from triton_softmax.composite import FINISH_OF
from triton_softmax.distributed import partials, rank_kernels

SHAPES = ((8192, 4096), (512, 65_536))
"""Of a rank's part: rows that are one program's each, and rows that are split."""

PART = """
x = torch.empty({n_rows}, {n_cols}, dtype=torch.bfloat16, requires_grad=True)
t, w = torch.zeros(len(x), dtype=torch.int64), torch.ones(2 * x.shape[1], dtype=x.dtype)
group = ranks(2)
"""
CALLS = {
    "softmax": "y = softmax(x, 1, group=group)\ntorch.autograd.grad(y, x, y.detach())",
    "log_softmax": "y = log_softmax(x, 1, group=group)\ntorch.autograd.grad(y, x, y.detach())",
    "logsumexp": "y = logsumexp(x, 1, group=group)\ntorch.autograd.grad(y, x, y.detach())",
    "loss": "cross_entropy(x, t, w, group=group).backward()",
    "losses": "cross_entropy(x, t, group=group, reduction='none').sum().backward()",
    "smoothed": "cross_entropy(x, t, group=group, label_smoothing=0.1, z_loss=1e-3).backward()",
    "distribution": "cross_entropy(x, x.detach(), group=group)",
    "tokens": """
found = token_logprobs(x, t, group=group, return_entropy=True)
torch.autograd.grad(found, x, [each.detach() for each in found])
""",
}

SPILLED = {
    "rank_products": (0, 28),
    "rank_summary_and_entropy": (0, 616),
    "rank_summary_and_sum": (856, 1620),
}
"""Bytes per thread of what is known to spill where rows are split: in Triton 3.7, and at most in
another supported release."""


def launched(call: str, shape: tuple[int, int]) -> list[Compilation]:
    """What a rank of two launches for bfloat16 rows."""
    return compiled(PART.format(n_rows=shape[0], n_cols=shape[1]) + CALLS[call])


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
@pytest.mark.parametrize("call", CALLS)
def test_compiles_without_spills(call, shape):
    for result in launched(call, shape):
        op = result.constants.get("OP") if "split" in result.kernel else None
        here, elsewhere = SPILLED.get(op, (0, 0))
        assert result.spill_bytes <= (here if triton.__version__[:3] == "3.7" else elsewhere)
        if "finish" in result.kernel:
            assert "ld.global.v4" in result.assembly and "st.global.v4" in result.assembly


@pytest.mark.slow
def test_all_operations_and_kernels_are_here():
    found = [each for call in CALLS for shape in SHAPES for each in launched(call, shape)]
    kernels = {each.kernel for each in found}
    assert {name for name in vars(rank_kernels) if name.endswith("_kernel")} <= kernels
    assert {"tile_kernel", "split_rows_kernel", "modified_rows_kernel"} <= kernels
    ops = {each.constants.get("OP") for each in found}
    assert {*partials.NAMES.values()} <= ops
    assert {str(op) for op in FINISH_OF} <= ops
