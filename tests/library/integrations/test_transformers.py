"""Models of transformers, small and random, with our loss and softmax and without."""

import copy
import gc
import pickle
import subprocess
import sys
import types
import weakref

import pytest
import torch

from kernel_cases import DEVICE, quiet
from ranks import Ranks
from small_models import LENGTH, VOCABULARY, assert_same_step, batch, replica_of, small, step
from triton_softmax import arguments
from triton_softmax.integrations import patch_transformers
from triton_softmax.integrations.causal_lm import causal_lm_loss

transformers = pytest.importorskip("transformers")
from transformers import modeling_utils, trainer  # noqa: E402
from transformers.loss import loss_utils  # noqa: E402

pytestmark = quiet
THEIR_LOSS = loss_utils.ForCausalLMLoss
CONFIGS = ("llama", "gpt2", "gemma2", "mixtral", "gpt_oss")
ROUTED = ("mixtral", "gpt_oss")
LOSS_ALONE = ("falcon", "bloom", "xglm")
"""Their softmax does not pass the interface, as docs/use/transformers.md says."""


@pytest.fixture(autouse=True)
def nothing_of_ours_stays():
    places = [
        (loss_utils, "ForCausalLMLoss"),
        (trainer, "ForCausalLMLoss"),
        (modeling_utils.PreTrainedModel, "loss_function"),
        (modeling_utils.PreTrainedModel, "__init__"),
        (modeling_utils.AttentionInterface, "get_interface"),
    ]
    before = [vars(owner).get(name) for owner, name in places]
    mapping = dict(loss_utils.LOSS_MAPPING)
    yield
    assert [vars(owner).get(name) for owner, name in places] == before
    assert loss_utils.LOSS_MAPPING == mapping


# The loss.

NUMBERS = [
    7,
    *map(torch.tensor, (7, [7], [[7]], [[7], [5]], [])),
]  # [[7]]: of a DataParallel replica
NUMBERS += [torch.tensor([7.0, 5.0], dtype=torch.float64)]
GIVEN = [{"num_items_in_batch": each} for each in NUMBERS]
GIVEN += [{}, {"ignore_index": 5}, {"shift_labels": True}, {"something": "else"}]


def losses_of(x: torch.Tensor, labels: torch.Tensor, **given):
    """The loss of ours and of transformers, each with the gradient."""
    for function in (causal_lm_loss, THEIR_LOSS):
        leaf = x.detach().clone().requires_grad_()
        kept = leaf.detach().clone()
        loss = function(leaf, labels, VOCABULARY, **given)
        assert torch.equal(leaf, kept)
        yield loss, torch.autograd.grad(loss.sum(), leaf)[0]


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_loss_is_that_of_transformers(given, dtype):
    x = 3.0 * torch.randn(2, 5, VOCABULARY, generator=torch.Generator().manual_seed(2))
    labels = torch.randint(0, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(3))
    labels[1, 2:4] = given.get("ignore_index", -100)
    if "shift_labels" in given:
        given, labels = {"shift_labels": labels.to(DEVICE)}, None
    # Labels may lie on another device.
    ours, theirs = losses_of(x.to(DEVICE, dtype), labels, **given)
    assert ours[0].dtype == theirs[0].dtype and ours[1].dtype == dtype
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])


def test_with_nothing_to_predict_a_mean_is_nan_and_a_sum_is_0():
    x = torch.randn(2, 5, VOCABULARY, device=DEVICE, requires_grad=True)
    labels = torch.full((2, 5), -100, device=DEVICE)
    assert causal_lm_loss(x, labels).isnan()
    assert causal_lm_loss(x, labels, num_items_in_batch=3) == 0
    for given in ({}, {"num_items_in_batch": 3}):
        (dx,) = torch.autograd.grad(causal_lm_loss(x, labels, **given), x)
        assert not dx.any()


