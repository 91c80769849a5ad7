"""A step of training of models of transformers, with our kernels in it, with Liger's, and without.

The steps are of one model with the same numbers, in turn: forward, loss and backward in bfloat16,
with the number of tokens that the trainer passes; or the log-probabilities of tokens, as some
trainers of TRL take them. No optimizer runs, which would be the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from softmax_bench.measure import summary
from softmax_bench.results import git_commit, machine, now
from softmax_bench.runner import describe
from softmax_bench.schema import DataError, read_json, write
from triton_softmax.integrations import patch_transformers, patch_trl, torch_operators

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
    ("Llama 3.2 1B", "sdpa", (4, 2048), "loss"),
    ("Llama 3.2 1B", "eager", (2, 2048), "loss"),  # of 4, transformers would not fit in 80 GB
    ("GPT-2", "sdpa", (8, 1024), "loss"),
    ("GPT-2", "eager", (8, 1024), "loss"),
    ("Llama 3.2 1B", "sdpa", (4, 2048), "checkpointed loss"),
    ("GPT-2", "sdpa", (8, 1024), "checkpointed loss"),
    ("Llama 3.2 1B", "sdpa", (4, 2048), "log-probabilities"),
)
"""A model, its attention, sequences × tokens of a batch, and what a step differentiates."""

TINY = {"num_hidden_layers": 1, "vocab_size": 1000, "hidden_size": 256}
"""In place of these on a CPU, only to try the command."""

WARM, ROUNDS = 3, 8


LAYERS_ALONE = {"fused_linear_cross_entropy": False, "cross_entropy": False}
"""Options of Liger's patch, by which the loss stays as it is."""


def unpatched(model: Any) -> AbstractContextManager[None]:
    """Leave a model as it is."""
    return nullcontext()


@contextmanager
def _liger(
    model: Any, options: dict[str, bool] | None = None, then: Callable = unpatched
) -> Iterator[Any]:
    """Patch a model as a trainer with `use_liger_kernel` does, then as `then` does, and undo both
    afterwards.

    Liger's patch sets attributes of the model, of its modules and of the Python module that defines
    them, and takes none of them back.
    """
    from transformers.integrations import liger

    places = [sys.modules[type(model).__module__], *model.modules()]
    before = [dict(vars(each)) for each in places]
    try:
        liger.apply_liger_kernel(model, options)
        if [dict(vars(each)) for each in places] == before:
            raise NotImplementedError(f"Liger does not patch {type(model).__name__}")
        with then(model) as handle:
            yield handle
    finally:
        for place, known in zip(places, before):
            for name in vars(place).keys() - known.keys():
                del vars(place)[name]
            vars(place).update(known)


LINEAR_LOSS = partial(patch_transformers, linear_loss=True)

PROVIDERS: dict[str, Any] = {
    "transformers": unpatched,
    "liger": _liger,
    "triton_softmax": patch_transformers,
    "triton_softmax, linear loss": LINEAR_LOSS,
    "liger's layers, triton_softmax": partial(
        _liger, options=LAYERS_ALONE, then=patch_transformers
    ),
    "liger's layers, triton_softmax, linear loss": partial(
        _liger, options=LAYERS_ALONE, then=LINEAR_LOSS
    ),
    "torch_operators": lambda model: torch_operators(),
}
"""What a model is given for its steps; the first is what the others are compared with."""

PROVIDERS_OF_TRL: dict[str, Any] = {
    "trl": unpatched,
    "triton_softmax": lambda model: patch_trl(),
}
"""The same for log-probabilities, as TRL's trainers for CPO and ORPO take them from logits."""


def providers_of(what: str) -> dict[str, Any]:
    """The providers of a step, by what it differentiates."""
    return PROVIDERS_OF_TRL if what == "log-probabilities" else PROVIDERS


