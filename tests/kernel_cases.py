"""What the tests of the kernels share: inputs in poisoned surroundings, references in float64, and
a watch over every access."""

import contextlib

import numpy as np
import pytest
import torch
import triton
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

import triton_softmax
from softmax_bench.providers import name_of
from triton_softmax import arguments, composite
from triton_softmax.config import measured
from triton_softmax.operations import OPERATIONS

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTERPRETED = triton.knobs.runtime.interpret
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
INF, NAN, LARGEST = float("inf"), float("nan"), torch.finfo(torch.float32).max

EVERY_OPERATION = pytest.mark.parametrize("operation", OPERATIONS)

PAIRS = {
    name: (getattr(triton_softmax, name), getattr(torch, name))
    for name in ("softmax", "log_softmax", "logsumexp")
}
"""Each public function beside PyTorch's."""
pairs = pytest.mark.parametrize("ours, theirs", PAIRS.values(), ids=PAIRS)

# The interpreter computes with NumPy, which warns of inf - inf and 0 / 0 where a GPU answers NaN.
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def _load_of_anything(builder, pointers, mask, other, *options, **named):
    """A masked load as on a GPU, where an element outside the mask is anything without `other`: NaN
    here, or −1; the interpreter's own is 0."""
    if other is None:
        dtype = np.dtype(_get_np_dtype(pointers.get_element_ty()))
        anything = np.full(pointers.data.shape, -1, f"i{dtype.itemsize}").view(dtype)
        other = TensorHandle(anything, pointers.get_element_ty())
    return _load(builder, pointers, mask, other, *options, **named)


_load = InterpreterBuilder.create_masked_load
InterpreterBuilder.create_masked_load = _load_of_anything
# A GPU's maximum and minimum drop NaN, unless a kernel asks for it; the interpreter's keep it.
InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)


def small_tiles(monkeypatch, elements: int, rows: int = 16) -> None:
    """Let masked rows lie in tiles of so few elements that short ones are walked along."""
    for line in measured.TABLES["modified_tiles"]:
        monkeypatch.setitem(line.values, "lanes", elements)
        monkeypatch.setitem(line.values, "rows", min(rows, line.values["rows"]))
    for line in measured.TABLES["modified_loops"]:
        adjacent = line.values["stages"] > 1
        cols = elements // 4 if adjacent else elements // 2 // rows
        monkeypatch.setitem(line.values, "cols", cols)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def drawn(
    *shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, scale: float = 1.0
) -> torch.Tensor:
    """Random numbers, the same in every run."""
    generator = torch.Generator().manual_seed(seed)
    values = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).to(DEVICE)


def matrix(
    n_rows: int, n_cols: int, dtype: torch.dtype, *, gap: int = 0, scale: float = 4.0, seed: int = 0
) -> torch.Tensor:
    """Random rows in the midst of NaN, `gap` elements apart: whatever is read out of range
    shows."""
    stride = n_cols + gap
    buffer = torch.full((64 + n_rows * stride + 64,), NAN, dtype=dtype, device=DEVICE)
    view = buffer.as_strided((n_rows, n_cols), (stride, 1), 64)
    return view.copy_(drawn(n_rows, n_cols, seed=seed, scale=scale))


