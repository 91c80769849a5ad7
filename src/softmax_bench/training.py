"""A step of training of models of transformers, with our kernels in it, with Liger's, and without.

The steps are of one model with the same numbers, in turn: forward, loss and backward in bfloat16,
with the number of tokens that the trainer passes. No optimizer runs, which would be the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from softmax_bench.measure import summary
from softmax_bench.results import git_commit, machine, now
from softmax_bench.schema import read_json, write
from triton_softmax.integrations import patch_transformers

FORMAT = 1

LLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128_256,
    "tie_word_embeddings": True,
}
MODELS = {"Llama 3.2 1B": ("llama", LLAMA), "GPT-2": ("gpt2", {"vocab_size": 50_257})}
"""The kind of each model, and its shape."""

CASES = (
    ("Llama 3.2 1B", "sdpa", (4, 2048)),
    ("Llama 3.2 1B", "eager", (2, 2048)),  # of 4, transformers would not fit in 80 GB
    ("GPT-2", "sdpa", (8, 1024)),
    ("GPT-2", "eager", (8, 1024)),
)
"""A model, its attention, and sequences × tokens of a batch."""

TINY = {"num_hidden_layers": 1, "vocab_size": 1000, "hidden_size": 256}
"""In place of these on a CPU, only to try the command."""

WARM, ROUNDS = 3, 8


@contextmanager
def _liger(model: Any) -> Iterator[None]:
    """Patch a model as a trainer with `use_liger_kernel` does, and undo that afterwards.

    Liger's patch sets attributes of the model, of its modules and of the Python module that defines
    them, and takes none of them back.
    """
    from transformers.integrations import liger

    places = [sys.modules[type(model).__module__], *model.modules()]
    before = [dict(vars(each)) for each in places]
    try:
        liger.apply_liger_kernel(model, None)
        if "forward" not in vars(model):
            raise NotImplementedError(f"Liger does not patch {type(model).__name__}")
        yield
    finally:
        for place, known in zip(places, before):
            for name in vars(place).keys() - known.keys():
                del vars(place)[name]
            vars(place).update(known)


PROVIDERS: dict[str, Any] = {
    "transformers": lambda model: nullcontext(),
    "liger": _liger,
    "triton_softmax": patch_transformers,
    "triton_softmax, linear loss": partial(patch_transformers, linear_loss=True),
}
"""What a model is given for its steps; the first is what the others are compared with."""


class Step:
    """A model and its batch."""

    def __init__(self, name: str, attention: str, size: tuple[int, int], device: str):
        import transformers

        kind, shape = MODELS[name]
        if device == "cpu":
            shape, size = {**shape, **{key: TINY[key] for key in shape if key in TINY}}, (2, 32)
        config = transformers.AutoConfig.for_model(kind, **shape)
        how = {"attn_implementation": attention, "dtype": torch.bfloat16}
        torch.manual_seed(0)
        with torch.device(device):
            self.model = transformers.AutoModelForCausalLM.from_config(config, **how).train()
            self.tokens = torch.randint(0, config.vocab_size, size)
            self.count = torch.tensor(size[0] * (size[1] - 1))
        self.of_row = {"model": name, "attention": attention, "batch": size}

    def __call__(self) -> torch.Tensor:
        torch.manual_seed(1)  # dropout
        self.model.zero_grad(set_to_none=True)
        given = {"input_ids": self.tokens, "labels": self.tokens}
        loss = self.model(**given, num_items_in_batch=self.count, use_cache=False).loss
        loss.backward()
        return loss.detach()

    def measured(self) -> dict[str, Any]:
        """The numbers of one step."""
        on_gpu = self.tokens.is_cuda
        synchronize = torch.cuda.synchronize if on_gpu else lambda: None
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        synchronize()
        begin = time.perf_counter()
        loss = self()
        synchronize()
        wall = 1000.0 * (time.perf_counter() - begin)
        peak = torch.cuda.max_memory_allocated() if on_gpu else 0
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        return {"ms": wall, "bytes": peak, "loss": loss.item(), "gradient": norm.item()}

    def busy_ms(self) -> float | None:
        """How long the GPU's kernels take in a step, without the gaps between them."""
        if not self.tokens.is_cuda:
            return None
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            self()
            torch.cuda.synchronize()
        return sum(each.self_device_time_total for each in profile.key_averages()) / 1000.0


def rows_of(step: Step) -> list[dict]:
    """The rows of a model, one for each provider that can run it."""
    samples: dict[str, list[dict]] = {provider: [] for provider in PROVIDERS}
    more: dict[str, dict] = {provider: {} for provider in PROVIDERS}
    for turn in range(WARM + ROUNDS + 1):
        for provider in list(samples):
            try:
                with PROVIDERS[provider](step.model) as handle:
                    if turn < WARM + ROUNDS:
                        samples[provider].append(step.measured())
                    else:
                        more[provider]["busy_ms"] = step.busy_ms()
                if handle is not None and turn == 0:
                    more[provider]["calls"] = handle.calls
            except Exception as error:
                if provider == next(iter(PROVIDERS)):  # what the others are compared with
                    raise
                print(f"{step.of_row['model']}, {provider}: {type(error).__name__}: {error}")
                del samples[provider]
    rows = []
    for provider, found in samples.items():
        wall = summary([each["ms"] for each in found[WARM:]])
        last = {key: found[-1][key] for key in ("bytes", "loss", "gradient")}
        rows.append({**step.of_row, "provider": provider, "ms": wall} | more[provider] | last)
    return rows


def run(out: Path, device: str, commit: str | None) -> list[dict]:
    """Measure all models, or go on with a file, which is written after each."""
    import transformers

    of_run = {**machine(device == "cuda"), "transformers": transformers.__version__}
    of_run |= {"commit": commit or git_commit(), "started": now()}
    data = read_json(out) if out.is_file() else {"environment": {}, "rows": []}
    of_run["started"] = data["environment"].get("started", of_run["started"])
    rows = data["rows"] if data["environment"] == of_run else []
    known = {(row["model"], row["attention"]) for row in rows}
    for name, attention, size in CASES:
        if (name, attention) in known:
            continue
        try:
            rows += rows_of(Step(name, attention, size, device))
        except Exception as error:
            print(f"{name}, {attention}: {type(error).__name__}: {error}")
        write(out, {"format": FORMAT, "environment": of_run, "rows": rows})
        print(*rows[-len(PROVIDERS) :], sep="\n", flush=True)
    return rows
