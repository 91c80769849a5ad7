"""Attention: the rungs of `softmax_tutorial.attention` beside what PyTorch has.

`python -m softmax_bench attention --out FILE` adds a run to a file: bfloat16, 16,384 tokens of
2,048 features in heads of 64 or 128, with and without a causal mask, forward and backward; and one
query of 8 heads of 128 over 65,536 keys, beside a copy of these keys and values. Times are those of
[`CudaTimer`][softmax_bench.measure.CudaTimer]; all who are compared are timed in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from softmax_bench import measure
from softmax_bench.results import Run
from softmax_bench.runner import describe
from softmax_tutorial.attention import attention
from softmax_tutorial.attention.descriptors import attention_descriptors
from softmax_tutorial.attention.diagonal import attention_diagonal
from softmax_tutorial.attention.in_memory import attention_in_memory
from softmax_tutorial.attention.vectors import attention_vectors

FORMAT = "triton-softmax-attention/1"
TOKENS, FEATURES = 16_384, 2_048
LENGTHS = (1024, 2048, 4096, 8192, 16_384)
RUNGS = {
    "in_memory": attention_in_memory,
    "vectors": attention_vectors,
    "diagonal": attention_diagonal,
    "descriptors": attention_descriptors,
}
COMPILED = (4096, 16_384)
"""Lengths for which FlexAttention is compiled, which takes seconds each time."""
MOST_SCORES = 4096
"""The longest rows of which all scores are written to memory."""


def backend_of(backend: SDPBackend) -> Callable:
    """PyTorch's attention by one of its backends."""

    def call(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def flex(length: int) -> Callable:
    """FlexAttention, compiled."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()  # it compiles for eight shapes only
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
    return lambda q, k, v, causal: compiled(q, k, v, block_mask=mask if causal else None)


def calls(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> dict[str, Callable]:
    """Attention of each provider as a call that makes its output; the rungs where no gradient is
    asked for."""
    length, scale = q.shape[2], 1 / math.sqrt(q.shape[3])
    providers: dict[str, Callable] = {
        "attention": attention,
        "fa2": backend_of(SDPBackend.FLASH_ATTENTION),
        "cudnn": backend_of(SDPBackend.CUDNN_ATTENTION),
        **({"flex": flex(length)} if length in COMPILED else {}),
    }
    made: dict[str, Callable] = {
        name: lambda call=call: call(q, k, v, causal) for name, call in providers.items()
    }
    for name, rung in RUNGS.items():
        if not q.requires_grad and (name != "in_memory" or length <= MOST_SCORES):
            made[name] = lambda rung=rung: rung(q, k, v, causal, scale)[0]
    return made


def backward_of(call: Callable, leaves: list[Tensor], do: Tensor) -> Callable:
    """The backward pass alone; what it takes is made when it is first called."""
    made: list[Tensor] = []

    def backward() -> object:
        made[:] = made or [call()]
        return torch.autograd.grad(made[0], leaves, do, retain_graph=True)

    return backward


def timed(
    timer: Any, made: dict[str, Callable], synchronize: Callable = torch.cuda.synchronize
) -> dict[str, dict]:
    """The percentiles of each call on the device, and what it takes in a loop, in which the host
    may be the slower one; why it failed, where it does."""
    found: dict[str, dict] = {name: {} for name in made}

    def failed(name: str, error: Exception) -> None:
        found[name] = {"error": describe(error)}

    def compiles(name: str) -> list[float]:
        made[name]()
        return []

    works = measure.in_turn(compiles, made, 1, failed)
    taken = measure.in_turn(lambda name: timer(made[name]), works, failed=failed)
    for name, turns in taken.items():
        found[name] = measure.summary(measure.flat(turns))
        found[name]["us_loop"] = measure.in_a_loop(made[name], synchronize)
    return found


def worst_error(o: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> float:
    """The largest difference from float64 in one head."""
    q, k, v = (each[:1, :1].double() for each in (q, k, v))
    want, _ = attention_in_memory(q, k, v, causal, 1 / math.sqrt(q.shape[3]))
    return (o[:1, :1].double() - want).abs().max().item()


def tflops(row: dict) -> float:
    """Billions of multiplications and additions in a millisecond, of those that a mask leaves."""
    products = 2.5 if row["direction"] == "backward" else 1.0
    flop = 4 * TOKENS * row["length"] * FEATURES / (2 if row["causal"] else 1)
    return round(products * flop / row["p50"] / 1e6, 1)


def rows_of(timer: Any, dims: int, length: int, causal: bool) -> list[dict]:
    """Forward and backward of each provider."""
    shape = TOKENS // length, FEATURES // dims, length, dims
    q, k, v, do = torch.randn(4, *shape, device="cuda").bfloat16()
    forward = calls(q, k, v, causal)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    made = calls(leaves[0], leaves[1], leaves[2], causal)
    backward = {name: backward_of(call, leaves, do) for name, call in made.items()}
    found = []
    for direction, made in (("forward", forward), ("backward", backward)):
        for name, row in timed(timer, made).items():
            case = {"provider": name, "direction": direction, "dims": dims, "length": length}
            row = {**case, "causal": causal, **row}
            if "p50" in row:
                row["tflops"] = tflops(row)
            if "p50" in row and direction == "forward" and length <= MOST_SCORES:
                row["worst_error"] = worst_error(made[name](), q, k, v, causal)
            found.append(row)
    return found


def decoding(timer: Any, n_keys: int = 65_536) -> list[dict]:
    """One query of each of 8 heads, and a copy of the keys and values that it reads."""
    q = torch.randn(1, 8, 1, 128, device="cuda").bfloat16()
    k, v = kv = torch.randn(2, 1, 8, n_keys, 128, device="cuda").bfloat16()
    other = torch.empty_like(kv)
    made = {
        "attention": lambda: attention(q, k, v),
        "sdpa": lambda: scaled_dot_product_attention(q, k, v),
        "copy": lambda: other.copy_(kv),
    }
    case = {"direction": "decoding", "dims": 128, "length": n_keys, "causal": False}
    return [
        {"provider": name, **case, **row, "bytes": kv.nbytes * (2 if name == "copy" else 1)}
        for name, row in timed(timer, made).items()
    ]


def run(out: Path, commit: str | None) -> None:
    """Add a run to a file, or go on with it."""
    timer, found = measure.CudaTimer(), Run(out, FORMAT, "gpu", commit)
    if found.lacks(direction="decoding"):
        found.add(decoding(timer))
    for length, dims, causal in itertools.product(LENGTHS, (128, 64), (False, True)):
        if found.lacks(length=length, dims=dims, causal=causal):
            found.add(rows_of(timer, dims, length, causal))
            torch.cuda.empty_cache()
