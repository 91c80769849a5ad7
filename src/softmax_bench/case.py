"""One problem that is measured, as plain data without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from softmax_bench.roster import CHOOSER, COPY, EVERYWHERE

ITEM_SIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


PASSES = {
    "cross_entropy": (1, 2),
    "token_logprobs": (1, 3),
    "linear_cross_entropy": (0, 0),
    "modified_softmax": (2, 2),
}
"""Reads and writes of the logits or scores, forward and with the backward pass; of a layer none has
to be."""

LONGEST_OF_SWEEP = 2**18
"""Columns of the longest rows over which the suite `compiles` sweeps."""

UNTIMED = ("compiles", "accuracy")
"""Suites that count and compare, whose processes may share a GPU."""

FIELDS = ("suite", "op", "direction", "dtype", "dim", "layout", "inputs")
"""Of a case, as a row of the data has them."""


@dataclass(frozen=True)
class Case:
    """One problem: what is computed on which tensor, and who is asked to do it."""

    suite: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    # forward, backward, or (in the suites of the host and the loss head) forward_grad,
    # forward_backward
    direction: str = "forward"
    op: str = "softmax"
    dim: int = -1
    layout: str = "contiguous"  # contiguous, row_strided, or padded
    inputs: str = "normal"
    providers: tuple[str, ...] = (COPY, CHOOSER, *EVERYWHERE)
    seed: int | None = None  # what drew the case, in the suite `random`

    @property
    def id(self) -> str:
        """A key that names the case among all cases of all suites."""
        suite = self.suite if self.seed is None else f"{self.suite}/seed{self.seed}"
        parts = [suite, self.op, self.direction, self.dtype, "x".join(map(str, self.shape))]
        if self.dim != -1:
            parts.append(f"dim{self.dim}")
        if self.layout != "contiguous":
            parts.append(self.layout)
        if self.inputs != "normal":
            parts.append(self.inputs)
        return "/".join(parts)

    @property
    def fields(self) -> dict:
        """What a row of the data says of the case."""
        found: dict[str, Any] = {"case": self.id, "shape": list(self.shape), "bytes": self.bytes}
        found |= {name: getattr(self, name) for name in FIELDS}
        return found if self.seed is None else found | {"seed": self.seed}

    @classmethod
    def of(cls, row: dict) -> Case:
        """The case that a row of the data is of, without its providers."""
        fields: dict[str, Any] = {name: row[name] for name in (*FIELDS, "seed") if name in row}
        return cls(**{"suite": "random", "shape": tuple(row["shape"])} | fields)

    @property
    def elements(self) -> int:
        """The number of elements of the input."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEM_SIZE[self.dtype]

    @property
    def n_cols(self) -> int:
        """The length of a row: the size of the reduced dimension."""
        return self.shape[self.dim]

    @property
    def n_rows(self) -> int:
        """The number of rows, whatever dimensions they come from."""
        return self.elements // self.n_cols

    @property
    def lengths(self) -> list[int]:
        """The row lengths of a sweep, whose shape has their number in place of columns."""
        count = self.n_cols
        return [1 + i * (LONGEST_OF_SWEEP - 1) // (count - 1) for i in range(count)]

    @property
    def bytes(self) -> int:
        """Useful traffic: each input read once, each output written once.

        >>> Case("forward", (2, 8)).bytes == 2 * (2 * 8) * 4
        True
        >>> Case("backward", (2, 8), direction="backward").bytes == 3 * (2 * 8) * 4
        True
        """
        if self.op == "logsumexp":
            return (self.elements + self.n_rows) * self.itemsize
        passes = 3 if self.direction == "backward" else 2
        if self.op in PASSES:
            passes = PASSES[self.op][self.direction != "forward"]
        return passes * self.elements * self.itemsize
