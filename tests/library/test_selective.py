"""`selective_log_softmax_and_entropy`, TRL's function, and `token_logprobs` behind it: long
rows, masks, layouts, temperatures, errors. What is drawn at random is in `test_derivatives.py`.

Rows that are cut over ranks are in `distributed/test_ranks.py`.
"""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import drawn_calls
import probe
from in_float64 import tokens_of
from kernel_cases import DEVICE, DTYPES, INF, NAN, drawn, quiet
from triton_softmax import (
    arguments,
    composite,
    plan,
    selective_log_softmax_and_entropy,
    softmax,
    token_logprobs,
)
from triton_softmax.plan import tokens as plan_tokens

pytestmark = quiet
F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16
BOTH = [partial(function, return_entropy=True) for function in (token_logprobs, tokens_of)]
"""Ours and the reference."""


def tokens(*shape: int, classes: int, dtype: torch.dtype = torch.int64) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, classes, shape, generator=generator).to(DEVICE, dtype)


def masks(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    """Every third row is masked, the first among them."""
    every_third = torch.arange(int(torch.Size(shape).numel())).view(shape) % 3
    return (-every_third).to(DEVICE, dtype)  # not 0 keeps, whatever else it is


def check(x: Tensor, index: Tensor, **options) -> None:
    """Both results and the gradient; masked rows hold anything."""
    mask = options.get("row_mask")
    if mask is not None:
        x = x.masked_fill((mask == 0).unsqueeze(-1), NAN)
        index = index.masked_fill(
            mask.view(*mask.shape, *(1,) * (index.dim() - mask.dim())) == 0, -100
        )
    drawn_calls.check(drawn_calls.Call(*BOTH, (x.detach().requires_grad_(), index), options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(4, 1000), (2, 3, 2056), (2, 2, 1, 33), (3, 8192)], ids=str)
def test_long_rows(shape, dtype):
    x = drawn(*shape, scale=3.0, dtype=dtype)
    check(x, tokens(*shape[:-1], classes=9), temperature=0.7)
    check(x, tokens(*shape[:-1], 2, classes=9), scale=-0.3, softcap=5.0)


@pytest.mark.parametrize("kept", [masks, torch.zeros], ids=["some", "none"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("several", [(), (2,)], ids=str)
def test_masked_rows_are_not_looked_at(several, dtype, kept):
    mask = kept(2, 5, dtype=dtype).to(DEVICE)
    index = tokens(2, 5, *several, classes=1032, dtype=torch.int32)
    check(drawn(2, 5, 1032, scale=3.0, dtype=F32), index, temperature=1.3, row_mask=mask)


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


@pytest.mark.parametrize("name", STRIDES)
def test_any_strides(name):
    """Of the index and the mask too."""
    x = STRIDES[name](drawn(2, 4, 2064, scale=3.0, dtype=F32))
    index = torch.stack([tokens(*x.shape[:-1], classes=min(x.shape[-1], 2))] * 2, -1)[..., 0]
    check(x, index, temperature=0.8)
    check(x, index, row_mask=torch.stack([masks(*x.shape[:-1])] * 2, -1)[..., 1])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_what_is_impossible_has_no_share_and_no_gradient(temperature):
    x = drawn(4, 2056, scale=3.0, dtype=F32)
    x[0, ::2], x[1, 5:], x[2, 1:] = -INF, -INF, -INF
    index, options = torch.tensor([1, 2, 0, 9], device=DEVICE), {"temperature": temperature}
    check(x, index, **options)
    (_, (gradient,)) = drawn_calls.results_of(BOTH[0], (x.requires_grad_(), index), options)
    assert (gradient[x == -INF] == 0).all()
    found, entropies = BOTH[0](x[2], index[2], **options)
    assert (found, entropies) == (0, 0)  # a certainty
    found, entropies = BOTH[0](x[1], index[1] + 6, **options)
    assert found == -INF and entropies.isfinite()


def test_large_logits_keep_their_digits_and_no_log_probability_is_above_0():
    x = 1e4 + drawn(3, 2056, scale=3.0, dtype=F32)
    check(x, tokens(3, classes=2056))
    assert (token_logprobs(x, x.argmax(-1)) <= 0).all()


@pytest.mark.parametrize("row_mask", [None, masks(3)], ids=["all", "masked"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_results_may_be_changed_and_used_alone_before_the_backward_pass(temperature, row_mask):
    x, index = drawn(3, 1032, dtype=F32).requires_grad_(), tokens(3, classes=1032)
    gradients = []
    for function in BOTH:
        found, entropies = function(x, index, temperature=temperature, row_mask=row_mask)
        gradients.append([
            torch.autograd.grad(each.sum(), x, retain_graph=True)[0] for each in (found, entropies)
        ])  # fmt: skip
        found[0], entropies[2] = 7.0, -7.0
        gradients[-1] += torch.autograd.grad(found[1:].sum() + 2 * entropies[:2].sum(), x)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "n_cols, dtype, more",
    [(2048, F32, {}), (2048, BF16, {}), (2051, BF16, {}), (2051, F32, {})]
    + [(2051, F32, more) for more in ({"scale": 0.3}, {"scale": -0.3}, {"softcap": 2.0})],
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
        check(x, index, temperature=0.7, **more)
    assert ran == ["token_rows_kernel"] * 2 + ["token_gradient_kernel"]
    check(x, index, row_mask=mask, **more)
    probe.forget()


@pytest.mark.parametrize("tiles", [0.5, 1, 4, 7])
def test_a_row_is_cut_into_as_many_chunks_as_it_has_tiles(tiles):
    """The rows of one program need no words of their own."""
    x = torch.empty(1, int(tiles * plan_tokens.SHORTEST), device=DEVICE)
    call = plan_tokens.TokenCall(1.0, 1.0, None, entropy=False, invariant=False)
    made = plan_tokens.plan_of_tokens((x, None, None, None), call)
    chunks = max(1, int(tiles))
    assert [each.grid for each in made.launches] == [chunks] + [1] * (chunks > 1)
    assert made.workspace.n_words == (3 * chunks if chunks > 1 else 0)


def test_a_temperature_that_is_not_positive_gives_nan_by_kernels_and_by_operators(monkeypatch):
    x, index = drawn(3, 40, dtype=F32), tokens(3, classes=40)
    each = torch.tensor([[-1.0], [0.0], [1.0]], device=DEVICE)
    for interpreted in (arguments.INTERPRETED, False):
        monkeypatch.setattr(arguments, "INTERPRETED", interpreted)
        probe.forget()
        for results in selective_log_softmax_and_entropy(x, index, each):
            assert results.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("several", [(), (2,)], ids=str)
@pytest.mark.parametrize("given", [-1.0, 0.0, torch.nan])
@pytest.mark.parametrize("by_kernels", [True, False], ids=["kernels", "operators"])
def test_a_masked_row_has_no_temperature(by_kernels, given, several, monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", by_kernels)
    probe.forget()
    x, kept = drawn(2, 40, dtype=F32).requires_grad_(), torch.tensor([False, True], device=DEVICE)
    each = torch.tensor([[given], [0.5]], device=DEVICE, requires_grad=True)
    found = token_logprobs(x, tokens(2, *several, classes=40), temperature=each, row_mask=kept)
    for zeros in (found, *torch.autograd.grad(found.sum(), (x, each))):
        assert not zeros[0].any() and zeros[1].isfinite().all()


@pytest.mark.parametrize("by_kernels", [True, False], ids=["kernels", "operators"])
def test_an_infinite_temperature_makes_all_classes_alike(by_kernels, monkeypatch):
    """But those of −∞."""
    monkeypatch.setattr(arguments, "INTERPRETED", by_kernels)
    probe.forget()
    x, each = drawn(1, 41, dtype=F32), torch.tensor([[torch.inf]], device=DEVICE)
    x[:, 40] = -torch.inf
    found = selective_log_softmax_and_entropy(x, tokens(1, classes=40), each)
    wanted = torch.full((1,), 40.0, device=DEVICE).log()
    torch.testing.assert_close(found, (-wanted, wanted))


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_a_temperature_may_be_a_tensor(dtype):
    """Of fewer bits than the logits, too, which costs no digits."""
    x, index = drawn(3, 40, dtype=F64), tokens(3, classes=40)
    each = torch.tensor([[0.7], [1.0], [3.0]], dtype=dtype, device=DEVICE)
    found, entropies = selective_log_softmax_and_entropy(x, index, each)
    wanted = token_logprobs(x / each, index, return_entropy=True)
    torch.testing.assert_close((found, entropies), wanted, rtol=0, atol=1e-13)


def test_a_new_temperature_plans_and_compiles_nothing():
    """It is a number of each call, of a scale too: the kernel, its constants and its plan stay."""
    x, index = drawn(2, 2056, dtype=F32).requires_grad_(), tokens(2, classes=2056)

    def calls(temperature):
        BOTH[0](x, index, temperature=temperature)[0].sum().backward()
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


X, ROWS = torch.zeros(2, 3, device=DEVICE), torch.zeros(2, dtype=torch.int64, device=DEVICE)
REFUSED = [
    *(
        (ValueError, "temperature must", {"temperature": each})
        for each in (0.0, -1.0, INF, NAN, torch.ones(2, device=DEVICE))
    ),
    (TypeError, "temperature must be a number", {"temperature": "1"}),
    (TypeError, "temperature must hold", {"temperature": ROWS[:, None]}),
    (ValueError, "need a dimension of classes", {"logits": X[0, 0], "index": ROWS[0]}),
    (ValueError, "index of shape", {"index": ROWS[:, None, None]}),
    (ValueError, "index of shape", {"index": ROWS[:1]}),
    (ValueError, "row_mask of shape", {"row_mask": ROWS[:1]}),
    (TypeError, "row_mask must hold", {"row_mask": ROWS.float()}),
    (TypeError, "row_mask must hold", {"row_mask": ROWS.to(torch.uint8)}),
    (TypeError, "row_mask must be a tensor", {"row_mask": [1, 0]}),
    (TypeError, "scale must be a number", {"scale": "1"}),
    (ValueError, "scale must be finite", {"scale": INF}),
    (ValueError, "softcap must be positive", {"softcap": 0.0}),
]


@pytest.mark.parametrize("error, words, wrong", REFUSED, ids=str)
def test_refused(error, words, wrong):
    """Other kinds of tensors are in `test_matrix.py`."""
    for function in (token_logprobs, selective_log_softmax_and_entropy):
        with pytest.raises(error, match=words):
            function(**{"logits": X, "index": ROWS, **wrong})


@pytest.mark.skipif(DEVICE != "cpu", reason="an assertion of the device")
@pytest.mark.parametrize("wrong", [-1, 3, -100])
def test_an_index_out_of_range_is_refused_in_rows_that_are_kept(wrong):
    x, index = drawn(2, 3, dtype=F32), torch.tensor([0, wrong])
    for row_mask in (None, torch.tensor([0, 1]), torch.tensor([True, True])):
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
            selective_log_softmax_and_entropy(x, index, row_mask=row_mask)
    check(x, index, row_mask=torch.tensor([True, False]))


def test_a_temperature_of_more_digits_widens_no_result():
    """Neither where PyTorch's operators compute, nor by kernels."""
    x, index = torch.zeros(2, 3, device=DEVICE), torch.tensor([0, 1], device=DEVICE)
    temperature = torch.full((2, 1), 0.5, dtype=torch.float64, device=DEVICE)
    assert composite.tempered(x, temperature).dtype == torch.float32
    assert token_logprobs(x, index, temperature=temperature).dtype == torch.float32
