"""A step of training on several ranks with the library's loss and softmax in the model, as
`tests/ranks.py` asks for it."""

from __future__ import annotations

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import interpreted  # noqa: F401  # before Triton
from triton_softmax.integrations import patch_transformers

SHAPE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 40}
COUNTED = {"softmax": 1, "cross_entropy": 1}


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
    model(input_ids=tokens, labels=tokens).loss.backward()
    found = (each.grad for each in model.parameters())
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in found]


def step(group: dist.ProcessGroup, how: str) -> None:
    """Gradients are the mean of what the ranks find one by one, and the kernels ran."""
    n, rank = group.size(), dist.get_rank(group)
    alone = [gradients(small(), each) for each in range(n)]
    model = small()
    if how == "fsdp":
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh_of((n,)))
        fully_shard(model, mesh=mesh_of((n,)))
    else:
        model = DistributedDataParallel(model, process_group=group)
    with patch_transformers() as handle:
        found = gradients(model, rank)
    assert handle.calls == COUNTED, handle.calls
    for one, *others in zip(found, *alone, strict=True):
        torch.testing.assert_close(one, torch.stack(others).mean(0))
