"""What Triton's interpreter does not show, for every kernel that depends on it.

- A GPU's maximum and minimum drop NaN. (`kernel_cases` makes those of the interpreter do so.)
- A GPU may flush numbers below the smallest normal one to 0.
- A GPU fuses a multiplication and an addition, approximates exp2, log and division, and converts
  to 16 bits itself.
- An access outside a tensor finds its neighbours, in vectors too; NumPy has bounds.
- NumPy widens integers where a GPU wraps around at 2³¹.
- A class out of range is an assertion on the device; on a CPU the values are read before.
"""

import itertools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import triton_softmax as ours
from triton_softmax import composite

pytestmark = pytest.mark.gpu

INF, NAN = float("inf"), float("nan")
SMALLEST = torch.finfo(torch.float32).smallest_normal

LAYOUTS = {
    "packed_rows": ((64, 48), 1, torch.float32),
    "aligned_rows": ((64, 133), 1, torch.float32),
    "split_rows": ((6, 200_001), 1, torch.float32),
    "strided": ((6, 50, 33), 1, torch.float32),
    "split_strided": ((6, 9000, 64), 1, torch.float32),
    "two_pass": ((6, 100_000, 3), 1, torch.float32),
    "two_pass of doubles": ((6, 9001), 1, torch.float64),
}
"""A shape, dimension and dtype for each kernel that reduces rows or columns."""
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def last_class(x: Tensor, dim: int) -> Tensor:
    rows = x.detach().select(dim, 0)
    return torch.full(rows.shape, x.shape[dim] - 1, device=x.device)


def losses(x: Tensor, dim: int, function: Callable[..., Tensor], **given) -> Tensor:
    return function(x, last_class(x, dim), reduction="none", **given)


def of_tokens(x: Tensor, dim: int, function: Callable[..., tuple[Tensor, ...]]) -> Tensor:
    return torch.stack(function(x.movedim(dim, -1), last_class(x, dim)))


def safe(x: Tensor, dim: int) -> Tensor:
    return composite.modified_softmax(False, x, dim, x.dtype, ours.arguments.Modifiers(safe=True))


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "softmax": (ours.softmax, torch.softmax),
    "log_softmax": (ours.log_softmax, torch.log_softmax),
    "logsumexp": (ours.logsumexp, torch.logsumexp),
    "safe": (partial(ours.softmax, safe=True), safe),
    "cross_entropy": (
        lambda x, dim: losses(x, dim, ours.cross_entropy),
        lambda x, dim: losses(x, dim, F.cross_entropy),
    ),
    "smoothed": (
        lambda x, dim: losses(x, dim, ours.cross_entropy, label_smoothing=0.1),
        lambda x, dim: losses(x, dim, F.cross_entropy, label_smoothing=0.1),
    ),
    "tokens": (
        lambda x, dim: of_tokens(x, dim, partial(ours.token_logprobs, return_entropy=True)),
        lambda x, dim: of_tokens(x, dim, lambda x, i: composite.token_logprobs(x, i, True)),
    ),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def drawn(layout: str, scale: float = 3.0) -> tuple[Tensor, int]:
    shape, dim, dtype = LAYOUTS[layout]
    generator = torch.Generator("cuda").manual_seed(len(layout))
    x = torch.randn(shape, generator=generator, device="cuda", dtype=dtype)
    return scale * x, dim


def gradients(function: Callable[..., Tensor], x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x, dim)
    dy = torch.linspace(-1.0, 1.0, y.numel(), device="cuda", dtype=torch.float64).view(y.shape)
    return y.detach(), torch.autograd.grad(y, x, dy.to(y.dtype))[0]


def assert_near(got: Tensor, want: Tensor, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=atol, equal_nan=True)


