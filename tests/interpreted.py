"""Without a GPU kernels run in Triton's interpreter, and in half its time.

Imported before Triton is. The interpreter puts functions of its own in the place of `tl`'s whenever
a kernel is launched, and again for each function that the kernel calls. Here it does so once.
"""

import os
from types import SimpleNamespace

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

if triton.knobs.runtime.interpret:
    tl = interpreter.tl
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda kernel: interpreter._LangPatchScope()  # of nothing to put back