def expected_forward(x: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """The answer in float64, by PyTorch."""
    return expected("log_softmax" if log else "softmax", (x,))


def expected_backward(y: torch.Tensor, dy: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """The answer in float64, from the formula."""
    return expected("log_softmax_backward" if log else "softmax_backward", (y, dy))


def operands(
    operation: str, n_rows: int, n_cols: int, dtype: torch.dtype, gaps=(3, 1), seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """The inputs of an operation along rows, with gaps of their own between them: x; or y, which
    is what the forward pass answers, and dy; or x and a number for each row."""
    x = matrix(n_rows, n_cols, dtype, gap=gaps[0], seed=seed)
    if OPERATIONS[operation].numbers:
        return x, weights(n_rows, dtype, gap=gaps[1], seed=seed + 1)
    if not operation.endswith("backward"):
        return (x,)
    y = x.copy_(expected_forward(x, log=operation.startswith("log_")))
    return y, matrix(n_rows, n_cols, dtype, gap=gaps[1], scale=1.0, seed=seed + 1)


def as_computed(
    operation: str, inputs: tuple[torch.Tensor, ...], out_dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """The inputs as an operation of one matrix sees them: x in the dtype of the result."""
    if OPERATIONS[operation].inputs > 1:
        return inputs
    return inputs[0].to(out_dtype), *inputs[1:]


def weights(n_rows: int, dtype: torch.dtype, *, gap: int = 1, seed: int = 1) -> torch.Tensor:
    """A number for each row, in the midst of NaN."""
    return matrix(n_rows, 1, dtype, gap=gap, scale=1.0, seed=seed)[:, 0]


def expected(operation: str, inputs: tuple[torch.Tensor, ...], dim: int = 1) -> torch.Tensor:
    """The answer in float64: by PyTorch, or from the formula."""
    x, *dy = (each.double() for each in inputs)
    if operation == "logsumexp":
        return torch.logsumexp(x, dim)
    if operation == "logsumexp_backward":
        m = x.amax(dim, keepdim=True)
        p = torch.where(m == INF, (x - m).exp(), torch.softmax(x, dim))
        return dy[0].unsqueeze(dim) * p
    if not dy:
        return (torch.log_softmax if operation == "log_softmax" else torch.softmax)(x, dim)
    if operation == "log_softmax_backward":
        return dy[0] - x.exp() * dy[0].sum(dim, keepdim=True)
    return x * (dy[0] - (x * dy[0]).sum(dim, keepdim=True))


def assert_result(
    operation: str, actual: torch.Tensor, inputs: tuple[torch.Tensor, ...], dim: int = 1
) -> None:
    """The answer is right up to the rounding of the dtype.

    Log-sum-exp scales x by log2(e) before it subtracts m, and each product may be rounded by
    |m|·2⁻²⁴, where a GPU rounds once and the interpreter twice. A sum of dy of both signs is as
    exact as its terms, not as their sum; and where the interpreter truncates, a difference of
    16-bit numbers is off by a unit of theirs.
    """
    dtype = actual.dtype
    wanted = expected(operation, inputs, dim)
    if operation == "logsumexp":
        finite = torch.nan_to_num(inputs[0].double(), 0.0, 0.0, 0.0)
        largest = finite.abs().amax(dim).max().item()
        rounding = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-22}
        of_largest = rounding.get(dtype, 2**-50)
        torch.testing.assert_close(
            actual.double(), wanted, rtol=0, atol=of_largest * (largest + 2.0), equal_nan=True
        )
        return
    atol = None
    if operation != "softmax":
        if dtype.itemsize == 2:
            atol = {"log_softmax": 1e-3, "log_softmax_backward": 2e-3}.get(operation)
        elif dtype == torch.float32 and operation != "log_softmax":
            atol = 1e-5
    assert_near(actual, wanted, atol=atol)


HOSTILE = [
    [0.0, -INF, 1.0],
    [-INF] * 3,
    [-INF, -INF, -3.0],
    [0.0, INF, 1.0],
    [INF, INF, -INF],
    [INF] * 3,
    [INF, NAN, 0.0],
    [0.0, NAN, 1.0],
    [-INF, NAN, -INF],
    [NAN] * 3,
    [1e30, -1e30, 1e30],
    [-1e30, -1e30, 0.0],
    [-1e30, -1e30, -1e30],
    [INF, 1e30, -1e30],
    [88.0, 89.0, 104.0],
    [1e4, 1e4 + 1, 1e4 - 1],
    [-1e4, -1e4 + 1, -1e4 - 1],
    [LARGEST] * 3,
    [-LARGEST] * 3,  # what a mask is filled with
    [-LARGEST, 1.0, 2.0],
    [LARGEST, 1.0, -1e30],
    [LARGEST, NAN, 1.0],
    [-1e10, -1e10, -3e10],
    [2.0**29, 2.0**29 - 32, 2.0**29 - 64],
    [2.0**29 - 32, 2.0**29 - 32, 2.0**28],
    [2.0**59, 2.0**59, 0.0],
]
"""Rows of three that a careless softmax gets wrong."""


def hostile(n_cols: int, places: tuple[int, int, int], fill: float = -INF) -> torch.Tensor:
    """`HOSTILE` with its elements in these columns, and `fill` in all others."""
    x = torch.full((len(HOSTILE), n_cols), fill)
    x[:, places] = torch.tensor(HOSTILE)
    return x.to(DEVICE)


def hostile_operands(operation: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Hostile rows as the inputs of an operation: y and dy of a backward pass, else x itself."""
    if OPERATIONS[operation].numbers:
        return x, weights(len(x), x.dtype)
    if not operation.endswith("backward"):
        return (x,)
    y = (torch.log_softmax if operation.startswith("log_") else torch.softmax)(x, 1)
    return y, matrix(*x.shape, x.dtype, scale=1.0)


def assert_as_torch(
    operation: str, actual: torch.Tensor, inputs: tuple[torch.Tensor, ...], dim: int = 1
) -> None:
    """Row by row what PyTorch answers: NaN for NaN, infinities with their sign, and numbers as
    near as the row's own size allows."""
    wanted = expected(operation, inputs, dim)
    for i in range(len(wanted)):
        row = tuple(each[i : i + 1] for each in inputs)
        if operation == "logsumexp":
            assert_result(operation, actual[i : i + 1], row, dim)
        else:
            assert_near(actual[i], wanted[i])


NEAR = {
    torch.float16: (2**-10, 1e-6),
    torch.bfloat16: (2**-7, 1e-6),
    torch.float32: (2e-5, 2e-6),
    torch.float64: (1e-12, 1e-13),
}
"""Relative and absolute errors, by dtype."""


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
    rtol, least = NEAR[dtype or actual.dtype]
    near = {"rtol": rtol, "atol": least if atol is None else atol, "equal_nan": True}
    torch.testing.assert_close(actual.double(), expected.double(), **near)


def launched(plan) -> tuple[str, ...]:
    """The kernels that a plan launches, by their geometries."""
    return tuple(map(name_of, plan.launches))


def modified_by_operators(name: str, x: torch.Tensor, dim: int, given: dict) -> torch.Tensor:
    """Softmax or log-softmax with maps, by PyTorch's operators; `given` are the maps by name."""
    modifiers = arguments.as_modifiers(x, dim % x.dim(), arguments.Modifiers(**given))
    log = name == "log_softmax"
    return composite.modified_softmax(log, x, dim % x.dim(), x.dtype, modifiers)


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

    def reads_of(self, *tensors: torch.Tensor) -> int:
        """How often any element of these tensors was loaded."""
        wanted = np.concatenate([self._addresses(tensor) for tensor in tensors])
        return int(np.isin(np.concatenate(self.loads), wanted).sum())

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

    def watched(shipped, noted):
        def access(pointers, *others):
            mask = others[noted is accesses.stores].data
            places = np.broadcast_to(pointers.data, mask.shape)[mask.astype(bool)]
            noted.append(places.astype(np.int64))
            return shipped(pointers, *others)

        return access

    builder.create_masked_load = watched(builder.create_masked_load, accesses.loads)
    builder.create_masked_store = watched(builder.create_masked_store, accesses.stores)
    try:
        yield accesses
    finally:
        del builder.create_masked_load, builder.create_masked_store
