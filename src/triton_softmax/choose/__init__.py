"""Which kernel, and with which constants: numbers in, a `Choice` out.

Two questions are asked. `choose_rows`, if the elements of a row are adjacent: a row that fits one
program's registers is one program's ([row tiles][triton_softmax.choose.row_tiles]: packed, or
aligned if rows have edges), a longer one is [split][triton_softmax.choose.split_rows] into chunks,
and what can be neither is walked in loops. `choose_strided`, if they lie apart: a tile of whole
strands, or chunks of them, or loops ([strided][triton_softmax.choose.strided]).

What the answer depends on, besides the shape: the [device][triton_softmax.choose.device], the
[traits][triton_softmax.choose.traits] of the operation, and how many elements one access may
[move][triton_softmax.choose.vectors]. The answer holds the
[constants][triton_softmax.choose.constants] that the kernel is compiled with, and how it is
launched.

Pure functions of numbers, which need the standard library only; the tests call them on both sides
of every threshold. The thresholds were measured on an H200; on a GPU that nobody has tuned on a
[model][triton_softmax.choose.model] chooses.
"""

from .columns import choose_strided
from .constants import Choice
from .device import Device
from .rows import choose_rows
from .traits import Traits

__all__ = ["Choice", "Device", "Traits", "choose_rows", "choose_strided"]
