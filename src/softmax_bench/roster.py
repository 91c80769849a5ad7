"""Everyone who is measured: name in the data, label on the pages, colours in light and dark.

The one place where these stand. A new rung or library is a line here, and a call in `providers`.
"""

from __future__ import annotations

from typing import NamedTuple


class Provider(NamedTuple):
    """One line of every table and chart."""

    name: str
    """In the data and on the command line."""
    label: str
    """On the pages."""
    light: str
    """Colour on a light page."""
    dark: str
    """Colour on a dark page."""
    package: str | None = None
    """The distribution it comes from, if it is another project's."""


COPY = "copy"
CHOOSER = "triton_softmax"

_BASE = (
    Provider(COPY, "copy", "#757575", "#9e9e9e"),
    Provider(CHOOSER, "triton_softmax", "#c2185b", "#f06292"),
)
_LIBRARIES = (
    Provider("torch", "torch", "#d84315", "#ff8a65"),
    Provider("torch.compile", "torch.compile", "#9a7400", "#fdd835"),
    Provider("liger", "Liger", "#00796b", "#4db6ac", "liger-kernel"),
    Provider("flag_gems", "FlagGems", "#1565c0", "#64b5f6", "flag-gems"),
    Provider("quack", "QuACK", "#6a1b9a", "#ce93d8", "quack-kernels"),
)
_RUNGS = (
    Provider("naive", "naive", "#5d4037", "#bcaaa4"),
    Provider("three_loops", "three loops", "#827717", "#dce775"),
    Provider("two_loops", "two loops", "#0277bd", "#4fc3f7"),
    Provider("single_block", "single block", "#2e7d32", "#81c784"),
    Provider("packed_rows", "packed rows", "#8e24aa", "#e1a5f0"),
    Provider("aligned_rows", "aligned rows", "#37474f", "#b0bec5"),
    Provider("split_rows", "split rows", "#b8860b", "#ffd54f"),
    Provider("strided", "strided", "#283593", "#9fa8da"),
)

PROVIDERS = {provider.name: provider for provider in (*_BASE, *_LIBRARIES, *_RUNGS)}
"""Every provider by name, in the order in which it runs and is shown."""

LIBRARIES = tuple(provider.name for provider in _LIBRARIES)
RUNGS = tuple(provider.name for provider in _RUNGS)


def label_of(name: str) -> str:
    """What the pages call a provider; its name if it is none of ours.

    >>> label_of("flag_gems")
    'FlagGems'
    """
    return PROVIDERS[name].label if name in PROVIDERS else name
