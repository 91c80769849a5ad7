"""A dimension whose elements lie apart: in tiles that hold all of it, in tiles that wait for each
other, and in loops."""

import pytest
import torch

from geometries import FORMS
from kernel_cases import OPERATIONS, assert_near, expected, matrix, quiet

pytestmark = quiet
STRIDED = {label: form for label, form in FORMS.items() if form.by_columns}
EVERY_FORM = pytest.mark.parametrize("form", STRIDED.values(), ids=STRIDED)
ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


def run(operation, inputs, form, *, out=None, **options) -> torch.Tensor:
    """Along the middle dimension of (n_outer, n_cols, n_inner)."""
    op, x = OPERATIONS[operation], inputs[0]
    if out is None:
        out = torch.full_like(x[:, 0] if op.reduces else x, float("nan"))
    form.launch(op, inputs, (out,), **options)
    return out


def cube(*shape, dtype=torch.float32, seed=0, scale=4.0):
    """A tensor amid NaN with gaps along every dimension."""
    n_outer, n_cols, n_inner = shape
    flat = matrix(n_outer * (n_cols + 1), n_inner, dtype, gap=3, seed=seed, scale=scale)
    return flat.as_strided(
        shape, (flat.stride(0) * (n_cols + 1), flat.stride(0), 1), flat.storage_offset()
    )


def cubes(operation, *shape, dtype=torch.float32):
    """The inputs of an operation along the middle of such a tensor."""
    x = cube(*shape, dtype=dtype)
    if OPERATIONS[operation].numbers:
        return x, matrix(shape[0], shape[2], dtype, gap=3, seed=1, scale=1.0)
    if not operation.endswith("backward"):
        return (x,)
    y = x.copy_((torch.log_softmax if "log" in operation else torch.softmax)(x.double(), 1))
    return y, cube(*shape, dtype=dtype, seed=1, scale=1.0)


@pytest.mark.parametrize(
    "operation, orders",
    [("softmax", ORDERS[:2]), ("softmax_backward", ORDERS[2:4]), ("logsumexp", ORDERS[4:])],
    ids=str,
)
@EVERY_FORM
def test_every_order_of_dimensions(form, operation, orders):
    """With a stride of 0 in dy, and a result in the same order."""
    storage = cube(2, 3, 5)
    for order in orders:
        x = storage.permute(order)
        out = torch.empty_like(storage).permute(order)
        inputs = (x, x[:1].expand(x.shape)) if operation.endswith("backward") else (x,)
        out = out[:, 0] if operation == "logsumexp" else out
        result = run(operation, inputs, form, inner=8, cols=2, out=out)
        assert_near(result, expected(operation, inputs), atol=1e-4)


@pytest.mark.parametrize("operation", ["softmax_backward", "logsumexp", "logsumexp_backward"])
@EVERY_FORM
def test_vectors_and_wide_offsets_change_nothing(form, operation):
    """A vector divides all lines; offsets take 64 bits. With two inputs, with a number for each
    strand as result, and as input."""
    inputs = tuple(each[..., :8].contiguous() for each in cubes(operation, 2, 9, 12))
    how = {"inner": 8, "cols": 4}
    result = run(operation, inputs, form, **how)
    for of, wide in ((2, True), (4, False)):
        assert torch.equal(run(operation, inputs, form, of=of, wide=wide, **how), result)
