"""Our log-probabilities and entropies in the trainers of TRL.

TRL keeps its functions in `trl.trainer.utils`, from where its trainers import them by name. So ours
take their place in every module of TRL that has them; one that is imported later finds ours.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ..logprobs import selective_log_softmax_and_entropy, token_logprobs
from .handle import Handle, Replacement


def patch_trl() -> Handle:
    """Put our kernels behind the log-probabilities and entropies of TRL's trainers.

    Replaces `selective_log_softmax`, `entropy_from_logits` and `selective_log_softmax_and_entropy`
    of `trl.trainer.utils`, as far as the installed TRL has them, with its signatures and dtypes.
    Gradients are never written over the logits, which trainers may read again.

    Returns:
        A handle that counts each under its name.

    Raises:
        ImportError: TRL is not installed.
    """
    return Handle(_trl)


def _both(
    logits: Tensor,
    index: Tensor,
    entropy_requires_grad: bool = True,
    temperature: float = 1.0,
    row_mask: Any = None,
) -> tuple[Tensor, Tensor]:
    kept = None if row_mask is None else row_mask != 0
    found, entropy = selective_log_softmax_and_entropy(logits, index, temperature, kept)
    return found, entropy if entropy_requires_grad else entropy.detach()


def _selective(
    logits: Tensor, index: Tensor, temperature: float = 1.0, row_mask: Any = None
) -> Tensor:
    kept = None if row_mask is None else row_mask != 0
    if kept is None or kept.shape == logits.shape[:-1]:
        return token_logprobs(logits, index, temperature=temperature, row_mask=kept)
    return token_logprobs(logits, index, temperature=temperature).masked_fill(~kept, 0.0)


def _entropy(logits: Tensor, chunk_size: int = 0) -> Tensor:
    index = torch.zeros(logits.shape[:-1], dtype=torch.int64, device=logits.device)
    return _both(logits, index)[1]


class _Trl(Replacement):
    OURS: dict[str, Callable[..., Any]] = {
        "selective_log_softmax": _selective,
        "entropy_from_logits": _entropy,
        "selective_log_softmax_and_entropy": _both,
    }

    def __init__(self) -> None:
        super().__init__(self._put_in, self._take_out)
        self._pairs: list[tuple[Any, Any]] = []

    def _put_in(self) -> None:
        try:
            utils = importlib.import_module("trl.trainer.utils")
        except ImportError as error:
            raise ImportError(f"patch_trl needs trl: {error}") from error
        found = {name: vars(utils)[name] for name in self.OURS if name in vars(utils)}
        self._pairs = [(theirs, self._in_place_of(theirs, name)) for name, theirs in found.items()]
        _exchange(self._pairs)

    def _take_out(self) -> None:
        _exchange([(ours, theirs) for theirs, ours in self._pairs])

    def _in_place_of(self, theirs: Callable[..., Any], name: str) -> Callable[..., Any]:
        compute, signature = self.OURS[name], inspect.signature(theirs)
        fused = vars(sys.modules[theirs.__module__]).get("_supports_trl_loss_kernel")

        @functools.wraps(theirs)
        def ours(*args: Any, **kwargs: Any) -> Any:
            handle = self.answering()
            if handle is None:  # removed, and the caller kept the function
                return theirs(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            result = compute(**given)
            of_kernel = (given.get(each) for each in ("logits", "index", "row_mask"))
            # TRL's kernel gives float32, its other way the dtype of the logits.
            if fused is None or not fused(*of_kernel):
                dtype = given["logits"].dtype
                several = isinstance(result, tuple)
                result = tuple(y.to(dtype) for y in result) if several else result.to(dtype)
            if not is_compiling():
                handle.count(name)
            return result

        return ours


def _exchange(pairs: list[tuple[Any, Any]]) -> None:
    """Put the second of each pair wherever a module of TRL has the first."""
    for module in [each for name, each in sys.modules.items() if f"{name}.".startswith("trl.")]:
        for name, value in list(vars(module).items()):
            for old, new in pairs:
                if value is old:
                    setattr(module, name, new)


_trl = _Trl()
