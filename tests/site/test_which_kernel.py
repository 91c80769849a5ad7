"""The page that answers which kernel a shape gets: it runs the library's own planner, so whatever
it says is what the library does."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest
import torch

from site_build import ROOT
from softmax_site.benchmarks.data import newest
from softmax_site.which_kernel import bundle, page
from softmax_site.which_kernel.words import NAMES, WORDS, key
from triton_softmax import checks, plan
from triton_softmax.choose import Device

PLANNER = bundle.imported(ROOT)
OPERATIONS = tuple(page.OPERATION_WORDS)
DTYPES = ("float16", "bfloat16", "float32", "float64")
LENGTHS = (1, 3, 8, 20, 33, 64, 100, 127, 128, 129, 256, 300, 513, 781, 1000, 1024, 1025, 2047)
LENGTHS += (4096, 5000, 8192, 8200, 16384, 16388, 20000, 32001, 32768, 50257, 65536, 65537, 131072)
LENGTHS += (
    151643,
    262144,
    524288,
    1 << 20,
    (1 << 20) + 1,
    1 << 22,
    3 << 22,
    1 << 25,
    (1 << 25) + 8,
)


def questions(n: int, seed: int = 0):
    """Shapes of one to four dimensions, along any of them, with and without gaps and steps."""
    draw = random.Random(seed)
    while n:
        length = draw.choice(LENGTHS)
        others = [draw.choice((1, 2, 3, 7, 8, 16, 63, 64, 100, 128, 200, 1000, 4096, 50000))]
        others = [*others, *(draw.choice((1, 2, 4, 5, 32)) for _ in range(draw.randrange(3)))]
        dim = draw.randrange(len(others) + 1)
        shape = [*others[:dim], length, *others[dim:]]
        asked = page.question(
            shape,
            draw.choice((dim, dim - len(shape))),
            draw.choice(DTYPES),
            draw.choice(OPERATIONS),
        )
        if torch.Size(shape).numel() > 2**33:
            continue
        kind = draw.randrange(4)
        if kind == 1:
            gap = draw.choice((1, 2, 8, 63, 64))
            strides, step = [], 1
            for at, size in reversed(list(enumerate(shape))):
                strides.insert(0, step)
                step = step * size + (gap if at == len(shape) - 1 else 0)
            asked["strides"] = strides
        elif kind == 2:
            order = draw.sample(range(len(shape)), len(shape))
            strides, step = [0] * len(shape), 1
            for at in order:
                strides[at], step = step, step * shape[at]
            asked["strides"] = strides
        elif kind == 3 and draw.randrange(2):
            asked["out_dtype"] = draw.choice(DTYPES)
        if not draw.randrange(6):
            asked["multiprocessors"] = draw.choice((2, 80, 108, 144))
        if not draw.randrange(6):
            asked["invariant"] = True
        n -= 1
        yield asked


def tensors(asked, make):
    """The inputs of a question; `make` is given shape, strides and dtype."""
    shape, operation = asked["shape"], asked["operation"]
    dtype = getattr(torch, asked["dtype"])
    out = getattr(torch, asked.get("out_dtype") or asked["dtype"])
    strides = asked.get("strides") or torch.empty(shape, device="meta").stride()
    if not operation.endswith("backward"):
        return (make(shape, strides, dtype),), out
    if operation == "logsumexp_backward":
        at = asked["dim"] % len(shape)
        lse = shape[:at] + shape[at + 1 :]
        contiguous = torch.empty(lse, device="meta").stride()
        return (make(shape, strides, dtype), make(lse, contiguous, out)), dtype
    return tuple(make(shape, strides, out) for _ in "yd"), dtype


def told(made) -> tuple:
    """What the library does: the kernel's launches and what is done around them."""
    made, around = PLANNER.unwrapped(made)
    launches = [
        (
            launch.grid,
            launch.constants["HOW"]._asdict(),
            launch.options["num_warps"],
            launch.options.get("maxnreg"),
        )
        for launch in getattr(made, "launches", ())
    ]
    names = {page._kernel(name) for name in made.kernels}
    return names, launches, around


