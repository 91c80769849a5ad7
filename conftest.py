"""How the documentation is run by pytest.

* Without a GPU the kernels run in Triton's interpreter (`tests/interpreted.py`).
* A fence that includes a section of `src/` is expanded as the site expands it and runs in a copy of
  its module's globals: what runs is the kernel that ships.
* `pycon` fences are doctests: the output a page shows is compared.
* Fences in tabs, admonitions and details are collected too.
* Modules, tests and fences draw from seeds of their own, so that a failure can be repeated.
* Where not all of `requirements-all.txt` is installed, what imports a package that is not there is
  skipped and says so.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import linecache
import re
import sys
import zlib
from importlib import metadata
from pathlib import Path

import markdown
import pytest
import torch
from markdown_it import MarkdownIt
from pytest_markdown_docs._runners import DefaultRunner, register_runner
from pytest_markdown_docs.plugin import MarkdownDocstringCodeModule, parse_superfences_block_info

pytest_plugins = ["interpreted", "pytester"]  # the first is in `tests/`

ROOT = Path(__file__).resolve().parent

# Cells run in the page, with names that it supplies; failures are those of libraries on a GPU.
collect_ignore_glob = ["docs/_cells/*", "docs/benchmarks/failures/*"]
SECTION = re.compile(r'(?<!;)--8<-- "src/(?P<module>[\w/]+)\.py(?::[\w-]+)?"')

# Text of each fence whose source is a section of `src/`, and the module it comes from.
_included: dict[str, str] = {}


class DocsMarkdown(MarkdownIt):
    """The parser of pytest-markdown-docs, made to see what the site's renderer sees."""

    def __init__(self) -> None:
        super().__init__("commonmark")
        self.disable(
            "code"
        )  # text indented by four is the body of a tab or an admonition, not code
        md = markdown.Markdown(
            extensions=["pymdownx.snippets"],
            extension_configs={
                "pymdownx.snippets": {
                    "base_path": [str(ROOT)],
                    "check_paths": True,
                    "dedent_subsections": True,
                }
            },
        )
        self.snippets = md.preprocessors["snippet"]

    def parse(self, src, env=None):
        tokens = super().parse(src, env)
        runner = None
        for token in tokens:
            if token.type != "fence":
                continue
            language, *options = parse_superfences_block_info(token.info) or [""]
            if language not in ("python", "pycon") or "notest" in options:
                continue
            sections = SECTION.findall(token.content)
            if "--8<--" in token.content:
                token.content = "\n".join(self.snippets.run(token.content.splitlines())) + "\n"
            for module in sections:
                _included[token.content] = module.replace("/", ".")
            if "continuation" not in options:
                runner = None
            if language == "pycon":
                runner = "Session"
            options = [
                option
                for option in options
                if option == "continuation" or option.startswith("fixture:")
            ]
            token.info = " ".join(["python", *options, *([f"runner:{runner}"] if runner else [])])
        return tokens


@pytest.hookimpl
def pytest_markdown_docs_markdown_it():
    return DocsMarkdown()


@register_runner(default=True)
class Fence(DefaultRunner):
    """Run a fence once, with its source where Triton looks for it."""

    def runtest(self, test, args, **kwargs):
        if "asyncio_runner" not in kwargs:
            # The plugin calls again, without this argument, whatever raised TypeError: report that
            # error.
            raise self.type_error
        args["__name__"] = "fence"
        for text, module in _included.items():
            if text in test.source:
                shipped = vars(importlib.import_module(module))
                args.update(
                    {name: value for name, value in shipped.items() if not name.startswith("__")}
                )
        name = str(test.source_path)
        linecache.cache[name] = (len(test.source), None, test.source.splitlines(True), name)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self.execute(test, args, **kwargs)
        except TypeError as error:
            self.type_error = error
            raise

    def execute(self, test, args, **kwargs):
        super().runtest(test, args, **kwargs)


