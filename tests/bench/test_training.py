"""Steps of training: measured small on a CPU, and shown on their page."""

import re
import sys

import pytest
import torch

from site_build import ROOT
from softmax_bench import training
from softmax_bench.__main__ import main
from softmax_bench.schema import read_json
from softmax_site.benchmarks.training import FILE, NAMES, steps

pytest.importorskip("transformers")
pytest.importorskip("trl")


def test_a_step_is_measured_with_the_library_and_without(tmp_path, monkeypatch):
    cases = [each for each in training.CASES if each[:2] == ("Llama 3.2 1B", "sdpa")]
    monkeypatch.setattr(training, "CASES", [training.CASES[1], *cases[1:]])
    monkeypatch.setattr(training, "WARM", 0)
    monkeypatch.setattr(training, "ROUNDS", 1)
    for provider in [each for each in training.PROVIDERS if "liger" in each]:
        monkeypatch.delitem(training.PROVIDERS, provider)  # whose kernels need a GPU
    for providers in (training.PROVIDERS, training.PROVIDERS_OF_TRL):
        monkeypatch.setitem(providers, "breaks", lambda model: 1 / 0)
    out = tmp_path / FILE
    command = ["train", "--device", "cpu", "--out", str(out), "--commit", "0" * 40]
    assert main(command) == 0
    data = read_json(out)
    assert main(command) == 0 and read_json(out) == data, "goes on, with nothing left to do"
    assert [(row["of"], row["provider"]) for row in data["absent"]] == [
        (what, "breaks") for what in ("loss", "checkpointed loss", "log-probabilities")
    ]
    rows = {}
    for row in data["rows"]:
        rows.setdefault(row["of"], {})[row["provider"]] = row
    assert [*rows] == ["loss", "checkpointed loss", "log-probabilities"]
    every = "transformers", "triton_softmax", "triton_softmax, linear loss", "torch_operators"
    assert [tuple(each) for each in rows.values()] == [every, every, ("trl", "triton_softmax")]
    for what, calls in {
        "loss": {"softmax": 1}, "checkpointed loss": {}, "log-probabilities": {}
    }.items():  # fmt: skip
        theirs, ours, *others = rows[what].values()
        function = "cross_entropy" if rows[what].keys() == {*every} else "selective_log_softmax"
        assert ours["calls"] == {**calls, function: 1}
        if others:
            assert others[0]["calls"] == {**calls, "linear_cross_entropy": 1}
            assert "aten::_log_softmax" in others[1]["calls"]
        for row in (ours, *others):
            assert row["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
            assert row["gradient"] == pytest.approx(theirs["gradient"], rel=0.02)
    text = steps(tmp_path).text
    assert "2 × 32 tokens, sdpa, gradient checkpointing" in text
    assert "2 × 32 tokens, sdpa, log-probabilities" in text
    assert "Llama 3.2 1B, 2 × 32 tokens, eager<" in text


def test_a_file_goes_on_with_what_lacks_a_provider(tmp_path, monkeypatch, capsys):
    """First with what was never measured; a case that cannot be is left as it was, and said."""
    llama, gpt = ("Llama 3.2 1B", "sdpa", (4, 2048), "loss"), ("GPT-2", "sdpa", (8, 1024), "loss")
    trl = (*llama[:-1], "log-probabilities")
    monkeypatch.setattr(training, "CASES", (llama, gpt))
    monkeypatch.setattr(training, "WARM", 0)
    monkeypatch.setattr(training, "ROUNDS", 1)
    monkeypatch.setattr(training, "PROVIDERS", {"transformers": training.unpatched})
    command = ["train", "--device", "cpu", "--out", str(tmp_path / "t.json"), "--commit", "0" * 40]
    assert main(command) == 0
    before = read_json(tmp_path / "t.json")
    del before["absent"]  # as a file has none that was written before
    training.write(tmp_path / "t.json", before)
    monkeypatch.setattr(training, "CASES", (llama, gpt, trl))
    monkeypatch.setitem(training.PROVIDERS, "ours", training.patch_transformers)
    made, init = [], training.Step.__init__

    def step(self, *case):
        made.append(case[0::3])
        if case[0] == "GPT-2":
            raise RuntimeError("no memory")
        init(self, *case)

    monkeypatch.setattr(training.Step, "__init__", step)
    assert main(command) == 2
    assert made == [(llama[0], trl[3]), (llama[0], "loss"), ("GPT-2", "loss")]
    assert "GPT-2, sdpa, (8, 1024), loss: RuntimeError: no memory" in capsys.readouterr().err
    rows = read_json(tmp_path / "t.json")["rows"]
    assert [row["provider"] for row in rows] == [
        "transformers", "ours", "transformers", "trl", "triton_softmax"
    ]  # fmt: skip
    assert rows[2] == before["rows"][1] and rows[0] != before["rows"][0]


def test_ours_goes_with_the_layers_of_liger(monkeypatch):
    """Our loss counts, while the layers are Liger's: here one that is told from transformers'."""
    import transformers
    from transformers.integrations import liger

    called = []

    def apply(model, options):
        assert options == {"fused_linear_cross_entropy": False, "cross_entropy": False}
        norm, forward = model.model.norm, model.model.norm.forward
        norm.forward = lambda x: called.append(norm) or forward(x)

    monkeypatch.setattr(liger, "apply_liger_kernel", apply)
    kind = transformers.LlamaForCausalLM
    model = kind(kind.config_class(vocab_size=9, hidden_size=8, num_hidden_layers=1,
        intermediate_size=8, num_attention_heads=2, num_key_value_heads=1)).train()  # fmt: skip
    x = {"input_ids": torch.tensor([[1, 2, 3]]), "labels": torch.tensor([[1, 2, 3]])}
    for more, counted in (("", "cross_entropy"), (", linear loss", "linear_cross_entropy")):
        with training.PROVIDERS[f"liger's layers, triton_softmax{more}"](model) as handle:
            model(**x).loss.backward()
        assert handle.calls == {counted: 1} and called == [model.model.norm]
        called.clear()
    model(**x)
    assert not called and "forward" not in vars(model.model.norm), "both are undone"


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_a_patch_of_liger_is_undone(kind, monkeypatch):
    """Of one that sets what Liger's does; a kind of model that it does not know is left out."""
    import transformers
    from transformers.integrations import liger

    model = getattr(transformers, kind)
    model = model(model.config_class(vocab_size=9, hidden_size=8, num_hidden_layers=1,
        intermediate_size=8, num_attention_heads=2, num_key_value_heads=1))  # fmt: skip

    def apply(model, options):
        if kind == "LlamaForCausalLM":
            model.forward = model.model.norm.forward = lambda: None
            transformers.models.llama.modeling_llama.LlamaMLP = model.added = None

    monkeypatch.setattr(liger, "apply_liger_kernel", apply)
    places = [sys.modules[type(model).__module__], *model.modules()]
    before = [dict(vars(each)) for each in places]
    if kind == "LlamaForCausalLM":
        with training.PROVIDERS["liger"](model):
            assert "forward" in vars(model)
    else:
        with pytest.raises(NotImplementedError, match="Liger does not patch GPT2LMHeadModel"):
            training.PROVIDERS["liger"](model).__enter__()
    assert [dict(vars(each)) for each in places] == before


def test_the_page_has_ratios():
    theirs, *others = read_json(ROOT / FILE)["rows"]
    ours = next(row for row in others if row["provider"] == "triton_softmax")
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", steps(ROOT).text))
    found = ""
    for before, after in (
        (theirs["ms"]["p50"], ours["ms"]["p50"]),
        (theirs["bytes"] / 1e9, ours["bytes"] / 1e9),
    ):
        found += f"{after:.1f} × {after / before:.2f} "
    assert f"ours {found}" in text


def test_the_page_names_every_provider():
    assert {*training.PROVIDERS, *training.PROVIDERS_OF_TRL} - {*NAMES} == {"transformers"}


def test_without_data_the_page_says_so(tmp_path):
    assert "Not measured" in steps(tmp_path).text
