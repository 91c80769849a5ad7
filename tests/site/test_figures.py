"""The figures that move, in Chromium: every control by keyboard and mouse, and after each move the
figure's numbers against torch, NumPy and the library."""

import functools
import json
import math
import re

import numpy as np
import pytest
import torch

from browser import DESKTOP, HEIGHT, PHONE
from site_build import ROOT, pages
from softmax_bench import traffic
from softmax_site.benchmarks.rungs import LADDER
from softmax_site.computed import split_rows_trace
from softmax_site.equations import without_fences
from softmax_site.figures import moving
from softmax_site.figures.moved import in_lines, launched
from softmax_tutorial import reference
from triton_softmax import softmax as softmax_of_library
from triton_softmax.config import Device, Traits
from triton_softmax.config.calls import Rows, next_power_of_2
from triton_softmax.config.choose import row_tile

pytestmark = pytest.mark.browser
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")

PAGES = {
    name: page.relative_to(ROOT / "docs").with_suffix("").as_posix()
    for page in pages()
    for name in re.findall(r"^/// figure \| (\S+)$", without_fences(page.read_text("utf8")), re.M)
    if name in moving.FIGURES
}
"""Where each figure is."""
LIVE = [name for name in PAGES if not moving.FIGURES[name].still]

U = 2.0**-24
close = np.testing.assert_allclose


# --- what the numbers should be -------------------------------------------------------------------


def softmax(state, numbers):
    z = np.array(state["x"]) / 2 ** state["power"] + state["shift"]
    close(numbers["z"], z, rtol=1e-14)
    close(numbers["y"], torch.softmax(torch.tensor(z), 0), rtol=1e-12)
    with np.errstate(all="ignore"):
        e = np.exp(z).astype(np.float32)
        close(floats(numbers["naive"]), e / e.sum(dtype=np.float32), rtol=1e-6)


def jacobian(state, numbers):
    y = torch.softmax(torch.tensor(state["x"], dtype=torch.float64), 0).numpy()
    dy = np.array(state["dy"])
    close(numbers["J"], reference.softmax_jacobian(y), rtol=1e-12, atol=1e-16)
    close(numbers["dx"], reference.softmax_vjp(y, dy), rtol=1e-12, atol=1e-16)
    close(numbers["product"], reference.softmax_jacobian(y) @ dy, rtol=1e-9, atol=1e-15)
    assert numbers["apart"] < 1e-15


def jacobian_says(state, numbers, words):
    """Of a gradient, which entries are above the mean, where rounding is no difference; of the
    matrix, the column of an input."""
    J, dy = np.array(numbers["J"]), np.array(state["dy"])
    above = int((dy - numbers["s"] > 1e-9).sum())
    if "Raising" in words:
        largest = int(np.argmax(numbers["y"]))
        assert f"column {largest + 1} adds up to 0." in words
        close(J[:, largest].sum(), 0, atol=1e-15)
    elif np.ptp(dy) < 1e-9:
        assert "so dx is 0" in words and not above
    else:
        assert f"({above} of 5)" in words


def merge(state, numbers):
    x = np.array(floats(numbers["x"]))
    m, d = reference.summary(x)
    close([numbers["m"], numbers["exact"]], [m, d], rtol=1e-14)
    close(numbers["cuts"], d, rtol=8 * U)
    assert numbers["d"] == numbers["cuts"][state["cut"] - 1]
    for part, pair in ((x[: state["cut"]], "left"), (x[state["cut"] :], "right")):
        close(floats(numbers[pair].values()), reference.summary(part), rtol=8 * U)
    left, right = (floats(numbers[pair].values()) for pair in ("left", "right"))
    close([numbers["m"], numbers["d"]], reference.merge(*left, *right), rtol=4 * U)
    ulp = float(np.spacing(np.float32(d)))
    close(numbers["errors"], (np.array(numbers["cuts"]) - d) / ulp, atol=1e-6)


@functools.cache
def generated(n, width, seed):
    """The rows of the figure: a generator modulo 2³²."""
    out = np.empty(n)
    for at in range(n):
        seed = (seed * 1664525 + 1013904223) % 2**32
        out[at] = width * ((seed >> 8) / 2**23 - 1)
    return out.astype(np.float32)


