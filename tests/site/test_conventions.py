"""What readers and programs expect beside the pages: Markdown, a list of pages, an inventory of
names, dates, a feed, and where to report an error."""

import re
import subprocess
import xml.etree.ElementTree as etree
import zlib

import pytest

from site_build import ROOT, build_with_address
from softmax_site import as_markdown, equations, history
from softmax_site.equations import navigated
from softmax_site.figures import front

LEFT = r"^ *\[\[\w+|\{\{ \w|^/// |(?<!;)--8<-- \"|^::: |<(?:div|table|svg|script|math)\b|\{ [.#]"
"""What only the site understands."""


def test_every_page_is_there_as_markdown(site):
    for path in navigated(ROOT):
        text = (site / path).read_text("utf8")
        assert re.search(r"^# \S", text, re.M), path
        prose = re.sub(r"`[^`\n]*`", "", equations.FENCE.sub("", text))
        assert not re.findall(LEFT, prose, re.M), path


@pytest.mark.parametrize("path, holds", [
    ("math/softmax.md", r"$$\n"),  # a displayed formula, as it was typed
    ("math/softmax.md", r"\sum"),
    ("kernels/single-block.md", "    d = tl.sum(e, axis=0)\n"),
    ("kernels/single-block.md", "| single block | 1 read + 1 write = 2 trips |"),
    ("reference/api.md", "### `softmax(input: Tensor"),
    ("reference/api.md", "Return exp(x) / sum(exp(x))"),
    ("use/take-this-kernel.md", "class Softmax(torch.autograd.Function):"),
])  # fmt: skip
def test_what_the_site_puts_in_is_in_the_markdown(site, path, holds):
    assert holds.replace("\\n", "\n") in (site / path).read_text("utf8")


def test_a_number_is_that_of_the_page(site):
    (shown,) = re.findall(r"means over all lengths: naive <data[^>]*>([\d.]+)</data>", (
        site / "benchmarks/ladder/index.html").read_text("utf8"))  # fmt: skip
    assert f": naive {shown}," in (site / "benchmarks/ladder.md").read_text("utf8")


def test_code_in_a_page_is_left_as_it_is():
    text = "# A\n\n```text\n{{ nothing }} <div> [[run x]]\n```\n\n<https://example.org>\n"
    assert as_markdown.page(text, ROOT) == text
    with pytest.raises(KeyError, match="not defined"):
        as_markdown.docstring(ROOT, "triton_softmax.functional.nothing")


def test_the_list_of_pages_leads_to_all_of_them(site):
    text = (site / "llms.txt").read_text("utf8")
    assert text.startswith("# triton_softmax\n\n> ") and "\n## Tutorial\n" in text
    found = re.findall(r"^- \[.+?\]\((\S+?)\): \S", text, re.M)
    assert len(found) == len({*found}) and {*navigated(ROOT)} <= {*found}
    assert all((site / path).is_file() for path in found)


def test_a_page_links_to_its_markdown(site):
    page = (site / "math/vjp/index.html").read_text("utf8")
    assert '<link rel="alternate" type="text/markdown" href="../vjp.md">' in page
    assert '<a href="../vjp.md" type="text/markdown">As Markdown</a>' in page
    assert "Report an error" not in page and "Last changed" not in page


def test_others_can_link_to_the_api_by_name(site):
    head, _, packed = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2")
    names = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    assert {"triton_softmax.functional.softmax", "triton_softmax.nn.Softmax"} <= names


ADDRESS = "https://example.org/docs/softmax/"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with the history of two pages."""
    root = tmp_path_factory.mktemp("repository")
    git = ["git", "-C", root, "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (root / "docs").mkdir()
    for subject, names in (("Begin", "ab"), ("b: say <more>", "b"), ("Elsewhere", "")):
        for name in (*(f"docs/{name}.md" for name in names), "other.txt"):
            (root / name).write_text(f"# Other & more\n\n{subject}\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", subject], check=True)
    return root


def test_the_last_change_of_a_page(repository, tmp_path_factory):
    found = history.last_changes(repository)
    subjects = [(path, found[path].subject) for path in found]
    assert subjects == [("b.md", "b: say <more>"), ("a.md", "Begin")]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+(?:Z|[+-][\d:]+)", found["a.md"].time)
    assert history.last_changes(tmp_path_factory.mktemp("bare")) == {}
    (repository / ".git/shallow").touch()
    assert history.last_changes(repository) == {}
    (repository / ".git/shallow").unlink()


@pytest.fixture(scope="module")
def published(repository):
    """Its pages in the shell of the site, built with an address and a repository. Who builds it is
    not greeted with the future of the theme."""
    text = "---\ndescription: The first page.\n---\n# Home\n\n"
    text += "    pip install .  # in a clone of the repository\n"
    (repository / "docs/index.md").write_text(text)
    nav = [{"Home": "index.md"}, {"Tutorial": ["a.md", "b.md"]}]
    done = build_with_address(repository, ADDRESS, nav)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return repository / "site"


@pytest.mark.slow
def test_with_an_address_pages_say_where_they_are(published):
    home, other = ((published / f"{name}index.html").read_text("utf8") for name in ("", "a/"))
    assert f'<link rel="canonical" href="{ADDRESS}a/">' in other
    assert f'<meta property="og:url" content="{ADDRESS}a/">' in other
    image = f'<meta property="og:image" content="{ADDRESS}{front.card("")}">'
    assert image in home and image not in other
    assert f'<meta property="og:image" content="{ADDRESS}{front.card("Tutorial")}">' in other
    assert "<title>Other &amp; more · triton_softmax</title>" in other
    assert 'href="https://example.org/source"' in other
    assert '<meta name="description" content="The first page.">' in home
    assert "pip install git+https://example.org/source\n" in home
    assert '<meta property="og:description" content="The first page.">' in home
    listed = re.findall(r"<loc>(.*?)</loc>", (published / "sitemap.xml").read_text("utf8"))
    assert {*listed} == {ADDRESS, f"{ADDRESS}a/", f"{ADDRESS}b/"}
    assert 'href="/docs/softmax/assets/' in (published / "404.html").read_text("utf8")


@pytest.mark.slow
def test_a_published_page_has_its_date_and_where_to_report_an_error(published):
    page = (published / "b/index.html").read_text("utf8")
    assert re.search(r"<span>Last changed \d{4}-\d\d-\d\d</span>", page)
    report = "https://example.org/source/issues/new?title=Error%20on%20b.md"
    assert f'<a href="{report}">Report an error</a>' in page
    assert 'type="application/atom+xml" title="Changes" href="../feed.xml"' in page
    newest, other = etree.fromstring((published / "feed.xml").read_bytes()).findall("{*}entry")
    assert newest.findtext("{*}summary") == "b: say <more>"
    assert newest.find("{*}link").get("href") == f"{ADDRESS}b/"
    assert other.find("{*}link").get("href") == f"{ADDRESS}a/"
    assert f"({ADDRESS}b.md)" in (published / "llms.txt").read_text("utf8")
