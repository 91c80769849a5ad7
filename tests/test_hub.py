"""The tree that `tools/hub` writes: what `kernels` loads from it, and what is in it."""

import ast
import copy
import importlib.util
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

import triton_softmax
from site_build import python
from tools.hub import write_tree as hub

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PUBLIC = {
    "cross_entropy", "entropy_from_logits", "layers", "log_softmax", "logsumexp",
    "selective_log_softmax", "selective_log_softmax_and_entropy", "softmax", "token_logprobs",
}  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("hub") / "made"
    directory.mkdir()  # an empty directory is taken
    hub.write(directory, "someone")
    return directory


def contents(tree: Path) -> dict[str, bytes]:
    files = [path for path in tree.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}


def by_path(path: Path, name: str) -> ModuleType:
    """Import the package in a folder by a name of our own."""
    spec = importlib.util.spec_from_file_location(name, path / "__init__.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logits(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, requires_grad=True)


def compare(ours, theirs, x: torch.Tensor) -> None:
    """Two functions of x, and their gradients."""
    found, expected = ours(x), theirs(x)
    torch.testing.assert_close(found, expected)
    weights = torch.rand_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, weights), torch.autograd.grad(expected, x, weights)
    )


def test_kernels_loads_the_tree_from_disk(tree):
    kernels = pytest.importorskip("kernels")
    kernel = kernels.get_local_kernel(tree)
    assert Path(kernel.__file__).is_relative_to(tree / "build" / "torch-universal")
    assert set(kernel.__all__) == PUBLIC
    (loaded,) = [each for each in kernels.get_loaded_kernels() if each.module is kernel]
    about = loaded.metadata
    assert (str(about.name), about.version, about.license) == ("triton-softmax", 1, "MIT")
    assert about.id == kernel.__name__ and about.python_depends == []
    target = torch.tensor([1, 3, 0], device=DEVICE)
    for name, of_torch, arguments in (
        ("softmax", torch.softmax, (-1,)),
        ("logsumexp", torch.logsumexp, (0,)),
        ("cross_entropy", F.cross_entropy, (target,)),
    ):
        ours = getattr(kernel, name)
        compare(lambda x: ours(x, *arguments), lambda x: of_torch(x, *arguments), logits(3, 40))  # noqa: B023


class Loss(torch.nn.Module):
    """The function of transformers as a module."""

    def forward(
        self, logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100,
        shift_labels=None, **kwargs,
    ):  # fmt: skip
        kept = logits[:, :-1].reshape(-1, vocab_size).float(), labels[:, 1:].reshape(-1)
        how = "mean" if num_items_in_batch is None else "sum"
        loss = F.cross_entropy(*kept, ignore_index=ignore_index, reduction=how)
        return loss / (num_items_in_batch or 1)


LABELS = torch.tensor([[0, 5, -100, 2], [3, 3, 1, 6]], device=DEVICE)
WEIGHT = torch.linspace(0, 2, 7, device=DEVICE)
SMOOTH = torch.nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.1, reduction="sum")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name, module, arguments", [
    ("Softmax", torch.nn.Softmax(1), ()),
    ("LogSoftmax", torch.nn.LogSoftmax(-1), ()),
    ("CrossEntropyLoss", SMOOTH, (LABELS[0],)),
    ("ForCausalLMLoss", Loss(), (LABELS, 7)),
    ("ForCausalLMLoss", Loss(), (LABELS, 7, 3)),
])  # fmt: skip
def test_kernelize_puts_a_layer_in(tree, name, module, arguments, compiled):
    kernels = pytest.importorskip("kernels")
    module, plain = copy.deepcopy(module), type(module)
    module.__class__ = type(name, (plain,), {})
    kernels.replace_kernel_forward_from_hub(type(module), name)
    ours = kernels.LocalLayerRepository(tree, layer_name=name)
    with kernels.use_kernel_mapping({name: {DEVICE: ours}}):
        mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
        kernels.kernelize(module, mode=mode, device=DEVICE, use_fallback=False)
    assert module.forward.__func__.__module__.startswith("_triton_softmax_universal_")
    x = logits(2, 4, 7) if plain is Loss else logits(4, 7)
    run = torch.compile(module, backend="eager", fullgraph=True) if compiled else module
    compare(lambda x: run(x, *arguments), lambda x: plain.forward(module, x, *arguments), x)
    with kernels.use_kernel_mapping({}, inherit_mapping=False):
        kernels.kernelize(module, mode=mode, device=DEVICE)
    assert module.forward.__func__ is plain.forward


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_layer_without_a_dim_is_pytorch_s(tree, name):
    layer = getattr(by_path(tree / "torch-ext/triton_softmax", "of_no_dim").layers, name)
    module = getattr(torch.nn, name)()
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        compare(lambda x: layer.forward(module, x), module, logits(2, 3, 4))


