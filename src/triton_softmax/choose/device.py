"""What a choice has to know of the device, and how many programs run on it at once."""

from __future__ import annotations

from typing import NamedTuple

REGISTERS = 65536
"""32-bit registers of a multiprocessor."""

RESIDENT_WARPS = 48
"""Warps that a multiprocessor has room for, on every NVIDIA architecture from sm_80 on."""

RESIDENT_PROGRAMS = 16
"""Programs that a multiprocessor has room for, likewise."""


TUNED = (132,)
"""Numbers of multiprocessors of NVIDIA GPUs on which the constants were measured: those of an H200.
An H100 in the same socket is the same chip with slower memory, and chooses alike. On any other GPU
a model chooses."""


class Device(NamedTuple):
    """The device that a kernel will run on."""

    multiprocessors: int = 132
    """Number of multiprocessors (streaming multiprocessors, compute units)."""

    nvidia: bool = False
    """Whether kernels are compiled for an NVIDIA GPU. Elsewhere no register limit is set, no
    assembly used, and no program waits for another."""

    @property
    def tuned(self) -> bool:
        """Whether the constants were measured on such a device; elsewhere than on NVIDIA's they are
        taken all the same.

        >>> Device(132, nvidia=True).tuned, Device(108, nvidia=True).tuned
        (True, False)
        """
        return not self.nvidia or self.multiprocessors in TUNED

    def resident_programs(self, registers: int, num_warps: int) -> int:
        """How many programs of `num_warps` warps, with so many registers per thread, run at once.

        >>> Device(132).resident_programs(registers=128, num_warps=4)
        528
        """
        registers = -(-registers // 8) * 8  # as they are handed out
        per_multiprocessor = min(
            REGISTERS // (registers * 32 * num_warps),
            RESIDENT_WARPS // num_warps,
            RESIDENT_PROGRAMS,
        )
        return per_multiprocessor * self.multiprocessors
