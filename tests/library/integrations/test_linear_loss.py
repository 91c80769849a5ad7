"""Steps of training whose loss is computed from hidden states, beside those that make logits."""

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import triton_softmax.linear
from kernel_cases import DEVICE, quiet
from small_models import LENGTH, VOCABULARY, assert_same_step, batch, replica_of, small, step
from triton_softmax import arguments
from triton_softmax.integrations import patch_transformers

transformers = pytest.importorskip("transformers")

pytestmark = quiet
MODELS = (
    "llama mistral qwen2 qwen3 gpt2 gemma2 cohere granite phi mixtral falcon bloom xglm"
).split()


def training(name: str, dtype: torch.dtype = torch.float32):
    """A model that trains, without dropout."""
    model = small(name, None, dtype).train()  # of sdpa where there is such
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    return model


def assert_linear(model, wanted, one=None, **given) -> None:
    """A step with the linear loss, with its counts, is as wanted."""
    with patch_transformers(one, linear_loss=True) as handle:
        assert_same_step(step(model, **given), wanted, rtol=2e-5, atol=2e-6)
    assert handle.calls.pop("linear_cross_entropy") == 1 and "cross_entropy" not in handle.calls


def assert_makes_logits(model, reason: str, **given) -> None:
    """A step is that without the linear loss, and one warning has the reason."""
    wanted = step(model, **given)
    with patch_transformers(linear_loss=True) as handle:
        with pytest.warns(UserWarning, match=reason) as said:
            assert_same_step(step(model, **given), wanted)
            assert model(**batch(), **given).logits is not None
    assert len(said) == 1
    assert "linear_cross_entropy" not in handle.calls


# What is computed.


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_same_and_makes_no_logits(name):
    model = training(name)
    assert_linear(model, step(model))
    with patch_transformers(linear_loss=True):
        assert model(**batch()).logits is None
    assert model(**batch()).logits.shape == (2, LENGTH, VOCABULARY)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_step_in_float64_is_the_same(name):
    model = training(name, torch.float64)
    assert_linear(model, step(model), one=model)


@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere", "phi"])
def test_a_step_by_operators_is_the_same(name, monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    model = training(name)
    assert_linear(model, step(model))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["all", "autocast"])
def test_a_step_in_16_bits(name, dtype):
    model = training(name, dtype)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.float32):
        wanted = step(model, num_items_in_batch=11)
        with patch_transformers(linear_loss=True) as handle:
            found = step(model, num_items_in_batch=11)
    assert handle.calls["linear_cross_entropy"] == 1 and found[0].dtype == torch.float32
    torch.testing.assert_close(found[0], wanted[0], rtol=2e-3, atol=0)
    for name, gradient in found[1].items():
        scale = wanted[1][name].abs().max().item()
        torch.testing.assert_close(gradient, wanted[1][name], rtol=0.03, atol=0.03 * scale)


SHIFTED = torch.tensor([[5, 1, -100, 3, 2], [9, 8, 7, 6, -100]])
GIVEN = [
    {"num_items_in_batch": 11},
    {"num_items_in_batch": torch.tensor(11)},
    {"num_items_in_batch": torch.tensor([11])},
    {"shift_labels": SHIFTED},
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: next(iter(given)))
def test_what_a_trainer_passes_has_its_effect(given):
    model = training("llama")
    given = {name: each.to(DEVICE) if name[0] == "s" else each for name, each in given.items()}
    wanted = step(model, **given)
    assert not torch.equal(wanted[0], step(model)[0])
    assert_linear(model, wanted, **given)


def test_another_class_may_be_ignored():
    model, tokens = training("llama"), batch()["input_ids"]
    tokens[1, 2:4] = 5
    model_of = lambda: model(input_ids=tokens, labels=tokens, ignore_index=5).loss  # noqa: E731
    wanted = model_of()
    assert wanted != model(input_ids=tokens, labels=tokens).loss
    with patch_transformers(linear_loss=True):
        torch.testing.assert_close(model_of(), wanted)


def test_the_rest_of_the_output_stays():
    """Of those hidden states that are kept."""
    model, given = training("mixtral"), batch()
    given["labels"] = given["labels"][:, -4:]
    more = {"output_hidden_states": True, "output_router_logits": True, "logits_to_keep": 4}
    wanted = model(**given, **more)
    with patch_transformers(linear_loss=True):
        found = model(**given, **more)
        as_tuple = model(**given, **more, return_dict=False)
    assert type(found) is type(wanted) and "logits" not in found
    assert set(wanted) - set(found) == {"logits"}
    torch.testing.assert_close(found.aux_loss, wanted.aux_loss)
    assert len(as_tuple) == len(wanted) - 1
    torch.testing.assert_close(as_tuple[0], wanted.loss)


# Memory.

ROWS = torch.zeros(4, 32, dtype=torch.int64)


