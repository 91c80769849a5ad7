"""The file that a reader takes along: small, like the tutorial's kernels, right by itself."""

import ast
import importlib.util

import pytest
import torch

from kernel_cases import DEVICE, quiet
from site_build import ROOT, python
from softmax_site import take_home
from softmax_tutorial import single_block, two_loops
from softmax_tutorial.single_block import num_warps_for_block

TEXT = (ROOT / take_home.FILE).read_text("utf8")


@pytest.fixture(scope="module")
def taken():
    """The file as a module."""
    spec = importlib.util.spec_from_file_location("taken", ROOT / take_home.FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_small_and_needs_torch_and_triton_alone():
    assert len(TEXT.splitlines()) <= 110
    nodes = list(ast.walk(ast.parse(TEXT)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} == {"torch", "triton"}


@pytest.mark.slow
def test_it_runs_where_there_is_nothing_else(tmp_path):
    """And its test sees a mistake."""
    run = "import sys; sys.path.insert(0, ''); import softmax; softmax.test_softmax()"
    alone = {"PYTHONPATH": None, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    for text, fine in ((TEXT, True), (TEXT.replace("(dy - s)", "(dy + s)"), False)):
        (tmp_path / "softmax.py").write_text(text)
        ran = python("-P", "-c", run, cwd=tmp_path, **alone)
        assert (ran.returncode == 0) is fine, ran.stderr
        assert fine or "AssertionError" in ran.stderr


BOTH_WAYS = pytest.mark.parametrize("longest", [8192, 4])  # in one block, and in two loops


@BOTH_WAYS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_has_the_bits_of_the_tutorial(taken, monkeypatch, longest, dtype):
    monkeypatch.setattr(taken, "LONGEST", longest)
    rung, tile = (two_loops, {"block_cols": 4096}) if longest == 4 else (single_block, {})
    x = (8 * torch.randn(3, 5000, device=DEVICE)).to(dtype).requires_grad_()
    dy = torch.randn_like(x)
    y = taken.Softmax.apply(x)
    y.backward(dy)
    assert torch.equal(y, rung.softmax_forward(x.detach(), **tile))
    assert torch.equal(x.grad, rung.softmax_backward(y.detach(), dy, **tile))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 5), (2, 700)], ids=str)
@BOTH_WAYS
def test_it_is_right(taken, monkeypatch, shape, dtype, longest):
    """For any layout."""
    monkeypatch.setattr(taken, "LONGEST", longest)
    x = (8 * torch.randn(shape, device=DEVICE)).to(dtype).movedim(0, -1).contiguous()
    x = x.movedim(-1, 0).requires_grad_()
    dy = torch.randn_like(x)
    exact = x.detach().double().requires_grad_()
    expected = torch.softmax(exact, -1)
    expected.backward(dy.double())
    y = taken.Softmax.apply(x)
    y.backward(dy)
    error = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    assert y.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(y.double(), expected, atol=error, rtol=error)
    torch.testing.assert_close(x.grad.double(), exact.grad, atol=4 * error, rtol=4 * error)


@quiet
@BOTH_WAYS
def test_hostile_rows_give_what_pytorch_gives(taken, monkeypatch, longest):
    monkeypatch.setattr(taken, "LONGEST", longest)
    inf = float("inf")
    x = torch.tensor([[-inf] * 9, [-inf] * 8 + [3.0], [inf] + [0.0] * 8, [1e4] * 9, [-1e30] * 9])
    x = torch.cat([x, torch.full((1, 9), float("nan"))]).to(DEVICE)
    y = taken.Softmax.apply(x)
    torch.testing.assert_close(y, torch.softmax(x, -1), equal_nan=True)


def test_it_launches_as_the_tutorial_does(taken, monkeypatch):
    asked = {}

    class Kernel:
        def __getitem__(self, grid):
            return lambda *_, num_warps: asked.update({_[-1]: num_warps})

    for exponent in range(16):
        taken.run(Kernel(), None, torch.empty(1, 2**exponent))
    assert asked == {2**at: num_warps_for_block(2**at) for at in range(16)}


@pytest.mark.gpu
def test_on_a_gpu(taken):
    taken.test_softmax("cuda")


def test_the_page_has_the_file_to_copy_and_to_download(site):
    assert (site / take_home.PATH).read_text("utf8") == TEXT
    page = (site / "use/take-this-kernel/index.html").read_text("utf8")
    assert 'href="../../assets/take-home/softmax.py"' in page and "excerpt" in page
