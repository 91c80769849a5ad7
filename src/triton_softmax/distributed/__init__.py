"""The same functions on rows that lie on several GPUs, each with a part of every row.

A rank summarises its part as a program summarises a chunk. One message takes the summaries to all
ranks, which merge them in the order of the ranks, so that all hold the same bits, and write their
own part of the result. The modules, in the order in which a call passes them:

- `tensors`: `DTensor`s, taken apart into shards and put together again
- `softmax`: `softmax`, `log_softmax`, `logsumexp` of shards; `losses`: `cross_entropy` and
  `token_logprobs`
- `ranks`: the ranks agree on what they call, once; messages
- `local`: what a rank computes by itself, by kernels or by PyTorch's operators; `steps`: the same
  for a loss, between its summary and its gradient; `operations`: what is computed, `kernels`: how

The functions here are what the rest of the library calls; they import the modules when a call names
a group or brings a `DTensor`, and not before.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def divided(x: Any, group: Any, start: int | None = None) -> bool:
    """Whether a call is for several ranks: it names a group, or its input is a `DTensor`.

    Raises:
        ValueError: both; a `DTensor` knows its groups. Or a first class without a group.
    """
    if start is not None and group is None:
        raise ValueError("vocab_start and vocab_size say which part of a group's classes is here")
    kind = type(x)
    on_mesh = kind is not Tensor and kind.__name__ == "DTensor"
    if on_mesh and group is not None:
        raise ValueError("a DTensor knows the group of each of its dimensions: leave out group=")
    return on_mesh or group is not None


def normalized(
    name: str, x: Any, dim: Any, dtype: Any, group: Any, implementation: str | None
) -> Any:
    """`softmax` or `log_softmax`, whichever is named."""
    if group is None:
        from . import tensors

        return tensors.normalized(name, x, dim, dtype, implementation)
    from . import softmax

    return softmax.normalized(name, x, dim, dtype, group, implementation)


def with_maps(
    name: str,
    x: Any,
    dim: Any,
    dtype: Any,
    group: Any,
    implementation: str | None,
    arguments: tuple[Any, ...],
    out: Any,
) -> Any:
    """The same with maps: scale, softcap, where, bias, causal, safe and sink.

    Raises:
        NotImplementedError: causal, a sink, or `out`.
    """
    *_, causal, _, sink = arguments
    if causal or sink is not None or out is not None:
        raise NotImplementedError("causal, sink and out do not work on rows that are cut")
    if group is None:
        from . import tensors

        return tensors.with_maps(name, x, dim, dtype, implementation, arguments)
    from . import softmax

    return softmax.with_maps(name, x, dim, dtype, group, implementation, arguments)


def logsumexp(x: Any, dim: Any, keepdim: bool, group: Any, implementation: str | None) -> Any:
    """`logsumexp`, the same on all ranks."""
    if group is None:
        from . import tensors

        return tensors.logsumexp(x, dim, keepdim, implementation)
    from . import softmax

    return softmax.logsumexp(x, dim, keepdim, group, implementation)


def cross_entropy(
    x: Any,
    target: Tensor,
    weight: Tensor | None,
    group: Any,
    vocab_start: int | None,
    vocab_size: int | None,
    settings: tuple,
    **maps: Any,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exps), the same on all ranks; the settings are those of `losses.Loss`."""
    from . import losses

    loss = losses.Loss(*settings)
    if group is None:
        from . import tensors

        return tensors.cross_entropy(x, target, weight, loss, **maps)
    where: dict[str, Any] = {"vocab_start": vocab_start, "vocab_size": vocab_size}
    return losses.cross_entropy(x, target, weight, loss, group, **maps, **where)


def token_logprobs(
    x: Any,
    index: Tensor,
    group: Any,
    vocab_start: int | None,
    vocab_size: int | None,
    return_entropy: bool,
    in_place: bool,
    implementation: str | None,
) -> tuple[Tensor, Tensor]:
    """(log-probabilities, entropies), the same on all ranks."""
    asked = (return_entropy, in_place, implementation)
    if group is None:
        from . import tensors

        return tensors.token_logprobs(x, index, *asked)
    from . import losses

    where: dict[str, Any] = {"vocab_start": vocab_start, "vocab_size": vocab_size}
    return losses.token_logprobs(x, index, *asked, group, **where)