def rounding(state, numbers):
    length, at = numbers["length"], numbers["at"]
    assert all(0 < length[of] <= length[f"{of}Bound"] for of in ("chain", "tree"))
    assert all(at[of] <= at[f"{of}Bound"] * 1.001 for of in ("first", "after"))
    c = np.float32(math.log2(math.e))
    x = (10.0 ** state["offset"] + generated(1024, state["width"], 7).astype(float)).astype("f")
    m, wide = x.max(), x.astype(np.float64)
    exact = np.exp(wide - float(m))
    for key, exponent in (("first", x * c - m * c), ("after", (x - m) * c)):
        e = np.exp2(exponent.astype(np.float64)).astype(np.float32)
        close(at[key], np.abs(e / exact - 1).max(), rtol=1e-6, atol=1e-12)
    if state["power"] > 12:
        return  # the generator in Python would take seconds
    chain = tree = 0.0
    for trial in range(1, 5):
        x = generated(2 ** state["power"], state["width"], 1000 * state["power"] + trial)
        exact = np.exp(x.astype(np.float64) - float(x.max()))
        e = np.exp((x - x.max()).astype(np.float64)).astype(np.float32)
        in_tree = e
        while len(in_tree) > 1:
            in_tree = in_tree[0::2] + in_tree[1::2]
        total = np.add.accumulate(e, dtype=np.float32)[-1]
        chain = max(chain, abs(float(np.float32(1) / total) * exact.sum() - 1) / U)
        tree = max(tree, abs(float(np.float32(1) / in_tree[0]) * exact.sum() - 1) / U)
    close([length["chain"], length["tree"]], [chain, tree], atol=1e-5)


def online(state, numbers):
    steps = reference.online_steps(np.array(floats(state["row"])))
    for step, each in zip(steps, numbers["steps"], strict=True):
        assert floats([each["x"], each["m"]]) == [step.x, step.m]
        close([each[key] for key in ("d", "scale", "term")], [step.d, step.scale, step.term])
    assert numbers["d"] == numbers["steps"][state["at"] - 1]["d"]


def attention(state, numbers):
    x, v = np.array(state["x"]), np.array(state["v"])
    steps = reference.attention_steps(np.ones(1), x, v)
    now = steps[state["step"] - 1]
    close(numbers["d"], now.d[0], rtol=1e-12)
    close(numbers["result"], now.o[0], rtol=1e-12, atol=1e-15)
    close(numbers["a"], now.d[0] * now.o[0], rtol=1e-12, atol=1e-15)
    close(numbers["last"], torch.softmax(torch.tensor(x), 0) @ torch.tensor(v), atol=1e-12)


def attention_vectors(state, numbers):
    """Of the values that the figure has, of each component a row."""
    module = (ROOT / "docs/assets/figures/attention-vectors.js").read_text("utf8")
    found = re.search(r"VALUES = \[\n(.*?),?\n\];", module, re.S)
    seen, values = 2 * state["step"], np.array(json.loads(f"[{found[1]}]")).T
    x, v = np.array(state["x"])[:seen], values[:seen]
    m, d = reference.summary(x)
    close([numbers["m"], numbers["d"]], [m, d], rtol=1e-12)
    close(numbers["o"], torch.softmax(torch.tensor(x), 0) @ torch.tensor(v), atol=1e-12)
    close(numbers["a"], d * np.array(numbers["o"]), rtol=1e-12)
    before = x[:-2].max() if state["step"] > 1 else -math.inf
    close(numbers["scale"], math.exp(before - m), rtol=1e-12)
    assert numbers["grew"] == (-math.inf < before < m)


