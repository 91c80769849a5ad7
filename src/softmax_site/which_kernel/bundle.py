"""The planner's own source, as MicroPython runs it.

`modules` reads `triton_softmax.plan` and what it needs to decide, and takes each file through the
same mechanical steps; nothing is written a second time. What changes on the way:

* annotations, docstrings and the bodies of kernels are dropped;
* classes of fields, NamedTuple and dataclass alike, become a `Record`;
* stars in displays, `zip(strict=True)`, and four functions that MicroPython does not have, become
  calls of functions of `runtime`;
* imports of torch, triton and modules that launch kernels become imports of what stands there;
* in the files that decide, every condition is recorded: where it stands, what came out, and the
  values of the names in it.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import sys
import threading
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import NamedTuple

PACKAGE = "planner"
"""The name under which the page imports what `modules` makes."""

LIBRARY = PurePosixPath("src/triton_softmax")
START = "plan.py"
FOLLOWED = ("choose/", "operations/", "layout.py", "checks.py", "plan.py")
"""What the page runs of the library; the rest launches kernels or is one."""

UNEXPLAINED = ("choose/constants.py", "choose/model.py")
EXPLAINED = ("choose/",)
"""Where every condition is recorded, but in what follows from a choice; and in one function of the
planner:"""
EXPLAINED_FUNCTIONS = {"plan.py": {"_plan_launches"}}

_METHODS = {"bit_length", "removeprefix"}
_FUNCTIONS = {"math.isqrt": "isqrt"}
_DROPPED = {"__future__", "typing", "collections.abc", "dataclasses"}


class BundleError(ValueError):
    """The library's source has something that the steps do not know."""


class Condition(NamedTuple):
    """A condition of the planner."""

    path: str
    """Of its file, below the root of the repository."""
    line: int
    function: str
    text: str
    kind: str
    """"if", or "filter" in a comprehension, or "return"."""


class Bundle(NamedTuple):
    """What the page runs."""

    files: dict[str, str]
    """Source by path."""
    conditions: list[Condition]
    """By the number under which they are recorded."""


