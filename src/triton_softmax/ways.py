"""The maps of a call, as its functions hand them on, and what is refused of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Way(NamedTuple):
    """The maps of a call, all optional; tensors in the shape of x, with 1 along `dim` if they have
    a number for each row, or of no dimension."""

    scale: float | Tensor = 1.0
    softcap: float | None = None
    bias: Tensor | None = None
    where: Tensor | None = None
    causal: bool = False
    sink: Tensor | None = None
    safe: bool = False


def wide(t: Tensor) -> Tensor:
    """16-bit numbers in float32."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def check_number(value: Any, name: str) -> float:
    """A finite number.

    Raises:
        TypeError: it is none. ValueError: it is not finite.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not -math.inf < value < math.inf:
        raise ValueError(f"{name} must be finite, not {value}")
    return float(value)


def check_softcap(softcap: Any) -> float | None:
    """A positive number, or None.

    Raises:
        TypeError: it is neither. ValueError: it is not positive and finite.
    """
    if softcap is None:
        return None
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float)):
        raise TypeError(f"softcap must be a number or None, not {type(softcap).__name__}")
    if not 0 < softcap < math.inf:
        raise ValueError(f"softcap must be positive and finite, not {softcap}")
    return float(softcap)


def check_tensor(t: Any, name: str, x: Tensor, shape: torch.Size) -> Tensor:
    """A tensor of numbers that is broadcast to `shape`, on the device of x.

    Raises:
        TypeError: it is no tensor, or does not hold floating-point numbers. ValueError: it does not
            broadcast. RuntimeError: it is elsewhere.
    """
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(t).__name__}")
    if name == "where" and t.dtype != torch.bool:
        raise TypeError(f"where must hold bool, not {t.dtype}")
    if name != "where" and not t.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, not {t.dtype}")
    sizes = zip(reversed(t.shape), reversed(shape))
    if t.dim() > len(shape) or any(a not in (1, b) for a, b in sizes):
        raise ValueError(
            f"{name} of shape {tuple(t.shape)} does not broadcast to {tuple(shape)}, for an input "
            f"of shape {tuple(x.shape)}"
        )
    if t.device != x.device:
        raise RuntimeError(f"{name} is on {t.device}, and the input on {x.device}")
    return t


def check_way(
    x: Tensor,
    dim: int,
    scale: Any,
    softcap: Any,
    where: Any,
    bias: Any,
    causal: bool,
    safe: bool,
    sink: Any,
) -> Way:
    """The maps of a call, checked, and in the shapes that `Way` wants.

    Raises:
        TypeError, ValueError, RuntimeError: see `softmax`.
    """
    of_rows = torch.Size([1 if i == dim else size for i, size in enumerate(x.shape)])
    if isinstance(scale, Tensor):
        check_tensor(scale, "scale", x, of_rows)
        if scale.dim() and scale.shape != of_rows:
            raise ValueError(
                f"scale must be a number, or have no dimension or the shape {tuple(of_rows)}, not "
                f"{tuple(scale.shape)}"
            )
    else:
        scale = 1.0 if scale is None else check_number(scale, "scale")
    if where is not None:
        check_tensor(where, "where", x, x.shape)
    if bias is not None:
        check_tensor(bias, "bias", x, x.shape)
    if causal and (x.dim() < 2 or dim != x.dim() - 1 or x.shape[-1] != x.shape[-2]):
        raise ValueError(
            "causal takes dim=-1 and as many queries as keys in the last two dimensions, not "
            f"dim={dim} of shape {tuple(x.shape)}"
        )
    if sink is not None:
        if not isinstance(sink, Tensor):
            if isinstance(sink, bool) or not isinstance(sink, (int, float)):
                raise TypeError(f"sink must be a number, not {type(sink).__name__}")
            sink = torch.full((), sink, dtype=wide(x.new_empty(0)).dtype, device=x.device)
        if sink.dim() == 1 and x.dim() == 4 and dim == 3 and sink.shape[0] == x.shape[1]:
            sink = sink.view(1, -1, 1, 1)  # one for each head
        check_tensor(sink, "sink", x, of_rows)
    return Way(scale, check_softcap(softcap), bias, where, bool(causal), sink, bool(safe))
