"""`patch_trl`: our functions in TRL's modules, with its signatures and dtypes, and gone again.

Against the installed TRL, and against a stand-in, which has an older TRL's signatures.
"""

import importlib
import inspect
import sys
import types

import pytest
import torch

import probe
from kernel_cases import DEVICE, drawn, quiet
from triton_softmax.integrations import patch_trl
from triton_softmax.integrations.trl import _trl

pytestmark = quiet
NAMES = ["selective_log_softmax", "entropy_from_logits", "selective_log_softmax_and_entropy"]
LATER = "trl.experimental.cpo.cpo_trainer"  # a trainer that imports one of them by name
TOKENS = torch.tensor([[0, 1, 6], [2, 3, 3]], device=DEVICE)
MASK = torch.tensor([[1, 0, 1], [1, 1, 0]], device=DEVICE)


@pytest.fixture
def utils():
    pytest.importorskip("trl")
    module = importlib.import_module("trl.trainer.utils")
    before = {name: vars(module)[name] for name in NAMES}
    yield module
    assert {name: vars(module)[name] for name in NAMES} == before
    assert not _trl.handles


def logits(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return drawn(2, 3, 7, scale=3.0, dtype=dtype).requires_grad_()


def gradients(results, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    results = results if isinstance(results, tuple) else (results,)
    live = [each for each in results if each.requires_grad]
    weights = [torch.linspace(0.5, 1.5, y.numel(), device=DEVICE).view(y.shape) for y in live]
    total = sum((y.double() * w).sum() for y, w in zip(live, weights, strict=True))
    return *[each.detach() for each in results], *torch.autograd.grad(total, x)


CALLS = {
    "selective": (NAMES[0], lambda f, x: f(x, TOKENS)),
    "selective by name": (NAMES[0], lambda f, x: f(index=TOKENS, logits=x)),
    "selective, tempered": (NAMES[0], lambda f, x: f(x, TOKENS, 0.7)),
    "selective, masked": (NAMES[0], lambda f, x: f(x, TOKENS, row_mask=MASK)),
    "selective of several": (NAMES[0], lambda f, x: f(x, torch.stack([TOKENS, TOKENS], -1), 0.7)),
    "several, masked": (
        NAMES[0],
        lambda f, x: f(x, torch.stack([TOKENS] * 2, -1), 0.7, torch.stack([MASK, 1 - MASK], -1)),
    ),
    "entropy": (NAMES[1], lambda f, x: f(x)),
    "entropy in chunks": (NAMES[1], lambda f, x: f(x, chunk_size=2)),
    "both": (NAMES[2], lambda f, x: f(x, TOKENS)),
    "both by position": (NAMES[2], lambda f, x: f(x, TOKENS, True, 0.7, MASK.bool())),
    "both, one gradient": (NAMES[2], lambda f, x: f(x, TOKENS, entropy_requires_grad=False)),
    "both, masked": (NAMES[2], lambda f, x: f(x, TOKENS, temperature=0.7, row_mask=MASK.float())),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_results_are_those_of_trl_and_ours_answers(utils, name, dtype):
    function, call = CALLS[name]
    x = logits(dtype)
    want = gradients(call(vars(utils)[function], x), x)
    with patch_trl() as handle, probe.launches() as ran:
        got = gradients(call(vars(utils)[function], x), x)
    assert handle.calls == {function: 1} and (ran or DEVICE == "cpu")
    tolerance = 6e-2 if dtype == torch.bfloat16 else 1e-5
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def test_signatures_stay(utils):
    before = {name: inspect.signature(vars(utils)[name]) for name in NAMES}
    documented = vars(utils)[NAMES[0]].__doc__
    with patch_trl():
        assert {name: inspect.signature(vars(utils)[name]) for name in NAMES} == before
        assert vars(utils)[NAMES[0]].__doc__ == documented
        with pytest.raises(TypeError, match="unexpected"):
            utils.selective_log_softmax(logits(), TOKENS, foo=1)
        with pytest.raises(TypeError, match="missing"):
            utils.selective_log_softmax(logits())
        with pytest.raises(ValueError, match="positive"):
            utils.selective_log_softmax(logits(), TOKENS, temperature=0.0)


def test_modules_that_are_imported_meanwhile_get_theirs_back(utils, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # it warns of its experimental trainers
    theirs = utils.selective_log_softmax
    for name in [each for each in sys.modules if each.startswith("trl.experimental.cpo")]:
        del sys.modules[name]
    with patch_trl():
        later = importlib.import_module(LATER)
        ours = utils.selective_log_softmax
        assert later.selective_log_softmax is ours is not theirs
    assert later.selective_log_softmax is theirs
    with patch_trl():  # loaded before
        assert later.selective_log_softmax is utils.selective_log_softmax is not theirs
    torch.testing.assert_close(ours(logits(), TOKENS), theirs(logits(), TOKENS))  # kept: theirs


def test_only_what_is_still_ours_is_put_back(utils, monkeypatch):
    mine = lambda *_: None  # noqa: E731
    handle = patch_trl()
    monkeypatch.setattr(utils, "entropy_from_logits", mine)
    handle.remove()
    assert utils.entropy_from_logits is mine
    monkeypatch.undo()
    for old, new in _trl._pairs:  # monkeypatch put ours back
        if utils.entropy_from_logits is new:
            utils.entropy_from_logits = old


def test_no_trl_is_an_error_that_names_it(monkeypatch):
    for name in [each for each in sys.modules if f"{each}.".startswith("trl.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ImportError, match="trl"):
        patch_trl()
    assert not _trl.handles


@pytest.fixture
def older(monkeypatch):
    """A TRL of two functions, with neither temperature nor mask nor kernel."""

    def selective_log_softmax(logits, index):
        return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def entropy_from_logits(logits, chunk_size: int = 1):
        logs = logits.log_softmax(-1)
        return -(logs.exp() * logs).sum(-1)

    names = ["trl", "trl.trainer", "trl.trainer.utils", "trl.trainer.grpo_trainer"]
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for function in (selective_log_softmax, entropy_from_logits):
        function.__module__ = "trl.trainer.utils"
        for name in names[2:]:
            setattr(modules[name], function.__name__, function)
    return modules["trl.trainer.utils"], modules["trl.trainer.grpo_trainer"]


def test_an_older_trl(older):
    utils, trainer = older
    theirs = utils.selective_log_softmax
    with patch_trl() as handle:
        assert not hasattr(utils, "selective_log_softmax_and_entropy")
        x = logits(torch.bfloat16)
        found = trainer.selective_log_softmax(x, index=TOKENS)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, theirs(x, TOKENS), rtol=3e-2, atol=3e-2)
        with pytest.raises(TypeError):
            trainer.selective_log_softmax(x, TOKENS, 0.7)  # it has no temperature
        trainer.entropy_from_logits(x)
    assert handle.calls == {"selective_log_softmax": 1, "entropy_from_logits": 1}
    assert trainer.selective_log_softmax is utils.selective_log_softmax is theirs


def test_compiled(older):
    utils, _ = older
    x = logits()
    with patch_trl() as handle:
        total = lambda x: utils.entropy_from_logits(x).sum()  # noqa: E731
        compiled = torch.compile(total, backend="eager", fullgraph=True)
        got = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(got, torch.autograd.grad(total(x), x))
    assert handle.calls == {}
