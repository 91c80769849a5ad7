"""What a choice has to know of the device, and how many programs run on it at once."""

from __future__ import annotations

from typing import NamedTuple

REGISTERS = 65536
"""32-bit registers of a multiprocessor."""

RESIDENT_WARPS = 48
"""Warps that a multiprocessor has room for, on every NVIDIA architecture from sm_80 on."""

RESIDENT_PROGRAMS = 16
"""Programs that a multiprocessor has room for, likewise."""


class Device(NamedTuple):
    """The device that a kernel will run on."""

    multiprocessors: int = 132
    """Number of multiprocessors (streaming multiprocessors, compute units)."""

    nvidia: bool = False
    """Whether kernels are compiled for an NVIDIA GPU. Elsewhere no register limit is set, no
    assembly used, and no program waits for another."""

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
