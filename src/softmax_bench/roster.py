"""Everyone who is measured: name in the data, label on the pages.

The one place where these stand. A new rung or library is a line here, and a call in `providers`.
"""

from __future__ import annotations

from typing import NamedTuple


class Provider(NamedTuple):
    """One line of every table and chart."""

    name: str  # in the data and on the command line
    label: str  # on the pages
    package: str | None = None  # the distribution it comes from, if it is another project's


COPY = "copy"
CHOOSER = "triton_softmax"

_BASE = (Provider(COPY, "copy"), Provider(CHOOSER, "triton_softmax"))
_LIBRARIES = (
    Provider("torch", "torch"),
    Provider("torch.compile", "torch.compile"),
    Provider("liger", "Liger", "liger-kernel"),
    Provider("flag_gems", "FlagGems", "flag-gems"),
    Provider("quack", "QuACK", "quack-kernels"),
)
_RUNGS = (
    Provider("naive", "naive"),
    Provider("three_loops", "three loops"),
    Provider("two_loops", "two loops"),
    Provider("single_block", "single block"),
    Provider("packed_rows", "packed rows"),
    Provider("aligned_rows", "aligned rows"),
    Provider("split_rows", "split rows"),
    Provider("strided", "strided"),
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
