"""Choose the kernel of a call, and its constants, from numbers alone.

`calls` describes a call in numbers; `constants` are those of each kernel; `splitting` says how a
row is cut into chunks; `choose` picks one choice, by the tables of `measured`. These are pure
functions.
"""

from .calls import Device, Modified, Traits, columns_of, rows_of
from .choose import chosen, in_one_loop, on_ranks
from .constants import Choice

__all__ = [
    "Choice",
    "Device",
    "Modified",
    "Traits",
    "chosen",
    "columns_of",
    "in_one_loop",
    "on_ranks",
    "rows_of",
]
