"""What the tests of the kernels share: inputs in poisoned surroundings, references in float64, and
a watch over every access."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
import triton

from triton_softmax import dispatch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cpu" if INTERPRETED else "cuda"

# The interpreter computes with NumPy, which warns of inf - inf and 0 / 0 where a GPU answers NaN.
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def matrix(
    n_rows: int, n_cols: int, dtype: torch.dtype, *, gap: int = 0, scale: float = 4.0, seed: int = 0
) -> torch.Tensor:
    """Random rows in the midst of NaN, `gap` elements apart: whatever is read out of range
    shows."""
    generator = torch.Generator().manual_seed(seed)
    stride = n_cols + gap
    values = torch.randn(n_rows, n_cols, generator=generator, dtype=torch.float64) * scale
    buffer = torch.full((64 + n_rows * stride + 64,), float("nan"), dtype=dtype)
    view = buffer[64 : 64 + n_rows * stride].view(n_rows, stride)[:, :n_cols]
    view.copy_(values)
    buffer = buffer.to(DEVICE)
    return buffer.as_strided(view.shape, view.stride(), view.storage_offset())


def expected_forward(x: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """The answer in float64, by PyTorch."""
    return (torch.log_softmax if log else torch.softmax)(x.double(), dim=1)


def expected_backward(y: torch.Tensor, dy: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """The answer in float64, from the formula."""
    y, dy = y.double(), dy.double()
    if log:
        return dy - y.exp() * dy.sum(dim=1, keepdim=True)
    return y * (dy - (y * dy).sum(dim=1, keepdim=True))


def assert_near(
    actual: torch.Tensor,
    expected: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    atol: float | None = None,
) -> None:
    """Equal up to the rounding of the dtype; NaN equals NaN, and infinities must match.

    The interpreter truncates where a GPU rounds to the nearest bfloat16, which doubles the last
    error.
    """
    dtype = dtype or actual.dtype
    rtol = {
        torch.float16: 2**-10,
        torch.bfloat16: 2**-7,
        torch.float32: 2e-5,
        torch.float64: 1e-12,
    }[dtype]
    if atol is None:
        atol = {
            torch.float16: 1e-6,
            torch.bfloat16: 1e-6,
            torch.float32: 2e-6,
            torch.float64: 1e-13,
        }[dtype]
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True
    )


def forward(x: torch.Tensor, dim: int, *, log=False, out_dtype=None, implementation=None):
    """Softmax or log-softmax of a plain tensor, outside autograd."""
    operation = "log_softmax" if log else "softmax"
    return dispatch.run(operation, (x,), dim, out_dtype, implementation)


def backward(
    y: torch.Tensor, dy: torch.Tensor, dim: int, *, log=False, in_dtype=None, implementation=None
):
    """The vector-Jacobian product of `forward` from its output."""
    operation = "log_softmax_backward" if log else "softmax_backward"
    return dispatch.run(operation, (y, dy), dim, in_dtype, implementation)


def forward_kernels(x: torch.Tensor, dim: int, *, log=False, out_dtype=None, implementation=None):
    """The kernels that the same call of `forward` launches, each once."""
    operation = "log_softmax" if log else "softmax"
    plan = dispatch.plan_of(operation, (x,), dim, out_dtype, implementation)
    return tuple(dict.fromkeys(plan.kernels))


def backward_kernels(
    y: torch.Tensor, dy: torch.Tensor, dim: int, *, log=False, in_dtype=None, implementation=None
):
    """Likewise of `backward`."""
    operation = "log_softmax_backward" if log else "softmax_backward"
    plan = dispatch.plan_of(operation, (y, dy), dim, in_dtype, implementation)
    return tuple(dict.fromkeys(plan.kernels))


def kernel_name(name: str, direction: str = "forward") -> tuple[str, ...]:
    """What `forward_kernels` says of an implementation; the naive one has no kernel of ours."""
    return () if name == "naive" else (f"softmax_{direction}_{name}_kernel",)


class Accesses:
    """Addresses that interpreted kernels loaded and stored."""

    def __init__(self) -> None:
        self.loads: list[np.ndarray] = []
        self.stores: list[np.ndarray] = []

    @staticmethod
    def _addresses(tensor: torch.Tensor) -> np.ndarray:
        offsets = torch.zeros((), dtype=torch.int64)
        for size, stride in zip(tensor.shape, tensor.stride()):
            offsets = offsets[..., None] + torch.arange(size) * stride
        return (tensor.data_ptr() + offsets * tensor.element_size()).flatten().numpy()

    def assert_reads_only(self, *tensors: torch.Tensor) -> None:
        allowed = np.concatenate([self._addresses(tensor) for tensor in tensors])
        outside = np.setdiff1d(np.concatenate(self.loads), allowed)
        assert not len(outside), f"{len(outside)} reads outside of the operands"

    def assert_writes_once(
        self, *tensors: torch.Tensor, workspace: torch.Tensor | None = None
    ) -> None:
        """Each element of the tensors once, nothing else but the workspace."""
        wanted = np.sort(np.concatenate([self._addresses(tensor) for tensor in tensors]))
        stores = np.concatenate(self.stores)
        if workspace is not None:
            stores = stores[~np.isin(stores, self._addresses(workspace))]
        np.testing.assert_array_equal(np.sort(stores), wanted)


@contextlib.contextmanager
def watch_accesses():
    """Record every address that an interpreted kernel does not mask out."""
    from triton.runtime.interpreter import interpreter_builder as builder

    accesses = Accesses()
    load, store = builder.create_masked_load, builder.create_masked_store

    def watched_load(pointers, mask, *rest):
        accesses.loads.append(
            np.broadcast_to(pointers.data, mask.data.shape)[mask.data.astype(bool)].astype(np.int64)
        )
        return load(pointers, mask, *rest)

    def watched_store(pointers, value, mask, *rest):
        accesses.stores.append(
            np.broadcast_to(pointers.data, mask.data.shape)[mask.data.astype(bool)].astype(np.int64)
        )
        return store(pointers, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    try:
        yield accesses
    finally:
        del builder.create_masked_load, builder.create_masked_store