class Examples(doctest.DocTestRunner):
    """Those of a session; a package that is not there ends it."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], ModuleNotFoundError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


@register_runner()
class Session(Fence):
    """Run a `pycon` fence as a doctest, after the Python fence it continues, if any."""

    def execute(self, test, args, **kwargs):
        start = re.search(r"^>>> ", test.source, re.M)
        if start is None:
            raise AssertionError("a pycon fence without a prompt checks nothing")
        name = str(test.source_path)
        exec(compile(test.source[: start.start()], name, "exec", dont_inherit=True), args)
        padding = "\n" * test.source.count("\n", 0, start.start())
        session = doctest.DocTestParser().get_doctest(
            padding + test.source[start.start() :], args, name, name, 0
        )
        report: list[str] = []
        runner = Examples(optionflags=doctest.ELLIPSIS, verbose=False)
        if runner.run(session, out=report.append, clear_globs=False).failed:
            raise AssertionError("\n" + "".join(report))


def pytest_configure(config):
    """Let a warning of our modules, or of a fence, fail the test."""
    ours = {path.stem for pattern in ("src/*", "tests/*") for path in ROOT.glob(pattern)}
    ours |= {"tests", "tools", "examples", "conftest", "fence"}
    config.addinivalue_line("filterwarnings", f"error:::({'|'.join(sorted(ours))})")
    # The interpreter computes with NumPy, which warns of what masked lanes and infinite rows hold.
    config.addinivalue_line("filterwarnings", "ignore:.* encountered:RuntimeWarning")


@pytest.fixture
def kernel_on_disk(tmp_path, monkeypatch):
    """What the command of `docs/use/hub.md` writes, where a fence runs."""
    from tools.hub import write_tree

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["write_tree.py", "kernel", "--owner", "you"])
    write_tree.main()


def pytest_collectstart(collector):
    """What is drawn at the top of a module is the same in every run."""
    torch.manual_seed(zlib.crc32(collector.nodeid.encode()))


def pytest_runtest_logstart(nodeid):
    """And so is what a test draws, whichever ran before it."""
    torch.manual_seed(zlib.crc32(nodeid.encode()))


def lacks_packages() -> bool:
    """Whether a package is missing that only `make test` and CI install; they skip nothing."""
    listed = [ROOT / f"requirements-{name}.txt" for name in ("docs", "all")]
    text = "\n".join(path.read_text("utf8") for path in listed)
    try:
        for name in re.findall(r"^\w[\w-]*", text, re.M):
            metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return True
    return False


def needed(error: BaseException | None) -> str | None:
    """Why a test that ended in an error is skipped, if it is for want of a package."""
    if not isinstance(error, ModuleNotFoundError) or not lacks_packages():
        return None
    name = (error.name or "").partition(".")[0]
    ours = any((ROOT / part / name).exists() for part in ("", "src", "tests"))
    return None if ours else f"needs {name}: pip install -r requirements-all.txt"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a module that imports a missing package."""
    report = yield
    error = report.call.excinfo.value if report.failed else None
    if reason := needed(error.__cause__ or error if error else None):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
        # What pytest has begun to import it leaves half done, for the next module to find.
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == str(collector.path):
                del sys.modules[name]
    return report


def _skipping():
    """Skip a test, or a fence, that imports a missing package."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if reason := needed(error):
            pytest.skip(reason)
        raise


pytest_runtest_setup = pytest_runtest_call = pytest.hookimpl(wrapper=True)(_skipping)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Look for fences in pages and in the docstrings of `src/`, but not in the tests themselves;
    nor in each docstring of a file that has none."""
    collected = yield
    keep = file_path.is_relative_to(ROOT / "src") and "```" in file_path.read_text("utf8")
    return [item for item in collected if keep or not isinstance(item, MarkdownDocstringCodeModule)]


def pytest_ignore_collect(collection_path, config):
    """Included texts run on the page that includes them."""
    return True if collection_path == ROOT / "docs" / "_computed" else None


def pytest_collection_modifyitems(items):
    """Skip what needs a device or a browser where there is none, and say so."""
    no_gpu = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
