"""What a reader tries in Chromium, with Python in the page: the exercises."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from browser import PHONE, ROOT
from softmax_playground.checker import course, judge

pytestmark = pytest.mark.browser

PYTHON = ("micropython", "practice.json", "runtime.json")
"""What is loaded when somebody tries something."""


def python(tab) -> list[str]:
    """What the tab has loaded of it."""
    return [url for url in tab.requests if any(name in url for name in PYTHON)]


def checked(view, name: str, press: Callable[[], None] | None = None) -> str:
    """What the page says of an exercise as it stands there, after its button or what else begins a
    check."""
    box = view.locator(f"[data-exercise={name}]")
    before = int(box.get_attribute("data-checked") or 0)
    (press or box.locator(".exercise-check").click)()
    view.wait_for_function(
        "([name, n]) => document.querySelector(`[data-exercise=${name}]`).dataset.checked === n",
        arg=[name, str(before + 1)],
    )
    return box.locator(".exercise-says").inner_text()


TYPE = """([name, source]) => {
    const box = document.querySelector(`[data-exercise=${name}]`);
    const field = box.querySelector("textarea, .exercise-number");
    field.value = field.tagName === "INPUT" ? source.match(/^ANSWER = (.*)$/m)[1] : source;
    field.dispatchEvent(new Event("input"));
}"""
"""Put a source into the editor of an exercise, or the number of it into its field."""


def test_exercises_are_solved_in_the_page_and_remembered(tab):
    """Each one: what one starts from, a wrong answer that is explained, and the solution."""
    exercises = course.load(ROOT)
    total = len(exercises)
    view = tab.open("practice/index").view
    says = view.locator(".exercise-progress")
    assert f"0 of {total} solved. Begin with: Which constants will do" in says.inner_text()
    for which, (_, names) in course.stages(ROOT).items():
        tab.open(f"practice/{which}")
        assert view.locator(".exercise").count() == len(names)
        for name in names:
            assert checked(view, name).startswith("✗"), name
            each = exercises[name]
            wrong, remark = judge.Sheet(each.check, each.solution).wrong[0]
            view.evaluate(TYPE, [name, wrong])
            assert checked(view, name).endswith(remark), name
            assert not view.locator(f"[data-exercise={name}] .exercise-teaches").is_visible()
            fold = view.locator(f"[data-exercise={name}] .solution")
            fold.locator("summary").click()
            fold.locator("button", has_text="Put it into").click()
            assert checked(view, name).startswith("✓ Right"), name
            assert view.locator(f"[data-exercise={name}] .exercise-teaches").is_visible()
    assert python(tab)
    view.reload()
    assert not view.locator(".exercise:not(.is-solved)").count()
    assert "Right" not in view.locator(".exercise").inner_text()
    tab.open("practice/index")
    assert f"{total} of {total} solved" in view.locator(".exercise-progress").inner_text()
    assert view.locator(".exercise-done").count() == total
    view.get_by_role("button", name="Forget what I have done").click()
    assert f"0 of {total} solved" in view.locator(".exercise-progress").inner_text()
    assert json.loads(view.evaluate("localStorage.getItem('softmax-exercises')") or "{}") == {}


def test_an_exercise_by_keyboard_with_an_error_and_an_endless_loop(tab):
    """On a phone: what fails is marked with its line, and a loop is stopped; nothing of Python is
    loaded for reading."""
    view = tab.open("practice/one-row").view
    tab.resize(PHONE)
    assert not python(tab)
    box = view.locator("[data-exercise=vjp]")
    code, enter = box.locator("textarea"), partial(view.keyboard.press, "Control+Enter")
    code.fill("def vjp(y, dy):\n    s = total(y)\n    return s\n")
    assert box.locator(".editor-numbers").inner_text().split() == ["1", "2", "3", "4"]
    assert "NameError in line 2" in checked(view, "vjp", enter)
    assert box.locator(".editor-mark.failed").count() == 1
    code.fill("def vjp(y, dy):\n    while True:\n        pass\n")
    enter()
    assert "Stopped" in checked(view, "vjp", box.get_by_role("button", name="Stop").click)
    box.get_by_role("button", name="Start over").click()
    assert "s = ..." in code.input_value()
    hints = box.locator("details.tip")
    assert hints.nth(0).is_visible() and not hints.nth(1).is_visible()
    hints.nth(0).locator("summary").press("Enter")
    hints.nth(1).wait_for(state="visible")
    view.evaluate("location.hash = '#shift'")
    box = view.locator("[data-exercise=shift]")
    assert "What is the smallest whole number" in box.inner_text()
    number = box.locator("input")
    for typed, words in (("", "Type a number"), ("many", '"many" is not a number'), ("32,0", "✓")):
        number.fill(typed)
        assert words in checked(view, "shift", partial(number.press, "Enter"))
    assert view.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_without_script_an_exercise_can_be_read_and_names_its_command(tab_without_script):
    view = tab_without_script.open("practice/one-row").view
    box = view.locator("[data-exercise=padding]")
    for words in ("Change one word", "other=0.0", "python -m exercises padding", "Hint 2"):
        assert words in box.inner_text(), words
    box.locator(".solution summary").press("Enter")
    assert 'other=-float("inf")' in box.inner_text()
    assert not box.locator("textarea, button").count()


def test_mistakes_are_met_one_at_a_time_with_hints_in_steps_and_counted(tab):
    """Nothing is marked or told before the first run; a mend that the reader writes counts, one
    that the button gives away or that leaves the check out does not."""
    view = tab.open("practice/mistakes").view
    says = view.locator(".exercise-mistakes")
    total = view.locator(".run-mistake").count()
    assert f"0 of {total} seen to fail, 0 mended by you. Next: " in says.inner_text()
    view.evaluate("location.hash = 'start-at-zero'")
    cell = view.locator("#start-at-zero")
    cell.locator(".editor textarea").wait_for()
    assert not cell.locator(".editor-mark").count()
    assert not cell.locator(".run-error:visible").count()
    why, fix = cell.locator(".run-why").nth(0), cell.locator(".run-why").nth(1)
    assert not fix.is_visible()
    why.locator("summary").press("Enter")
    fix.wait_for()
    assert not fix.locator("pre").is_visible() and why.locator(".run-hint").is_visible()

    def after(press: str, words: str) -> None:
        cell.get_by_role("button", name=press, exact=True).click()
        said = "(words) => document.querySelector('.exercise-mistakes').innerText.includes(words)"
        view.wait_for_function(said, arg=words)

    after("Run", "1 of")
    after("Fix it", "1 of")
    cell.locator(".run-passed").wait_for()
    after("Break it again", "0 mended")
    code = cell.locator("textarea")
    text = code.input_value()
    for source, count in ((text[: text.index("expect(")], 0), (text, 1)):
        code.fill(source.replace("m, d = 0.0, 0.0", "m = -inf\n    d = 0.0"))
        cell.locator(".run-result").evaluate("(each) => each.replaceChildren()")
        after("Run", f"{count} mended")
        cell.locator(".run-passed").wait_for()
        assert f"{count} mended by you" in says.inner_text()
    assert view.locator("#start-at-zero.is-mended").count() == 1
    view.locator("#two-halves > summary").press("Enter")
    view.wait_for_function("document.querySelectorAll('.run-mistake[open]').length === 1")
    view.reload()
    assert "1 mended by you" in says.inner_text()
