"""A rung of the ladder by name, along any dimension and with its backward pass.

The rungs themselves take matrices and know no autograd, so that each reads from top to bottom.
Comparing them with each other, or with the library, takes a little more, and that is here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from softmax_tutorial import naive, single_block, three_loops, two_loops

RUNGS = {
    "naive": naive,
    "single_block": single_block,
    "three_loops": three_loops,
    "two_loops": two_loops,
}
"""The first four rungs by name. The backward pass of `three_loops` is that of `two_loops`, since a
sum takes no maximum."""


def _rows(tensor: Tensor, dim: int) -> Tensor:
    """The tensor as a matrix whose rows lie along `dim`, with adjacent columns."""
    rows = tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def _restored(rows: Tensor, shape: torch.Size, dim: int) -> Tensor:
    """The contiguous tensor of a shape whose rows along `dim` are those of a matrix."""
    moved = [size for i, size in enumerate(shape) if i != dim % len(shape)]
    return rows.view(*moved, shape[dim]).movedim(-1, dim).contiguous()


class _Softmax(Function):
    @staticmethod
    def forward(ctx, x, dim, rung, log):
        y = _restored(RUNGS[rung].softmax_forward(_rows(x, dim), log=log), x.shape, dim)
        ctx.save_for_backward(y)
        ctx.arguments = dim, rung, log
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dim, rung, log = ctx.arguments
        return backward(y, dy, dim, rung=rung, log=log), None, None, None


def softmax(x: Tensor, dim: int = -1, *, rung: str, log: bool = False) -> Tensor:
    """Softmax along `dim` by one rung of the ladder, once differentiable.

    Args:
        x: a tensor that is neither empty nor 0-d; float16, bfloat16, float32 or float64.
        dim: the dimension; negative counts from the end.
        rung: a name of `RUNGS`.
        log: return log-softmax.

    Raises:
        KeyError: there is no such rung.
        ValueError: the rung cannot take this tensor.

    >>> softmax(torch.tensor([[1.0, 2.0, 3.0]]), rung="naive")
    tensor([[0.0900, 0.2447, 0.6652]])
    """
    return _Softmax.apply(x, dim, rung, log)  # pyright: ignore[reportReturnType]


def backward(y: Tensor, dy: Tensor, dim: int = -1, *, rung: str, log: bool = False) -> Tensor:
    """The gradient at the input of `softmax`, from its result and the gradient there.

    Args:
        y: the result.
        dy: the gradient at the result, of the same shape.
        dim, rung, log: as they were for `softmax`.
    """
    dx = RUNGS[rung].softmax_backward(_rows(y, dim), _rows(dy, dim), log=log)
    return _restored(dx, y.shape, dim)