def answered(asked) -> tuple:
    """The same of the page's answer."""
    got = PLANNER.answer(asked)
    launches = []
    if got["warps"]:
        how = [dict(got["constants"])] * len(got["programs"])
        if len(how) == 2:
            how = [how[0] | {"write": False}, how[1] | {"publish": False}]
        launches = [
            (grid, constants, got["warps"], got["registers"])
            for grid, constants in zip(got["programs"], how, strict=True)
        ]
    return {got["kernel"]}, launches, got["around"]


@pytest.fixture
def on_a_gpu(monkeypatch):
    """The library plans as for an NVIDIA GPU; the function returned says of how many
    multiprocessors."""
    device = {}
    monkeypatch.setattr(plan, "check_device", lambda *_: None)
    monkeypatch.setattr(plan, "_device_of", lambda _: Device(nvidia=True, **device))
    return lambda n: device.update(multiprocessors=n)


def test_the_page_answers_as_the_library_plans(on_a_gpu):
    """Thousands of shapes, and every kernel among the answers."""
    kernels = set()
    for asked in questions(3000):
        on_a_gpu(asked.get("multiprocessors", 132))
        inputs, dtype = tensors(
            asked, lambda *of: torch.empty_strided(*of[:2], dtype=of[2], device="meta")
        )
        how = checks.BATCH_INVARIANT if asked.get("invariant") else None
        library = told(plan.make_plan(asked["operation"], inputs, asked["dim"], dtype, how))
        assert answered(asked) == library, asked
        kernels |= library[0]
    assert kernels == set(plan.GEOMETRIES)


