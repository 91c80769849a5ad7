"""The library's kernels as modules, made of what `kernel_source` has taken from their files."""

from collections import namedtuple

from . import run


class Operation:
    """What is computed for a row, with the fields of `triton_softmax.operations.operation` and
    without `dataclasses`, which MicroPython does not have."""

    finish = finish_terms = finish_row = finish_at = adjust = None
    exp_in_finish = placed = False
    sums, numbers, row_results, any_order = 1, 0, 0, 0

    def __init__(self, name, **fields):
        self.name = name
        self.fields = fields
        for field, value in fields.items():
            setattr(self, field, value)

    @property
    def reduces(self):
        """Whether only numbers of the row are written."""
        return self.finish is None

    @property
    def results(self):
        """How many tensors are written."""
        return self.row_results + (not self.reduces)


def replace(operation, **changes):
    """Another operation that differs in some fields."""
    fields = dict(operation.fields)
    fields["name"] = operation.name
    fields.update(changes)
    return Operation(**fields)


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
