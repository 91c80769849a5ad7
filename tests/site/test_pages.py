"""Every page in Chromium: nothing is asked of the network, mathematics shows, axe is content,
phones can read it. How to add a check is told in `tests/browser.py`."""

import re

import pytest

from browser import CLOSE_FOLDS, OPEN_FOLDS, PAGES, PHONE

pytestmark = pytest.mark.browser
playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe_api = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python")

SCROLLERS = (
    "pre, code, .equation-body, .md-typeset__scrollwrap, .highlight, .highlighttable, .linenodiv"
)
UNKNOWN_ELEMENTS = """[...document.querySelectorAll('*')]
    .filter((each) => each instanceof HTMLUnknownElement)
    .map((each) => each.outerHTML.slice(0, 60))"""

# Thousands of table cells and code tokens differ only in their text, and axe looks at each. A row
# or entry of the navigation that has the tags and classes of an earlier one goes, and so does a
# line of code without a kind of token that is new on the page. Folds outside API listings are open.
KEEP_ONE_OF_EACH_KIND = """() => {
    const seen = new Set();
    const isNew = (kind) => !seen.has(kind) && seen.add(kind);
    const kind = (each) =>
        each.tagName + "." + each.getAttribute("class")
        + (each.hasAttribute("title") ? "[title]" : "");
    const undo = [];
    const remove = (each) => {
        const place = document.createComment("");
        each.replaceWith(place);
        undo.push(() => place.replaceWith(each));
    };
    for (const row of document.querySelectorAll("tbody tr, .md-nav li")) {
        const cells = [row, ...row.querySelectorAll("*:not(math *)")];
        if (!isNew(cells.map(kind).join(" "))) remove(row);
    }
    for (const line of document.querySelectorAll(".highlight code > span")) {
        const tokens = [...line.querySelectorAll("*")].map((each) => "code " + kind(each));
        if (!tokens.filter(isNew).length) remove(line);
    }
    for (const fold of document.querySelectorAll("details")) {
        const open = fold.open;
        fold.open = fold.closest(".doc") === null;
        undo.push(() => { fold.open = open; });
    }
    window.putBack = () => undo.reverse().forEach((each) => each());
}"""

# Whether text is legible, and a link told from the text beside it, follows from colours, from what
# lies behind down to the first that hides the rest, and from whether the text is large; of a link
# also from how it differs. Of the texts that look alike, one is marked, unless another page has
# shown one. How many looks there are, and which of them are new.
MARK_ONE_OF_EACH_NEW_LOOK = """(known) => {
    document.querySelectorAll("[data-look]").forEach((each) => each.removeAttribute("data-look"));
    const there = new Set(), seen = new Set(known), painted = new Map();
    const behind = (each) => {
        if (!each) return ["", ""];
        if (!painted.has(each)) {
            const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(each);
            const own = `${backgroundColor},${backgroundImage};`;
            const effect = opacity === "1" && filter === "none" ? "" : `${opacity},${filter};`;
            const [paint, effects] = behind(each.parentElement);
            const hides = backgroundColor.startsWith("rgb(");
            const bare = own === "rgba(0, 0, 0, 0),none;";
            painted.set(each, [bare ? paint : hides ? own : own + paint, effect + effects]);
        }
        return painted.get(each);
    };
    for (const each of document.querySelectorAll("body *")) {
        const texts = [...each.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
        const box = each.getBoundingClientRect();
        if (!texts.some((node) => node.nodeValue.trim()) || box.width < 2 || box.height < 2
            || !each.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const { color, fontSize, fontWeight, textShadow } = getComputedStyle(each);
        const [size, bold] = [parseFloat(fontSize), fontWeight >= 700];
        const large = size >= 24 || bold && size > 18.6;  // as axe has it: 18 pt, or 14 pt and bold
        const link = each.closest("a");
        const [own, near] = [link, link?.parentElement].map((one) => one && getComputedStyle(one));
        const beside = link && [link.closest("p, article")?.tagName,
            own.color, near.color, own.textDecorationLine,
            ...["fontSize", "fontWeight"].map((name) => own[name] === near[name])];
        const look = [color, large, textShadow, beside, ...behind(each)].join("|");
        there.add(look);
        if (seen.size === seen.add(look).size) continue;
        each.setAttribute("data-look", "");
        link?.setAttribute("data-look", "");
    }
    return [there.size, [...seen].slice(known.length)];
}"""


BY_COLOURS = ["color-contrast", "link-in-text-block"]
OF_STRUCTURE = {"rules": dict.fromkeys([*BY_COLOURS, "region"], {"enabled": False})}
"""What colours decide is apart; and a region missing, which takes long to see, is not serious."""
ONLY_MARKED = """axe.configure({ rules: [
    { id: "color-contrast", selector: "[data-look]" },
    { id: "link-in-text-block", selector: "a[data-look]" }] })"""


