"""Our cross-entropy and softmax in the models of transformers.

While a handle is active, four things of transformers are ours: the loss of causal language models,
under all its names together, because the trainer compares them; the function that attention layers
with "eager" get; `forward` of routers; and `forward` of language models. The last three are
transformers' own, called with our softmax or, if a handle asks for it, with a head that makes no
logits (`linear_loss`). Models stay as they are, so that they can be copied and saved.
"""

import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from ..arguments import DTYPES
from ..functional import softmax
from .causal_lm import causal_lm_loss
from .handle import LOCK, Handle, Replacement
from .linear_loss import UnmadeLogits, without_logits

LOSS = "ForCausalLMLoss"
SOFTMAXES = (nn.functional.softmax, torch.softmax, Tensor.softmax)
CAST = "softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)"
"""The softmax of most attention functions of transformers."""


MODELS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How the names of classes end whose head makes the logits of a loss."""


def patch_transformers(model: nn.Module | None = None, *, linear_loss: bool = False) -> Handle:
    """Put our cross-entropy and softmax into the models of transformers.

    Covers each loss that is `ForCausalLMLoss`, and the softmax of attention with "eager" and of
    modules whose class is named `…Router`. A `loss_function` that was set on a model stays. What
    `torch.compile` compiles gets our loss, and PyTorch's softmax, which it fuses. Nothing of
    PyTorch is replaced.

    Args:
        model: Only this module and those in it now; by default all, also those made later. Its
            handle goes before one for all, and does not keep it alive. A copy is not covered.
        linear_loss: In training with labels, compute the loss by `linear_cross_entropy` from the
            hidden states and the head, so that the logits of only some rows are in memory at a
            time. The output's `logits` are then None. Evaluation and generation, which need the
            logits, have them, and so has what `torch.compile` compiles. Where the logits must be
            made (a head with an adapter, sharded or hooked; no labels, as where a trainer smooths
            them; a `forward` that reads the logits; a loss of another kind), they are, and a
            warning says why, once for each reason.

    Returns:
        A handle that counts "cross_entropy", "linear_cross_entropy" and "softmax".

    Raises:
        TypeError: `model` is not a module.
        ImportError: transformers is not installed.
    """
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    return _OfModels(model, linear_loss)


class _OfModels(Handle):
    def __init__(self, model: nn.Module | None, linear_loss: bool):
        self.modules = None if model is None else WeakSet(model.modules())
        self._said = set[str]()
        super().__init__(_models, linear_loss=linear_loss)

    def covers(self, module: Any) -> bool:
        return self.modules is not None and module in self.modules

    @torch.compiler.assume_constant_result  # run while it compiles
    def say(self, model: str, reason: str) -> None:
        """Warn, once, that the logits of a class of models are made."""
        words = f"linear_loss: {model} makes its logits, since {reason}"
        if words not in self._said:
            self._said.add(words)
            warnings.warn(words, stacklevel=2)


class _Models(Replacement):
    def __init__(self) -> None:
        super().__init__(self._put_in, self._take_out)
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def answering(self, module: Any = None) -> Any:
        """The handle that answers for a module, or for a call without one."""
        handles: list[Any] = [*reversed(self.handles)]
        for_all = (each for each in handles if each.modules is None)
        return next((each for each in handles if each.covers(module)), next(for_all, None))

    def _put_in(self) -> None:
        try:
            from transformers.loss import loss_utils
            from transformers.modeling_utils import AttentionInterface, PreTrainedModel
        except ImportError as error:
            raise ImportError(f"patch_transformers needs transformers: {error}") from error
        theirs = vars(loss_utils)[LOSS]
        if theirs is not _our_loss:  # as where another put back what it had found
            self._their_loss = theirs
            functools.update_wrapper(_our_loss, theirs)
        _rename(self._their_loss, _our_loss)
        self._replace(PreTrainedModel, "loss_function", self._loss_function)
        self._replace(PreTrainedModel, "__init__", self._init)
        if hasattr(AttentionInterface, "get_interface"):  # from transformers 5.1 on
            self._replace(AttentionInterface, "get_interface", self._get_interface)
        routers = nn.Module, "Router", self._with_our_softmax
        self._forwards = routers, (PreTrainedModel, MODELS, self._without_logits)
        self._put_in_forwards()

    def _put_in_forwards(self) -> None:
        known = {owner for owner, *_ in self._replaced}
        for parent, names, ours_for in self._forwards:
            for each in {*_subclasses(parent)} - known:
                if "forward" in vars(each) and each.__name__.endswith(names):
                    self._replace(each, "forward", ours_for)

    def _take_out(self) -> None:
        _rename(_our_loss, self._their_loss)
        for owner, name, ours, theirs in self._replaced:
            if vars(owner).get(name) is ours:
                setattr(owner, name, theirs)
        self._replaced.clear()

    def _replace(self, owner: Any, name: str, ours_for: Callable[[Any], Any]) -> None:
        theirs = vars(owner)[name]
        ours = ours_for(theirs)
        setattr(owner, name, ours)
        self._replaced.append((owner, name, ours, theirs))

    def loss(self, module: Any, *args: Any, **kwargs: Any) -> Tensor:
        logits = args[0] if args else kwargs["logits"]
        unmade = isinstance(logits, UnmadeLogits)
        handle = logits.call.handle if unmade else self.answering(module)
        if handle is None:  # removed, and the caller kept the function
            return self._their_loss(*args, **kwargs)
        loss = causal_lm_loss(*args, **kwargs)
        if not is_compiling():
            handle.count("linear_cross_entropy" if unmade and logits.call.used else "cross_entropy")
        return loss

    def _loss_function(self, theirs: property) -> property:
        get: Any = theirs.fget

        def loss_function(model: Any) -> Callable[..., Any]:
            found = get(model)
            handle = self.answering(model) if found is _our_loss else None
            own = handle is not None and handle.covers(model)
            return functools.partial(self.loss, model) if own else found

        return property(loss_function, theirs.fset)

    def _init(self, theirs: Callable[..., None]) -> Callable[..., None]:
        """transformers imports a model's file, and so defines its router, when it is asked for."""

        @functools.wraps(theirs)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            theirs(model, *args, **kwargs)
            with LOCK:
                if self.handles:
                    self._put_in_forwards()

        return init

    def _without_logits(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(theirs)
        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            training = model.training and torch.is_grad_enabled()
            handle = self.answering(model) if training else None
            if handle is None or not handle.options["linear_loss"]:
                return theirs(model, *args, **kwargs)
            loss, reason = model.loss_function, None
            if is_compiling():
                reason = "torch.compile compiles it"
            elif loss is not _our_loss and getattr(loss, "func", None) != self.loss:
                reason = "its loss_function is another"
            if reason is None:
                return without_logits(theirs, model, args, kwargs, handle)
            handle.say(type(model).__name__, reason)
            return theirs(model, *args, **kwargs)

        return forward

    def _get_interface(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(theirs)
        def get_interface(interface: Any, attn_implementation: Any, default: Any) -> Any:
            found = theirs(interface, attn_implementation, default)
            return self._with_our_softmax(found) if found is default else found

        return get_interface

    def _with_our_softmax(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a module, as it is but for the softmax that it calls."""

        @functools.wraps(function)
        def ours(module: Any, *args: Any, **kwargs: Any) -> Any:
            handle = None if is_compiling() else self.answering(module)
            if handle is None or getattr(_OurSoftmax.thread, "inside", False):
                return function(module, *args, **kwargs)
            narrow = args[0].dtype if args and _casts(function) else None
            with _OurSoftmax(handle, narrow):
                return function(module, *args, **kwargs)

        return ours


class _OurSoftmax(TorchFunctionMode):
    """PyTorch's softmax is ours. If `narrow` is given, a softmax of that dtype that is asked for in
    float32 is cast back to it at once: it is written so, and only that is kept for backward."""

    thread = threading.local()

    def __init__(self, handle: Handle, narrow: torch.dtype | None):
        super().__init__()
        self.handle, self.narrow = handle, narrow

    def __enter__(self) -> "_OurSoftmax":
        self.thread.inside = True
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.thread.inside = False
        super().__exit__(*raised)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SOFTMAXES:
            return self._softmax(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _softmax(self, theirs: Any, input: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype") or input.dtype
        if dim is None or args or dtype not in DTYPES or kwargs.get("out") is not None:
            return theirs(input, dim, *args, **kwargs)
        if dtype == torch.float32 and input.dtype == self.narrow and input.dtype.itemsize == 2:
            dtype = input.dtype
        result = softmax(input, dim, dtype)
        self.handle.count("softmax")
        return result


def _our_loss(*args: Any, **kwargs: Any) -> Tensor:
    return _models.loss(None, *args, **kwargs)


@functools.lru_cache(1000)
def _casts(function: Callable[..., Any]) -> bool:
    """Whether the only softmax of a function is `CAST`."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return CAST in source and source.count("softmax") == 1


def _rename(old: Any, new: Any) -> None:
    """Let the name of the loss mean `new` wherever it means `old`."""
    from transformers.loss.loss_utils import LOSS_MAPPING

    for key in [key for key, value in LOSS_MAPPING.items() if value is old]:
        LOSS_MAPPING[key] = new
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(LOSS) is old:
            vars(module)[LOSS] = new


def _subclasses(parent: type) -> Iterator[type]:
    for each in parent.__subclasses__():
        yield each
        yield from _subclasses(each)


_models = _Models()
