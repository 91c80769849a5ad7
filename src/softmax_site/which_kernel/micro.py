"""What stands in MicroPython for names of CPython's standard library that it lacks.

`MODULES` says which file imports which of them; with these the chooser's own files run unchanged.
"""

annotations = Any = Iterator = TypeAlias = None

MODULES = {
    "__future__.py": "from micro import annotations\n",
    "typing.py": "from micro import Any, NamedTuple, TypeAlias\n",
    "collections/__init__.py": "",
    "collections/abc.py": "from micro import Iterator\n",
    "importlib/__init__.py": "",
    "importlib/resources.py": "from micro import files\n",
}

_known = {}


def _fields(kind):
    """The names that a class annotates, read in its file, since MicroPython forgets them."""
    if kind.__name__ not in _known:
        path = "/" + kind.__dict__["__module__"].replace(".", "/") + ".py"
        with open(path) as file:
            lines = file.read().split("class " + kind.__name__ + "(NamedTuple):\n")[1].split("\n")
        names, quoted = [], False
        for line in lines:
            if line and line[0] != " ":
                break
            name, colon, _ = line[4:].partition(":")
            if not quoted and colon and name.replace("_", "").isalpha():
                names.append(name)
            if line.count('"""') % 2:
                quoted = not quoted
        _known[kind.__name__] = names
    return _known[kind.__name__]


class NamedTuple:
    """As far as the chooser needs it."""

    def __init__(self, *values, **named):
        kind, given = type(self), dict(zip(_fields(type(self)), values))
        given.update(named)
        for name in _fields(kind):
            setattr(self, name, given[name] if name in given else kind.__dict__[name])

    def _asdict(self):
        return {name: getattr(self, name) for name in _fields(type(self))}

    def _replace(self, **changes):
        values = self._asdict()
        values.update(changes)
        return type(self)(**values)

    def __iter__(self):
        return iter([getattr(self, name) for name in _fields(type(self))])

    def __eq__(self, other):
        return type(self) is type(other) and list(self) == list(other)


class files:
    """A package's folder, of which a file is read."""

    def __init__(self, package):
        self.path = "/" + package.replace(".", "/")

    def joinpath(self, name):
        self.path += "/" + name
        return self

    def read_text(self, encoding):
        with open(self.path) as file:
            return file.read()