class Step:
    """A model, its batch, and what a step differentiates."""

    def __init__(self, name: str, attention: str, size: tuple[int, int], what: str, device: str):
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
        if what == "checkpointed loss":
            self.model.gradient_checkpointing_enable()
        self.providers = providers_of(what)
        self.of_loss = self.providers is PROVIDERS
        self.of_row = {"model": name, "attention": attention, "batch": size, "of": what}

    def __call__(self) -> torch.Tensor:
        torch.manual_seed(1)  # dropout
        self.model.zero_grad(set_to_none=True)
        more = {"labels": self.tokens, "num_items_in_batch": self.count} if self.of_loss else {}
        output = self.model(input_ids=self.tokens, use_cache=False, **more)
        loss = output.loss if self.of_loss else -self.logprobs(output.logits).mean()
        loss.backward()
        return loss.detach()

    def logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """The log-probability of each token after the first."""
        from trl.trainer import utils

        return utils.selective_log_softmax(logits[:, :-1], self.tokens[:, 1:])

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


def rows_of(step: Step) -> tuple[list[dict], list[dict]]:
    """The rows of a model, one for each provider that can run it; and why others cannot."""
    absent: list[dict] = []
    samples: dict[str, list[dict]] = {provider: [] for provider in step.providers}
    more: dict[str, dict] = {provider: {} for provider in step.providers}
    for turn in range(WARM + ROUNDS + 1):
        for provider in list(samples):
            try:
                with step.providers[provider](step.model) as handle:
                    if turn < WARM + ROUNDS:
                        samples[provider].append(step.measured())
                    else:
                        more[provider]["busy_ms"] = step.busy_ms()
                if handle is not None and turn == 0:
                    more[provider]["calls"] = handle.calls
            except Exception as error:
                if provider == next(iter(step.providers)):  # what the others are compared with
                    raise
                reason = describe(error)
                print(f"{step.of_row['model']}, {provider}: {reason}")
                absent.append({**step.of_row, "provider": provider, "reason": reason})
                del samples[provider]
    rows = []
    for provider, found in samples.items():
        wall = summary([each["ms"] for each in found[WARM:]])
        last = {key: found[-1][key] for key in ("bytes", "loss", "gradient")}
        rows.append({**step.of_row, "provider": provider, "ms": wall} | more[provider] | last)
    return rows, absent


def run(out: Path, device: str, commit: str | None) -> list[dict]:
    """Measure all models, or go on with a file, which is written after each: first what it has no
    rows of, then again what lacks a provider, whose rows take the place of those before.

    Raises:
        DataError: a case could not be measured.
    """
    import transformers

    of_run = {**machine(device == "cuda"), "transformers": transformers.__version__}
    of_run |= {"commit": commit or git_commit(), "started": now()}
    before = read_json(out) if out.is_file() else {"environment": {}}
    of_run["started"] = before["environment"].get("started", of_run["started"])
    data = {"format": FORMAT, "environment": of_run, "rows": [], "absent": []}
    data |= before if before["environment"] == of_run else {}

    def of(case: tuple, kind: str) -> list[dict]:
        name, attention, _, what = case
        about = {"model": name, "attention": attention, "of": what}
        return [row for row in data[kind] if about.items() <= row.items()]

    def lacks(case: tuple) -> bool:
        known = {row["provider"] for kind in ("rows", "absent") for row in of(case, kind)}
        return not known >= providers_of(case[-1]).keys()

    failed = []
    for case in sorted(filter(lacks, CASES), key=lambda case: bool(of(case, "rows"))):
        try:
            found = dict(zip(("rows", "absent"), rows_of(Step(*case, device)), strict=True))
        except Exception as error:
            failed.append(f"{', '.join(map(str, case))}: {describe(error)}")
            continue
        for kind, rows in found.items():
            every = (rows if other == case else of(other, kind) for other in CASES)
            data[kind] = [row for some in every for row in some]
        write(out, data)
        print(*found["rows"], sep="\n", flush=True)
    if failed:
        raise DataError("\n".join(failed))
    return data["rows"]
