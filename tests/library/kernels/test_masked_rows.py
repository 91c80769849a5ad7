"""Rows with maps as they are compiled for an H100, without a GPU."""

import dataclasses

import pytest

from softmax_bench.compilation import Request, compiled
from triton_softmax.config import Device, choose_masked_rows
from triton_softmax.kernels.masked_rows import Maps

pytestmark = pytest.mark.slow
KERNEL = "triton_softmax.kernels.masked_rows:masked_rows_kernel"
SOFTMAX = "triton_softmax.operations.softmax:SOFTMAX"
VJP = "triton_softmax.operations.softmax:SOFTMAX_VJP"
LOSS = "triton_softmax.operations.cross_entropy:CROSS_ENTROPY_GRADIENT"
ELEMENTS, NUMBER = 1, "i32"
"""Strides along a row: known to be 1, or of no matter."""


def request(op: str, inputs: str, outs: str, maps: Maps, n_cols: int, held: int) -> Request:
    """A compilation for contiguous bfloat16 with two groups of rows. Inputs and outs are letters:
    x elements, m a mask, f a number of the row, t a target."""
    types = {"x": "*bf16", "m": "*i1", "f": "*fp32", "t": "*i64"}
    choice = choose_masked_rows(
        100_000, n_cols, held, 8, adjacent=True, wide_index=False, any_order=False,
        device=Device(132, nvidia=True),
    )  # fmt: skip

    def strides(letters: str) -> tuple:
        return tuple((ELEMENTS if each in "xm" else NUMBER, "i32", "i32") for each in letters)

    signature = {
        "in_ptrs": tuple(types[each] for each in inputs),
        "out_ptrs": tuple(types[each] for each in outs),
        "words_ptr": "*i64",
        "in_strides": strides(inputs),
        "out_strides": strides(outs),
        "sizes": ("i32", "i32"),
        "shape": ("i32", "i32", "i32"),
        "chunks": ("i32", "i32"),
        "scale": "fp32",
    }
    constants = {"OP": op, "MAPS": maps, "HOW": choice.how}
    aligned = ("in_strides", "out_strides", "shape")
    return Request(KERNEL, signature, constants, num_warps=choice.num_warps, aligned=aligned)


def test_whole_vectors_and_no_spills():
    everything = Maps(True, False, 2, 30.0, False, True, True, True, True, of_sink=True)
    back = Maps(False, True, 2, 30.0, where=True, safe=True, x=True, of_scale=True, of_sink=True)
    requests = [
        request(SOFTMAX, "x", "x", Maps(scaled=1, causal=True), 1024, 2),
        request(SOFTMAX, "xmff", "xf", everything, 4096, 3),
        request(VJP, "xxxmf", "xff", back, 4096, 7),
        request(LOSS, "xtfff", "xff", Maps(after=True, scaled=1, softcap=30.0), 128_256, 2),
    ]
    *whole, walked = map(compiled, requests)
    for result in whole:
        assert result.load_bits == result.store_bits == 128
        assert result.spill_bytes == 0 and result.registers <= 128
    assert "cp.async.cg" in walked.assembly  # moves 16 bytes, while the tile before is computed
    assert walked.store_bits == 128 and walked.spill_bytes == 0 and walked.registers <= 64


def test_a_mask_is_read_in_the_vectors_of_x_and_remembered_by_nobody():
    """Places that are remembered take registers; threads that hold other elements than they write
    exchange them, by way of shared memory where there are several warps."""
    maps = Maps(scaled=1, where=True)
    contiguous = request(SOFTMAX, "xm", "x", maps, 1024, 3)
    strides = (contiguous.signature["in_strides"][0], (NUMBER, "i32", "i32"))
    expanded = {**contiguous.signature, "in_strides": strides}
    requests = [
        contiguous,
        dataclasses.replace(contiguous, signature=expanded),
        request(SOFTMAX, "x", "x", Maps(scaled=1, causal=True), 1024, 2),
        request(SOFTMAX, "xm", "x", maps, 3000, 3),
    ]
    masked, by_element, causal, three = map(compiled, requests)
    for result in (masked, causal, three):
        assert result.registers <= 64 and result.shared_bytes <= 64
    # Four each, and again for a row without a sum.
    assert masked.global_loads == {"ld.global.v2.b32": 8, "ld.global.v4.b32": 8}
    assert by_element.global_loads == {"ld.global.b8": 64, "ld.global.v4.b32": 8}
    assert three.num_warps == 4


def test_wide_indices_compile():
    """With whole rows, and with chunks of rows longer than 31 bits count: in one launch or two."""
    maps, requests = Maps(after=True, scaled=1, softcap=30.0), []
    for n_cols in (1024, 128_256):
        narrow = request(LOSS, "xtfff", "xff", maps, n_cols, 2)
        how = narrow.constants["HOW"]._replace(wide_index=True)
        hows = [how] if how.whole else [how, how._replace(write=False), how._replace(publish=False)]
        long = {} if how.whole else {"shape": ("i32", "i64", "i32")}
        for each in hows:
            constants = {**narrow.constants, "HOW": each}
            signatures = [narrow.signature, {**narrow.signature, **long}]
            requests += [
                dataclasses.replace(narrow, constants=constants, signature=signature)
                for signature in signatures
            ]
    assert all(compiled(each).spill_bytes == 0 for each in requests)
