"""`selective_log_softmax_and_entropy`, TRL's function, and `token_logprobs` behind it: values,
gradients, masks, temperature, scale and soft cap, several tokens a row, errors.

Rows that are cut over ranks are in `distributed/test_ranks.py`.
"""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import probe
from kernel_cases import DEVICE, drawn, quiet
from triton_softmax import (
    arguments,
    composite,
    plan,
    selective_log_softmax,
    selective_log_softmax_and_entropy,
    softmax,
    token_logprobs,
)
from triton_softmax.plan import tokens as plan_tokens

pytestmark = quiet
INF, NAN = float("inf"), float("nan")
F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16


def tokens(*shape: int, classes: int, dtype: torch.dtype = torch.int64) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, classes, shape, generator=generator).to(DEVICE, dtype)


def masks(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    """Every third row is masked, the first among them."""
    every_third = torch.arange(int(torch.Size(shape).numel())).view(shape) % 3
    return (-every_third).to(DEVICE, dtype)  # not 0 keeps, whatever else it is


def reference(
    logits: Tensor,
    index: Tensor,
    temperature: float | Tensor = 1.0,
    row_mask: Tensor | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Both in float64, by PyTorch's operators."""
    columns = index.long() if index.dim() == logits.dim() else index.long().unsqueeze(-1)
    kept = torch.ones_like(columns[..., 0], dtype=torch.bool) if row_mask is None else row_mask != 0
    rows, columns = kept.unsqueeze(-1), columns.where(kept.unsqueeze(-1), 0)
    z = logits.masked_fill(~rows, 0.0).double() * scale
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    logs = (z / temperature).log_softmax(-1)
    found = logs.gather(-1, columns).where(rows, 0.0).view(index.shape)
    entropies = -(logs.exp() * logs.masked_fill(logs == -INF, 0.0)).sum(-1)
    return found, entropies.where(kept, 0.0)


def gradient_of(function, x: Tensor, *args, **options) -> tuple[Tensor, Tensor, Tensor]:
    """Both results, and the gradient at x of one number that depends on each of them."""
    leaf = x.detach().requires_grad_()
    found, entropies = function(leaf, *args, **options)
    weights = torch.linspace(0.5, 1.5, found.numel(), device=x.device).view(found.shape)
    of_rows = weights[..., 0] if found.dim() > entropies.dim() else weights
    total = (found * weights).sum() + (entropies * of_rows.cos()).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return found.detach(), entropies.detach(), gradient


def check(x: Tensor, index: Tensor, *args, rtol: float = 2e-5, **options) -> None:
    got = gradient_of(selective_log_softmax_and_entropy, x, index, *args, **options)
    want = gradient_of(reference, x.double(), index, *args, **options)
    wide = torch.promote_types(x.dtype, F32)
    assert [each.dtype for each in got] == [wide, wide, x.dtype]
    atol = {F64: 1e-12, F32: 2e-6, F16: 1e-3, BF16: 8e-3}[x.dtype]
    rtol = 1e-10 if x.dtype == F64 else rtol
    for each, wanted in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(each.double(), wanted, rtol=rtol, atol=rtol)
    torch.testing.assert_close(got[2].double(), want[2].double(), rtol=4 * atol, atol=atol)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("shape", [(9,), (4, 1000), (2, 3, 2056), (2, 2, 1, 33), (3, 8192)])
def test_values_and_gradients(shape, temperature, dtype):
    check(drawn(*shape, scale=3.0, dtype=dtype), tokens(*shape[:-1], classes=9), temperature)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_masked_rows_are_not_looked_at(temperature, dtype):
    x, mask = drawn(2, 5, 1032, scale=3.0, dtype=F32), masks(2, 5, dtype=dtype)
    index = tokens(2, 5, classes=1032, dtype=torch.int32)
    x[mask == 0], index[mask == 0] = NAN, -100
    x[0, 3, 7] = INF  # in a row that is masked too
    check(x, index, temperature, mask)


def test_a_mask_may_leave_nothing():
    x = drawn(3, 40, dtype=F32).fill_(NAN)
    index = torch.full((3,), -100, device=DEVICE)
    nothing = torch.zeros(3, dtype=torch.bool, device=DEVICE)
    for each in gradient_of(selective_log_softmax_and_entropy, x, index, row_mask=nothing):
        assert not each.any()


def test_one_row_takes_a_mask_without_dimensions():
    x, index = drawn(5, dtype=F32), torch.tensor(3, device=DEVICE)
    check(x, index, row_mask=torch.tensor(True, device=DEVICE))
    check(x, index - 103, row_mask=torch.tensor(0, device=DEVICE))


STRIDES = {
    "a slice of tokens": lambda x: x[:, 1:3],
    "the first classes": lambda x: x[..., :1024],
    "from an odd class": lambda x: x[..., 3:1027],
    "every other class": lambda x: x[..., ::2],
    "transposed": lambda x: x.transpose(0, 1),
    "classes in front": lambda x: x[..., :9].permute(1, 2, 0),
    "one class": lambda x: x[0, :1, :9].t(),
    "one row for all": lambda x: x[:1].expand(3, -1, -1),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", STRIDES)
def test_any_strides(name, masked):
    x = STRIDES[name](drawn(2, 4, 2064, scale=3.0, dtype=F32))
    index = tokens(*x.shape[:-1], classes=min(x.shape[-1], 2))
    mask = masks(*x.shape[:-1]) if masked else None
    check(x, index, 0.8, row_mask=mask)
    apart = torch.stack([index, index], -1)[..., 0]  # the others may have gaps as well
    check(x, apart, row_mask=None if mask is None else torch.stack([mask, mask], -1)[..., 1])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_what_is_impossible_has_no_share_and_no_gradient(temperature):
    x = drawn(4, 2056, scale=3.0, dtype=F32)
    x[0, ::2], x[1, 5:], x[2, 1:] = -INF, -INF, -INF
    index = torch.tensor([1, 2, 0, 9], device=DEVICE)
    check(x, index, temperature)
    gradient = gradient_of(selective_log_softmax_and_entropy, x, index, temperature)[2]
    assert (gradient[x == -INF] == 0).all()
    found, entropies = selective_log_softmax_and_entropy(x[2], index[2], temperature)
    assert (found, entropies) == (0, 0)  # a certainty
    found, entropies = selective_log_softmax_and_entropy(x[1], index[1] + 6, temperature)
    assert found == -INF and entropies.isfinite()


def test_large_logits_keep_their_digits():
    x = 1e4 + drawn(3, 2056, scale=3.0, dtype=F32)
    check(x, tokens(3, classes=2056), rtol=2e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_both_results_may_be_changed_before_the_backward_pass(temperature):
    x, index = drawn(3, 1032, dtype=F32).requires_grad_(), tokens(3, classes=1032)
    mask = masks(3)
    for row_mask in (None, mask):
        wanted = reference(x, index, temperature, row_mask)
        (wanted[0][1:].sum() + 2 * wanted[1][:2].sum()).backward()
        gradient, x.grad = x.grad, None
        found, entropies = selective_log_softmax_and_entropy(x, index, temperature, row_mask)
        found[0], entropies[2] = 7.0, -7.0
        (found[1:].sum() + 2 * entropies[:2].sum()).backward()
        torch.testing.assert_close(x.grad, gradient.float())
        x.grad = None


def test_gradients_of_one_result_alone():
    x, index = drawn(3, 1032, dtype=F64).requires_grad_(), tokens(3, classes=1032)
    mine = selective_log_softmax_and_entropy(x, index, 0.9, masks(3))
    wanted = reference(x, index, 0.9, masks(3))
    for one, other in zip(mine, wanted, strict=True):
        got = torch.autograd.grad(one.sum(), x, retain_graph=True)
        torch.testing.assert_close(got, torch.autograd.grad(other.sum(), x, retain_graph=True))


SCALINGS = {
    "scale": {"scale": 0.3},
    "negative scale": {"scale": -0.3},
    "soft cap": {"softcap": 2.0},
    "both": {"scale": 1.7, "softcap": 5.0},
}


@pytest.mark.parametrize("dtype", [F64, F32, BF16], ids=str)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", SCALINGS)
def test_scale_and_soft_cap(name, several, dtype):
    """Before the temperature, in rows that are masked, cut at odd places or over ±∞."""
    more, last = SCALINGS[name], (2,) * several
    for shape in ((2, 3, 2056), (4, 33)):
        x, rows = drawn(*shape, scale=3.0, dtype=dtype), shape[:-1]
        index, mask = tokens(*rows, *last, classes=33), masks(*rows)
        x[mask == 0], index[mask == 0] = NAN, -100
        check(x, index, 0.7, row_mask=mask, **more)
        by_rows = torch.linspace(0.5, 2.0, mask.numel(), device=DEVICE).view(*rows, 1)
        check(x, index, by_rows.to(F64), row_mask=mask, **more)
    x = drawn(2, 40, dtype=dtype)
    x[:, 3], x[1, 5] = -INF, INF if "softcap" in more else 1.0
    if name != "negative scale":
        check(x, tokens(2, *last, classes=3), **more)


@pytest.mark.parametrize(
    "n_cols, dtype, more",
    [(2048, F32, {}), (2048, BF16, {}), (2051, BF16, {}), (2051, F32, {})]
    + [(2051, F32, more) for more in SCALINGS.values()],
    ids=str,
)
def test_few_rows_are_cut(n_cols, dtype, more, monkeypatch):
    """The programs of a first launch share a row, and a second launch merges what they found."""
    monkeypatch.setattr(plan_tokens, "SHORTEST", 300)
    monkeypatch.setattr(plan_tokens, "MAX_LANES", 32)
    probe.forget()
    x, mask = drawn(3, n_cols, scale=3.0, dtype=dtype), masks(3)
    if not more:
        x[1], x[2, :700] = -INF, -INF  # a whole chunk, and some
        x[1, -1] = 1.0
    index = tokens(3, classes=n_cols)
    with probe.launches() as ran:
        check(x, index, 0.7, **more)
    assert ran == ["token_rows_kernel"] * 2 + ["token_gradient_kernel"]
    check(x, index, 1.0, mask, **more)
    probe.forget()


@pytest.mark.parametrize("tiles", [0.5, 1, 4, 7])
def test_a_row_is_cut_into_as_many_chunks_as_it_has_tiles(tiles):
    """The rows of one program need no words of their own."""
    x = torch.empty(1, int(tiles * plan_tokens.SHORTEST), device=DEVICE)
    made = plan_tokens.plan_of_tokens((x, None, None, None), 1.0, None, False, False)
    chunks = max(1, int(tiles))
    assert [each.grid for each in made.launches] == [chunks] + [1] * (chunks > 1)
    assert made.workspace.n_words == (3 * chunks if chunks > 1 else 0)


@pytest.mark.parametrize("name", SCALINGS)
def test_scale_and_soft_cap_in_every_batch(name):
    more = {**SCALINGS[name], "temperature": 0.7, "batch_invariant": True}
    x, index = drawn(5, 1033, scale=3.0, dtype=F32).requires_grad_(), tokens(5, classes=1033)
    results = []
    for rows in (slice(None), slice(2, 3)):
        found, entropies = selective_log_softmax_and_entropy(x[rows], index[rows], **more)
        (gradient,) = torch.autograd.grad((found + entropies).sum(), x)
        results.append((found[2 if rows == slice(None) else 0], gradient[2]))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("name", SCALINGS)
def test_scale_and_soft_cap_are_differentiated_again_and_compiled(name):
    x, index = drawn(3, 6, dtype=F64).requires_grad_(), tokens(3, classes=6)

    def both(x):
        return selective_log_softmax_and_entropy(x, index, 0.8, masks(3), **SCALINGS[name])

    assert torch.autograd.gradgradcheck(both, x)
    total = lambda x: sum(each.sum() for each in both(x))  # noqa: E731
    for of in (torch.func.grad, lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)):
        got, want = of(total)(x), total(x)
        if got.dim():
            (want,) = torch.autograd.grad(want, x)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_a_mask_of_rows_with_several_tokens(dtype):
    x, mask = drawn(2, 5, 1032, scale=3.0, dtype=dtype), masks(2, 5)
    index = tokens(2, 5, 3, classes=1032)
    x[mask == 0], index[mask == 0] = NAN, -100
    check(x, index, 0.7, row_mask=mask)
    leaf = x.requires_grad_()
    found = selective_log_softmax(leaf, index, 0.7, mask)
    torch.testing.assert_close(found.double(), reference(x, index, 0.7, mask)[0])


def test_a_temperature_that_is_not_positive_gives_nan_by_kernels_and_by_operators(monkeypatch):
    x, index = drawn(3, 40, dtype=F32), tokens(3, classes=40)
    each = torch.tensor([[-1.0], [0.0], [1.0]], device=DEVICE)
    for interpreted in (arguments.INTERPRETED, False):
        monkeypatch.setattr(arguments, "INTERPRETED", interpreted)
        probe.forget()
        for results in selective_log_softmax_and_entropy(x, index, each):
            assert results.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("masked", [False, True])
def test_higher_derivatives(masked):
    both, mask = selective_log_softmax_and_entropy, masks(3) if masked else None
    x, index = drawn(3, 1032, dtype=F32).requires_grad_(), tokens(3, classes=1032)
    second = []
    for function in (both, reference):
        total = sum(each.sin().sum() for each in function(x, index, 0.8, mask))
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        second += torch.autograd.grad(first.square().sum(), x)
    torch.testing.assert_close(*second)
    x, index = drawn(3, 6, dtype=F64).requires_grad_(), tokens(3, classes=6)
    assert torch.autograd.gradgradcheck(lambda x: both(x, index, 0.8, mask), x)
    with torch.no_grad():
        total = lambda f: lambda x: sum(each.sum() for each in f(x, index, 0.8, mask))  # noqa: E731
        got, want = (torch.func.hessian(total(each))(x) for each in (both, reference))
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("n_cols", [6, 1032])
def test_batched_gradients(n_cols):
    x, index = drawn(3, n_cols, dtype=F32).requires_grad_(), tokens(3, classes=6)
    both = selective_log_softmax_and_entropy(x, index, 0.8, masks(3))
    wanted = reference(x, index, 0.8, masks(3))
    several = torch.eye(3, device=DEVICE)
    for one, other in zip(both, wanted, strict=True):
        got = torch.autograd.grad(one, x, several, is_grads_batched=True, retain_graph=True)
        want = torch.autograd.grad(
            other, x, several.double(), is_grads_batched=True, retain_graph=True
        )
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_a_temperature_may_be_a_tensor(dtype):
    """Of fewer bits than the logits, too, which costs no digits."""
    x, index = drawn(3, 40, dtype=F64), tokens(3, classes=40)
    each = torch.tensor([[0.7], [1.0], [3.0]], dtype=dtype, device=DEVICE)
    found, entropies = selective_log_softmax_and_entropy(x, index, each)
    wanted = token_logprobs(x / each, index, return_entropy=True)
    torch.testing.assert_close((found, entropies), wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("masked", [False, True])
def test_compiled_as_a_whole(masked):
    x, index = drawn(2, 3, 257, dtype=F32).requires_grad_(), tokens(2, 3, classes=257)
    mask = masks(2, 3) if masked else None

    def loss(x, index, mask):
        found, entropies = selective_log_softmax_and_entropy(x, index, 0.8, mask)
        return (found + 0.1 * entropies).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(x, index, mask), x)
    torch.testing.assert_close(got, torch.autograd.grad(loss(x, index, mask), x))


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_may_take_the_place_of_the_logits(masked):
    x, index = drawn(2, 3, 2056, dtype=F32), tokens(2, 3, classes=2056)
    mask = masks(2, 3) if masked else None
    wanted = gradient_of(selective_log_softmax_and_entropy, x, index, 0.7, mask)
    both = selective_log_softmax_and_entropy
    leaf = x.clone().requires_grad_()
    logits = leaf * 1.0
    weights = torch.linspace(0.5, 1.5, 6, device=DEVICE).view(2, 3)
    found, entropies = both(logits, index, 0.7, mask, inplace_backward=True)
    ((found * weights).sum() + (entropies * weights.cos()).sum()).backward()
    torch.testing.assert_close(leaf.grad, wanted[2], rtol=0, atol=0)
    assert torch.equal(logits, leaf.grad)


def test_a_new_temperature_plans_and_compiles_nothing():
    """It is a number of each call, of a scale too: the kernel, its constants and its plan stay."""
    x, index = drawn(2, 2056, dtype=F32).requires_grad_(), tokens(2, classes=2056)

    def calls(temperature):
        check(x, index, temperature)
        softmax(x, scale=1 / temperature).sum().backward()

    calls(0.3)
    known = len(plan.plans)
    for temperature in (0.31, 0.4, 2.0):
        calls(temperature)
    assert len(plan.plans) == known
    torch._dynamo.reset()
    compilations = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(selective_log_softmax_and_entropy, backend=compilations)
    for temperature in (0.3, 0.31, 0.4, 2.0):
        torch.testing.assert_close(
            compiled(x, index, temperature),
            selective_log_softmax_and_entropy(x, index, temperature),
        )
    assert compilations.frame_count <= 2  # the second makes the number an argument


def test_no_rows():
    x = drawn(0, 8, dtype=BF16).requires_grad_()
    found, entropies = selective_log_softmax_and_entropy(x, tokens(0, classes=8), 0.7, masks(0))
    (found.sum() + entropies.sum()).backward()
    assert found.shape == entropies.shape == (0,) and x.grad.shape == x.shape


X, ROWS = torch.zeros(2, 3, device=DEVICE), torch.zeros(2, dtype=torch.int64, device=DEVICE)
REFUSED = {
    "index of too many": (ValueError, (X, ROWS[:, None, None])),
    "index of too few": (ValueError, (X, ROWS[:1])),
    "index of another shape": (ValueError, (X, ROWS[:1])),
    "mask of another shape": (ValueError, (X, ROWS, 1.0, ROWS[:1])),
    "no dimension": (ValueError, (X[0, 0], ROWS[0])),
    "no classes": (IndexError, (X[:, :0], ROWS)),
    **{f"temperature {t}": (ValueError, (X, ROWS, t)) for t in (0.0, -1.0, INF, NAN)},
    "temperature in words": (TypeError, (X, ROWS, "1")),
    "integers": (TypeError, (X.long(), ROWS)),
    "index of floats": (TypeError, (X, ROWS.float())),
    "index of bytes": (TypeError, (X, ROWS.to(torch.uint8))),
    "no index": (TypeError, (X, None)),
    "mask of floats": (TypeError, (X, ROWS, 1.0, ROWS.float())),
    "mask of bytes": (TypeError, (X, ROWS, 1.0, ROWS.to(torch.uint8))),
    "mask of numbers": (TypeError, (X, ROWS, 1.0, [1, 0])),
    "no tensor": (TypeError, ([[0.0]], ROWS)),
    "index elsewhere": (RuntimeError, (X, ROWS.to("meta"))),
    "mask elsewhere": (RuntimeError, (X, ROWS, 1.0, ROWS.to("meta"))),
    "scale in words": (TypeError, (X, ROWS, 1.0, None, {"scale": "1"})),
    "infinite scale": (ValueError, (X, ROWS, 1.0, None, {"scale": INF})),
    "no soft cap": (ValueError, (X, ROWS, 1.0, None, {"softcap": 0.0})),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    error, args = REFUSED[name]
    with pytest.raises(error):
        selective_log_softmax_and_entropy(*args[:4], **dict(*args[4:]))


@pytest.mark.skipif(DEVICE != "cpu", reason="an assertion of the device")
@pytest.mark.parametrize("wrong", [-1, 3, -100])
def test_an_index_out_of_range_is_refused_in_rows_that_are_kept(wrong):
    x, index = drawn(2, 3, dtype=F32), torch.tensor([0, wrong])
    for row_mask in (None, torch.tensor([0, 1]), torch.tensor([True, True])):
        with pytest.raises(IndexError):
            selective_log_softmax_and_entropy(x, index, row_mask=row_mask)
    check(x, index, row_mask=torch.tensor([True, False]))


def test_a_temperature_of_more_digits_widens_no_result():
    """Neither where PyTorch's operators compute, nor by kernels."""
    x, index = torch.zeros(2, 3, device=DEVICE), torch.tensor([0, 1], device=DEVICE)
    temperature = torch.full((2, 1), 0.5, dtype=torch.float64, device=DEVICE)
    assert composite.tempered(x, temperature).dtype == torch.float32
    assert token_logprobs(x, index, temperature=temperature).dtype == torch.float32