def causal(state, numbers):
    """What is kept and what is computed, from the mask alone."""
    high, wide = map(int, state["tile"].split("x"))
    queries, keys = np.mgrid[:16, : 16 + int(state["earlier"])]
    kept = keys <= queries + int(state["earlier"])
    tiles = kept.reshape(16 // high, high, -1, wide).transpose(0, 2, 1, 3)
    whole, visited = tiles.all(axis=(2, 3)), tiles.any(axis=(2, 3))
    assert numbers["needed"] == kept.sum()
    assert [numbers["whole"], numbers["masked"]] == [whole.sum(), (visited & ~whole).sum()]
    assert numbers["skipped"] == (~visited).sum()
    assert numbers["computed"] == visited.sum() * high * wide
    assert numbers["mine"] == visited[state["query"] // high].sum()


def cross_entropy(state, numbers):
    x = torch.tensor([state["x"]], dtype=torch.float64, requires_grad=True)
    target, share = torch.tensor([state["target"] - 1]), state["smoothing"] / 100
    loss = torch.nn.functional.cross_entropy(x, target, label_smoothing=share)
    loss.backward()
    close(numbers["loss"], loss.item(), rtol=1e-12)
    close(numbers["gradient"], x.grad[0], atol=1e-12)


def modifiers(state, numbers):
    x, kept = torch.tensor(state["x"], dtype=torch.float64), torch.arange(5) < state["kept"]
    sink = -math.inf if state["sink"] == -6 else float(state["sink"])
    options = {"scale": float(state["scale"]), "softcap": state["cap"] or None, "sink": sink}
    y = softmax_of_library(x, where=kept, **options)
    close([*numbers["y"], numbers["share"]], [*y, 1 - y.sum()], rtol=1e-9, atol=1e-12)


def test_traces_and_the_model_of_traffic_agree():
    """The passes of the figure come from traces; what a rung moves is also counted elsewhere."""
    for way, table in (("forward", traffic.FORWARD), ("backward", traffic.BACKWARD)):
        traced = moving.moved(ROOT)[way]
        assert tuple(traced) == LADDER
        for rung, passes in traced.items():
            count = {
                f"{kind}s_{size.lower()}": sum((k, s) == (kind, size) for k, _, s in passes)
                for kind in ("read", "write")
                for size in ("MN", "M")
            }
            assert traffic.Traffic(**count) == table[rung], (way, rung)


def moved(state, numbers):
    M, N = {"square": (4096, 4096), "odd": (1823, 781), "long": (64, 131072)}[state["shape"]]
    table = traffic.FORWARD if state["way"] == "forward" else traffic.BACKWARD
    totals = {name: table[name].elements(M, N) * state["size"] for name in LADDER}
    assert {each["name"]: each["bytes"] for each in numbers["rungs"]} == totals
    now = max(totals.values()) * state["at"] / 100
    for each in numbers["rungs"]:
        close(each["moved"], min(totals[each["name"]], now))


def packed(state, numbers):
    device = Device(132, nvidia=True)
    rows = Rows(10**6, state["cols"], 4, 1, False, 1)
    how = row_tile(rows, Traits(inputs=1), device).how
    if state["tiling"] == "narrow":
        assert [numbers["tile"], numbers["tiles"]] == [how.block_cols, how.tiles]
    else:
        assert [numbers["tile"], numbers["tiles"]] == [next_power_of_2(state["cols"]), 1]
    assert numbers["programs"] == -(-state["rows"] // state["side"])
    assert numbers["used"] == state["rows"] * state["cols"] <= numbers["lanes"]
    each = state["side"] * numbers["tile"] * numbers["tiles"]
    assert numbers["lanes"] == numbers["programs"] * each


def packed_says(state, numbers, words):
    several = numbers["programs"] > 1
    assert words.startswith(f"{numbers['programs']} program" + "s, each" * several)
    assert several or words.startswith("1 program with ")


def aligned(state, numbers):
    vector = state["vector"]
    elements = single = vectors = 0
    for row, each in enumerate(numbers["rows"]):
        addresses = state["start"] + row * state["cols"] + np.arange(state["cols"])
        whole = [v for v in set(addresses // vector) if (addresses // vector == v).sum() == vector]
        assert each["body"] == vector * len(whole)
        assert each["head"] == (addresses < min(whole) * vector).sum() < vector
        assert each["tail"] == (addresses >= (max(whole) + 1) * vector).sum() < vector
        vectors += len(whole)
        single += each["head"] + each["tail"]
        elements += len(addresses)
    totals = [numbers["vectors"], numbers["edges"], numbers["elements"]]
    assert totals == [vectors, single, elements]


def strided(state, numbers):
    across, wide, size = state["across"], state["wide"], state["size"]
    touched = set()
    for down in range(6):
        for at in range(across):
            byte = (down * across + at) * size
            touched.add((at // wide, down, byte // 32))
    assert numbers["programs"] == len({program for program, _, _ in touched})
    assert numbers["sectors"] == len(touched)
    close(numbers["share"], 6 * across * size / (32 * len(touched)))


def timeline(state, numbers):
    absent = state["absent"]
    traced = moving.traces(ROOT)[f"{absent} {state['patience']}"]
    events = [split_rows_trace.Event(*each) for each in traced]
    running = [program for program in range(split_rows_trace.CHUNKS) if program != absent]
    assert sorted(program for program, _ in numbers["finished"]) == running
    assert {chunk for chunk, _ in numbers["words"]} == set(running)
    assert numbers["reads"] == len(running)
    assert numbers["helps"] == sum(event.what == "help" for event in events)
    assert numbers["end"] == max(event.end for event in events)
    assert absent < 0 or numbers["helps"] >= len(running), "each makes up for what is missing"


def timeline_says(state, numbers, words):
    """A program may give up more than once, and on a chunk that comes late."""
    if state["at"] < 100:
        return
    events = moving.traces(ROOT)[f"{state['absent']} {state['patience']}"]
    helps = [event for event in events if event[1] == "help"]
    helpers = len({program for program, *_ in helps})
    for many, what in ((helpers, "program"), (len(helps), "chunk")):
        number = f"{many} {what}s" if many > 1 else f"(?:one|a) {what}"
        assert not many or re.search(rf"\b{number}\b", words), words


def warp_groups(state, numbers):
    """Of the schedule, which checks itself (`test_computed.py`)."""
    groups, places = state["groups"], state["places"]
    events = moving.traces(ROOT, "warp_groups")[f"{state['dim']} {groups} {places}"]
    products, weights = (
        sum(end - begin for _, what, _, begin, end in events if what in kinds)
        for kinds in (("scores", "values"), ("weights",))
    )
    assert numbers["end"] == max(end for *_, end in events)
    assert numbers["inTurn"] == products + weights
    close(numbers["busy"], products / numbers["end"])
    waits = [who == groups for who, what, *_ in events if what.startswith("await")]
    assert [numbers["waits"], numbers["waitsToLoad"]] == [waits.count(False), waits.count(True)]


def roofline(state, numbers):
    data = moving.roofline(ROOT)
    length = data["lengths"][state["step"]]
    itemsize = 4 if state["dtype"] == "float32" else 2
    moves = moving.moved_by(state["way"])
    assert {each["name"] for each in numbers["points"]} >= {*LADDER[:3], *moving.STRIDED, "torch"}
    for each in numbers["points"]:
        assert each["length"] == length or each["name"] in moving.STRIDED
        close(each["intensity"], 1 / (moves[each["name"]] * itemsize))
        roof = min(each["copy"] * each["intensity"], moving.EXPONENTIALS)
        close([each["roof"], each["share"]], [roof, each["speed"] / roof])
        assert 0.01 < each["share"] < 4


def one_row(state, numbers):
    row = np.array([1, 3, 0, 2, 4, 1, 2, 0, 3, 5, 1, 2, 0, 2, 4, 1.0])
    for cuts, key in ((2, "halves"), (4, "quarters")):
        for part, pair in zip(np.split(row, cuts), numbers[key], strict=True):
            close([pair["m"], pair["d"]], reference.summary(part), rtol=1e-14)
    x = torch.tensor(row, requires_grad=True)
    y = x.softmax(0)
    y.backward(torch.tensor(numbers["dy"], dtype=torch.float64))
    close(numbers["shares"], y.detach(), rtol=1e-12)
    close(numbers["gradient"], x.grad, rtol=1e-12, atol=1e-16)
    scene, tiles = numbers["scene"], min(numbers["done"], 4)
    if scene == "two" and tiles:
        pair = numbers["pair"]
        close([pair["m"], pair["d"]], reference.summary(row[: 4 * tiles]), rtol=1e-14)
    if scene == "programs":
        assert numbers["trips"] == 2
    if scene in ("lines", "three", "two", "one", "backward"):
        drawn = [[a["kind"], a["name"], a["first"] // 4] for a in numbers["all"]]
        assert [each for each in drawn if each[2] < 2] == traced(scene)
        way, rung = rung_of(scene)
        assert numbers["trips"] == sum(size == "MN" for *_, size in moving.moved(ROOT)[way][rung])


def rung_of(scene):
    """Way and rung whose kernel, or lines, a scene shows."""
    way = "backward" if scene == "backward" else "forward"
    rungs = {"lines": "naive", "three": "three_loops", "two": "two_loops"}
    return way, rungs.get(scene, "single_block")


@functools.cache
def traced(scene):
    """What the kernel of a scene reads and writes, in order: kind, matrix, tile of four columns; of
    the first row."""
    way, rung = rung_of(scene)
    trace = in_lines(ROOT, way) if rung == "naive" else launched(ROOT, way, rung)
    kinds = {"load": "read", "store": "write"}
    return [
        [kinds[each.kind], each.tensor.name, min(each.places) // 4]
        for each in trace.accesses
        if each.tensor.shape[1] > 1 and min(each.places) < each.tensor.shape[1]
    ]


def test_one_figure_goes_along_while_the_page_scrolls(tab):
    """Each scene in its turn, and back; the picture of the first scene stays for paper."""
    view = tab.open("one-row").view
    view.wait_for_selector(".along-figure .moving.live")
    state = "JSON.parse(document.querySelector('.along-figure .moving').dataset.state)"
    for width in (DESKTOP, PHONE):
        tab.resize(width)
        for scene in (*range(len(moving.SCENES)), 3, 0):
            view.evaluate(
                f"document.querySelectorAll('.scene')[{scene}].scrollIntoView({{block: 'start'}})"
            )
            view.wait_for_function(f"{state}.scene === {scene}")
            figure = view.locator(".along-figure .moving")
            one_row(
                *(json.loads(figure.get_attribute(f"data-{of}")) for of in ("state", "numbers"))
            )
            box = figure.bounding_box()
            assert box["y"] >= 50 and box["y"] + box["height"] <= view.viewport_size["height"]
    tab.resize(DESKTOP)
    for question in view.locator(".scene details").all():  # what is asked is not shown before
        question.evaluate("(each) => each.scrollIntoView({ block: 'center' })")
        view.wait_for_function(f"{state}.at === 0 && [3, 5].includes({state}.scene)")
    view.emulate_media(media="print")
    assert view.locator(".scene svg:visible").count() == len(moving.SCENES)
    assert view.locator(".along-figure svg:visible").count() == 0


MODULES = {name: moving.FIGURES[name].module.replace("-", "_") for name in LIVE}
EXPECTED = {name: globals()[{"bytes": "moved"}.get(of, of)] for name, of in MODULES.items()}
SAYS = {name: globals()[f"{of}_says"] for name, of in MODULES.items() if f"{of}_says" in globals()}
"""What the sentence of a figure should say."""


def floats(values):
    """Numbers, where JSON has words for those that are not finite."""
    return [float(each) for each in values]


# --- moving them ----------------------------------------------------------------------------------


class Figure:
    """A figure in a tab, and a check of its numbers after each move."""

    def __init__(self, tab, name):
        self.view = tab.open(PAGES[name]).view
        self.name = name
        self.root = self.view.locator(f"#figure-{name}")
        self.view.wait_for_selector(f"#figure-{name}.live")
        self.states = set()

    def check(self):
        """The numbers are those of the state."""
        state, numbers, words = self.root.evaluate(
            "(root) => [root.dataset.state, root.dataset.numbers, "
            "root.querySelector('[role=status]').textContent]"
        )
        self.states.add(state)
        assert "undefined" not in words and "Infinity" not in words, words
        assert not re.search(r"−0(\.0+)?(?![.\d])", words), "what rounds to 0 has no sign"
        if self.name in SAYS:
            SAYS[self.name](json.loads(state), json.loads(numbers), words)
        EXPECTED[self.name](json.loads(state), json.loads(numbers))

    def press(self, control, keys):
        """Press keys on a control, and check after each."""
        control.focus()
        for key in keys:
            self.view.keyboard.press(key)
            self.check()

    def drag(self, handle):
        """Drag a handle a little along its axis."""
        box = handle.locator(".reach").bounding_box()
        assert min(box["width"], box["height"]) >= 24, "room for a finger"
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        along = handle.get_attribute("data-axis") == "x"
        self.view.mouse.move(x, y)
        self.view.mouse.down()
        self.view.mouse.move(x - 40 * along, y + 12 * (not along), steps=2)
        self.view.mouse.up()
        self.check()


@pytest.fixture(scope="module")
def moving_tab(open_tab):
    """One tab for all figures."""
    tab = open_tab()
    yield tab
    tab.view.close()
    tab.check()


@pytest.mark.parametrize("name", LIVE)
def test_every_control_moves_the_numbers(moving_tab, name):
    """Sliders and handles by keyboard and mouse, buttons by keyboard. What is written beside a bar
    is the number."""
    figure = Figure(moving_tab, name)
    root = figure.root
    figure.check()
    numbers = json.loads(root.get_attribute("data-numbers"))
    shown = [f"{value:.3f}".replace("-", "−") for value in numbers.get("y", [])]
    assert set(shown) <= set(root.locator(".panels:visible text").all_text_contents())
    for slider in root.locator("input[type=range]").all():
        figure.press(slider, ("Home", "ArrowRight", "End", "ArrowLeft"))
        slider.click()  # in its middle
        figure.check()
    for button in root.locator("button[data-value=narrow]").all():
        button.click()
        figure.press(root.locator("input[type=range]").first, ("Home", *["ArrowRight"] * 31))
    for button in root.locator("button[data-key], .choice button:not([data-key])").all():
        figure.press(button, ("Enter",))
        assert button.get_attribute("aria-pressed") in ("true", None)
    tried = set()
    for handle in root.locator(".panels:visible .handle").all():
        key = handle.get_attribute("data-key").partition(".")[0]
        before = len(figure.states)
        figure.press(handle, ("Home", "ArrowUp") if key in tried else ("PageDown", "Home", "End"))
        if key not in tried:
            figure.press(handle, ("ArrowDown",))
            figure.drag(handle)
        assert len(figure.states) > before, handle.get_attribute("data-label")
        tried.add(key)
    assert len(figure.states) > 4


def test_a_row_that_is_typed(moving_tab):
    """Huge numbers, −∞ and two kinds of minus; what is no row says so."""
    figure = Figure(moving_tab, "online")
    field = figure.root.get_by_role("textbox")
    field.fill("-inf, 3, one")
    field.press("Enter")
    assert "Numbers, separated by commas" in figure.root.get_by_role("alert").inner_text()
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("-inf 3; −1e308, 1e308,4.25, 0")
    field.press("Enter")
    for _ in range(6):
        figure.check()
        figure.root.locator("input[type=range]").press("ArrowRight")
    row = json.loads(figure.root.get_attribute("data-state"))["row"]
    assert floats(row) == [-math.inf, 3, -1e308, 1e308, 4.25, 0]
    says = figure.root.get_by_role("status").inner_text()
    assert "the new term is 0.0000. Now d = 1.0000" in says


def test_a_figure_plays_and_pauses(opened_with):
    view = opened_with("benchmarks/ladder", reduced_motion="no-preference")
    button = view.locator("#figure-bytes .play")
    button.click()
    at = "JSON.parse(document.querySelector('#figure-bytes').dataset.state).at"
    view.wait_for_function(f"() => {at} > 2 && {at} < 100")
    assert button.inner_text() == "Pause"
    button.click()
    assert button.inner_text() == "Play"


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
@pytest.mark.parametrize("name, first, then", [
    ("online", "Column 5", "The maximum rises"), ("attention", "Key 1", "Key 2"),
])  # fmt: skip
def test_a_step_answers_what_a_page_asks(opened_with, name, first, then, motion):
    """The maximum has not risen yet; a step later it has. Where motion is unwanted it steps."""
    view = opened_with(PAGES[name], reduced_motion=motion)
    figure = view.locator(f"#figure-{name}")
    says, moves = figure.get_by_role("status"), motion == "no-preference"
    assert first in says.inner_text() and "rises" not in says.inner_text()
    assert figure.get_by_role("button", name="Play", exact=True).count() == moves
    figure.get_by_role("button", name="Step", exact=True).click()
    assert then in says.inner_text() and "The maximum rises" in says.inner_text()
    glide = f"getComputedStyle(document.querySelector('#figure-{name} .bar')).transitionDuration"
    assert name == "online" or (view.evaluate(glide) != "0s") == moves


def test_softmax_is_shown_before_shift_and_temperature(moving_tab):
    """What they do to the numbers stands in the picture once there is one."""
    figure = Figure(moving_tab, "softmax")
    shown, overflows = figure.root.locator(".panels:visible"), "without subtracting the maximum"
    assert overflows not in shown.inner_html()
    assert "add up to 1" in figure.root.get_by_role("status").inner_text()
    figure.root.get_by_role("button", name="hot").click()
    assert overflows in shown.inner_html() and "softmax(x / 16.0)" in shown.inner_html()
    tempered = [f"{each / 16:.2f}" for each in (3, 0.5, 2.4)]
    assert set(tempered) <= set(shown.locator("text").all_text_contents())


def test_a_figure_follows_the_width_of_the_window(moving_tab):
    """Wide and narrow pictures show the same state, and handles are in the one that is seen."""
    figure = Figure(moving_tab, "jacobian")
    figure.press(figure.root.locator(".handle:visible").first, ("End",))
    for width, drawn, value in ((PHONE, 300, "5"), (DESKTOP, 720, "-2")):
        moving_tab.resize(width)
        handle = figure.root.locator(f".panels[data-width='{drawn}'] .handle:visible").first
        handle.wait_for()
        follows = f"(each) => each.dataset.value === '{value}'"
        figure.view.wait_for_function(follows, arg=handle.element_handle())
        figure.press(handle, ("Home",))


def test_a_finger_moves_a_handle_and_does_not_scroll(opened_with):
    phone = {"width": PHONE, "height": HEIGHT}
    view = opened_with("math/softmax", has_touch=True, viewport=phone)
    view.wait_for_selector("#figure-softmax.live")
    handle = view.locator("#figure-softmax .panels:visible .handle").first
    handle.evaluate("(each) => each.scrollIntoView({ block: 'center', behavior: 'instant' })")
    before, scrolled = handle.get_attribute("data-value"), view.evaluate("scrollY")
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch = view.context.new_cdp_session(view)
    for kind, points in (
        ("touchStart", [{"x": x, "y": y}]),
        ("touchMove", [{"x": x, "y": y - 30}]),
        ("touchMove", [{"x": x, "y": y - 50}]),
        ("touchEnd", []),
    ):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert float(handle.get_attribute("data-value")) > float(before) + 1
    assert view.evaluate("scrollY") == scrolled


def test_without_script_there_is_a_picture(tab_without_script):
    view = tab_without_script.open("math/vjp").view
    figure = view.locator("#figure-vjp")
    assert figure.locator("svg:visible").count() == 3
    assert figure.locator("button, input, .handle:visible").count() == 0
    assert all(len(each.get_attribute("aria-label")) > 40 for each in figure.locator("svg").all())


def test_first_pictures_are_as_their_modules_draw_them(chromium):
    assert set(PAGES) == set(moving.FIGURES)
    view = chromium.new_page()
    for name, drawn in moving.draw(view, ROOT).items():
        committed = (ROOT / moving.frame_path(name)).read_text("utf8")
        assert committed == drawn, f"{name} is stale: run `python -m softmax_site.figures`"
    view.close()
