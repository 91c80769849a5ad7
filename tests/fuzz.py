"""Calls drawn at random, and compared with PyTorch, TRL or transformers: `make fuzz`.

`python tests/fuzz.py [FAMILY ...] [--calls N] [--seconds N] [--seed N]` draws up to N calls of each
family, for at most so many seconds, and prints how many it made. A call is drawn from its own seed,
which the message of a mismatch names: `--seed THAT --calls 1` repeats it.
"""

import argparse
import functools
import math
import random
import sys
import time
import traceback
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import drawn_calls
import interpreted  # noqa: F401 - before Triton
from drawn_calls import Draw, check, near
from triton_softmax import arguments
from triton_softmax.integrations import patch_transformers, patch_trl, torch_operators
from triton_softmax.integrations.causal_lm import causal_lm_loss

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}


def results_of(function: Any, x: Tensor) -> list[Tensor]:
    """The results, and the gradient of one number that depends on all of them."""
    results, gradients = drawn_calls.results_of(function, (x,))
    return [*results, *gradients]


def compare(found: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    for mine, other in zip(found, wanted, strict=True):
        assert mine.shape == other.shape, (mine.shape, other.shape)
        near(mine, other, TOLERANCE[dtype])


def any_call(r: Draw) -> tuple[str, drawn_calls.Call]:
    """A call of any function with any options; with those alone that `sharded` rows take."""
    families = [name for name in drawn_calls.FAMILIES if not (r.sharded and "linear" in name)]
    return (name := r.one_of(*families)), drawn_calls.FAMILIES[name](r)


# Families: each makes the call of a seed, or raises.


def eager(r: Draw) -> str:
    name, call = any_call(r)
    check(call)
    return name


def compiled(r: Draw) -> str:
    name, call = any_call(r)
    torch._dynamo.reset()
    dynamic = r.one_of(None, True, False)
    check(call, torch.compile(call.ours, fullgraph=True, backend="aot_eager", dynamic=dynamic))
    return name


def operators(r: Draw) -> str:
    dtype = r.one_of(torch.float64, torch.float32)
    x = r.leaf(r.one_of(1, 3), 4, r.one_of(4, 33), dtype=dtype)
    dim = r.one_of(0, 1, -1)
    name, function = r.one_of(
        ("softmax", lambda x: torch.softmax(x, dim)),
        ("log_softmax", lambda x: functional.log_softmax(x, dim, dtype=torch.float64)),
        ("logsumexp", lambda x: torch.logsumexp(x, dim, keepdim=True)),
        ("two dimensions", lambda x: torch.logsumexp(x, (0, 1))),
        ("cross_entropy", lambda x: functional.cross_entropy(x, torch.zeros_like(x).softmax(1))),
        ("attention", lambda x: functional.scaled_dot_product_attention(x, x, x)),
        ("softmin", lambda x: functional.softmin(x, dim)),
        ("classes", lambda x: functional.cross_entropy(x[0], torch.tensor([0, 1, 2, 3]))),
        ("vmap", torch.vmap(lambda x: x.softmax(0))),
    )
    wanted = results_of(function, x)
    with torch_operators(batch_invariant=r.chance(0.3)):
        compare(results_of(function, x), wanted, dtype)
    return name


def trl(r: Draw) -> str:
    from trl.trainer import utils

    names = ("selective_log_softmax", "entropy_from_logits", "selective_log_softmax_and_entropy")
    name, n = r.one_of(*names), r.one_of(2, 7, 100)
    x = r.leaf(2, 3, n)
    given: dict[str, Any] = {}
    if name == "entropy_from_logits":
        given = r.some(chunk_size=[1, 2, 128])
    else:
        given = r.some(temperature=[0.7, 2.0], row_mask=[r.classes(2, 2, 3)])
        given["index"] = r.classes(n, 2, 3)
    if name.endswith("and_entropy"):
        given |= r.some(entropy_requires_grad=[True, False])
    call = lambda x: vars(utils)[name](x, **given)  # noqa: E731
    wanted = results_of(call, x)
    with patch_trl() as handle:
        found = results_of(call, x)
    assert handle.calls.get(name) == 1
    compare(found, wanted, x.dtype)
    return name


def transformers(r: Draw) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.loss import loss_utils

    items = r.one_of(None, 7, 3.0, *map(torch.tensor, (5, [5], [[5], [7]])))
    if r.chance(0.7):
        dtype = r.one_of(torch.float32, torch.bfloat16)
        x = r.values(r.one_of(1, 2), 6, 11, dtype=dtype).contiguous().requires_grad_()
        labels = r.classes(11, len(x), 6, ignored=0.2)
        functions = [
            lambda x, f=f: f(x, labels, 11, num_items_in_batch=items)
            for f in (causal_lm_loss, loss_utils.ForCausalLMLoss)
        ]
        compare(*[results_of(f, x) for f in functions], dtype)
        return "loss"
    family = r.one_of("llama", "gpt2", "gemma2", "mixtral", "qwen2", "gpt_neox", "opt", "olmo")
    if family not in MODELS:
        size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
        size |= {"vocab_size": 50, "intermediate_size": 32, "num_key_value_heads": 2}
        size |= {"n_embd": 32, "n_layer": 1, "n_head": 4, "head_dim": 8, "pad_token_id": 0}
        size |= {"ffn_dim": 32, "word_embed_proj_dim": 32, "num_local_experts": 2}
        config = AutoConfig.for_model(family, **size)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        MODELS[family] = model.eval()
    model, n = MODELS[family], r.one_of(1, 5, 8)
    tokens = r.classes(49, 2, n) + 1
    mask = torch.ones_like(tokens)
    mask[0, : r.r.randrange(n)] = 0
    parameters = [p for p in model.parameters()]

    def step() -> list[Tensor]:
        out = model(
            input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100),
            num_items_in_batch=items if n > 1 else 3,
        )  # fmt: skip
        found = torch.autograd.grad(out.loss.sum(), parameters, allow_unused=True)
        return [out.loss.detach(), out.logits.detach(), *[g for g in found if g is not None]]

    wanted = step()
    with patch_transformers(r.one_of(None, model)) as handle:
        found = step()
    assert handle.calls["cross_entropy"] == 1
    compare(found, wanted, torch.float32)
    return family


