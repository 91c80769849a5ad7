"""Elements as they lie in registers: in which type they are computed with, and how they are kept.

A kernel has to keep its part of a row between reading and writing. 16-bit elements, converted to
float32, take twice the registers that they came in, and registers are what decides how many
programs run at once. So kernels keep what they loaded, and convert again where they need numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def upcast(dtype):
    """The type that is computed with: float32, or float64 for float64."""
    return tl.float64 if dtype == tl.float64 else tl.float32


@triton.jit
def rounded(x, FROM: tl.constexpr, TO: tl.constexpr):
    """Numbers that hold elements of type FROM, rounded to type TO where that changes something."""
    if FROM == TO:
        return x
    else:
        return x.to(TO).to(x.dtype)


@triton.jit
def in_registers(raw, INNER: tl.constexpr):
    """The inputs' elements, as loaded, in the type that is computed with: float32, or float64.

    Args:
        raw: a tuple of blocks, one for each input.
        INNER: the type that softmax is taken in, the `dtype` of the call. The first input is
            rounded to it. For a forward pass INNER is the type of the result, as in
            `torch.softmax`; for a backward pass it is the type of the first input, to which the
            result is rounded as well.
    """
    ACC: tl.constexpr = upcast(INNER)
    values = (rounded(raw[0].to(ACC), raw[0].dtype, INNER),)
    for i in tl.static_range(1, len(raw)):
        values = values + (raw[i].to(ACC),)
    return values


@triton.jit
def optimization_barrier(raw, BARRIER: tl.constexpr):
    """The blocks of a tuple, hidden from the optimiser if BARRIER is set (NVIDIA only).

    What was computed from them before is then computed again and not kept. A conversion is cheap
    and a register is not: a kernel that reduces, or waits, between two uses of 16-bit elements
    should convert them twice, but a compiler merges equal expressions. An assembly statement that
    does nothing is where it must stop.
    """
    if BARRIER:
        hidden = ()
        for i in tl.static_range(len(raw)):
            hidden = hidden + (_barrier(raw[i]),)
        return hidden
    else:
        return raw


@triton.jit
def _barrier(x):
    """Elements of 16 bits go through a register in twos, all others alone."""
    NARROW: tl.constexpr = x.dtype.primitive_bitwidth == 16
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2 if NARROW else 1
    )


@triton.jit
def load_pairs(ptr, offsets, mask, PADDING: tl.constexpr):
    """Two 16-bit elements at a time, each two as one 32-bit number.

    Args:
        ptr: 16-bit elements.
        offsets, mask: in pairs of elements.
        PADDING: both elements of a pair outside the mask.
    """
    ELEMENT: tl.constexpr = ptr.dtype.element_ty
    other = tl.full((1,), PADDING, tl.float32).to(ELEMENT).to(tl.int16, bitcast=True).to(tl.int32)
    other = (other & 0xFFFF) | (other << 16)
    return tl.load(ptr.to(tl.pointer_type(tl.int32)) + offsets, mask=mask, other=other)


@triton.jit
def unpack_pairs(pairs, ELEMENT: tl.constexpr):
    """The elements of pairs as float32, in the order of memory."""
    if ELEMENT == tl.bfloat16:
        # bfloat16 is the upper half of a float32.
        low = (pairs << 16).to(tl.float32, bitcast=True)
        high = (pairs & -65536).to(tl.float32, bitcast=True)
    else:
        low = pairs.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
        high = (pairs >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
    return tl.interleave(low, high)


@triton.jit
def _max_of_bfloat16_pairs(a, b):
    """The larger of the low and of the high halves: one instruction for four elements."""
    return tl.inline_asm_elementwise(
        "max.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _max_of_float16_pairs(a, b):
    """The larger of the low and of the high halves: one instruction for four elements."""
    return tl.inline_asm_elementwise(
        "max.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def max_of_pairs(pairs, ELEMENT: tl.constexpr):
    """The largest of all elements of pairs, as float32; a NaN is not one. NVIDIA only."""
    if ELEMENT == tl.bfloat16:
        pair = tl.reduce(pairs, 0, _max_of_bfloat16_pairs)
    else:
        pair = tl.reduce(pairs, 0, _max_of_float16_pairs)
    low = pair.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
    high = (pair >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
    return tl.maximum(low, high)
