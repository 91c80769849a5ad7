"""What several GPUs run, through the compiler for one that is not there: nothing spills."""

from __future__ import annotations

import pytest
import triton

from softmax_bench.compilation import Compilation, compiled

SHAPES = ((8192, 1024), (8192, 4096), (512, 65_536))
"""Of a rank's part: rows that a loop reads, and rows of one chunk and of several."""

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

SPILLED = {"softmax": 4, "logsumexp_vjp": 4}
"""Bytes per thread of what is known to spill, in Triton 3.7."""

WITHOUT = {"logsumexp": 3, "loss": 4, "losses": 4, "smoothed": 4, "tokens": 3}
"""Kernels of a call and its gradient, where backward sends nothing; four of two messages."""


def launched(call: str, shape: tuple[int, int]) -> list[Compilation]:
    """What a rank of two launches for bfloat16 rows."""
    return compiled(PART.format(n_rows=shape[0], n_cols=shape[1]) + CALLS[call])


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
@pytest.mark.parametrize("call", CALLS)
def test_compiles_without_spills(call, shape):
    """Two launches of one GPU's kernel, whose machine code is that of several ranks."""
    found = launched(call, shape)
    assert len(found) == WITHOUT.get(call, 2 if call == "distribution" else 4)
    for result in found:
        known = SPILLED.get(result.constants.get("OP"), 0) if shape[1] > 8192 else 0
        later = triton.__version__[:3] == "3.7"
        assert result.spill_bytes <= (known if later else known + 64), result.kernel
        if "split" in result.kernel:
            assert "ld.global.v4" in result.assembly
    by = {each.kernel for each in found if each.constants.get("HOW")}
    one_loop = shape[1] < 2048 or call == "distribution"
    whole = "modified_rows_kernel" if one_loop else "split_rows_kernel"
    assert by == {"token_rows_kernel" if call == "tokens" else whole}
