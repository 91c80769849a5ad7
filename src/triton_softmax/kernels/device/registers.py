"""Hold elements in registers cheaply: as loaded, and upcast only where they are used.

A kernel must hold its part of a row between reading and writing. Upcast to float32, 16-bit elements
take twice the registers, and registers limit how many programs are resident. So kernels hold
elements as loaded, and upcast them again at each use.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def upcast(dtype):
    """The type to compute in: float32, or float64 for float64."""
    return tl.float64 if dtype == tl.float64 else tl.float32


@triton.jit
def rounded(x, FROM: tl.constexpr, TO: tl.constexpr):
    """Round upcast elements of type FROM to type TO, if that is another type."""
    if FROM == TO:
        return x
    else:
        return x.to(TO).to(x.dtype)


@triton.jit
def in_registers(raw, INNER: tl.constexpr):
    """Upcast the loaded elements of all inputs, a block each, to float32, or keep float64.

    The first is rounded to INNER, the `dtype` of the call: in a forward pass the type of the
    result, as in `torch.softmax`; in a backward pass its own, to which the result is rounded as
    well.
    """
    ACC: tl.constexpr = upcast(INNER)
    values = (rounded(raw[0].to(ACC), raw[0].dtype, INNER),)
    for i in tl.static_range(1, len(raw)):
        values = values + (raw[i].to(ACC),)
    return values


@triton.jit
def optimization_barrier(raw, BARRIER: tl.constexpr):
    """Hide a tuple of blocks from the optimiser, if BARRIER is set (NVIDIA only).

    Upcasts are cheap and registers are not: a kernel that reduces or waits between two uses of
    16-bit elements should upcast them twice. But a compiler merges equal expressions and keeps the
    upcasts in registers. It cannot look through an assembly statement, even one that does nothing.
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
    """The barrier of one block. 16-bit elements share a register in pairs."""
    NARROW: tl.constexpr = x.dtype.primitive_bitwidth == 16
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2 if NARROW else 1
    )


@triton.jit
def load_pairs(ptr, first, offsets, mask, PADDING: tl.constexpr):
    """Load the pairs of 16-bit elements at first + offsets, each as one 32-bit integer. All three,
    mask included, count pairs; PADDING is the value of both elements outside the mask."""
    ELEMENT: tl.constexpr = ptr.dtype.element_ty
    other = tl.full((1,), PADDING, tl.float32).to(ELEMENT).to(tl.int16, bitcast=True).to(tl.int32)
    other = (other & 0xFFFF) | (other << 16)
    return tl.load(ptr.to(tl.pointer_type(tl.int32)) + first + offsets, mask=mask, other=other)


@triton.jit
def unpack_pairs(pairs, ELEMENT: tl.constexpr):
    """Upcast the elements of pairs to float32, in memory order."""
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
def _max_or_nan_of_bfloat16_pairs(a, b):
    """The same, and NaN if either is."""
    return tl.inline_asm_elementwise(
        "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _max_or_nan_of_float16_pairs(a, b):
    """The same, and NaN if either is."""
    return tl.inline_asm_elementwise(
        "max.NaN.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def max_of_pairs(pairs, ELEMENT: tl.constexpr, OR_NAN: tl.constexpr):
    """The largest element of all pairs, as float32, ignoring NaNs unless asked for. NVIDIA only."""
    if OR_NAN:
        if ELEMENT == tl.bfloat16:
            pair = tl.reduce(pairs, 0, _max_or_nan_of_bfloat16_pairs)
        else:
            pair = tl.reduce(pairs, 0, _max_or_nan_of_float16_pairs)
    elif ELEMENT == tl.bfloat16:
        pair = tl.reduce(pairs, 0, _max_of_bfloat16_pairs)
    else:
        pair = tl.reduce(pairs, 0, _max_of_float16_pairs)
    low = pair.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
    high = (pair >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
    if OR_NAN:
        return tl.maximum(low, high, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.maximum(low, high)