@pytest.mark.parametrize("given", [{}, {"num_items_in_batch": 5}], ids=str)
def test_one_tensor_of_the_logits_size_is_kept_in_their_dtype(given):
    x = torch.randn(1, 9, VOCABULARY, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    logits, kept = x * 1, []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        loss = causal_lm_loss(logits, torch.zeros(1, 9, dtype=torch.int64, device=DEVICE), **given)
    assert [t.dtype for t in kept if t.numel() >= x.numel()] == [torch.bfloat16]
    with pytest.raises(RuntimeError, match="cannot differentiate it again"):
        torch.autograd.grad(torch.autograd.grad(loss, logits, create_graph=True)[0].sum(), x)


def test_a_second_derivative_by_operators_is_right(monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    labels = torch.tensor([[0, 1, 2]])
    hessians = [
        torch.autograd.functional.hessian(lambda x, f=function: f(x, labels, 4), x)
        for function in (causal_lm_loss, THEIR_LOSS)
    ]
    torch.testing.assert_close(*hessians, atol=1e-6, rtol=1e-5)


# Models.


EVERY = {"cross_entropy": 1, "softmax": 2}
TWICE = EVERY | {"softmax": 4}


def assert_ours(run, counts, one=None, wanted=None, **tolerance) -> None:
    """What runs gives with our functions what it gave, and counts these."""
    wanted = run() if wanted is None else wanted
    with patch_transformers(one) as handle:
        found = run()
    assert_same_step(found, wanted, **tolerance)
    assert handle.calls == counts


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_of_training_is_the_same_and_counted(name):
    model = small(name)
    run, counts = lambda: step(model), TWICE if name in ROUTED else EVERY
    wanted = run()
    for one in (None, model):
        assert_ours(run, counts, one)
    assert_same_step(run(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", [*LOSS_ALONE, "sdpa"])
def test_a_softmax_beside_the_interface_stays_theirs(name):
    model = small("llama", attention="sdpa") if name == "sdpa" else small(name)
    model.eval()  # without dropout
    assert_ours(lambda: step(model), {"cross_entropy": 1})


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_in_16_bits(name):
    model = small(name, dtype=torch.bfloat16)
    wanted = step(model, num_items_in_batch=11)
    with patch_transformers():
        found = step(model, num_items_in_batch=11)
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0], wanted[0], rtol=2e-3, atol=0)
    for name, gradient in found[1].items():
        scale = wanted[1][name].abs().max().item()
        torch.testing.assert_close(gradient, wanted[1][name], rtol=0.03, atol=0.03 * scale)


def test_without_a_gpu_and_the_interpreter_the_library_answers(monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    model = small("mixtral")
    assert_ours(lambda: step(model), TWICE)


def test_attention_keeps_its_softmax_in_16_bits_only():
    model, kept = small("llama", dtype=torch.bfloat16), []
    with (
        patch_transformers(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t),
    ):
        model(**batch())
    square = [t for t in kept if t.shape[-2:] == (LENGTH, LENGTH)]
    assert {t.dtype for t in square} == {torch.bfloat16}


def test_dropout_draws_the_same_numbers():
    model = small("llama").train()
    for each in model.modules():
        if hasattr(each, "attention_dropout"):
            each.attention_dropout = 0.5

    def run():
        torch.manual_seed(3)
        return step(model)

    assert_ours(run, EVERY)


def test_the_logits_that_are_kept():
    model, given = small("gemma2"), batch()
    given["labels"] = given["labels"][:, -4:]
    wanted = model(**given, logits_to_keep=4)
    with patch_transformers() as handle:
        found = model(**given, logits_to_keep=4)
    torch.testing.assert_close(found.loss, wanted.loss)
    torch.testing.assert_close(found.logits, wanted.logits)
    assert handle.calls["cross_entropy"] == 1


def test_checkpoints_compute_again():
    model = small("llama").train()
    wanted = step(model)
    model.gradient_checkpointing_enable()
    assert_ours(lambda: step(model), TWICE, wanted=wanted)


def test_replicas_run_ours():
    model, given = small("llama"), batch()
    wanted, replica = model(**given).loss, replica_of(model)
    with patch_transformers() as handle:
        torch.testing.assert_close(replica(**given).loss, wanted)
    assert handle.calls == EVERY
    with patch_transformers(model) as handle:
        torch.testing.assert_close(replica(**given).loss, wanted)
    assert handle.calls == {}


def test_adapters_run_ours():
    import peft

    model = small("llama")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    assert all("lora" in name for name in step(adapted)[1])
    for one in (None, model, adapted):
        assert_ours(lambda: step(adapted), EVERY, one)


@pytest.mark.slow
@pytest.mark.parametrize("linear_loss", [False, True])
@pytest.mark.parametrize(
    "how", ["ddp", "fsdp", "fsdp with a sharded head", "deepspeed 2", "deepspeed 3"]
)
def test_ranks_run_ours(two_ranks, how, linear_loss):
    if how.startswith("deepspeed"):
        pytest.importorskip("deepspeed")
    two_ranks.ask("step", how, linear_loss)


@pytest.fixture(scope="module")
def two_ranks():
    with Ranks(2, "training_on_ranks") as ranks:
        yield ranks


def test_models_with_a_loss_of_another_kind_keep_it():
    shape = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "num_layers": 1, "num_heads": 4}
    t5 = transformers.T5Config(**shape, d_ff=48, decoder_start_token_id=0, dropout_rate=0.0)
    heads = {"num_hidden_layers": 1, "num_attention_heads": 4}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    bert = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, **heads, **no_dropout
    )
    for model in (transformers.T5ForConditionalGeneration(t5), transformers.BertForMaskedLM(bert)):
        model = model.to(DEVICE)
        assert_ours(lambda model=model: step(model), {})


def test_torch_compile_gives_the_same_and_counts_nothing():
    model = small("mixtral")
    model.model.layers = model.model.layers[:1]
    wanted, compiled = step(model), torch.compile(model, backend="aot_eager")
    for one in (None, model):
        assert_ours(lambda: step(compiled), {}, one, wanted=wanted)
    assert_same_step(step(compiled), wanted)


# Names.


def test_all_names_of_the_loss_change_together():
    early, late = types.ModuleType("early"), types.ModuleType("late")
    early.ForCausalLMLoss = loss_utils.ForCausalLMLoss
    sys.modules |= {"early": early, "late": late}
    try:
        with patch_transformers():
            ours = loss_utils.ForCausalLMLoss
            late.ForCausalLMLoss = ours
            assert ours is not THEIR_LOSS
            assert early.ForCausalLMLoss is trainer.ForCausalLMLoss is ours
            # The trainer asks this to know whether the loss shifts labels.
            for name in ("ForCausalLM", "ForConditionalGeneration", "CsmForConditionalGeneration"):
                assert trainer.LOSS_MAPPING[name] is ours
            assert small("gpt2").loss_function is ours
        assert (
            late.ForCausalLMLoss is early.ForCausalLMLoss is trainer.ForCausalLMLoss is THEIR_LOSS
        )
    finally:
        del sys.modules["early"], sys.modules["late"]
    x, labels = torch.randn(1, 4, VOCABULARY, device=DEVICE), torch.zeros(1, 4, dtype=torch.int64)
    # Who kept ours has transformers' after its removal.
    assert torch.equal(ours(x, labels, VOCABULARY), THEIR_LOSS(x, labels, VOCABULARY))


@pytest.mark.parametrize("one", [False, True], ids=["all", "one"])
def test_a_loss_function_of_the_user_stays(one):
    model = small("llama")
    model.loss_function = lambda logits, labels, **_: logits.sum() * 0.0 + 7.0
    with patch_transformers(model if one else None) as handle:
        assert step(model)[0] == 7.0
        model.loss_function = lambda logits, labels, **_: logits.sum() * 0.0 + 8.0
        assert step(model)[0] == 8.0
    assert step(model)[0] == 8.0
    assert "cross_entropy" not in handle.calls


def test_what_another_put_in_stays():
    eager, mapping = modeling_utils.AttentionInterface._global_mapping, loss_utils.LOSS_MAPPING
    model = small("llama")

    def attention(module, query, key, value, *_, **__):
        return query.transpose(1, 2).contiguous(), None

    def loss(logits, labels, *_, **__):
        return logits.sum() * 0.0 + 9.0

    try:
        with patch_transformers() as handle:
            eager["eager"] = attention
            ours, mapping["ForCausalLM"] = mapping["ForCausalLM"], loss
            assert step(model)[0] == 9.0 and handle.calls == {}
        assert eager["eager"] is attention and mapping["ForCausalLM"] is loss
        assert step(model)[0] == 9.0
        # It puts back what it found, which is ours: then that is transformers' own, and goes with
        # the next handle.
        mapping["ForCausalLM"] = ours
        del eager["eager"]
        wanted = step(model)
        with patch_transformers() as handle:
            assert_same_step(step(model), wanted)
        assert handle.calls == EVERY
        assert mapping["ForCausalLM"] is THEIR_LOSS
    finally:
        eager.pop("eager", None)
        mapping["ForCausalLM"] = THEIR_LOSS


def test_routers_that_are_defined_later():
    with patch_transformers() as handle:

        class LateRouter(torch.nn.Module):
            def forward(self, x):
                return x.softmax(-1), torch.softmax(x, 0), torch.nn.Softmax(dim=1)(x.double())

        class OverRouter(LateRouter):
            def forward(self, x):
                return super().forward(x)

        router, x = OverRouter(), torch.randn(3, 4, device=DEVICE)
        wanted = router(x)
        assert handle.calls == {}
        small("llama")  # any model: its file may have defined routers
        for found, each in zip(router(x), wanted):
            torch.testing.assert_close(found, each)
        assert handle.calls == {"softmax": 3}
        integers = torch.arange(3, device=DEVICE)
        with pytest.raises(NotImplementedError):
            router(integers.view(1, 3))
        assert handle.calls == {"softmax": 3}
    router(x)
    assert handle.calls == {"softmax": 3}


# Handles.


@pytest.mark.parametrize("model_first", [False, True])
def test_the_handle_of_a_model_goes_before_one_for_all(model_first):
    model, other = small("llama"), small("llama")
    if model_first:
        own, general = patch_transformers(model), patch_transformers()
    else:
        general, own = patch_transformers(), patch_transformers(model)
    with own, general:
        step(model)
        assert (own.calls, general.calls) == (EVERY, {})
        step(other)
        assert (own.calls, general.calls) == (EVERY, EVERY)
        with patch_transformers(torch.nn.ModuleList([model])) as third:
            step(model)
        assert (third.calls, own.calls) == (EVERY, EVERY)
        own.remove()
        step(model)
        assert general.calls == {"cross_entropy": 2, "softmax": 4} and own.calls == EVERY


def test_only_what_is_in_the_module_is_covered():
    model = small("llama")
    with patch_transformers(model.model.layers[0]) as handle:
        step(model)
    assert handle.calls == {"softmax": 1}


def test_a_copy_of_a_model_computes_the_same():
    model = small("mixtral")
    wanted, before = step(model), set(vars(model))
    with patch_transformers(model) as handle:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        for each in copies:
            assert_same_step(step(each), wanted)
    assert handle.calls == {}
    assert set(vars(model)) == before
    for each in copies:
        assert_same_step(step(each), wanted)


def test_a_handle_does_not_keep_its_model():
    model = small("llama")
    reference = weakref.ref(model)
    with patch_transformers(model):
        step(model)
        del model
        gc.collect()
        assert reference() is None


def test_who_is_no_module_is_refused():
    for wrong in ("llama", transformers.LlamaForCausalLM, 1):
        with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
            patch_transformers(wrong)


def test_a_missing_package_is_named():
    program = """
import sys
import triton_softmax.integrations as integrations
assert not [name for name in ("transformers", "trl", "kernels") if name in sys.modules]
sys.modules["transformers"] = None
try:
    integrations.patch_transformers()
except ImportError as error:
    assert "patch_transformers needs transformers" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)
