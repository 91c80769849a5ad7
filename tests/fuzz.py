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
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import interpreted  # noqa: F401 - before Triton
import triton_softmax as ours
from in_float64 import cross_entropy_of, linear_of, mapped, softmax_of, tokens_of
from triton_softmax import arguments
from triton_softmax.integrations import patch_transformers, patch_trl, torch_operators
from triton_softmax.integrations.causal_lm import causal_lm_loss

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class Call(NamedTuple):
    """Two functions of the same tensors; the second also takes them in float64."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    tensors: tuple[Tensor, ...]


def whole(t: Any) -> Tensor:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def results_of(
    function: Callable[..., Any],
    tensors: tuple[Tensor, ...],
    place: Callable[[Tensor], Tensor] = lambda x: x,
) -> list[Tensor]:
    """The results, and the gradients of one number that depends on all of them; `place` makes the
    first of the tensors a sharded one."""
    x, *others = tensors
    leaves = [place(x.detach().clone()), *[t.detach().clone() for t in others]]
    leaves = [leaf.requires_grad_(t.requires_grad) for leaf, t in zip(leaves, tensors, strict=True)]
    found = function(*leaves)
    found = [*map(whole, found if isinstance(found, (tuple, list)) else [found])]
    given = [t for t in leaves if t.requires_grad]
    live = [y for y in found if y.requires_grad]
    if not live:
        return [y.detach() for y in found]
    weights = [torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64) for y in live]
    total = sum((y.double().reshape(-1) * w).sum() for y, w in zip(live, weights, strict=True))
    gradients = torch.autograd.grad(total, given, allow_unused=True)
    gradients = [
        whole(torch.zeros_like(t) if g is None else g)
        for g, t in zip(gradients, given, strict=True)
    ]
    return [*[y.detach() for y in found], *gradients]


def compare(found: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    assert len(found) == len(wanted)
    for mine, other in zip(found, wanted, strict=True):
        assert mine.shape == other.shape, (mine.shape, other.shape)
        other = other.double()
        size = max(1.0, other[other.isfinite()].abs().max().item()) if other.isfinite().any() else 1
        near = TOLERANCE[dtype]
        torch.testing.assert_close(
            mine.double(), other, rtol=near, atol=near * size, equal_nan=True
        )


class Draw(random.Random):
    """What a call is drawn from."""

    def tensor(self, *shape: int, dtype: torch.dtype, scale: float = 3.0) -> Tensor:
        generator = torch.Generator().manual_seed(self.randrange(2**31))
        t = (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
        if len(shape) > 1 and self.random() < 0.3:  # as it lies after a transpose
            t = t.transpose(0, 1).contiguous().transpose(0, 1)
        return t

    def classes(self, n: int, *shape: int, ignored: bool = False) -> Tensor:
        generator = torch.Generator().manual_seed(self.randrange(2**31))
        t = torch.randint(0, n, shape, generator=generator)
        return t.masked_fill(torch.rand(shape, generator=generator) < 0.2, -100) if ignored else t

    def some(self, **options: list[Any]) -> dict[str, Any]:
        return {n: self.choice(values) for n, values in options.items() if self.random() < 0.4}

    def dtype(self) -> torch.dtype:
        return self.choice([torch.float64, torch.float32, torch.float32, torch.bfloat16])


SCALING = {"scale": [0.3, -0.5, 2.0], "softcap": [2.0, 30.0]}


def drawn_call(r: Draw, dtype: torch.dtype, sharded: bool = False) -> Call:
    """A call of any function with any options; with those alone that `sharded` rows take."""
    rows = tuple(r.choice([1, 2, 3, 5]) for _ in range(r.choice([1, 1, 2])))
    n = r.choice([1, 2, 7, 33, 100])
    x = r.tensor(*rows, n, dtype=dtype).requires_grad_()
    invariant = {"batch_invariant": True} if r.random() < 0.2 else {}
    name = r.choice(["softmax", "log_softmax", "logsumexp", "cross_entropy", "linear", "tokens"])
    if sharded and name == "linear":
        name = "tokens"
    if name in ("softmax", "log_softmax"):
        function, log, given = getattr(ours, name), name == "log_softmax", r.some(**SCALING)
        safe, dim = r.random() < 0.3, r.choice([-1, 0])
        tensors: tuple[Tensor, ...] = (x,)
        extra = None if sharded else r.choice([None, "bias", "where"])
        if extra == "bias":
            tensors += (r.tensor(n, dtype=dtype).requires_grad_(),)
        elif extra == "where":
            tensors += (r.tensor(*rows, n, dtype=torch.float64) > -2.0,)
        if not sharded and r.random() < 0.2:
            given["sink"] = r.choice([0.0, -1.0])

        def two(make):
            return lambda x, *t: make(x, dict(zip([extra] * len(t), t)))

        return Call(
            f"{name} {given} {extra} dim={dim} safe={safe} {invariant}",
            two(lambda x, t: function(x, dim, safe=safe, **given, **t, **invariant)),
            two(lambda x, t: softmax_of(x, dim, log, safe=safe, **given, **t)),
            tensors,
        )
    if name == "logsumexp":
        dim, keep = r.choice([-1, 0]), r.random() < 0.5
        return Call(
            f"{name} dim={dim} {keep}",
            lambda x: ours.logsumexp(x, dim, keep, **invariant),
            lambda x: torch.logsumexp(x, dim, keep),
            (x,),
        )
    if name == "tokens":
        given = r.some(temperature=[0.3, 1.7], **SCALING)
        index = r.classes(n, *rows, *r.choice([(), (), (3,)]))
        mask = r.tensor(*rows, dtype=torch.float64) > -2.0
        masked = r.random() < 0.5

        def theirs(x, index, mask):
            x = mapped(x, given.get("scale", 1.0), given.get("softcap"))
            found, entropy = tokens_of(
                x, index, temperature=given.get("temperature", 1.0), return_entropy=True
            )
            if not masked:
                return found, entropy
            of_found = mask.unsqueeze(-1) if found.dim() > mask.dim() else mask
            return found.where(of_found, 0.0), entropy.where(mask, 0.0)

        return Call(
            f"{name} {given} masked={masked} {tuple(index.shape)} {invariant}",
            lambda x, index, mask: ours.token_logprobs(
                x, index, return_entropy=True, row_mask=mask if masked else None, **given,
                **invariant,
            ),
            theirs,
            (x, index, mask),
        )  # fmt: skip
    given = r.some(reduction=["none", "sum"], label_smoothing=[0.1], z_loss=[0.1], **SCALING)
    if name == "linear":
        k = r.choice([1, 4, 9])
        x = r.tensor(*rows, k, dtype=dtype, scale=1.0).requires_grad_()
        layer = r.tensor(n, k, dtype=dtype, scale=1.0).requires_grad_()
        size = r.choice([None, 1, 2])
        return Call(
            f"{name} {given} chunk_size={size}",
            lambda x, w, t: ours.linear_cross_entropy(x, w, t, chunk_size=size, **given),
            lambda x, w, t: linear_of(x, w, t, **given),
            (x, layer, r.classes(n, *rows, ignored=True)),
        )
    x = x.detach().reshape(-1, n).requires_grad_()
    weight = r.tensor(n, dtype=dtype).abs() if r.random() < 0.3 else None
    given = given if weight is None else {n: v for n, v in given.items() if n != "z_loss"}
    more = () if weight is None else (weight,)
    return Call(
        f"{name} {given} weight={weight is not None} {invariant}",
        lambda x, t, *w: ours.cross_entropy(x, t, *w, **given, **invariant),
        lambda x, t, *w: cross_entropy_of(x, t, **dict(zip(["weight"] * len(w), w)), **given),
        (x, r.classes(n, len(x), ignored=True), *more),
    )


def in_float64(call: Call) -> list[Tensor]:
    tensors = tuple(
        t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t
        for t in call.tensors
    )
    return results_of(call.theirs, tensors)


# Families: each makes the call of a seed, or raises.


def eager(r: Draw) -> str:
    call = drawn_call(r, dtype := r.dtype())
    compare(results_of(call.ours, call.tensors), in_float64(call), dtype)
    return call.name


def compiled(r: Draw) -> str:
    call = drawn_call(r, dtype := r.dtype())
    torch._dynamo.reset()
    function = torch.compile(
        call.ours, fullgraph=True, backend="aot_eager", dynamic=r.choice([None, True, False])
    )
    compare(results_of(function, call.tensors), in_float64(call), dtype)
    return call.name


def operators(r: Draw) -> str:
    dtype = r.choice([torch.float64, torch.float32])
    x = r.tensor(r.choice([1, 3]), 4, r.choice([4, 33]), dtype=dtype).requires_grad_()
    dim = r.choice([0, 1, -1])
    name, function = r.choice([
        ("softmax", lambda x: torch.softmax(x, dim)),
        ("log_softmax", lambda x: functional.log_softmax(x, dim, dtype=torch.float64)),
        ("logsumexp", lambda x: torch.logsumexp(x, dim, keepdim=True)),
        ("two dimensions", lambda x: torch.logsumexp(x, (0, 1))),
        ("cross_entropy", lambda x: functional.cross_entropy(x, torch.zeros_like(x).softmax(1))),
        ("attention", lambda x: functional.scaled_dot_product_attention(x, x, x)),
        ("softmin", lambda x: functional.softmin(x, dim)),
        ("classes", lambda x: functional.cross_entropy(x[0], torch.tensor([0, 1, 2, 3]))),
        ("vmap", torch.vmap(lambda x: x.softmax(0))),
    ])  # fmt: skip
    wanted = results_of(function, (x,))
    with torch_operators(batch_invariant=r.random() < 0.3):
        compare(results_of(function, (x,)), wanted, dtype)
    return name


def trl(r: Draw) -> str:
    from trl.trainer import utils

    name = r.choice([
        "selective_log_softmax", "entropy_from_logits", "selective_log_softmax_and_entropy"
    ])  # fmt: skip
    dtype, n = r.dtype(), r.choice([2, 7, 100])
    x = r.tensor(2, 3, n, dtype=dtype).requires_grad_()
    given: dict[str, Any] = {}
    if name == "entropy_from_logits":
        given = r.some(chunk_size=[1, 2, 128])
    else:
        given = r.some(temperature=[0.7, 2.0], row_mask=[r.classes(2, 2, 3)])
        given["index"] = r.classes(n, 2, 3)
    if name.endswith("and_entropy"):
        given |= r.some(entropy_requires_grad=[True, False])
    call = lambda x: vars(utils)[name](x, **given)  # noqa: E731
    wanted = results_of(call, (x,))
    with patch_trl() as handle:
        found = results_of(call, (x,))
    assert handle.calls.get(name) == 1
    compare(found, wanted, dtype)
    return f"{name} {sorted(given)}"


def transformers(r: Draw) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.loss import loss_utils

    items = r.choice([None, 7, 3.0, torch.tensor(5), torch.tensor([5]), torch.tensor([[5], [7]])])
    if r.random() < 0.7:
        dtype = r.choice([torch.float32, torch.bfloat16])
        x = r.tensor(r.choice([1, 2]), 6, 11, dtype=dtype).contiguous().requires_grad_()
        labels = r.classes(11, len(x), 6, ignored=True)
        functions = [
            lambda x, f=f: f(x, labels, 11, num_items_in_batch=items)
            for f in (causal_lm_loss, loss_utils.ForCausalLMLoss)
        ]
        compare(*[results_of(f, (x,)) for f in functions], dtype)
        return f"loss {items}"
    family = r.choice(["llama", "gpt2", "gemma2", "mixtral", "qwen2", "gpt_neox", "opt", "olmo"])
    if family not in MODELS:
        size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
        size |= {"vocab_size": 50, "intermediate_size": 32, "num_key_value_heads": 2}
        size |= {"n_embd": 32, "n_layer": 1, "n_head": 4, "head_dim": 8, "pad_token_id": 0}
        size |= {"ffn_dim": 32, "word_embed_proj_dim": 32, "num_local_experts": 2}
        config = AutoConfig.for_model(family, **size)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        MODELS[family] = model.eval()
    model, n = MODELS[family], r.choice([1, 5, 8])
    tokens = r.classes(49, 2, n) + 1
    mask = torch.ones_like(tokens)
    mask[0, : r.randrange(n)] = 0
    parameters = [p for p in model.parameters()]

    def step() -> list[Tensor]:
        out = model(
            input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100),
            num_items_in_batch=items if n > 1 else 3,
        )  # fmt: skip
        found = torch.autograd.grad(out.loss.sum(), parameters, allow_unused=True)
        return [out.loss.detach(), out.logits.detach(), *[g for g in found if g is not None]]

    wanted = step()
    with patch_transformers(r.choice([None, model])) as handle:
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
    r = Draw(seed)
    dtype = r.choice([torch.float64, torch.float32])
    call, mesh = drawn_call(r, dtype, sharded=True), mesh_of(r.choice([(4,), (2, 2)]))
    dims = [r.choice([None, *range(call.tensors[0].dim())])]
    dims += [r.choice([d for d in (None, 0, 1) if d is None or d != dims[0]])] * (mesh.ndim - 1)
    placements = [Replicate() if d is None else Shard(d) for d in dims]
    found = results_of(call.ours, call.tensors, lambda x: distribute_tensor(x, mesh, placements))
    compare(found, in_float64(call), dtype)
    return f"{call.name} {placements}"


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
                    kinds.add(FAMILIES[family](Draw(seed + made - 1)).split()[0])
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
