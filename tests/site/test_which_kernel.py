"""The page that answers which kernel a shape gets: it runs the library's own chooser, so whatever
it says is what the library does."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from kernel_cases import launched
from site_build import ROOT, question
from softmax_site import kernel_map
from softmax_site.benchmarks.data import measurements
from softmax_site.benchmarks.words import kernel_words
from softmax_site.which_kernel import answer as planner
from softmax_site.which_kernel import page
from triton_softmax import arguments, plan
from triton_softmax.config import Device
from triton_softmax.config.measured import TABLES
from triton_softmax.operations import OPERATIONS
from triton_softmax.operations.operation import in_any_order

ASKED = tuple(page.OPERATION_WORDS)
DTYPES = ("float16", "bfloat16", "float32", "float64")
LENGTHS = (1, 3, 8, 20, 33, 64, 100, 127, 128, 129, 256, 300, 513, 781, 1000, 1024, 1025, 2047)
LENGTHS += (4096, 5000, 8192, 8200, 16384, 16388, 20000, 32001, 32768, 50257, 65536, 65537, 131072)
LENGTHS += (151643, 262144, 524288, 2**20, 2**20 + 1, 2**22, 3 * 2**22, 2**25, 2**25 + 8)


def questions(n: int, seed: int = 0):
    """Shapes of one to four dimensions, along any of them, with and without gaps and steps."""
    draw = random.Random(seed)
    while n:
        length = draw.choice(LENGTHS)
        others = [draw.choice((1, 2, 3, 7, 8, 16, 63, 64, 100, 128, 200, 1000, 4096, 50000))]
        others = [*others, *(draw.choice((1, 2, 4, 5, 32)) for _ in range(draw.randrange(3)))]
        dim = draw.randrange(len(others) + 1)
        shape = [*others[:dim], length, *others[dim:]]
        asked = question(
            shape, draw.choice((dim, dim - len(shape))), draw.choice(DTYPES), draw.choice(ASKED)
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
    around = []
    while getattr(made, "what", ""):
        around.append(made.what)
        made = made.plan
    launches = [
        (
            launch.grid,
            launch.constants["HOW"]._asdict(),
            launch.options["num_warps"],
            launch.options.get("maxnreg"),
        )
        for launch in getattr(made, "launches", ())
    ]
    names = {kernel_words({"kernels": [name]}, "_") for name in launched(made)}
    return names, launches, around


def answered(asked) -> tuple:
    """The same of the page's answer."""
    got = planner.answer(asked)
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
    monkeypatch.setattr(plan, "device_of", lambda _: Device(nvidia=True, **device))
    return lambda n: device.update(multiprocessors=n)


def test_the_page_answers_as_the_library_plans(on_a_gpu):
    """Thousands of shapes, and every kernel among the answers."""
    kernels = set()
    for asked in questions(3000):
        on_a_gpu(asked.get("multiprocessors", 132))
        inputs, dtype = tensors(
            asked, lambda *of: torch.empty_strided(*of[:2], dtype=of[2], device="meta")
        )
        op, invariant = OPERATIONS[asked["operation"]], bool(asked.get("invariant"))
        library = told(plan.make_plan(op, inputs, asked["dim"], dtype, None, invariant))
        assert answered(asked) == library, asked
        kernels |= library[0]
    assert kernels == set(plan.GEOMETRIES)


@pytest.mark.skipif(not arguments.INTERPRETED, reason="plans for memory of a CPU")
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(5, 128), (3, 100), (7, 129)], ids=str)
def test_so_it_does_if_the_tensor_starts_within_a_vector(on_a_gpu, shape, offset):
    on_a_gpu(132)
    memory = torch.empty(10_000)
    assert memory.data_ptr() % 16 == 0
    x = memory[offset : offset + torch.Size(shape).numel()].view(shape)
    asked = question(list(shape), -1, "float32", "softmax", offset=offset)
    assert answered(asked) == told(plan.make_plan(OPERATIONS["softmax"], (x,), -1))


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
    with pytest.raises(planner.Refused, match=words):
        planner.answer(question([4, 8], -1, "float32", "softmax") | changes)


def test_the_reasons_are_the_tables_that_were_asked():
    def of(asked):
        return {each["table"]: each for each in planner.answer(asked)["why"]}

    short = of(question([4096, 4096], -1, "float32", "softmax"))
    long = of(question([4096, 1 << 20], -1, "float32", "softmax"))
    assert short["one_program"]["line"] == 0 and long["one_program"]["line"] is None
    assert ("cols", 4096) in short["one_program"]["with"]
    assert "split_rows" in long and "split_rows" not in short
    line = TABLES["row_parts"][short["row_parts"]["line"]]
    assert short["row_parts"]["says"] == list(line.values.items())


