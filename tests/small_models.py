"""Small random models of transformers, and a step of training of one."""

from __future__ import annotations

import torch

from kernel_cases import DEVICE

VOCABULARY, LENGTH = 99, 5
SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "eos_token_id": 1}
CONFIGS = {
    "llama": SHAPE,
    "mistral": SHAPE,
    "qwen2": SHAPE,
    "qwen3": SHAPE,
    "cohere": SHAPE | SPECIAL | {"logit_scale": 0.25},
    "granite": SHAPE | {"logits_scaling": 4.0},
    "phi": SHAPE | SPECIAL,  # whose head has a bias
    "gpt2": GPT2 | NO_DROPOUT | {"bos_token_id": 1},
    "gemma2": SHAPE | {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 1.0},
    "mixtral": SHAPE | {"num_local_experts": 4},
    "gpt_oss": SHAPE | {"num_local_experts": 4, "num_experts_per_tok": 2},
}
FALCON = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
LOSS_ALONE = {  # their softmax is not ours
    "falcon": {each: SHAPE[each] for each in FALCON},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY},
    "xglm": SHAPE
    | {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4}
    | {"dropout": 0.0, "attention_dropout": 0.0},
}


def small(name: str, attention: str | None = "eager", dtype: torch.dtype = torch.float32):
    import transformers  # which not every run of the tests has

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **(CONFIGS | LOSS_ALONE)[name])
    kind = transformers.AutoModelForCausalLM
    return kind.from_config(config, attn_implementation=attention, dtype=dtype).to(DEVICE)


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH), generator=generator)
    labels = tokens.clone()
    labels[0, :2] = -100
    return {"input_ids": tokens.to(DEVICE), "labels": labels.to(DEVICE)}


def replica_of(module: torch.nn.Module) -> torch.nn.Module:
    """A copy as `DataParallel` makes them, here on the same device, whose parameters are tensors
    that are computed from the module's."""
    replica = module._replicate_for_data_parallel()
    for name, each in module._parameters.items():
        if each is None:
            replica.register_parameter(name, None)
        else:
            setattr(replica, name, each * 1.0)
    for name, child in module._modules.items():
        replica._modules[name] = replica_of(child)
    return replica


def step(model, of=None, **more) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of a step of training, and the gradients of the model, or of that in `of`."""
    of = model if of is None else of
    of.zero_grad()
    loss = model(**batch(), **more).loss
    loss.backward()
    named = ((n.removeprefix("_orig_mod."), p.grad) for n, p in of.named_parameters())
    return loss.detach(), {name: gradient for name, gradient in named if gradient is not None}


def assert_same_step(found, wanted, **tolerance) -> None:
    torch.testing.assert_close(found[0], wanted[0], **tolerance)
    assert found[1].keys() == wanted[1].keys()
    for name, gradient in found[1].items():
        torch.testing.assert_close(gradient, wanted[1][name], **tolerance, msg=name)