@every_layout
@every_function
def test_rows_of_nan_and_infinity(name, layout):
    x, dim = drawn(layout)
    first, n = x.movedim(dim, 0), x.shape[dim]
    for row, at in enumerate((0, n // 2, n - 1)):
        first[:, row] = -INF
        first[at, row] = NAN
    first[n // 3, 3] = INF
    first[n // 2, 4] = NAN
    function, reference = FUNCTIONS[name]
    got, want = function(x, dim), reference(x.double(), dim)
    assert_near(got, want)
    assert_near(gradients(function, x, dim)[1].movedim(dim, 0)[:, 5:], gradients(
        reference, x.double(), dim)[1].movedim(dim, 0)[:, 5:])  # fmt: skip


@every_layout
@every_function
def test_numbers_below_the_smallest_normal_one(name, layout):
    """They may be lost, and nothing else may be."""
    function, reference = FUNCTIONS[name]
    x, dim = drawn(layout, scale=1e-39)
    assert_near(function(x, dim), reference(x.double(), dim))
    far, dim = drawn(layout, scale=30.0)  # results down to 0
    y, dx = gradients(function, far, dim)
    want, exact = gradients(reference, far.double(), dim)
    assert_near(y, want, rtol=2e-5, atol=1e-4 if y.abs().max() > 1 else 2 * SMALLEST)
    assert_near(dx, exact, atol=2e-6)
    small = far.detach().requires_grad_()
    y = function(small, dim)
    (dx,) = torch.autograd.grad(y, small, torch.full_like(y, 1e-39))
    assert dx.isfinite().all() and dx.abs().max() < 1e-33


@every_layout
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "safe"])
def test_results_are_rounded_to_the_nearest(name, dtype, layout):
    """Not towards 0, which has twice the error."""
    function, reference = FUNCTIONS[name]
    x, dim = drawn(layout)
    x = x.to(dtype)
    got, want = function(x, dim).double(), reference(x.double(), dim)
    half = torch.finfo(dtype).eps / 2
    error = (got - want).abs() - 1.01 * half * want.abs()
    assert error.max() <= torch.finfo(dtype).smallest_normal


@every_layout
@every_function
def test_neighbours_are_neither_read_nor_written(name, layout):
    function, reference = FUNCTIONS[name]
    x, dim = drawn(layout)
    for gap in (1, 64):
        memory = x.new_full((x.numel() + 2 * gap,), NAN)
        inside = memory[gap : gap + x.numel()].view(x.shape).copy_(x)
        y, dx = gradients(function, inside, dim)
        want, exact = gradients(reference, x.double(), dim)
        assert_near(y, want, rtol=2e-5, atol=2e-5)
        assert_near(dx, exact, rtol=2e-5, atol=2e-5)
        if name in ("softmax", "log_softmax", "safe"):
            function(inside, dim, out=inside)
            assert_near(inside, want, rtol=2e-5, atol=2e-5)
        assert memory[:gap].isnan().all() and memory[-gap:].isnan().all()


WIDE = {
    "rows": ((70_001, 40_003), 1),
    "long rows": ((9, 300_000_007), 1),
    "columns": ((2, 40_003, 36_001), 1),
}
"""More than 2³¹ elements."""


@pytest.mark.parametrize("shape, dim", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("name", ["softmax", "safe", "logsumexp", "cross_entropy", "tokens"])
def test_more_elements_than_32_bits_count(name, shape, dim):
    function, reference = FUNCTIONS[name]
    if name == "tokens" and dim != len(shape) - 1:
        pytest.skip("rows alone")
    torch.cuda.empty_cache()
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()

    def last(t: Tensor) -> Tensor:
        """The end of a tensor, of which the reference is computed."""
        if len(shape) == 3:
            return t[-1:, ..., -5:]
        return t[-1:] if t.shape == shape else t[..., -1:]

    y = function(x, dim)
    dy = x.detach() if y.shape == shape else torch.ones_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    part = last(x.detach()).double().requires_grad_()
    want = reference(part, dim)
    (exact,) = torch.autograd.grad(want, part, last(dy).double())
    for found, wanted in ((y, want), (dx, exact)):
        assert_near(
            last(found).detach(), wanted.detach(), rtol=3e-2, atol=1e-2 * wanted.abs().max().item()
        )


TAKES_CLASSES = {
    "cross_entropy": "s.cross_entropy(x, c)",
    "smoothed and weighted": "s.cross_entropy(x, c, w, label_smoothing=0.1)",
    "gaps": "s.cross_entropy(x[:, ::2], c)",
    "linear_cross_entropy": "s.linear_cross_entropy(x, w.diag(), c)",
    "linear with weights": "s.linear_cross_entropy(x, w.diag(), c, weight=w)",
    "token_logprobs": "s.token_logprobs(x, c)",
    "several": "s.token_logprobs(x, torch.stack([c, c], -1))",
    "selective_log_softmax": "s.selective_log_softmax(x, c)",
    "selective_log_softmax_and_entropy": "s.selective_log_softmax_and_entropy(x, c)",
}
CHILD = """
import torch, triton_softmax as s
x = torch.randn(4, 9, device="cuda", requires_grad=True)
c, w = torch.tensor([0, {wrong}, 1, 2], device="cuda"), torch.ones(9, device="cuda")
found = {call}
torch.cuda.synchronize()
print("answered", found)
"""


def refuses(call: str, wrong: int) -> str | None:
    """Return what a process says that does not end by an assertion on the device, or None."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD.format(call=call, wrong=wrong)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if child.returncode and "device-side assert" in child.stderr:
        return None
    return f"{call} with class {wrong}: {child.stdout}{child.stderr[-300:]}"


def test_classes_out_of_range_are_refused_by_every_function():
    """Those of 64 bits too, whose lower half is a class."""
    cases = itertools.product(TAKES_CLASSES.values(), (-1, -3, 9, 2**32 + 1))
    with ThreadPoolExecutor(6) as pool:  # most of its time a process imports and compiles
        found = pool.map(lambda case: refuses(*case), cases)
    wrong = [each for each in found if each]
    assert not wrong, "\n".join(wrong)