def test_every_table_is_explained_and_shown_line_by_line():
    told = page.tables(ROOT)
    assert told.keys() == TABLES.keys()
    for name, table in told.items():
        assert table["says"].endswith(".") and len(table["lines"]) == 1 + len(TABLES[name])


def test_traits_are_those_of_the_operations():
    for invariant in (False, True):
        for name in ASKED:
            op = OPERATIONS[name]
            traits = planner.traits_of(name, invariant)
            assert tuple(traits) == plan.traits_of(in_any_order(op) if invariant else op)


def test_the_page_runs_the_files_of_the_library_as_they_are():
    files = page.files(ROOT)
    for path in (ROOT / page.CONFIG).iterdir():
        if path.suffix in (".py", ".txt"):
            assert files[f"chooser/{path.name}"] == path.read_text("utf8")


RUN = """
import {{ loadMicroPython }} from "{module}";
import fs from "fs";
const {{ files, asked, start }} = JSON.parse(fs.readFileSync(0));
const python = await loadMicroPython({{ heapsize: 32 * 1024 * 1024 }});
for (const [path, text] of Object.entries(files)) {{
  path.split("/").slice(0, -1).reduce((above, name) => {{
    const folder = `${{above}}/${{name}}`;
    if (!python.FS.analyzePath(folder).exists) python.FS.mkdir(folder);
    return folder;
  }}, "");
  python.FS.writeFile(`/${{path}}`, text);
}}
python.runPython(start);
const ask = python.globals.get("ask");
console.log(JSON.stringify(asked.map((each) => JSON.parse(ask(JSON.stringify(each))))));
"""
START = """
import sys; sys.path.append("/")
import json, answer
ask = lambda text: json.dumps(answer.answer(json.loads(text)))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_micropython_answers_as_cpython_does():
    """In the interpreter that the page loads, whose dictionaries have no order."""
    module = (ROOT / "docs/assets/run/micropython/micropython.mjs").as_uri()
    asked = list(questions(200, seed=3))
    given = {"files": page.files(ROOT), "asked": asked, "start": START}
    command = ["node", "--input-type=module", "-e", RUN.format(module=module)]
    run = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]

    def plain(each):
        why = [reason | {"says": sorted(reason["says"])} for reason in each["why"]]
        return each | {"constants": sorted(each["constants"]), "why": why}

    for each, got in zip(asked, json.loads(run.stdout), strict=True):
        wanted = json.loads(json.dumps(planner.answer(each)))
        assert plain(got) == plain(wanted), each


def test_times_are_measured_or_said_to_be_guessed():
    data = measurements(ROOT)
    rows = page.measured(data)
    assert len(rows) > 200
    row = next(row for row in rows if row["operation"] == "softmax" and row["columns"] == 4096)
    same = question(row["shape"], row["dim"], row["dtype"], row["operation"])
    got = planner.answer(same, rows)
    assert got["time"]["far"] == 0 and got["time"]["us"] == pytest.approx(row["us"], rel=1e-9)
    assert got["bytes"]["useful"] == row["bytes"]
    other = planner.answer(same | {"shape": [row["shape"][0], 5000]}, rows)["time"]
    assert other["far"] > 0 and other["near"]
    assert planner.answer(same | {"out_dtype": "float64"}, rows)["time"] is None
    near, far = page.guesses(data).near, page.guesses(data).far
    assert near.half < far.half and near.half < near.most and near.count + far.count <= len(rows)


def test_measured_kernels_are_those_that_the_planner_names():
    """Unless the planner was tuned since the measurement."""
    rows = page.measured(measurements(ROOT))
    same = [
        planner.answer(question(row["shape"], row["dim"], row["dtype"], row["operation"]))["kernel"]
        == row["kernel"]
        for row in rows
    ]
    assert sum(same) >= 0.9 * len(same)


def test_the_table_of_usual_shapes_stands_in_the_page(site: Path):
    text = (site / "kernels/which-kernel/index.html").read_text("utf8")
    asked = kernel_map.front_matter(ROOT, page.PAGE, "usual")
    assert text.count("data-ask=") == len(asked) >= 12
    assert "which-kernel.json" in text and (site / page.ASSET).is_file()
