"""Softmax and its losses on rows that lie on several GPUs, each with a part of every row.

A rank summarises its part as a program summarises a chunk. One message takes the summaries to all
ranks, which merge them in the order of the ranks, so that all hold the same bits, and write their
own part of the result. The modules, in the order in which a call passes them:

- `dtensor`: `DTensor`s, taken apart into shards and put together again
- `sharded_softmax`: `softmax`, `log_softmax`, `logsumexp` of shards; `sharded_losses`:
  `cross_entropy` and `token_logprobs`
- `process_group`: the ranks agree on every call; messages
- `partials`: what a rank knows of its part, and how that of all ranks merges; `rank_kernels`: the
  kernels around the message
- `whole_rows`: batch-invariant calls: of long rows as one GPU's, on parts; else every rank gathers
  whole rows

The functions here are what the rest of the library calls: with a group for a tensor that is a part
of the rows, and without one for a `DTensor`.
"""

from typing import Any

from .process_group import tell
from .sharded_losses import cross_entropy, token_logprobs
from .sharded_softmax import dtensors, logsumexp, normalize

__all__ = [
    "cross_entropy",
    "dtensors",
    "logsumexp",
    "normalize",
    "on_mesh",
    "tell",
    "token_logprobs",
]


def on_mesh(x: Any, start: int | None = None) -> bool:
    """Return whether the input of a call without a group is a `DTensor`; a ValueError if such a
    call names a first class."""
    if start is not None:
        raise ValueError("vocab_start and vocab_size say which part of a group's classes is here")
    return type(x).__name__ == "DTensor"