@pytest.mark.skipif(not checks.INTERPRETED, reason="plans for memory of a CPU")
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(5, 128), (3, 100), (7, 129)], ids=str)
def test_so_it_does_if_the_tensor_starts_within_a_vector(on_a_gpu, shape, offset):
    on_a_gpu(132)
    memory = torch.empty(10_000)
    assert memory.data_ptr() % 16 == 0
    x = memory[offset : offset + torch.Size(shape).numel()].view(shape)
    asked = page.question(list(shape), -1, "float32", "softmax", offset=offset)
    assert answered(asked) == told(plan.make_plan("softmax", (x,), -1, None, None))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"shape": []}, "at least one number"),
        ({"shape": [4, 0]}, "needs no kernel"),
        ({"dim": 2}, "between -2 and 1"),
        ({"strides": [1]}, "one stride for each"),
        ({"strides": [-1, 1]}, "no negative strides"),
        ({"shape": [1 << 30, 1 << 30]}, "a trillion"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_in_words(changes, words):
    with pytest.raises(PLANNER.Refused, match=words):
        PLANNER.answer(page.question([4, 8], -1, "float32", "softmax") | changes)


def test_the_reasons_are_the_conditions_that_decided():
    def of(asked):
        found = PLANNER.answer(asked)["why"]
        return {
            (conditions[each["at"]].function, conditions[each["at"]].text): each for each in found
        }

    conditions = bundle.modules(ROOT).conditions
    short = of(page.question([4096, 4096], -1, "float32", "softmax"))
    long = of(page.question([4096, 1 << 20], -1, "float32", "softmax"))
    (fits,) = [name for name in short if name[1].startswith("fits_one_program(")]
    assert short[fits]["answer"] and not long[fits]["answer"]
    assert ("n_cols", 4096) in short[fits]["with"]
    inner = [conditions[each["at"]].text for each in short[fits]["inner"]]
    assert "n_cols <= longest" in inner
    assert any(name[0] == "choose_split_rows" for name in long)
    assert not any(name[0] == "choose_split_rows" for name in short)


def test_every_condition_in_words_is_one_of_the_planner():
    """Numbers aside, which may be tuned."""
    there = {key(each.function, each.text) for each in bundle.modules(ROOT).conditions}
    assert not set(WORDS) - there


def test_all_others_are_read_out_with_the_numbers_of_the_question():
    conditions = page.conditions(ROOT)
    for each in conditions:
        assert each["words"] or not re.search(r"[=!]=|[(_]", each["says"]), each
    texts = " ".join(each.text for each in bundle.modules(ROOT).conditions)
    assert not [name for name in NAMES if name not in texts], "words for what nobody asks"
    found = PLANNER.answer(page.question([4096, 4096], -1, "float32", "softmax"))["why"]
    said = set()
    for each in all_of(found):
        values = dict(each["with"])
        numbers = re.findall(r"{(.*?)}", conditions[each["at"]]["values"])
        said |= {values.get(name) for name in numbers}
    assert {1, 4, 4096} <= said


def all_of(found):
    """Conditions with those that were asked on the way to them."""
    for each in found:
        yield each
        yield from all_of(each["inner"])


def test_a_condition_links_to_its_line():
    for each in bundle.modules(ROOT).conditions:
        line = (ROOT / each.path).read_text("utf8").splitlines()[each.line - 1]
        assert line.strip(), each


def test_nothing_of_the_steps_is_left_that_micropython_does_not_know():
    for path, text in bundle.modules(ROOT).files.items():
        for node in ast.walk(ast.parse(text)):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            assert not isinstance(node, (ast.AnnAssign, ast.Match, ast.AsyncFunctionDef)), where
            if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and not (
                isinstance(getattr(node, "ctx", None), ast.Store)
            ):
                assert not any(isinstance(each, ast.Starred) for each in node.elts), where
            if isinstance(node, ast.Dict):
                assert None not in node.keys, where
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("bit_length", "removeprefix", "isqrt", "prod"), where
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
                names = [getattr(node, "module", None) or node.names[0].name]
                assert names in (["math"], ["threading"]), f"{where} imports {names}"


def test_what_a_source_says_that_no_step_knows_stops_the_build(tmp_path):
    folder = tmp_path / "src/triton_softmax"
    folder.mkdir(parents=True)
    (folder / "plan.py").write_text("from requests import get\n")
    with pytest.raises(bundle.BundleError, match="imports requests"):
        bundle.modules(tmp_path)


def test_times_are_measured_or_said_to_be_guessed():
    data = newest(ROOT)[1]
    rows = page.measured(data)
    assert len(rows) > 200
    row = next(row for row in rows if row["operation"] == "softmax" and row["columns"] == 4096)
    same = page.question(row["shape"], row["dim"], row["dtype"], row["operation"])
    got = PLANNER.answer(same, rows)
    assert got["time"]["far"] == 0 and got["time"]["us"] == pytest.approx(row["us"], rel=1e-9)
    assert got["bytes"]["useful"] == row["bytes"]
    other = PLANNER.answer(same | {"shape": [row["shape"][0], 5000]}, rows)["time"]
    assert other["far"] > 0 and other["near"]
    assert PLANNER.answer(same | {"out_dtype": "float64"}, rows)["time"] is None
    assert page.guessing(ROOT, rows).count("nine in ten within") == 2


def test_measured_kernels_are_those_that_the_planner_names():
    """Unless the planner was tuned since the measurement."""
    rows = page.measured(newest(ROOT)[1])
    same = [
        PLANNER.answer(page.question(row["shape"], row["dim"], row["dtype"], row["operation"]))[
            "kernel"
        ]
        == row["kernel"]
        for row in rows
    ]
    assert sum(same) >= 0.9 * len(same)


def test_the_table_of_usual_shapes_stands_in_the_page(site: Path):
    text = (site / "kernels/which-kernel/index.html").read_text("utf8")
    assert text.count("data-ask=") == len(page.USUAL) >= 12
    assert "which-kernel.json" in text and (site / page.ASSET).is_file()
