"""Without a GPU kernels run in Triton's interpreter, and in a third of its time.

Imported before Triton is. The interpreter puts functions of its own in the place of `tl`'s whenever
a kernel is launched, and again for each function that the kernel calls. Here it does so once. It
checks each sum of integers by computing it in interpreted operations; here NumPy does. And it works
out a tensor's shape and dtype whenever it makes one; here once.
"""

import os
from types import SimpleNamespace

import numpy as np
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton  # noqa: E402
from triton.language.semantic import TritonSemantic  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def check_overflow(semantic, x, y, operation) -> None:
    """Integers of less than 64 bits whose sum, difference or product they do not hold."""
    if (kind := x.type.scalar).int_bitwidth < 64:
        exact = EXACT[operation.__name__](x.handle.data, y.handle.data, dtype=np.int64)
        held = kind.get_int_min_value() <= exact.min() and exact.max() <= kind.get_int_max_value()
        assert held, f"{kind} overflow detected for operation {operation.__name__}"


def remember(kind: type, parts) -> None:
    """Make objects of a class that agree in a key like the first of them, but for some attributes:
    `parts` gives both for the arguments of the class."""
    initialise, made = kind.__init__, {}

    def make(self, *arguments):
        key, own = parts(*arguments)
        if key not in made:
            initialise(self, *arguments)
            made[key] = {**vars(self)}
        vars(self).update(made[key], **own)

    kind.__init__ = make


def numpy_dtype(kind, found={}, find=interpreter._get_np_dtype):  # noqa: B006
    if kind.name not in found:
        found[kind.name] = find(kind)
    return found[kind.name]


if triton.knobs.runtime.interpret:
    tl = interpreter.tl
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda kernel: interpreter._LangPatchScope()  # of nothing to put back
    interpreter._get_np_dtype = numpy_dtype
    TritonSemantic.binary_op_sanitize_overflow_impl = check_overflow
    remember(tl.block_type, lambda of, shape: ((of.name, *shape), {"element_ty": of}))
    remember(
        tl.tensor,
        lambda handle, kind: (
            (*kind.shape,) if kind.is_block() else (),
            {"handle": handle, "type": kind, "dtype": kind.scalar},
        ),
    )
