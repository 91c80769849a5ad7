"""Softmax and its losses on rows that lie on several GPUs, each with a part of every row.

A rank is a chunk: it summarises its part of a row as a program summarises a chunk, one message
takes the words of all ranks to all, and each writes its own part of the result, by the plans and
kernels of one GPU. The modules, in the order in which a call passes them:

- `process_group`: one function checks a call, lets the ranks agree on it, and runs it; messages
- `dtensor`: `DTensor`s, taken apart into shards and put together again
- `sharded`: what the ranks compare of each public function, and what is theirs of a loss
- `ranks`: the two launches and the message between them
- `gather`: whole rows, where no rank can leave its part where it is

The rest of the library calls `agreed` with one of the functions here, for a tensor that is a part
of the rows, with its group, or for a `DTensor`.
"""

from typing import Any

from .process_group import agreed, dtensors, tell
from .sharded import cross_entropy, logsumexp, normalize, token_logprobs

__all__ = [
    "agreed",
    "cross_entropy",
    "dtensors",
    "logsumexp",
    "normalize",
    "on_mesh",
    "tell",
    "token_logprobs",
]


def on_mesh(x: Any, start: int | None = None, size: int | None = None) -> bool:
    """Return whether the input of a call without a group is a `DTensor`; a ValueError if such a
    call names a first class, or how many there are."""
    if not start is size is None:
        raise ValueError("vocab_start and vocab_size say which part of a group's classes is here")
    return type(x).__name__ == "DTensor"
