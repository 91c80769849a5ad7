"""All shipped kernels on all GPUs and by all supported Tritons, as the committed file has them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import triton

import triton_softmax
from softmax_bench import compilation, everywhere
from softmax_bench.__main__ import main
from softmax_bench.everywhere import FIELDS, FILE
from softmax_bench.gpus import GPUS
from softmax_bench.schema import ROOT, dump, load, write

LIBRARY = Path(triton_softmax.__file__).parent
DATA = load(ROOT / FILE, "compiled")
TRITONS = ("3.6", "3.7", "3.8", "3.9")
"""The releases that are supported."""
SPILLED = {
    "split_rows_kernel cross_entropy fp32": 48,
    "split_rows_kernel cross_entropy_gradient bf16": 374,
    "split_rows_kernel cross_entropy_gradient bf16 write": 272,
    "split_rows_kernel cross_entropy_gradient fp32": 8,
    "split_rows_kernel cross_entropy_smoothed_gradient bf16": 64,
    "split_rows_kernel cross_entropy_smoothed_gradient bf16 publish": 16,
    "split_rows_kernel cross_entropy_smoothed_gradient bf16 write": 4,
    "split_rows_kernel log_softmax bf16": 144,
    "split_rows_kernel log_softmax bf16 write": 100,
    "split_rows_kernel log_softmax fp32": 264,
    "split_rows_kernel log_softmax_vjp bf16": 12,
    "split_rows_kernel log_softmax_vjp bf16 write": 72,
    "split_rows_kernel log_softmax_vjp fp16": 206,
    "split_rows_kernel log_softmax_vjp fp32": 136,
    "split_rows_kernel logsumexp bf16 write": 4,
    "split_rows_kernel logsumexp fp32": 76,
    "split_rows_kernel logsumexp_vjp bf16 write": 160,
    "split_rows_kernel softmax bf16": 160,
    "split_rows_kernel softmax bf16 write": 160,
    "split_rows_kernel softmax fp16": 148,
    "split_rows_kernel softmax fp32": 116,
    "split_rows_kernel softmax_vjp bf16": 80,
    "split_rows_kernel softmax_vjp bf16 write": 44,
    "split_rows_kernel softmax_vjp fp16": 124,
    "split_rows_kernel softmax_vjp fp32": 208,
    "targets_kernel bf16": 4,
    "two_pass_kernel softmax bf16 write": 84,
    "two_pass_kernel softmax fp64": 4,
}
"""Of a kind of kernel: the most bytes per thread that it spills on any GPU, by any Triton."""


def lines():
    """(Triton's release, GPU, kind, what the file says of it)."""
    for release, of_gpus in DATA["lines"].items():
        for gpu, found in of_gpus.items():
            for at, *numbers in found:
                yield release, gpu, DATA["kinds"][at], dict(zip(FIELDS, numbers, strict=True))


def test_every_gpu_and_every_supported_triton_is_there():
    assert {release.rpartition(".")[0] for release in DATA["lines"]} == {*TRITONS}
    for release, of_gpus in DATA["lines"].items():
        assert of_gpus.keys() == GPUS.keys(), release
    supported = re.search(r'"triton>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert supported[1] == TRITONS[0] and supported[2] == "3.10"


def test_every_kernel_of_the_library_is_there_on_every_gpu():
    """But columns are not split over programs where none waits for another."""
    text = "\n".join(path.read_text("utf8") for path in LIBRARY.rglob("*.py"))
    kernels = set(re.findall(r"^@triton\.jit.*?^def (\w+)\(", text, re.MULTILINE | re.DOTALL))
    kernels = {name for name in kernels if name.endswith("_kernel")}
    assert len(kernels) > 10
    for name, gpu in GPUS.items():
        waits = set() if gpu.backend == "cuda" else {"split_strided_kernel"}
        assert {kind.split()[0] for _, of, kind, _ in lines() if of == name} == kernels - waits


def test_nothing_spills_more_than_is_known():
    for *where, kind, found in lines():
        assert 0 < found["registers"] <= 512 and max(found["load_bits"], found["store_bits"]) <= 256
        assert found["spill_bytes"] <= SPILLED.get(kind, 0), (*where, kind)


def test_the_file_is_small_and_written_as_it_is_read():
    path = ROOT / FILE
    assert path.stat().st_size < 150_000
    assert path.read_text("utf8") == dump(DATA, everywhere.DEPTH)


def test_a_run_of_some_kernels_leaves_the_lines_of_others(tmp_path, monkeypatch):
    out, before, after = tmp_path / "compiled.json", [1, 0, 0, 32, 32], [2, 0, 0, 64, 64]
    kinds = ["two_pass_kernel gone", "tile_kernel softmax", "two_pass_kernel softmax"]
    found = {gpu: [[at, *before] for at in range(3)] for gpu in ("sm_80", "sm_90")}
    lines = {triton.__version__: found}
    write(out, {"format": everywhere.FORMAT, "kinds": kinds, "lines": lines})
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(everywhere, "kernels", lambda gpu: kinds[1:])
    monkeypatch.setattr(everywhere, "kind_of", str)
    made = SimpleNamespace(**dict(zip(FIELDS, after, strict=True)))
    monkeypatch.setattr(compilation, "compilation_of", lambda kernel: made)
    of_some = ["compile-everywhere", "--out", str(out), "--kernels", "two_pass*", "--gpus"]
    assert main([*of_some, "sm_90"]) == 0
    (now,) = load(out, "compiled")["lines"].values()
    assert now == {"sm_80": found["sm_80"], "sm_90": [[1, *before], [2, *after]]}
    assert main([*of_some, "sm_80"]) == 0  # the last line of a kind that is gone
    data = load(out, "compiled")
    assert data["kinds"] == kinds[1:]
    assert data["lines"][triton.__version__]["sm_80"] == [[0, *before], [1, *after]]
