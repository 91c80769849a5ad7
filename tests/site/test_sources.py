"""The page of sources: every row is there, and every test and object that it names exists."""

import ast
import re

import pytest
import torch

from site_build import ROOT
from softmax_site import equations
from softmax_tutorial import single_block, two_loops
from triton_softmax import IMPLEMENTATIONS, Softmax

PAGE = (ROOT / "docs/reference/sources.md").read_text("utf8")
ROWS = "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 B1 B2 B3 B4 C1 C2 C3 C4 D1 D2 D3 D4 D5 D6 D7 D8".split()


def names_in(path: str) -> set[str]:
    """The functions and classes at the top of a file, its assignments, and what classes contain."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text("utf8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_every_row_is_there_once_and_in_order():
    tables = PAGE.split("## Corrections")[0]
    assert re.findall(r"^ *\| ([A-D]\d+) \| .*\| .*\|$", tables, re.M) == ROWS


@pytest.mark.parametrize("cited", sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE))))
def test_each_cited_test_exists(cited):
    path, _, name = cited.partition("::")
    assert (ROOT / path).is_file()
    assert not name or name in names_in(path)


def test_each_test_cited_by_name_exists():
    corrections = PAGE.split("## Corrections")[1].split("### The tests")[0]
    named = {each.replace("-", "_") for each in re.findall(r"\(#(test-[\w-]+)\)", corrections)}
    assert named == {
        name for name in names_in("tests/site/test_corrections.py") if name.startswith("test_")
    }
    cited = set(re.findall(r"`([\w-]+)`\]\(equations.md#index-\1\)", PAGE))
    assert cited and all(equations.load(ROOT)[label].test for label in cited)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\[triton_softmax\.([\w.]+)\]", PAGE))))
def test_each_linked_object_exists(target):
    """Some prefix of the dotted name is a file of the package, and what follows is defined in
    it."""
    parts = target.split(".")
    source = ROOT / "src/triton_softmax"
    for at in range(len(parts), 0, -1):
        file = source.joinpath(*parts[:at]).with_suffix(".py")
        if file.is_file():
            assert set(parts[at:]) <= names_in(str(file.relative_to(ROOT)))
            return
    raise AssertionError(f"no module of triton_softmax holds {target}")


REFERENCES = (ROOT / "docs/reference/references.md").read_text("utf8")
ANCHORS = re.findall(r'^- <a id="([\w-]+)"></a>(.*)$', REFERENCES, re.M)


def test_each_reference_is_there_once_with_a_link():
    names = [name for name, _ in ANCHORS]
    assert len(names) == len(set(names)) > 15
    for name, text in ANCHORS:
        assert re.search(r"\]\(https://\S+\)", text), f"{name} has no link"
        year = re.search(r"-(\d{4})$", name)
        assert not year or year[1] in text, f"{name} does not give its year"


def test_each_reference_is_cited_on_a_page():
    """On its own page, in the history of the ideas, counts too."""
    pages = "\n".join(path.read_text("utf8") for path in (ROOT / "docs").rglob("*.md"))
    for name in ("milakov-2018", "dao-2022", "pegoud-2025", "triton-tutorial", "triton-puzzles"):
        assert f"references.md#{name}" in pages, f"no page cites {name}"


class OfRung(torch.autograd.Function):
    """A kernel of the tutorial as the article wraps its own: the output is kept."""

    @staticmethod
    def forward(ctx, x, rung):
        y = rung.softmax_forward(x)
        ctx.save_for_backward(y)
        ctx.rung = rung
        return y

    @staticmethod
    def backward(ctx, dy):
        return ctx.rung.softmax_backward(*ctx.saved_tensors, dy), None


RUNGS = {rung.__name__.rpartition(".")[2]: rung for rung in (single_block, two_loops)}


@pytest.mark.parametrize("kernel", [None, *IMPLEMENTATIONS, *(f"rung {name}" for name in RUNGS)])
@pytest.mark.parametrize("one_hot", [False, True])
def test_the_check_of_the_article(kernel, one_hot):
    """Forward against torch, and backward through a cross-entropy of the output, whose targets are
    indices of any class or, as in the article, one-hot rows of the first three."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n_rows = 256 if device == "cuda" else 16
    x = torch.randn(n_rows, 512, device=device, requires_grad=True)
    target = torch.randint(3 if one_hot else 512, (n_rows,), device=device)
    if one_hot:
        target = torch.nn.functional.one_hot(target, 512).float()
    ours = Softmax(dim=1, implementation=kernel) if kernel in (None, *IMPLEMENTATIONS) else None
    found = []
    for softmax in (
        torch.nn.Softmax(dim=1),
        ours or (lambda x: OfRung.apply(x, RUNGS[kernel.removeprefix("rung ")])),
    ):
        y = softmax(x)
        found.append((y, *torch.autograd.grad(torch.nn.CrossEntropyLoss()(y, target), x)))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("letter", "ABCD")
def test_a_reader_can_look_up_what_is_corrected(letter):
    """Each text is linked where it is taken up, outside this site."""
    section = PAGE.split(f"\n## {letter}. ")[1].split("\n## ")[0].split("??? example")[0]
    assert re.search(r"\]\(https://[^)]+\)", section)