def largest(model) -> int:
    """The most bytes that a tensor has in a step, forward and backward."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        model(input_ids=ROWS, labels=ROWS).loss.backward()
    return max(each.self_cpu_memory_usage for each in profile.events())


@pytest.mark.skipif(DEVICE != "cpu", reason="reads a CPU's allocations")
@pytest.mark.parametrize("interpreted", [False, True], ids=["operators", "kernels"])
def test_no_tensor_has_the_size_of_the_logits(interpreted, monkeypatch):
    monkeypatch.setattr(arguments, "INTERPRETED", interpreted)
    monkeypatch.setattr(triton_softmax.linear, "BYTES", 16 * VOCABULARY * 4)
    model, logits = training("cohere"), 4 * VOCABULARY * ROWS.numel()
    with patch_transformers():
        assert largest(model) >= logits
    with patch_transformers(linear_loss=True) as handle:
        assert largest(model) < logits
    assert handle.calls == {"linear_cross_entropy": 1}


# Who needs the logits has them.


@pytest.mark.parametrize("case", ["evaluation", "no gradients"])
def test_without_training_the_logits_are_there(case):
    model = training("gemma2")
    model.train(case != "evaluation")
    with torch.set_grad_enabled(case == "evaluation"):
        wanted = model(**batch())
        with patch_transformers(linear_loss=True) as handle:
            found = model(**batch())
    torch.testing.assert_close((found.logits, found.loss), (wanted.logits, wanted.loss))
    assert "linear_cross_entropy" not in handle.calls


def test_without_labels_the_logits_are_there_and_the_reason_is_said():
    model, tokens = training("gemma2"), batch()["input_ids"]
    wanted = model(input_ids=tokens)
    with patch_transformers(linear_loss=True), pytest.warns(UserWarning, match="got no labels"):
        found = model(input_ids=tokens)
    torch.testing.assert_close(found.logits, wanted.logits)
    assert found.loss is None
    gradients = []
    for each in (found, wanted):
        model.zero_grad()
        each.logits.square().sum().backward()
        gradients.append(model.lm_head.weight.grad.clone())
    torch.testing.assert_close(*gradients)


class WithZLossForCausalLM(transformers.LlamaForCausalLM):
    def forward(self, **given):
        output = super().forward(**given)
        output.loss = output.loss + 0.1 * output.logits.logsumexp(-1).square().mean()
        self.seen = output.loss.detach()
        return output


class WithFloorForCausalLM(transformers.LlamaForCausalLM):
    def forward(self, labels=None, **given):
        logits = super().forward(**given).logits * 2.0
        logits[..., 0] = -10.0
        loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        return transformers.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)


class WithInverseForCausalLM(transformers.LlamaForCausalLM):
    def forward(self, labels=None, **given):
        logits = 1.0 - torch.tanh(torch.tanh(super().forward(**given).logits)) / -3.0
        loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1])
        return transformers.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (WithZLossForCausalLM, "logsumexp"),
        (WithFloorForCausalLM, "__setitem__"),
        (WithInverseForCausalLM, "tanh"),
    ],
)
def test_a_forward_that_reads_the_logits_is_right(kind, function):
    model = kind(small("llama").config).to(DEVICE).train()
    wanted = step(model)
    with patch_transformers(linear_loss=True):
        with pytest.warns(UserWarning, match=rf"calls torch\.\w*\.?{function} of") as said:
            assert_same_step(step(model), wanted)
            found = model(**batch()).logits
    assert len(said) == 1
    torch.testing.assert_close(found, model(**batch()).logits)
    if kind is WithZLossForCausalLM:
        torch.testing.assert_close(model.seen, wanted[0])


def test_other_losses_stay():
    shape = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "num_layers": 1, "num_heads": 4}
    t5 = transformers.T5Config(**shape, d_ff=48, decoder_start_token_id=0, dropout_rate=0.0)
    model = transformers.T5ForConditionalGeneration(t5).to(DEVICE).train()
    assert_makes_logits(model, r"forward calls torch.Tensor.size of them")
    llama = training("llama")
    llama.loss_function = lambda logits, labels, **_: logits.sum() + labels.sum()
    assert_makes_logits(llama, "its loss_function is another")


# Heads.


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Parted(torch.nn.Parameter):
    pass


def doubled(model) -> None:
    head = Doubled(32, VOCABULARY, bias=False).to(DEVICE)
    head.weight = model.lm_head.weight
    model.lm_head = head


def hooked(model) -> None:
    model.lm_head.register_forward_hook(lambda head, given, result: 2.0 * result)


def replaced(model) -> None:
    model.lm_head.forward = lambda x: 2.0 * torch.nn.functional.linear(x, model.lm_head.weight)


def sharded(model) -> None:
    model.lm_head.weight = Parted(model.lm_head.weight.detach())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (doubled, "Doubled, not a torch.nn.Linear"),
        (hooked, "hooks or a forward of its own"),
        (replaced, "hooks or a forward of its own"),
        (sharded, r"weight is sharded, a Parted \(99, 32\)"),
    ],
)
def test_another_head_makes_logits(change, reason):
    model = training("llama")
    change(model)
    assert_makes_logits(model, reason)


ADAPTERS = {
    # options, and why logits are made
    "layers": ({"target_modules": ["q_proj", "v_proj"]}, None),
    "head": ({"target_modules": ["lm_head"]}, "peft.tuners.lora.*, not a torch.nn.Linear"),
    "a head that is saved beside": (
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        "ModulesToSaveWrapper, not a torch.nn.Linear",
    ),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters(name):
    import peft

    options, reason = ADAPTERS[name]
    config = peft.LoraConfig(**options, init_lora_weights=False)
    model = peft.get_peft_model(training("llama"), config).train()
    if reason is not None:
        assert_makes_logits(model, reason)
        return
    wanted = step(model)
    assert wanted[1] and all("lora" in name for name in wanted[1])
    for one in (None, model):
        assert_linear(model, wanted, one=one)


# In a trainer.


def test_checkpoints():
    model = training("llama")
    wanted = step(model)
    model.gradient_checkpointing_enable()
    assert_linear(model, wanted)


def trained(tmp_path, linear_loss: bool, **options):
    """A model after two steps of a trainer, of two batches each, and the calls."""
    model = training("llama")
    rows = [{name: each[0] for name, each in batch().items()} for _ in range(8)]
    for i, row in enumerate(rows):
        row["labels"] = row["labels"].masked_fill(torch.arange(LENGTH, device=DEVICE) < i % 4, -100)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        learning_rate=0.01, report_to=[], save_strategy="no", disable_tqdm=True, seed=1,
        use_cpu=DEVICE == "cpu", optim="sgd", dataloader_pin_memory=False, **options,
    )  # fmt: skip
    rows = [{name: each.cpu() for name, each in row.items()} for row in rows]
    run = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:2])
    with patch_transformers(linear_loss=linear_loss) as handle:
        run.train()
        metrics = run.evaluate()
    return model, handle.calls, metrics["eval_loss"]


TRAINERS = {
    # options, how often the linear loss runs in two steps of two batches, and what is said
    "plain": ({}, 4, None),
    # Accelerate sets a `forward` on the model, which calls ours.
    "mixed precision": ({"bf16": True}, 4, None),
    "smoothed labels": ({"label_smoothing_factor": 0.2}, 0, "got no labels, as where a trainer"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer(name, tmp_path):
    """The losses of a trainer's steps are divided by the number of all tokens of two batches."""
    options, linear, words = TRAINERS[name]
    with pytest.warns(UserWarning, match=words) if words else contextlib.nullcontext():
        model, calls, metric = trained(tmp_path, True, **options)
    wanted, other_calls, other_metric = trained(tmp_path, False, **options)
    assert calls.get("linear_cross_entropy", 0) == linear
    if name == "plain":
        assert other_calls["cross_entropy"] == 5
        assert calls["cross_entropy"] == 1  # of evaluation
    near = {"rtol": 0.01, "atol": 1e-4} if "bf16" in options else {}
    for parameter, each in model.named_parameters():
        torch.testing.assert_close(each, wanted.get_parameter(parameter), **near)
    assert metric == pytest.approx(other_metric, rel=0.01 if near else None)
    assert not torch.equal(model.lm_head.weight, training("llama").lm_head.weight)