def _names(node: ast.expr) -> list[str]:
    """Names and dotted names that a condition reads, in order: not those it calls or binds."""
    bound = {
        each.id
        for inner in ast.walk(node)
        for each in ast.walk(inner)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    found: list[str] = []

    def visit(each: ast.AST) -> None:
        if isinstance(each, ast.Call):
            for inner in (*each.args, *(keyword.value for keyword in each.keywords)):
                visit(inner)
            return
        if isinstance(each, (ast.Name, ast.Attribute)):
            text = ast.unparse(each)
            dotted = text.replace(".", "").replace("_", "").isalnum()
            if dotted and text.split(".")[0] not in bound and text not in found:
                found.append(text)
            return
        for inner in ast.iter_child_nodes(each):
            visit(inner)

    visit(node)
    return found


class _Steps(ast.NodeTransformer):
    def __init__(self, path: str, conditions: list[Condition], known: set[str], runtime: set[str]):
        self.path, self.conditions, self.known, self.runtime = path, conditions, known, runtime
        self.level = path.count("/") + 1
        self.function = ""
        self.needed: set[str] = set()
        explained = path.startswith(EXPLAINED) and path not in UNEXPLAINED
        self.functions = None if explained else EXPLAINED_FUNCTIONS.get(path, set())

    # ---- Statements that go or change ----

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node = self._without_docstring(node)
        self.generic_visit(node)
        if self.needed:
            names = ", ".join(sorted(self.needed))
            node.body.insert(0, ast.parse(f"from {'.' * self.level}runtime import {names}").body[0])
        return node

    def _without_docstring(self, node):
        node.body = [
            each
            for each in node.body
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            each.annotation = None
        for each in (arguments.vararg, arguments.kwarg):
            if each:
                each.annotation = None
        jitted = any(ast.unparse(each).startswith("triton.jit") for each in node.decorator_list)
        if jitted:
            node.decorator_list, node.body = [], [ast.Pass()]
            return node
        outer, self.function = self.function, self.function or node.name
        self._without_docstring(node)
        self.generic_visit(node)
        self.function = outer
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        bases = {ast.unparse(each) for each in node.bases}
        dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        self._without_docstring(node)
        if "NamedTuple" in bases or dataclass:
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            names = [each.target.id for each in fields if isinstance(each.target, ast.Name)]
            defaults = [each for each in fields if each.value is not None]
            record = ast.parse(f"_fields = {tuple(names)!r}").body
            pairs = ", ".join(f"{ast.unparse(each.target)!r}: 0" for each in defaults)
            record += ast.parse(f"_defaults = {{{pairs}}}").body
            record[1].value.values = [each.value for each in defaults]  # type: ignore[attr-defined]
            methods = [
                each
                for each in node.body
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("__")
            ]
            node.body = [*record, *methods]
            node.bases, node.decorator_list = [ast.Name("Record", ast.Load())], []
            self.needed.add("Record")
        elif "Protocol" in bases:
            node.bases = []
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None or "TypeAlias" in ast.unparse(node.annotation):
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for alias in node.names:
            if alias.name in ("torch", "triton"):
                self.needed.add(alias.name)
            elif alias.name == "triton.language":
                self.needed.add("triton")
                out += ast.parse(f"{alias.asname} = triton.language").body
            else:
                out.append(ast.Import([alias]))
        return out

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt] | ast.stmt:
        if node.module in _DROPPED and not node.level:
            self.needed |= {alias.name for alias in node.names} & {"replace"}
            return []
        if not node.level:
            if node.module not in ("torch", "triton"):
                raise BundleError(f"{self.path} imports {node.module}")
            return [self._bind(alias, f"{node.module}.{alias.name}") for alias in node.names]
        folder = PurePosixPath(self.path).parents[node.level - 1]
        base = folder / (node.module or "").replace(".", "/")
        out: list[ast.stmt] = []
        for alias in node.names:
            files = {f"{base / alias.name}.py", f"{base}.py", f"{base}/__init__.py"}
            if files & self.known:
                out.append(ast.ImportFrom(node.module, [alias], node.level))
            else:
                out.append(self._bind(alias, f"{base}.{alias.name}"))
        return out

    def _bind(self, alias: ast.alias, where: str) -> ast.stmt:
        name = alias.asname or alias.name
        if alias.name in self.runtime:
            self.needed.add(alias.name)
            return ast.parse(f"{name} = {alias.name}").body[0] if alias.asname else ast.Pass()
        if where.startswith("torch."):
            self.needed.add("torch")
            return ast.parse(f"{name} = {where}").body[0]
        self.needed.add("Missing")
        return ast.parse(f"{name} = Missing({alias.name!r})").body[0]

    # ---- Expressions that MicroPython does not know ----

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        text = ast.unparse(node.func)
        if text == "cast":
            return node.args[1]
        if text == "zip":
            node.keywords = [each for each in node.keywords if each.arg != "strict"]
        elif text in _FUNCTIONS:
            self.needed.add(_FUNCTIONS[text])
            node.func = ast.Name(_FUNCTIONS[text], ast.Load())
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            self.needed.add(node.func.attr)
            node.args = [node.func.value, *node.args]
            node.func = ast.Name(node.func.attr, ast.Load())
        return node

    def _display(self, node: ast.List | ast.Tuple | ast.Set) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Store) or not any(  # type: ignore[union-attr]
            isinstance(each, ast.Starred) for each in node.elts
        ):
            return node
        self.needed.add("joined")
        parts = [
            each.value if isinstance(each, ast.Starred) else ast.Tuple([each], ast.Load())
            for each in node.elts
        ]
        made = ast.Call(ast.Name("joined", ast.Load()), parts, [])
        if isinstance(node, ast.List):
            return made
        return ast.Call(ast.Name("tuple", ast.Load()), [made], [])

    visit_List = visit_Tuple = _display

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        if None not in node.keys:
            return node
        self.needed.add("merged")
        parts = [
            value if key is None else ast.Dict([key], [value])
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return ast.Call(ast.Name("merged", ast.Load()), parts, [])

    # ---- Conditions ----

    def _recorded(self, test: ast.expr, kind: str) -> ast.expr:
        if self.functions is not None and self.function not in self.functions:
            return test
        names = [each for each in _names(test) if each not in ("None", "True", "False")]
        number = len(self.conditions)
        path = str(LIBRARY / self.path)
        self.conditions.append(Condition(path, test.lineno, self.function, ast.unparse(test), kind))
        self.needed |= {"begin", "decide"}
        values = "".join(f"{name}, " for name in names)
        call = ast.parse(
            f"decide(begin({number}), None, {tuple(names)!r}, ({values}))",
            mode="eval",
        ).body
        call.args[1] = test  # type: ignore[attr-defined]
        return call

    def _condition(self, test: ast.expr, kind: str = "if") -> ast.expr:
        recorded = self._recorded(test, kind)
        if recorded is test:
            return self.visit(test)
        recorded.args[1] = self.visit(test)  # type: ignore[attr-defined]
        return recorded

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._condition(node.test)
        for name in ("body", "orelse"):
            made = [self.visit(each) for each in getattr(node, name)]
            flat = [each if isinstance(each, list) else [each] for each in made if each]
            setattr(node, name, [each for inner in flat for each in inner])
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._condition(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.target, node.iter = self.visit(node.target), self.visit(node.iter)
        node.ifs = [self._condition(each, "filter") for each in node.ifs]
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        yes_or_no = isinstance(node.value, (ast.Compare, ast.BoolOp))
        if node.value is not None and yes_or_no:
            node.value = self._condition(node.value, "return")
            return node
        self.generic_visit(node)
        return node


def _relative_imports(tree: ast.Module, path: str) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = PurePosixPath(path).parents[node.level - 1] / (node.module or "").replace(
                ".", "/"
            )
            found |= {f"{base}.py", f"{base}/__init__.py"}
            found |= {f"{base / alias.name}.py" for alias in node.names}
    return {each.removeprefix("./") for each in found}


@lru_cache(maxsize=4)
def _modules(library: Path, stamp: tuple) -> Bundle:
    trees: dict[str, ast.Module] = {}
    todo = [START]
    while todo:
        path = todo.pop()
        if path in trees or not (library / path).is_file() or not path.startswith(FOLLOWED):
            continue
        trees[path] = ast.parse((library / path).read_text("utf8"))
        todo += _relative_imports(trees[path], path)
    here = Path(__file__).parent
    runtime = (here / "runtime.py").read_text("utf8")
    names = {
        each.name
        for each in ast.parse(runtime).body
        if isinstance(each, (ast.ClassDef, ast.FunctionDef))
    }
    conditions: list[Condition] = []
    files = {}
    for path in sorted(trees):
        steps = _Steps(path, conditions, set(trees), names)
        tree = ast.fix_missing_locations(steps.visit(trees[path]))
        files[f"{PACKAGE}/{path}"] = ast.unparse(tree) + "\n"
    for folder in {str(PurePosixPath(path).parent) for path in files}:
        files.setdefault(f"{folder}/__init__.py", "")
    for name in ("runtime.py", "answer.py"):
        files[f"{PACKAGE}/{name}"] = _bare((here / name).read_text("utf8"))
    return Bundle(dict(sorted(files.items())), conditions)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, files: dict[str, str]):
        self.files = files

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != PACKAGE:
            return None
        folder = name.replace(".", "/")
        package = f"{folder}/__init__.py" in self.files
        if not package and f"{folder}.py" not in self.files:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=package)

    def exec_module(self, module):
        folder = module.__name__.replace(".", "/")
        path = f"{folder}.py" if f"{folder}.py" in self.files else f"{folder}/__init__.py"
        exec(compile(self.files[path], path, "exec"), module.__dict__)


_lock = threading.Lock()


@lru_cache(maxsize=2)
def _imported(root: Path, stamp: tuple) -> ModuleType:
    with _lock:
        for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
            del sys.modules[name]
        finder = _Finder(modules(root).files)
        sys.meta_path.insert(0, finder)
        try:
            return importlib.import_module(f"{PACKAGE}.answer")
        finally:
            sys.meta_path.remove(finder)


def imported(root: Path | str = ".") -> ModuleType:
    """The module `answer`, run by this Python as the page runs it."""
    root = Path(root).resolve()
    return _imported(root, _stamp(root))


def _bare(text: str) -> str:
    """A file of this folder without its docstrings, which nobody reads in a page."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            kept = [
                each
                for each in node.body
                if not (
                    isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                )
            ]
            node.body = kept or [ast.Pass()]
    return ast.unparse(tree) + "\n"


def modules(root: Path | str = ".") -> Bundle:
    """The files that the page runs, and the conditions that they record.

    Raises:
        BundleError: the library has something that the steps do not know.
    """
    root = Path(root).resolve()
    return _modules(root / LIBRARY, _stamp(root))


def _stamp(root: Path) -> tuple:
    read = [*(root / LIBRARY).rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(read))
