"""The GPUs that kernels are compiled for, by the architecture that the compiler is told."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU that kernels are compiled for."""

    backend: str  # cuda or hip
    architecture: int | str  # as Triton names it
    warp_size: int  # threads of a warp
    multiprocessors: int  # or compute units


GPUS = {
    "sm_80": Gpu("cuda", 80, 32, 108),
    "sm_86": Gpu("cuda", 86, 32, 84),
    "sm_89": Gpu("cuda", 89, 32, 142),
    "sm_90": Gpu("cuda", 90, 32, 132),
    "sm_100": Gpu("cuda", 100, 32, 148),
    "sm_120": Gpu("cuda", 120, 32, 170),
    "gfx90a": Gpu("hip", "gfx90a", 64, 110),
    "gfx942": Gpu("hip", "gfx942", 64, 304),
    "gfx950": Gpu("hip", "gfx950", 64, 256),
}
"""A100, RTX 3090, RTX 6000 Ada, H100 and H200, B200 and RTX 5090; MI250, MI300X and MI355X."""

MEASURED = "sm_90"
"""What was measured: to the library an H100 and an H200 are the same."""
