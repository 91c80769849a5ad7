"""Modules of the library, as `softmax_site.kernel_source` has taken them apart."""

from collections import namedtuple

from . import run
from .operation import Operation, replace


def load(parts):
    """Run the parts of modules in their order.

    Args:
        parts: (module, imports, source) of each; imports are pairs (name, module).

    Returns:
        The names of each module, by module.
    """
    found = {}
    for module, imports, source in parts:
        given = {"Operation": Operation, "replace": replace, "namedtuple": namedtuple}
        for name, home in imports:
            given[name] = found[home][name]
        found[module] = run(source, module, **given)
    return found
