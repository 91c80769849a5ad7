"""Choose the kernel of a call, and its constants, from numbers alone.

`space` describes a call in numbers and lists the choices it has; `choose` picks one, by the tables
of `measured` or by the model of `cost`. These are pure functions that need only the standard
library.
"""

from .choose import chosen
from .space import Choice, Device, Masked, Traits, columns_of, rows_of

__all__ = ["Choice", "Device", "Masked", "Traits", "chosen", "columns_of", "rows_of"]
