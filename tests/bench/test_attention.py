"""What the benchmark of attention does with its calls, without a GPU."""

import pytest
import torch

from softmax_bench import attention
from softmax_bench.schema import read_json


def once(call):
    call()
    return [2.0, 4.0]


def test_a_provider_that_fails_is_noted_and_others_go_on():
    def fail():
        raise RuntimeError("no kernel")

    made = {"fails": fail, "works": lambda: torch.ones(2)}
    found = attention.timed(once, made, synchronize=lambda: None)
    assert found["fails"] == {"error": "RuntimeError: no kernel"}
    assert found["works"]["p50"] == 3.0 and found["works"]["us_loop"] > 0


def test_the_backward_pass_is_called_alone():
    calls, leaf = [], torch.ones(3, requires_grad=True)

    def forward():
        calls.append("forward")
        return leaf * 2

    backward = attention.backward_of(forward, [leaf], torch.ones(3))
    for _ in range(3):
        (gradient,) = backward()
        assert gradient.tolist() == [2.0, 2.0, 2.0]
    assert calls == ["forward"]


def test_providers():
    q = torch.randn(1, 2, 64, 64).bfloat16()
    made = attention.calls(q, q, q, True)
    assert {"attention", "fa2", "cudnn", *attention.RUNGS} == set(made)
    assert attention.worst_error(made["in_memory"](), q, q, q, True) < 0.02
    assert set(attention.calls(q.requires_grad_(), q, q, True)) == {"attention", "fa2", "cudnn"}


def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "LENGTHS", (1024,))
    monkeypatch.setattr(attention.measure, "CudaTimer", lambda: once)
    case = {"direction": "decoding", "dims": 128, "length": 65_536, "causal": False}
    monkeypatch.setattr(attention, "decoding", lambda timer: [case])
    asked = []

    def rows_of(timer, dims, length, causal):
        asked.append((dims, length, causal))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return [{"direction": "forward", "dims": dims, "length": length, "causal": causal}]

    monkeypatch.setattr(attention, "rows_of", rows_of)
    out = tmp_path / "attention.json"
    with pytest.raises(KeyboardInterrupt):
        attention.run(out, "one")
    attention.run(out, "one")
    assert asked[2:] == [(64, 1024, False), (64, 1024, False), (64, 1024, True)]
    (run,) = read_json(out)["runs"]
    assert len(run["rows"]) == 5 and run["commit"] == "one"
