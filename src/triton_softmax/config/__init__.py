"""Which kernel, and with which constants: numbers in, a `Choice` out.

What a call is in numbers, and which constants it may have, says `space`. On a GPU on which they
were measured the tables of `measured` decide; on any other `cost` gives each possible choice a
time. `choose` asks the right one.

Pure functions of numbers, which need the standard library only.
"""

from .choose import choose_masked_rows, choose_rows, choose_strided
from .space import Choice, Device, Traits

__all__ = ["Choice", "Device", "Traits", "choose_masked_rows", "choose_rows", "choose_strided"]