def test_two_trees_and_the_library_live_in_one_process(tree, tmp_path, monkeypatch):
    kernels = pytest.importorskip("kernels")
    hub.write(tmp_path / "copy", "someone")
    monkeypatch.setattr(hub, "VERSION", "1.2.3")
    hub.write(tmp_path / "another", "someone")
    graphs = []
    keep = lambda graph, _: graphs.append(graph) or graph  # noqa: E731
    found = [
        kernels.get_local_kernel(tree),
        kernels.get_local_kernel(tmp_path / "another"),
        by_path(tree / "torch-ext/triton_softmax", "under-a name of its own"),
        triton_softmax,
    ]
    spaces = [sys.modules[f"{each.__name__}.operators"].NAMESPACE for each in found]
    assert len(set(spaces)) == 4 and spaces[-1] == "triton_softmax"
    for kernel, space in zip(found, spaces):
        compare(torch.vmap(kernel.softmax), lambda x: x.softmax(-1), logits(2, 3, 40))
        torch.compile(kernel.softmax, backend=keep)(logits(2, 40))
        assert f"torch.ops.{space}.softmax" in graphs[-1].code
    assert found[1].__version__ == "1.2.3" != found[0].__version__
    compare(kernels.get_local_kernel(tmp_path / "copy").softmax, found[0].softmax, logits(3, 40))


@pytest.mark.slow
def test_two_runs_write_the_same_bytes_and_no_path(tree, tmp_path):
    for seed in ("1", "2"):
        command = (ROOT / "tools/hub/write_tree.py", tmp_path / seed)
        run = python(*command, PYTHONHASHSEED=seed, PYTHONPATH=str(ROOT / "src"))
        assert run.returncode == 0, run.stderr
    first, second = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert first == second
    for text in contents(tree).values():
        assert str(tree).encode() not in text and str(ROOT).encode() not in text


@pytest.mark.parametrize("mine", ["there/mine.txt", "there/.mine", "there"])
def test_what_is_no_empty_directory_is_refused(tmp_path, monkeypatch, capsys, mine):
    there = tmp_path / "there"
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_text("mine")
    before = contents(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hub", str(there)])
    with pytest.raises(SystemExit, match="2"):
        hub.main()
    assert f"{there} is not an empty directory" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_the_build_is_the_source_with_metadata(tree):
    build, source = tree / "build" / "torch-universal", tree / "torch-ext" / "triton_softmax"
    metadata = build / "metadata.json"
    assert {**contents(source), "metadata.json": metadata.read_bytes()} == contents(build)
    about = json.loads(metadata.read_text("utf8"))
    keys = {"name", "id", "version", "license", "python-depends", "backend"}
    assert set(about) == keys and about["id"].isidentifier()
    read = tomllib.loads((tree / "build.toml").read_text("utf8"))
    assert read["general"]["hub"] == {"repo-id": "someone/triton-softmax"}
    assert (read["general"]["name"], read["general"]["edition"]) == ("triton-softmax", 5)
    kept = {path.suffix[1:] for path in source.rglob("*") if path.is_file()} - {"pyc"}
    assert kept == set(read["torch-noarch"]["pyext"])
    card = (tree / "CARD.md").read_text("utf8")
    assert all(f"`{name}`" in card for name in PUBLIC - {"layers"})
    assert "OWNER" not in card and "VERSION" not in card


def test_the_card_s_example_runs(tree, monkeypatch):
    kernels = pytest.importorskip("kernels")
    asked = []
    local = lambda *given, **more: asked.append((*given, more)) or kernels.get_local_kernel(tree)  # noqa: E731
    monkeypatch.setattr(kernels, "get_kernel", local)
    (example,) = re.findall(r"```python\n(.*?)```", (tree / "CARD.md").read_text("utf8"), re.S)
    names: dict[str, torch.Tensor] = {}
    exec(example, names)
    name = "someone/triton-softmax"
    assert asked == [(name, {"version": 1, "trust_remote_code": [name]})]
    assert names["x"].grad.abs().sum() > 0


def test_kernel_builder_accepts_the_build_file(tree):
    rust = pytest.importorskip("kernels._rust")
    assert {str(each) for each in rust.Build.open(tree).general.backends} == {"cpu", "cuda"}


def test_the_tree_imports_the_standard_library_torch_triton_and_itself(tree):
    """Whether it has all of itself, its own tests say."""
    source = tree / "torch-ext" / "triton_softmax"
    inside = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    names = set()
    for path in inside:
        for node in ast.walk(ast.parse((source / path).read_text("utf8"))):
            names |= {each.name for each in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module} if isinstance(node, ast.ImportFrom) and not node.level else set()
    assert {each.split(".")[0] for each in names} <= {*sys.stdlib_module_names, "torch", "triton"}
    assert {"layers.py", "integrations/causal_lm.py"} < inside
    assert not {"linear.py", "integrations/handle.py"} & inside


@pytest.mark.slow
@pytest.mark.parametrize("interpret", [None, "1"])
def test_the_tree_s_own_tests_pass_without_the_library(tree, tmp_path, interpret):
    (tmp_path / "triton_softmax.py").write_text("raise ImportError('the installed one')\n")
    (tree.parent / "conftest.py").write_text("raise ImportError('of the folder around')\n")
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "interpreted", tree / "tests")
    path = f"{tmp_path}{os.pathsep}{ROOT / 'tests'}"
    run = python(*command, cwd=tmp_path, PYTHONPATH=path, TRITON_INTERPRET=interpret)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr
