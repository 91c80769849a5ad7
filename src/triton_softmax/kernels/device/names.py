"""Name compiled kernels after their operation, for profilers."""

from collections.abc import Callable


def with_operation(geometry: str) -> Callable[[object], str]:
    """A `repr` for `triton.jit`: profilers see `softmax_tile_kernel`, not one name for all."""

    def name(specialization) -> str:
        return f"{specialization.constants['OP'].name}_{geometry}_kernel"

    return name
