"""Cross-entropy and the token functions on a GPU: every geometry, in place, and the memory."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from in_float64 import tokens_of
from softmax_bench.measure import CudaTimer
from triton_softmax import (
    cross_entropy,
    linear_cross_entropy,
    logsumexp,
    selective_log_softmax_and_entropy,
    token_logprobs,
)

pytestmark = pytest.mark.gpu

ROWS = ((64, 10), (300, 1000), (33, 4097), (1000, 16387), (600, 50257), (300, 128256), (3, 262145))
COLUMNS = ((8, 100, 14, 14), (4, 5000, 64), (2, 40000, 64))
RELATIVE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 3e-3}
every_dtype = pytest.mark.parametrize("dtype", RELATIVE, ids=str)


def near(actual: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Up to the rounding of the dtype, of the largest number."""
    error = (actual.double() - wanted).abs().max() / wanted.abs().max()
    assert error <= RELATIVE[dtype]


def compare(ours, theirs, x: torch.Tensor, target: torch.Tensor, **options) -> None:
    """Results and the gradient, as a tensor of its own and in place of x."""
    wide = x.detach().double().requires_grad_()
    wanted = theirs(wide, target, **options)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    g = [0.5 + torch.rand_like(each) for each in wanted]
    (exact,) = torch.autograd.grad(wanted, wide, g)
    for in_place in (False, True):
        found = ours(x * 1, target, inplace_backward=in_place, **options)
        found = found if isinstance(found, tuple) else (found,)
        for actual, each in zip(found, wanted, strict=True):
            near(actual, each, torch.float32)
        (dx,) = torch.autograd.grad(found, x, [each.to(y) for each, y in zip(g, found)])
        near(dx, exact, x.dtype)


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (3 * torch.randn(shape, device="cuda")).to(dtype).requires_grad_()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@every_dtype
@pytest.mark.parametrize("shape", ROWS + COLUMNS, ids=str)
def test_loss_and_gradient(shape, dtype, smoothing):
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), device="cuda")
    target.view(-1)[1] = -100
    ours = partial(cross_entropy, loss_dtype=torch.float32)
    x = drawn(shape, dtype)
    compare(ours, functional.cross_entropy, x, target, label_smoothing=smoothing)


OPTIONS = {
    "plain": {},
    "masked": {"temperature": 0.7},
    "several": {"scale": 0.3, "temperature": 0.7},
    "scaled": {"scale": 0.3, "temperature": 0.7},
    "capped": {"scale": -0.3, "softcap": 5.0, "temperature": 0.7},
}


@pytest.mark.parametrize("name", OPTIONS)
@every_dtype
@pytest.mark.parametrize("shape", [*ROWS, (2, 151_936)], ids=str)
def test_tokens(shape, dtype, name):
    """Whole rows, and few that are cut; slices of longer ones, of which every other is masked."""
    (rows, n_cols), options = shape, dict(OPTIONS[name])
    x = drawn((rows, n_cols + 5 * (name == "masked")), dtype)[:, :n_cols]
    index = torch.randint(0, n_cols, (rows, *(3,) * (name == "several")), device="cuda")
    if name == "masked":
        options["row_mask"] = kept = torch.arange(rows, device="cuda", dtype=torch.int32) % 2
        x = x.detach()
        x[kept == 0] = torch.nan
        x.requires_grad_()
    ours, theirs = (partial(f, return_entropy=True) for f in (token_logprobs, tokens_of))
    compare(ours, theirs, x, index, **options)


def test_in_place_takes_no_memory_to_speak_of():
    x = torch.randn(4096, 32000, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, 32000, (4096,), device="cuda")
    cross_entropy(x * 1, target, inplace_backward=True)
    logits = x * 1
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss = cross_entropy(logits, target, inplace_backward=True)
    torch.cuda.synchronize()
    assert loss.isfinite() and torch.cuda.max_memory_allocated() - before < 2**20


def test_one_token_each_takes_the_time_of_a_read():
    """A read is taken as log-sum-exp, which computes less of the same numbers; any temperature."""
    x = torch.randn(4096, 151_936, device="cuda").bfloat16()
    index = torch.zeros(4096, dtype=torch.int64, device="cuda")
    timer = CudaTimer()

    def least(call):
        call()  # compiles
        return min(timer(call))

    read = least(lambda: logsumexp(x, -1))
    for temperature in (1.0, 0.7):
        took = least(partial(selective_log_softmax_and_entropy, x, index, temperature))
        assert took <= 1.1 * read, (took, read)


def test_a_layers_gradient_adds_up_in_float32_over_chunks():
    """Its error does not grow with the chunks, and it takes at most 3 % longer than in 16 bits,
    whose chunks are half as large; printed with `-s`."""
    n, k, c = 8192, 2048, 151_936
    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("too little memory")
    generator = torch.Generator("cuda").manual_seed(0)
    of = {"device": "cuda", "dtype": torch.bfloat16, "generator": generator}
    x = torch.randn(n, k, **of).requires_grad_()
    layer = (torch.randn(c, k, **of) / k**0.5).requires_grad_()
    target = torch.randint(0, c, (n,), device="cuda", generator=generator)

    def step(**given):
        return torch.autograd.grad(linear_cross_entropy(x, layer, target, **given), (x, layer))

    whole = step(chunk_size=n)[1].float()
    for chunk_size in (1024, 256):
        cut, rounded = (
            (step(chunk_size=chunk_size, accum_dtype=dtype)[1] - whole).norm() / whole.norm()
            for dtype in (None, torch.bfloat16)
        )
        print(f"{n // chunk_size} chunks, relative to one: {cut:.2e}, {rounded:.2e} in 16 bits")
        assert cut < 3e-3 and cut < rounded
    timer = CudaTimer()
    took = {}
    for dtype in (None, torch.bfloat16, None, torch.bfloat16):
        step(accum_dtype=dtype)
        took[dtype] = min(took.get(dtype, math.inf), *timer(partial(step, accum_dtype=dtype)))
    print(f"a step: {took[None]:.0f} µs, {took[torch.bfloat16]:.0f} µs in 16 bits")
    assert took[None] < 1.03 * took[torch.bfloat16]