MODELS: dict[str, Any] = {}


@functools.cache
def mesh_of(shape: tuple[int, ...]) -> Any:
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("cpu", torch.arange(math.prod(shape)).view(shape))


def sharded(group: Any, seed: int) -> str:
    """On each rank, a call of a DTensor and the same call of the whole tensor."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    warnings.simplefilter("ignore")
    r = Draw(random.Random(seed), sharded=True)
    name, call = any_call(r)
    mesh, sizes = mesh_of(r.one_of((4,), (2, 2))), range(call.tensors[0].dim())
    dims = [r.one_of(None, *sizes)]
    dims += [r.one_of(None, *(d for d in sizes if d != dims[0]))] * (mesh.ndim - 1)
    placements = [Replicate() if d is None else Shard(d) for d in dims]
    check(call, place=lambda x: distribute_tensor(x, mesh, placements))
    return f"{name} {placements}"


FAMILIES: dict[str, Any] = {
    "eager": eager, "compiled": compiled, "operators": operators, "trl": trl,
    "transformers": transformers, "dtensor": None,
}  # fmt: skip


def run(family: str, calls: int, seconds: float, seed: int) -> int:
    """Make the calls of a family; return how many disagreed."""
    ranks = None
    if family == "dtensor":
        from ranks import Ranks

        ranks = Ranks(4, "fuzz")
    start, made, wrong, kinds = time.monotonic(), 0, 0, set()
    try:
        while made < calls and time.monotonic() - start < seconds:
            made += 1
            try:
                if ranks is not None:
                    kinds.add(ranks.ask("sharded", seed + made - 1)[0].split()[0])
                else:
                    kinds.add(FAMILIES[family](Draw(random.Random(seed + made - 1))))
            except Exception:
                wrong += 1
                print(f"{family} --seed {seed + made - 1}:", traceback.format_exc(limit=-3))
    finally:
        if ranks is not None:
            ranks.__exit__()
    took = time.monotonic() - start
    where = "the interpreter" if arguments.INTERPRETED else "PyTorch's operators"
    print(f"{family}: {made} calls of {sorted(kinds)} in {took:.0f} s by {where}, {wrong} wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", nargs="*", default=[*FAMILIES], choices=[*FAMILIES, []])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    return sum(run(each, given.calls, given.seconds, given.seed) for each in given.family)


if __name__ == "__main__":
    sys.exit(min(1, main()))