def serious(view, **options) -> dict[str, list[str]]:
    """What axe finds on a page, by rule; of colours where a look is marked."""
    if not view.evaluate("'axe' in window"):
        view.evaluate(axe_api.AXE_SCRIPT)
        view.evaluate(ONLY_MARKED)
    options = {"resultTypes": ["violations"], "preload": False, **options}
    violations = view.evaluate(
        "(options) => axe.run('html', options).then((found) => found.violations)", options
    )
    return {
        rule["id"]: [
            f"{rule['id']}: {node['target']} {node.get('failureSummary', '').splitlines()[1:2]}"
            for node in rule["nodes"][:4]
        ]
        for rule in violations
        if rule["impact"] in ("serious", "critical")
    }


_found: dict[str, tuple[list[str], dict[str, list[str]]]] = {}
"""Of each page, what its structure lacks and, by scheme, what cannot be read."""
_looks: dict[str, list[str]] = {"light": [], "dark": []}
"""By scheme, how the text looks that axe has judged."""


def hard_to_read(page, scheme: str) -> list[str]:
    """What axe finds among the texts whose look no earlier page had."""
    page.show(scheme)
    count, new = page.view.evaluate(MARK_ONE_OF_EACH_NEW_LOOK, _looks[scheme])
    assert count > 5
    _looks[scheme] += new
    return sum((serious(page.view, runOnly=BY_COLOURS) if new else {}).values(), [])


@pytest.fixture
def found(page):
    """What axe finds on a page that is reduced to one of each kind of row and line: everything in
    the light, and in the dark only what colours decide. The rest is put back."""
    if page.page not in _found:
        page.view.evaluate(KEEP_ONE_OF_EACH_KIND)
        problems = serious(page.view, **OF_STRUCTURE)
        illegible = {scheme: hard_to_read(page, scheme) for scheme in _looks}
        page.view.evaluate("putBack()")
        _found[page.page] = sum(problems.values(), []), illegible
    return _found[page.page]


def test_no_text_became_an_element(page):
    """For want of an escape."""
    assert not page.view.evaluate(UNKNOWN_ELEMENTS)


SIDEWAYS = """() => [...document.querySelectorAll(".md-content *")].filter((each) =>
    each.scrollWidth > each.clientWidth + 1 && each.clientWidth
    && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)
    && !each.closest("pre, textarea") && !each.querySelector(":scope > pre, :scope table pre"))
    .map((each) => [each.scrollWidth, each.clientWidth, each.textContent.trim().slice(0, 60)]
        .join(" ").toWellFormed())"""


def test_a_phone_scrolls_nothing_sideways_but_code(page):
    """Neither the page nor anything else within it; tables and equations fit, in folds too."""
    page.resize(PHONE)
    assert page.view.evaluate("document.documentElement.scrollWidth") <= PHONE
    wide = page.view.evaluate(
        """([scrollers, width]) => [...document.querySelectorAll(".md-content *")].filter(each => {
            const box = each.getBoundingClientRect();
            return box.width > 0 && box.right > width + 1 && !each.closest(scrollers)
                && getComputedStyle(each).position !== "absolute";
        }).slice(0, 5).map((each) => each.outerHTML.slice(0, 120))""",
        [SCROLLERS, PHONE],
    )
    assert not wide, wide
    page.view.evaluate(OPEN_FOLDS)
    inside = {}
    for width in (PHONE, 390):
        page.resize(width)
        inside[width] = page.view.evaluate(SIDEWAYS)
    page.view.evaluate(CLOSE_FOLDS)
    assert not any(inside.values()), inside


def test_axe_finds_no_serious_problem(found):
    problems, _ = found
    assert not problems, "\n".join(problems)


def test_text_is_legible_in_both_schemes(found):
    """Nothing but colours differs between them."""
    _, illegible = found
    assert set(illegible) == {"light", "dark"}
    assert not any(illegible.values()), illegible


def test_nothing_is_asked_of_the_network_and_no_script_fails(page):
    """Neither in the checks above."""
    page.check()


def test_the_page_is_in_the_scheme_of_the_system(opened_with):
    view = opened_with("index", color_scheme="dark")
    assert view.evaluate("document.body.dataset.mdColorScheme") == "slate"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("math/")])
def test_mathematics_shows_without_script(tab_without_script, page):
    """MathML has a size, in the font that came with the site, and no LaTeX is left over; JavaScript
    is off."""
    view = tab_without_script.open(page).view
    formulas = view.locator("math").evaluate_all(
        "(all) => all.slice(0, 60).map((each) => each.getBoundingClientRect().toJSON())"
    )
    assert formulas
    assert all(box["width"] > 2 and box["height"] > 2 for box in formulas)
    body = view.locator(".md-content").inner_text()
    assert not re.search(r"\\(frac|sum|mathbb|operatorname|eqref|begin)\b", body)


def test_the_mathematics_font_is_loaded(tab):
    view = tab.open("math/softmax").view
    assert view.evaluate(
        "document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))"
    )
    assert view.evaluate(
        "[...document.fonts].some((font) => font.family.includes('STIX Two Math') && "
        "font.status === 'loaded')"
    )