def test_replicas():
    model = training("llama")
    wanted = step(model)
    with patch_transformers(linear_loss=True) as handle:
        found = step(replica_of(model), of=model)
    assert_same_step(found, wanted)
    assert handle.calls["linear_cross_entropy"] == 1


def test_what_is_compiled_makes_logits():
    model = training("llama")
    wanted, compiled = step(model), torch.compile(model, backend="aot_eager", fullgraph=True)
    with patch_transformers(linear_loss=True) as handle:
        with pytest.warns(UserWarning, match="since torch.compile compiles it") as said:
            assert_same_step(step(compiled), wanted)
            assert compiled(**batch()).logits is not None
    assert len(said) == 1 and "linear_cross_entropy" not in handle.calls


def test_a_model_of_compiled_layers_makes_none():
    model = training("llama")
    wanted = step(model)
    for layer in model.model.layers:
        layer.compile(backend="aot_eager")
    assert_linear(model, wanted)


def test_threads_share_a_model():
    model = training("llama")
    wanted, start = model(**batch()).loss, threading.Barrier(3)

    def run(_):
        start.wait()
        return [model(**batch()).loss for _ in range(5)]

    with patch_transformers(linear_loss=True) as handle, ThreadPoolExecutor(3) as pool:
        found = [*pool.map(run, range(3))]
    assert handle.calls["linear_cross_entropy"] == 15
    torch.testing.assert_close(found, [[wanted] * 5] * 3)


# Handles.


def test_the_handle_that_answers_decides():
    model, other = training("llama"), training("llama")
    before = set(vars(model))
    with patch_transformers(linear_loss=True) as general, patch_transformers(model) as own:
        assert model(**batch()).logits is not None
        assert other(**batch()).logits is None
    assert "linear_cross_entropy" not in own.calls
    assert general.calls["linear_cross_entropy"] == 1
    with patch_transformers(), patch_transformers(model, linear_loss=True):
        assert model(**batch()).logits is None
        assert other(**batch()).logits is not None
        twin = copy.deepcopy(model)
        assert twin(**batch()).logits is not None
    assert set(vars(model)) == before
