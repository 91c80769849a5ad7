"""A step of training on several ranks with the library's loss and softmax in the model, as
`tests/ranks.py` asks for it."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import interpreted  # noqa: F401  # before Triton
from triton_softmax.integrations import patch_transformers

SHAPE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 40}
CALLS = {
    "ddp": "linear_cross_entropy",
    "fsdp": "linear_cross_entropy",
    "fsdp with a sharded head": "cross_entropy",  # whose weight is whole in its forward alone
    "deepspeed 2": "linear_cross_entropy",
    "deepspeed 3": "cross_entropy",  # as above
}
"""How the model is wrapped, and which loss is computed if a linear one is asked for."""


def mesh_of(shape: tuple[int, ...]) -> object:
    """The mesh of a shape of ranks."""
    return init_device_mesh("cpu", shape)


def small() -> transformers.LlamaForCausalLM:
    """The same model on every rank."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=1)
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager")


def gradients(model: torch.nn.Module, rank: int) -> list[torch.Tensor]:
    """What a step leaves in the parameters, on the tokens of a rank."""
    torch.manual_seed(1 + rank)
    tokens = torch.randint(0, 40, (2, 5))
    loss = model(input_ids=tokens, labels=tokens).loss
    if hasattr(model, "optimizer"):  # an engine of DeepSpeed
        from deepspeed.utils import safe_get_full_grad

        model.backward(loss)
        return [safe_get_full_grad(each) for each in model.parameters()]
    loss.backward()
    found = (each.grad for each in model.parameters())
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in found]


def step(group: dist.ProcessGroup, how: str, linear_loss: bool) -> None:
    """Gradients are the mean of what the ranks find one by one, and the kernels ran."""
    n, rank = group.size(), dist.get_rank(group)
    alone = [gradients(small(), each) for each in range(n)]
    model = small()
    if how == "ddp":
        model = DistributedDataParallel(model, process_group=group)
    elif how.startswith("deepspeed"):
        import deepspeed

        os.environ["LOCAL_RANK"] = str(rank)  # as its launcher does
        options = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True}
        options["zero_optimization"] = {"stage": int(how[-1])}
        optimizer = torch.optim.SGD(model.parameters())
        model = deepspeed.initialize(model=model, optimizer=optimizer, config=options)[0]
    else:
        heads = [model.lm_head] if how != "fsdp" else []
        for each in (*model.model.layers, *heads, model):
            fully_shard(each, mesh=mesh_of((n,)))
    with patch_transformers(linear_loss=linear_loss) as handle:
        found = gradients(model, rank)
    loss = CALLS[how] if linear_loss else "cross_entropy"
    assert handle.calls == {"softmax": 1, loss: 1}, handle.calls
    for one, *others in zip(found, *alone, strict=True):
        torch.testing.assert_close(one, torch.stack(others).mean(0))
