"""The runner, on tiny shapes and a made-up clock: what it checks, records, and takes up again."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from softmax_bench import (
    inputs,
    invariance,
    measure,
    providers,
    report,
    results,
    roster,
    runner,
    schema,
    targets,
    warmup,
)
from softmax_bench.__main__ import main
from softmax_bench.case import Case
from softmax_bench.cases import MODES, SUITES, select
from softmax_bench.roster import COPY

ON_GPU = torch.cuda.is_available()


class MadeUpTimer:
    name = "made-up"
    flush_bytes = 0

    def __init__(self):
        self.calls, self.called = 0, []

    def __call__(self, call, cold=True):
        self.calls += 1
        if call not in self.called:
            self.called.append(call)
            call()
        return [10.0, 12.0, 11.0]


def start(path, **changes):
    timer = MadeUpTimer()
    env = results.environment("cpu", "0123456789", timer) | changes
    said = []
    made = inputs.Inputs("cpu", seed=0)
    run = runner.Runner(results.Results(path, env), made, timer, say=said.append)
    return run, timer, said


def measured(tmp_path, cases):
    """The rows of a run, which keep to the schema."""
    run, _, _ = start(tmp_path / "data.json")
    run.run(cases)
    return schema.load(tmp_path / "data.json")["rows"]


def row_of(tmp_path, name, who=(COPY,)):
    """The row of a provider that is measured beside the copy."""
    return measured(tmp_path, [case(who=(*who, name))])[-1]


def case(suite="forward", shape=(2, 5), who=(COPY, "torch"), **more):
    return Case(suite, shape, providers=who, **more)


def test_a_row_holds_everything_on_a_line_and_keeps_to_the_schema(tmp_path):
    out = tmp_path / "data.json"
    run, _, said = start(out)
    run.run([case(who=(COPY, "torch", "naive"))])
    data = schema.load(out)
    copy, torch_row, naive = data["rows"]
    assert sum('"case"' in line for line in out.read_text().splitlines()) == 3
    assert torch_row["us"] == {"p20": 10.0, "p50": 11.0, "p80": 12.0}
    assert torch_row["samples"] == 3 * report.TURNS
    assert torch_row["us_turns"] == [11.0] * report.TURNS
    assert torch_row["bytes"] == 2 * 2 * 5 * 4
    assert torch_row["max_rel_error"] < 1e-6
    assert naive["status"] == "ok" and naive["kernels"] == []
    assert copy["max_rel_error"] is None
    assert data["environment"]["commit"] == "0123456789"
    assert "forward/softmax/forward/float32/2x5" in said[1]


@pytest.mark.parametrize(
    "geometry, shape, more",
    [
        ("packed_rows", (2, 16), {"who": ("triton_softmax", "packed_rows")}),
        ("packed_rows", (2, 5), {"who": ("packed_rows",)}),
        ("aligned_rows", (3, 129), {"who": ("triton_softmax", "aligned_rows")}),
        ("split_rows", (2, 9), {"who": ("split_rows",)}),
        ("strided", (4, 9), {"who": ("triton_softmax",), "dim": 0}),
    ],
)
def test_a_row_names_the_geometry_that_was_planned(geometry, shape, more, tmp_path):
    """Of two that share a kernel, too, forward and backward."""
    cases = [case(shape=shape, direction=way, **more) for way in ("forward", "backward")]
    rows = measured(tmp_path, cases)
    assert len(rows) == 2 * len(more["who"])
    for row in rows:
        assert (row["status"], row["kernels"]) == ("ok", [f"{geometry}_kernel"]), row


@pytest.mark.parametrize(
    "suite", [name for name in SUITES if "compile" not in name and name != "loss_head"]
)
def test_every_kind_of_case_runs(suite, tmp_path):
    seen, cases = set(), []
    for found in SUITES[suite]:
        kind = (found.op, found.direction, found.dim, found.layout, found.inputs)
        if kind not in seen:
            seen.add(kind)
            shape = (3,) * (len(found.shape) - 1) + (9,)
            who = tuple(name for name in found.providers if name == COPY)
            cases.append(replace(found, shape=shape, providers=(*who, "torch", "naive")))
    for row in measured(tmp_path, cases):
        may_refuse = row["provider"] == "naive" and (row["op"] == "logsumexp" or row["dim"] != -1)
        assert row["status"] == "ok" or (may_refuse and row["status"] == "refused"), row


def test_steps_inside_torch_compile(tmp_path, monkeypatch):
    """All of the suite but compiling, which takes a compiler minutes on a CPU."""
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    rows = measured(tmp_path, [replace(case, shape=(3, 9)) for case in SUITES["compiled"]])
    assert len(rows) == 2 * 2 * 2 * len(MODES)  # types, directions, who
    assert all(row["status"] == "ok" and row["us"]["p50"] > 0 for row in rows)


def test_the_loss_head(tmp_path, monkeypatch):
    """Every kind of case with who needs no GPU; a layer is small."""
    monkeypatch.setattr(inputs, "WIDTH", 8)
    cases = {}
    for found in SUITES["loss_head"]:
        shape = (1, 2, 8, 8) if len(found.shape) == 4 else (4, 9)
        who = tuple(name for name in found.providers if name != "torch.compile")
        cases[found.op, found.direction, found.inputs] = replace(found, shape=shape, providers=who)
    rows = measured(tmp_path, list(cases.values()))
    for row in rows:
        elsewhere = row["provider"] in roster.PACKAGES  # which may be installed
        assert row["status"] == "ok" or elsewhere and row["status"] == "skipped", row
    found = targets.cells(rows)
    assert len(found) == len(cases) and all(cell.asked and cell.reached for cell in found)


@pytest.mark.parametrize("how", ["normal", "in_place"])
def test_a_loss_that_overwrites_its_logits_is_called_as_its_users_call_it(how, monkeypatch):
    """Liger gets logits of its own, once, so that no copy is timed and no other call reads what it
    wrote; QuACK and we overwrite them where the case asks for that."""
    seen = []

    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append((x.data_ptr(), x.is_leaf))
            x.fill_(0.5)
            ctx.save_for_backward(x.detach())
            return x.detach()[0, 0].clone()

        @staticmethod
        def backward(ctx, dl):
            return ctx.saved_tensors[0]

    def quack(x, target, **options):
        seen.append(options)
        return x.sum()

    liger = SimpleNamespace(LigerCrossEntropyLoss=lambda: lambda x, target: Written.apply(x))
    modules = {
        "liger_kernel.transformers": liger,
        "quack.cross_entropy": SimpleNamespace(cross_entropy=quack),
    }
    monkeypatch.setattr(providers, "imported", modules.__getitem__)
    asked = case("loss_head", (4, 9), op="cross_entropy", direction="forward_backward", inputs=how)
    t = inputs.Inputs("cpu", seed=0).tensors(asked)
    before = t.x.clone()
    call = providers.prepare(asked, "liger", t)
    call(), call()
    (first, leaf), (second, _) = seen
    assert first == second != t.x.data_ptr() and leaf, "the logits are copied within the call"
    assert torch.equal(t.x, before)
    providers.prepare(asked, "quack", t)()
    assert seen[-1]["inplace_backward"] == (how == "in_place")
    monkeypatch.undo()
    providers.prepare(asked, roster.CHOOSER, t)()
    assert torch.equal(t.x, before) == (how == "normal")


def test_a_wrong_answer_is_recorded_as_wrong(tmp_path, monkeypatch):
    monkeypatch.setitem(
        providers.FUNCTIONS, "liger", lambda case, t: lambda x: torch.softmax(x, -1) * 1.01
    )
    row = row_of(tmp_path, "liger", who=(COPY, "torch"))
    assert row["status"] == "wrong" and "0.01" in row["reason"]


def test_an_element_left_unwritten_is_recorded_as_wrong(tmp_path, monkeypatch):
    def half(case, t):
        def function(x):
            out = torch.full_like(x, float("nan"))
            out[:, :-1] = torch.softmax(x, -1)[:, :-1]
            return out

        return function

    monkeypatch.setitem(providers.FUNCTIONS, "liger", half)
    row = row_of(tmp_path, "liger")
    assert (row["status"], row["max_rel_error"]) == ("wrong", "inf")


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (providers.Missing("import x: no"), "skipped"),
        (providers.Refused("too long"), "refused"),
        (ValueError("too long"), "refused"),
        (RuntimeError("n = 81188 exceeds the recommended Triton blocksize = 65536."), "refused"),
        (RuntimeError("boom"), "failed"),
    ],
)
def test_a_provider_without_a_result_keeps_its_row_and_its_reason(
    raised, status, tmp_path, monkeypatch
):
    def prepare(case, t):
        raise raised

    monkeypatch.setitem(providers.FUNCTIONS, "quack", prepare)
    row = row_of(tmp_path, "quack")
    assert row["status"] == status and str(raised) in row["reason"]


@pytest.mark.skipif(ON_GPU, reason="the peers may be installed on the GPU machine")
def test_peers_that_are_not_installed_are_skipped_with_a_reason(tmp_path):
    """And are not asked again; what is there, but cannot be imported yet, is."""
    cases = [case(who=(COPY, "liger", "flag_gems", "quack"))]
    for row in measured(tmp_path, cases)[1:]:
        assert row["status"] == "skipped" and "import" in row["reason"]
    run, timer, said = start(tmp_path / "data.json")
    run.run(cases)
    assert timer.calls == 0 and said[0].startswith("0 of 1 cases")
    run.results.environment["peers"] = run.results.environment["peers"] | {"quack": "0.6.5"}
    run.run(cases)
    assert said[1].startswith("1 of 1 cases to measure, 2 rows")


@pytest.mark.parametrize("name", ["trl", "transformer_engine", "helion", "flashinfer"], ids=str)
def test_a_library_asked_here_and_there_is_called_as_its_users_call_it(name, monkeypatch):
    """Stand-ins with the signatures of their authors, on every case that asks for the library; what
    they do not offer is refused."""

    def both(logits, index, temperature=1.0, row_mask=None):
        y = torch.log_softmax(logits.float(), -1)
        return y.gather(-1, index[:, None])[:, 0], -(y.exp() * y).sum(-1)

    def parallel(inp, target, reduce_loss=False, *, overwrite_input=False):
        assert inp.shape[:2] == target.shape and reduce_loss
        return torch.nn.functional.cross_entropy(inp[0], target[0])

    def softmax(logits, temperature=None):
        return torch.softmax(logits if temperature is None else logits / temperature[:, None], -1)

    def loss(logits, labels):
        return torch.logsumexp(logits, -1).sub(logits.gather(-1, labels[:, None])[:, 0]).mean()

    modules = {
        "trl.kernels.logprob_entropy": {"selective_log_softmax_and_entropy": both},
        "transformer_engine.pytorch.cross_entropy": {"parallel_cross_entropy": parallel},
        "pretuned_kernels.softmax.softmax": {"softmax": softmax},
        "pretuned_kernels.cross_entropy.cross_entropy": {"cross_entropy": loss},
        "flashinfer.sampling": {"softmax": softmax},
    }
    monkeypatch.setattr(providers, "imported", lambda module: SimpleNamespace(**modules[module]))
    cases = {
        replace(each, shape=(4, 9))
        for of in SUITES.values()
        for each in of
        if name in each.providers
    }
    assert cases
    for asked in cases:
        t = inputs.Inputs("cpu", seed=0).tensors(asked)
        found = providers.as_tuple(providers.prepare(asked, name, t)())
        for one, right in zip(found, providers.reference(asked, t), strict=True):
            torch.testing.assert_close(one.double(), right.double(), rtol=1e-2, atol=1e-2)
    for more in ({"dtype": "float16", "direction": "backward"}, {"op": "logsumexp"}):
        with pytest.raises(providers.Refused):
            providers.FUNCTIONS[name](case(**more), None)


def test_a_second_run_measures_only_what_is_missing(tmp_path):
    out = tmp_path / "data.json"
    first, timer, _ = start(out)
    first.run([case()])
    assert timer.calls == 2 * report.TURNS
    second, timer, said = start(out)
    second.run([case(), case(shape=(2, 7))])
    assert timer.calls == 2 * report.TURNS
    assert said[0].startswith("1 of 2 cases")
    assert len(schema.load(out)["rows"]) == 4


def test_who_ends_the_process_is_not_asked_again(tmp_path, monkeypatch):
    """What was asked last is on disk until the run ends."""
    marker, marked, asked = tmp_path / "data.now", [], [case(who=(COPY, "liger", "torch"))]

    def function(case, t):
        marked.append(marker.read_text())
        return lambda x: torch.softmax(x, -1)

    monkeypatch.setitem(providers.FUNCTIONS, "liger", function)
    measured(tmp_path, asked)
    assert marked == [f"{asked[0].id} liger"] and not marker.exists()
    (tmp_path / "data.json").unlink()
    marker.write_text(marked[0])
    rows = {row["provider"]: row for row in measured(tmp_path, asked)}
    assert rows["liger"]["status"] == "failed" and "ended" in rows["liger"]["reason"]
    assert rows["torch"]["status"] == "ok" and len(marked) == 1


def test_the_median_of_uneven_turns_is_in_order():
    """Half of all samples may be of the two turns that are unlike the others."""
    row = runner.taken([[9.0] * 5, [9.0] * 5] + [[10.0]] * 8)
    assert row["us"]["p50"] == 9.0 and not [*schema.disordered(row, "row")]
    row["us"]["p50"] = 8.9
    assert [*schema.disordered(row, "row")]


def test_all_are_timed_in_turn_but_slow_ones_seldom(tmp_path):
    order, run = [], start(tmp_path / "data.json")[0]
    breaks = []

    def timer(call, cold=True):
        name = next(name for name, made in calls.items() if made is call)
        order.append(name)
        if name in breaks:
            raise RuntimeError("no more")
        return [20.0] * 4 if name != "naive" else [2e5]

    calls = {COPY: lambda: None, "naive": lambda: None, "torch": lambda: None}
    run.timer, found = timer, {name: {"status": "ok"} for name in calls}
    run._time(case(), found, dict(calls))
    assert order[: 3 * measure.FEW] == [COPY, "naive", "torch"] * measure.FEW
    assert order[3 * measure.FEW :] == [COPY, "torch"] * (report.TURNS - measure.FEW)
    assert found["naive"]["us_turns"] == [2e5] * measure.FEW
    assert found["torch"]["samples"] == 4 * report.TURNS
    assert found["torch"]["us_turns"] == [20.0] * report.TURNS
    breaks.append("torch")
    run._time(case(), found, dict(calls))
    assert found["torch"]["status"] == "failed" and "no more" in found["torch"]["reason"]
    assert found[COPY]["samples"] == 4 * report.TURNS


def test_a_call_in_a_loop_is_called_until_the_time_is_up():
    calls = []

    def call(us):
        calls.append(us)
        time.sleep(us / 1e6)

    for us, at_most in ((100.0, 210), (4000.0, 13)):
        calls.clear()
        each = measure.in_a_loop(lambda us=us: call(us), lambda: None)
        assert us <= each and 5 <= len(calls) - 3 <= at_most


def test_batch_invariance_is_timed_in_turn():
    """By every kind of call, of which each is made on small tensors."""
    timer = MadeUpTimer()
    kinds = {(each.op, each.direction, each.dim): each for each in invariance.cases().values()}
    for each in kinds.values():
        small = replace(each, shape=(3, 9))
        found = invariance.measured(small, timer, inputs.Inputs("cpu", seed=0))
        assert found == {"plain_us": 11.0, "invariant_us": 11.0, "ratio": 1.0}
    assert timer.calls == 2 * report.TURNS * len(kinds) and len(kinds) > 4


def test_the_price_of_batch_invariance_is_written_after_each_call(tmp_path, monkeypatch):
    """So that a run which is cut off goes on; another commit begins anew."""
    found, out = dict(list(invariance.cases().items())[:3]), tmp_path / "invariant.json"
    monkeypatch.setattr(invariance, "cases", lambda: found)
    monkeypatch.setattr(invariance.measure, "CudaTimer", lambda ms: None)
    monkeypatch.setattr(invariance, "Inputs", lambda device: None)
    asked = []

    def measured(case, timer, inputs):
        asked.append(case.id)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {"plain_us": 10.0, "invariant_us": 10.0 + len(asked), "ratio": 1 + len(asked) / 10}

    monkeypatch.setattr(invariance, "measured", measured)
    with pytest.raises(KeyboardInterrupt):
        invariance.run(out, "one", 0)
    assert len(schema.read_json(out)["calls"]) == 1
    data = invariance.run(out, "one", 0)
    assert data == schema.read_json(out) and len(asked) == 4
    assert (data["count"], data["within"], data["most"]) == (3, 0, 1.4)
    invariance.run(out, "two", 0)
    assert len(asked) == 7


def test_a_run_is_of_one_machine_and_one_commit(tmp_path):
    out = tmp_path / "data.json"
    first, _, _ = start(out)
    first.run([case(who=(COPY, "naive"))])
    began = schema.load(out)["environment"]["started"]
    again, timer, _ = start(out, started="2030-01-01T00:00:00Z")
    again.run([case(who=(COPY, "naive"))])
    assert timer.calls == 0 and schema.load(out)["environment"]["started"] == began
    for other in ({"gpu": "another"}, {"commit": "another one"}, {"peers": {"liger": "2"}}):
        with pytest.raises(schema.DataError, match=f"with another {next(iter(other))}$"):
            start(out, **other)


def test_the_command_measures_and_goes_on(tmp_path, capsys):
    """What is compiled ahead is the same call, and leaves no rows."""
    out = tmp_path / "data.json"
    arguments = ["run", "--device", "cpu", "--cases", "batch/softmax/forward/float32/1x1024"]
    arguments += ["--providers", "triton_softmax", "--out", str(out)]
    assert main(arguments) == 0
    assert [row["status"] for row in schema.load(out)["rows"]] == ["ok", "ok"]
    assert "0 of 1 cases" not in capsys.readouterr().out
    assert main(arguments) == 0 and "0 of 1 cases" in capsys.readouterr().out


def test_what_is_compiled_ahead_is_called_once(tmp_path, monkeypatch):
    """Of those who compile, and are not measured yet; who breaks is left to the measurement."""
    run, _, _ = start(tmp_path / "data.json")
    done, todo = (
        case(who=(COPY, "torch", "liger")),
        case(shape=(2, 7), who=(COPY, "torch", "liger")),
    )
    run.results.add(done, "liger")
    pairs = runner.to_compile([done, todo], run.results)
    assert pairs == [(todo, "liger")]
    called = []

    def prepare(case, name, tensors):
        called.append(name)
        raise RuntimeError("not here")

    warmup.call_each(prepare, [*enumerate(pairs * 2)], run.inputs)
    assert called == ["liger"] * 2
    loss = select(["loss_head/cross_entropy/forward/float32/*"], [roster.CHOOSER])
    assert runner.to_compile(loss, run.results) == [(each, roster.CHOOSER) for each in loss]


def lasting(case, name, tensors):
    """What leaves a thread running, or does not return at all."""
    threading.Thread(target=time.sleep, args=(600.0,)).start()
    return lambda: time.sleep(600.0) if name == "hangs" else None


def test_processes_that_compile_ahead_end_when_the_work_does(capfd):
    begin = time.monotonic()
    warmup.compile_ahead(lasting, [(case(shape=(n, 2)), "torch") for n in (1, 2, 3)], 2, "cpu")
    assert time.monotonic() - begin < warmup.SECONDS
    *_, last = capfd.readouterr().out.splitlines()
    assert last.endswith(" s; 2 of 2 ended"), "and nothing is left to say"
    warmup.compile_ahead(lasting, [], 2, "cpu")
    assert capfd.readouterr().out.endswith("0 of 0 ended\n"), "nobody is begun for nothing"


def test_who_still_compiles_at_the_end_is_said(capfd, monkeypatch):
    monkeypatch.setattr(warmup, "SECONDS", 25.0)
    pairs = [(case(), "torch"), (case(shape=(3, 5)), "hangs"), (case(shape=(3, 5)), "torch")]
    warmup.compile_ahead(lasting, pairs, 1, "cpu")
    *_, ended, at = capfd.readouterr().out.splitlines()
    assert ended.startswith("compiled ahead in 2") and ended.endswith(" s; 0 of 1 ended")
    assert at.startswith("  one was at forward/softmax/forward/float32/3x5 hangs for ")


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="its kernel is interpreted")
def test_ahead_each_configuration_is_called_once_and_not_timed(monkeypatch):
    """Unless the choice is kept on disk, as that of a class of its own may be."""
    monkeypatch.setattr(Autotuner, "_bench", Autotuner._bench)
    with torch._inductor.config.patch(autotune_local_cache=True):
        warmup.only_compile()
        assert not torch._inductor.config.autotune_local_cache
    configs, x = [triton.Config({"STEP": step}) for step in (1, 10)], torch.zeros(1)
    triton.autotune(configs, key=["n"])(step_kernel)[1,](x, 1)
    assert x.item() == 12, "each, and then the first of them"

    class Keeps(Autotuner):
        do_bench = staticmethod(lambda call, quantiles: [float("nan")] * 3)

    keeps = Keeps(step_kernel, ["x_ptr", "n", "STEP"], configs, ["n"], None, None)
    keeps[1,](x, 1)
    assert x.item() == 13, "its own benchmark has called none of them"


@triton.jit
def step_kernel(x_ptr, n, STEP: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) + STEP)


@pytest.mark.parametrize("where", ["tensors", "call"])
def test_memory_that_others_hold_is_no_row(where, tmp_path, monkeypatch):
    """Where many processes share a GPU; in a suite that is timed alone it is the provider's."""

    def none_left(*_, **__):
        raise torch.OutOfMemoryError("none left")

    run, _, _ = start(tmp_path / "data.json")
    if where == "tensors":
        monkeypatch.setattr(run.inputs, "tensors", none_left)
    else:
        monkeypatch.setitem(providers.FUNCTIONS, "torch", none_left)
    with pytest.raises(torch.OutOfMemoryError):
        run.run([case("accuracy", who=("torch",))])
    assert not run.results.rows and not run.marker.exists()
    run.run([case(who=("torch",))])
    (row,) = run.results.rows.values()
    assert row["status"] == "failed" and "none left" in row["reason"]


