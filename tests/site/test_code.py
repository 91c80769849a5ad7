"""Code on the pages: formulas behind links, what changed since another rung, whole files."""

import re

import pytest

from browser import PHONE
from site_build import ROOT
from softmax_site import equations, listing, markdown, source

RUNG = "kernels/two-loops"
TIP = "#formula-tip"


def test_paragraphs_begin_with_their_heads_and_end_at_blank_lines():
    """Nothing of a section is lost or shown twice, and a docstring's blank lines part nothing."""
    file = source.read("src/softmax_tutorial/single_block.py", ROOT)
    parts = file.paragraphs("forward")
    assert file.lines[parts[0].first - 1] == "@triton.jit" and len(parts) == 4
    for before, after in zip(parts, parts[1:]):
        between = file.lines[before.last : after.first - 1]
        assert between and not any(line.strip() for line in between)
    with pytest.raises(source.SourceError, match="has 4 paragraphs, not 5"):
        file.piece("forward", 5)
    with pytest.raises(source.SourceError, match="no section 'ahead'; it has .*heuristic, "):
        file.section("ahead")


def test_a_piece_is_named_by_what_it_defines():
    file = source.read("src/triton_softmax/operations/softmax.py", ROOT)
    whole = file.section("exponentials..SOFTMAX")
    assert file.lines[whole.first - 1] == "@triton.jit"
    assert file.lines[whole.last - 1] == '"""y = exp(x − m) / d."""'
    with pytest.raises(source.SourceError, match=r"no section 'exponentials\.\.ahead'"):
        file.section("exponentials..ahead")


def test_a_listing_has_no_docstring_and_folds_only_a_long_signature():
    short = listing.Listings(str(ROOT)).html("src/triton_softmax/kernels/device/monoid.py:merge")
    assert "(m1, d1, m2, d2):" in short and "listing-fold" not in short
    assert '"""' not in short and "d1 * exp_shifted(m1, m)" in re.sub("<.+?>", "", short)
    long = listing.Listings(str(ROOT)).html("src/softmax_tutorial/two_loops.py:forward")
    assert long.count("listing-fold") == 1 and '"""' not in long


def test_what_changed_since_another_rung():
    """The second read is gone, and the type in which both compute has stayed."""
    file = source.read("src/softmax_tutorial/single_block.py", ROOT)
    other = source.read("src/softmax_tutorial/two_loops.py", ROOT)
    changed = {file.lines[number - 1].strip() for number in source.changed(file, "forward", other)}
    assert "d = tl.sum(e, axis=0)" in changed and "if LOG:" not in changed
    assert not any("acc_type: tl.constexpr" in line for line in changed)
    assert not source.changed(file, "forward", file)


@pytest.mark.parametrize("comment, reason, labels", [
    ("    # eq: merge", "", ["merge"]),
    ("# eq: online-m, online-d", "", ["online-m", "online-d"]),
    ("  # the shift; eq: merge", "  # the shift", ["merge"]),
    ("m = 1  # eq: merge", "m = 1  # eq: merge", []),
    ("# sequence: none", "# sequence: none", []),
])  # fmt: skip
def test_comments_that_name_equations(comment, reason, labels):
    assert source.File("", (comment,), (), {}).equations(1) == (reason, labels)


def test_a_comment_above_nothing_stops_the_build(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: toy")
    (tmp_path / "docs/a.md").write_text("/// equation | one\nx\n///\n")
    (tmp_path / "src/a.py").write_text(
        "# --8<-- [start:a]\nx = 1\n# eq: one\n# --8<-- [end:a]\ny = 2\n"
    )
    md = markdown.Markdown(extensions=[markdown.SiteExtension(root=str(tmp_path))])
    with pytest.raises(source.SourceError, match="no line follows the comment on one"):
        md.convert("[[code src/a.py:a]]")


@pytest.mark.parametrize("labels", ["one one", "One"])
def test_a_label_that_is_none_or_is_taken_stops_the_build(tmp_path, labels):
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: toy")
    text = "".join(f"/// equation | {label}\nx\n///\n" for label in labels.split())
    (tmp_path / "docs/a.md").write_text(text)
    with pytest.raises(equations.EquationError, match="is no label, or"):
        equations.load(tmp_path)


def test_sized_brackets_keep_their_size_under_scripts():
    mathml = markdown.to_mathml(r"\Bigl( \frac{a}{b} \Bigr)_{ij}", display=True)
    assert re.search(r"<msub><mrow><mo minsize=[^>]*>\)</mo>", mathml)


@pytest.mark.browser
def test_a_formula_shows_on_hover_and_on_focus_and_is_that_of_its_equation(tab):
    view = tab.open("kernels/single-block").view
    chip, tip = view.locator(".chips a.eq").first, view.locator(TIP)
    chip.hover()
    assert tip.is_visible() and tip.locator("math").count() == 1
    text = tip.locator("math").text_content()
    view.mouse.move(1, 1)
    view.wait_for_function(f"!document.querySelector('{TIP}').matches(':popover-open')")
    view.locator(".listing-fold summary").first.focus()
    while not view.evaluate("document.activeElement.matches('a.eq')"):
        view.keyboard.press("Tab")
    assert tip.is_visible() and tip.locator("math").text_content() == text
    described = view.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert described == TIP[1:]
    view.keyboard.press("Escape")
    assert not tip.is_visible()
    view.keyboard.press("Enter")
    view.wait_for_url("**/math/**#eq-*")
    anchor = view.evaluate("location.hash")
    assert view.locator(f"{anchor} .equation-body math").text_content() == text


@pytest.mark.browser
def test_what_changed_is_shown_when_asked_for_and_not_by_colour_alone(tab):
    view = tab.open(RUNG).view
    shadow = "getComputedStyle(document.querySelector('.listing .changed')).boxShadow"
    assert view.evaluate(shadow) == "none"
    view.locator(".listing-since input").focus()
    view.keyboard.press("Space")
    assert "inset" in view.evaluate(shadow)


@pytest.mark.browser
def test_a_whole_file_is_light_and_its_lines_are_anchors(tab):
    """The largest."""
    path = max(listing.paths(ROOT), key=lambda path: len((ROOT / path).read_text("utf8")))
    view = tab.open("index").view
    view.goto(f"{tab.address}{source.page_of(path)}", wait_until="load")
    lines = (ROOT / path).read_text("utf8").splitlines()
    assert view.locator(".listing-whole .num").count() == len(lines)
    assert view.evaluate("document.querySelectorAll('*').length") <= 8_000
    code = view.locator(".listing-whole code")
    assert code.evaluate("(e) => e.scrollWidth <= e.clientWidth"), "a line is cut"
    shown = code.evaluate("""(code) => { const copy = code.cloneNode(true);
        copy.querySelectorAll(".num").forEach((each) => each.remove());
        return copy.textContent; }""")
    shown = re.sub(r"  eq \d+\.\d+$", "", shown, flags=re.M)
    assert shown.rstrip("\n").split("\n") == lines
    tab.resize(PHONE)
    assert view.evaluate("document.documentElement.scrollWidth") <= PHONE
