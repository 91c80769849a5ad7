"""Modules of the library, as `softmax_site.kernel_source` has taken them apart."""

from collections import namedtuple

from . import run
from .operation import Operation, replace


class Library:
    """Parts of modules, each run when something is first wanted of it.

    Args:
        parts: (module, imports, source) of each; imports are pairs (name, module).
    """

    def __init__(self, parts):
        self.parts = {module: (imports, source) for module, imports, source in parts}
        self.names = {}

    def __getitem__(self, module):
        """All names of a module."""
        if module not in self.names:
            imports, source = self.parts[module]
            given = {"Operation": Operation, "replace": replace, "namedtuple": namedtuple}
            for name, home in imports:
                given[name] = self[home][name]
            self.names[module] = run(source, module, **given)
        return self.names[module]


def load(parts):
    """The names of each module, by module."""
    library = Library(parts)
    return {part[0]: library[part[0]] for part in parts}