def test_compiles_are_not_counted_without_a_gpu(tmp_path):
    asked = case("compiles", (4, 10), ("triton_softmax",), inputs="sweep")
    (row,) = measured(tmp_path, [asked])
    assert row["status"] == "skipped"


def test_errors_count_nan_and_infinity():
    want = torch.tensor([[1.0, 2.0], [4.0, 0.0]], dtype=torch.float64)
    assert measure.errors(want.float(), want, -1) == (0.0, 0.0)
    got = want.clone()
    got[1, 0] = 3.0
    assert measure.errors(got, want, -1) == (1.0, 0.25)
    assert measure.errors(got, want, -1, chunk=1) == (1.0, 0.25)
    assert measure.errors(got, want, 0) == (1.0, 0.25)
    got[0, 0] = float("nan")
    assert measure.errors(got, want, -1) == (float("inf"), float("inf"))
    both = want.clone()
    both[0, 0] = float("nan")
    assert measure.errors(both.float(), both, -1) == (0.0, 0.0)
    with pytest.raises(ValueError, match="shape"):
        measure.errors(want[0], want, -1)


def test_selection_narrows_suites_and_providers():
    chosen = select(["forward/*", "ladder/*"], ["torch", "quack"])
    named = [found.id for found in chosen if (found.dtype, found.n_cols) == ("bfloat16", 1024)]
    assert named == [
        "forward/softmax/forward/bfloat16/131072x1024",
        "ladder/softmax/forward/bfloat16/131072x1024",
        "ladder/softmax/backward/bfloat16/131072x1024",
    ]
    assert chosen[0].providers == (COPY, "torch", "quack")
    with pytest.raises(ValueError, match="no case fits x"):
        select(["x"])
    with pytest.raises(ValueError, match="no such provider: x"):
        select(providers=["x"])


def test_case_names_are_unique():
    ids = [found.id for found in select()]
    assert len(ids) == len(set(ids))


@pytest.mark.gpu
def test_a_short_run_on_the_device(tmp_path):
    timer = measure.CudaTimer(target_ms=2.0)
    env = results.environment("cuda", "0123456789", timer)
    found = results.Results(tmp_path / "data.json", env)
    run = runner.Runner(found, inputs.Inputs("cuda", seed=0), timer)
    who = (COPY, "triton_softmax", "torch")
    run.run(
        [
            case(shape=(4096, 1024), who=who),
            case("backward", (4096, 1024), who, direction="backward"),
        ]
    )
    assert {row["status"] for row in found.rows.values()} == {"ok"}
    schema.load(tmp_path / "data.json")
