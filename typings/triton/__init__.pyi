"""What the type checker is told of Triton.

The body of a kernel is a program in Triton's language, not in Python: constants take the place of
values, and tuples, conversions and launch options are the compiler's. It is checked by compiling
it. Code around kernels is checked as any other.
"""

from collections.abc import Callable
from typing import Any, overload

@overload
def jit(fn: Callable[..., Any]) -> Any: ...
@overload
def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]: ...
def cdiv(x: int, y: int) -> int: ...
def next_power_of_2(n: int) -> int: ...
def __getattr__(name: str) -> Any: ...
