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
    """And its test sees a mistake in either gradient, which in 32,769 columns of the scale of 1 is
    often below the absolute tolerance of 1e-5."""
    run = "import sys; sys.path.insert(0, ''); import softmax; softmax.test_softmax()"
    alone = {"PYTHONPATH": None, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    for right, wrong in (("", ""), ("(dy - s)", "(dy + s)"), ("(dy - tl.sum", "(dy + tl.sum")):
        (tmp_path / "softmax.py").write_text(TEXT.replace(right, wrong))
        ran = python("-P", "-c", run, cwd=tmp_path, **alone)
        assert (ran.returncode == 0) is (right == wrong), ran.stderr
        assert right == wrong or "AssertionError" in ran.stderr


INF = float("inf")
HOSTILE = torch.tensor([[-INF] * 9, [-INF] * 8 + [3.0], [INF] + [0.0] * 8, [1e4] * 9, [-1e30] * 9])
ROWS = [8 * torch.randn(3, 5000), 8 * torch.randn(2, 3, 5), torch.zeros(3, 1), HOSTILE]


@quiet
@pytest.mark.parametrize("longest", [8192, 0])  # in one block, and in two loops
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_it_has_the_bits_of_the_tutorial(taken, monkeypatch, longest, dtype):
    """For any shape and layout; that those are right, the tests of the tutorial say."""
    monkeypatch.setattr(taken, "LONGEST", longest)
    rung, tile = (single_block, {}) if longest else (two_loops, {"block_cols": 4096})
    for rows in ROWS:
        x = rows.to(DEVICE, dtype).movedim(0, -1).contiguous().movedim(-1, 0).requires_grad_()
        dy = torch.randn_like(x)
        y = taken.Softmax.apply(x)
        y.backward(dy)
        matrix = lambda x: x.detach().reshape(-1, x.shape[-1]).contiguous()  # noqa: E731
        expected = rung.softmax_forward(matrix(x), **tile)
        gradient = rung.softmax_backward(expected, matrix(dy), **tile)
        exact = {"rtol": 0, "atol": 0, "equal_nan": True}
        torch.testing.assert_close(matrix(y), expected, **exact)
        torch.testing.assert_close(matrix(x.grad), gradient, **exact)
        assert y.shape == x.grad.shape == x.shape and y.dtype == x.grad.dtype == dtype


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
