"""The ladder on the GPU of a reader: the command, the notebook, and what its page promises."""

import json
import re

import pytest
import torch
from markdown import Markdown

from site_build import ROOT, python
from softmax_site import on_your_gpu
from softmax_site.markdown import SiteExtension
from softmax_tutorial import __main__ as command
from softmax_tutorial import ladder_table

HUB = "https://github.com/someone/softmax"


@pytest.mark.slow
@pytest.mark.parametrize("interpret, rest, says, code", [
    (None, (), "There is no GPU here", 1),
    ("1", ("--shape", "2x700"), "7 of 7 answers were computed, and agree with float64.", 0),
    ("1", ("--shape", "0x7"), "invalid shape value", 2),
])  # fmt: skip
def test_the_command_without_a_gpu(interpret, rest, says, code):
    alone = {"PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    ran = python("-m", "softmax_tutorial", *rest, TRITON_INTERPRET=interpret, **alone)
    assert says in ran.stdout + ran.stderr
    assert ran.returncode == code


def test_a_wrong_answer_is_not_timed():
    x = torch.randn(3, 5)
    command.check("naive", lambda: torch.softmax(x, -1), x)
    for name in ("naive", "copy"):
        with pytest.raises(AssertionError, match=f"{name} gives a wrong answer"):
            command.check(name, lambda: torch.softmax(x, 0), x)


def test_a_rung_that_does_not_run_leaves_the_others(monkeypatch, capsys):
    def refuse(x, **_):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(command.RUNGS["two_loops"], "softmax_forward", refuse)
    assert command.main(["--shape", "2x5"]) == 0
    out = capsys.readouterr().out
    assert "two loops does not run here: RuntimeError: no such instruction" in out
    assert torch.cuda.is_available() or out.startswith("6 of 7 answers were computed")


@pytest.mark.gpu
def test_on_a_gpu(capsys):
    assert command.main([]) == 0
    out = capsys.readouterr().out
    for label in ladder_table.LADDER.values():
        assert re.search(rf"^{label} +[\d,.]+ +[\d,]+ +\d\.\d\d  █+ +\d\.\d\d$", out, re.M), out


def test_the_table_says_what_was_measured():
    us = dict(zip(ladder_table.LADDER, (100.0, 400.0, 200.0, 150.0, 110.0, 105.0, 101.0)))
    beside = {name: {"us": {"p50": 2 * each}} for name, each in us.items()}
    environment = {"gpu": "A GPU", "torch": "2.13.0+cu130", "triton": "3.7.1"}
    beside["copy"]["environment"] = environment
    head, *lines, last = ladder_table.table(us, 400_000_000, beside).splitlines()
    assert head.split() == ["µs", "GB/s", "of", "a", "copy", "ours"]
    assert len(lines) == len(us)
    assert lines[1].split() == ["naive", "400.0", "1,000", "0.25", "█" * 6, "0.25"]
    assert last.endswith("A GPU, torch 2.13.0, Triton 3.7.1")
    assert "ours" not in ladder_table.table(us, 400_000_000, {})


def test_the_page_shows_what_the_command_prints_of_the_data(site, tmp_path):
    found = ladder_table.committed(ROOT)
    assert all(each["bytes"] == 2 * 4 * 8192 * 16384 for each in found.values())
    assert ladder_table.committed(tmp_path) == {}
    page = (site / "use/on-your-gpu/index.html").read_text("utf8")
    for name, label in ladder_table.LADDER.items():
        assert re.search(rf"{label} +{found[name]['us']['p50']:,.1f} ", page), label
    assert "colab.research.google.com/github" not in page and "Upload notebook" in page


def test_the_notebook_runs_the_command(site):
    made = json.loads((site / on_your_gpu.DOWNLOAD).read_text("utf8"))
    assert made == json.loads(on_your_gpu.notebook(None))
    for address in (None, HUB):
        cells = json.loads(on_your_gpu.notebook(address))["cells"]
        code = "\n".join(each["source"] for each in cells if each["cell_type"] == "code")
        assert "python -m softmax_tutorial" in code
        assert "def softmax_kernel(" in code and "python -m exercises single_block --time" in code
        assert (f"git clone --quiet --depth 1 {HUB} " in code) == bool(address)


def test_colab_opens_what_the_repository_has(tmp_path):
    """A notebook of that address, on GitHub, or the page does not link there."""
    path = tmp_path / on_your_gpu.COMMITTED
    assert on_your_gpu.colab(tmp_path, HUB) is None
    path.parent.mkdir()
    path.write_text(on_your_gpu.notebook(HUB))
    address = on_your_gpu.colab(tmp_path, HUB)
    assert address.endswith("/github/someone/softmax/blob/HEAD/notebooks/on-your-gpu.ipynb")
    for other in (None, "https://github.com/another/softmax", "https://example.org/softmax"):
        assert on_your_gpu.colab(tmp_path, other) is None
    text = (ROOT / "docs" / on_your_gpu.PAGE).read_text("utf8")
    for repository in ("", HUB):
        given = {"root": str(tmp_path), "repository": repository}
        page = Markdown(extensions=[SiteExtension(**given)]).convert(text[: text.index("## What")])
        assert (f'<a href="{address}">Open it in Colab</a>, or' in page) == bool(repository)
