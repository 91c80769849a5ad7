"""Choose the kernel of a call, and its constants, from numbers alone.

`space` describes a call in numbers and lists the choices it has. On GPUs with measured constants,
the tables of `measured` decide; on any other, `cost` models the time of each choice. `choose` picks
between the two.

These are pure functions that need only the standard library.
"""

from .choose import chosen
from .space import Choice, Device, Masked, Traits, columns_of, rows_of

__all__ = ["Choice", "Device", "Masked", "Traits", "chosen", "columns_of", "rows_of"]
