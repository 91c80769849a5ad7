"""The loss of a language model of transformers from its hidden states, without its logits.

A model hands its logits to its loss: `self.loss_function(self.lm_head(hidden))`, with a scale or a
soft cap between in some. Here the model's own `forward` runs, on a shallow copy of the model whose
head returns `UnmadeLogits`: a tensor of their shape that knows the hidden states and the head. It
takes note of a scale and a soft cap, and our `cross_entropy` of it is `linear_cross_entropy`.
Anything else that a model does with it has the logits made first. So there is no list of models and
no copy of their code to keep up with; outputs, caches and losses of experts stay the model's; and a
model that does something unforeseen is right, as before, and only saves nothing. The model itself
is not written to, so threads may share it.
"""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from ..arguments import PLAIN, autocasts
from ..linear import linear_cross_entropy
from ..losses import cross_entropy

READABLE = {getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device")}
SAME = {Tensor.contiguous, Tensor.float}
FLAT = {Tensor.reshape, Tensor.view}
TIMES = {Tensor.mul, torch.mul}
OVER = {Tensor.div, torch.div}
TANH = {Tensor.tanh, torch.tanh}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Head:
    """Stands in for a head during a pass forward: calls return `UnmadeLogits`.

    Attributes:
        head: The head.
        handle: The handle that counts the loss.
        used: Whether a loss was computed without the logits.
        read: What had the logits made, or None.
    """

    def __init__(self, head: nn.Linear, handle: Any):
        self.head, self.handle, self.used = head, handle, False
        self.read: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.head, name)

    def __call__(self, hidden: Tensor) -> Tensor:
        dtype = hidden.dtype
        if autocasts(hidden) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(hidden.device.type)
        shape = (*hidden.shape[:-1], self.head.out_features)
        make = lambda: self.head(hidden)  # noqa: E731
        return UnmadeLogits.of(hidden, shape, dtype, call=self, make=make)


class UnmadeLogits(Tensor):
    """Logits that take no memory until they are made: (…, C), from hidden states (…, K)."""

    call: Head
    hidden: Tensor
    make: Callable[[], Tensor]
    scale: float = 1.0
    cap: float | None = None
    known: Tensor | None = None

    @classmethod
    def of(
        cls, hidden: Tensor, shape: tuple[int, ...], dtype: torch.dtype, **attributes: Any
    ) -> "UnmadeLogits":
        unmade = hidden.new_empty((), dtype=dtype).expand(shape).as_subclass(cls)
        vars(unmade).update(attributes, hidden=hidden)
        return unmade

    def made(self) -> Tensor:
        """Return the logits."""
        if self.known is None:
            self.known = self.make()
        return self.known

    def after(self, func: Callable[..., Any], *given: Any) -> "UnmadeLogits | None":
        """Return what a function gives of these, unmade too, or None if it may not be."""
        number = float(given[0]) if len(given) == 1 and type(given[0]) in (int, float) else 0.0
        shape, dtype, scale, cap = self.shape, self.dtype, self.scale, self.cap
        if func in SAME and not given:
            dtype = torch.float32 if func is Tensor.float else dtype
        elif func in FLAT and given == (-1, shape[-1]):
            shape = (shape[:-1].numel(), shape[-1])
        elif func in TANH and not given and cap is None:
            cap = 1.0
        elif (func in TIMES or func in OVER) and number > 0.0:
            factor = number if func in TIMES else 1.0 / number
            scale, cap = (scale * factor, None) if cap is None else (scale, cap * factor)
        else:
            return None
        make = lambda: func(self.made(), *given)  # noqa: E731
        known = {"call": self.call, "make": make, "scale": scale, "cap": cap}
        return UnmadeLogits.of(self.hidden, shape, dtype, **known)

    def loss(self, *given: Any, loss_dtype: torch.dtype | None = None) -> Tensor:
        """Return `cross_entropy` of these, which stay unmade."""
        target, weight, _, ignore_index, _, reduction, label_smoothing = given
        head, cap, self.call.used = self.call.head, self.cap, True
        return linear_cross_entropy(
            self.hidden.reshape(-1, self.hidden.shape[-1]),
            head.weight,
            target,
            linear_bias=head.bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            softcap=cap,
            scale=self.scale * (1.0 if cap is None else cap),
            loss_dtype=loss_dtype,
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in READABLE:
            return super().__torch_function__(func, types, args, kwargs)
        logits = args[0] if args else None
        if isinstance(logits, cls) and logits.known is None:
            if func is cross_entropy and kwargs.keys() <= {"loss_dtype"}:
                return logits.loss(*args[1:], **kwargs)
            later = None if kwargs else logits.after(func, *args[1:])
            if later is not None:
                return later

        def made(each: Any) -> Any:
            if isinstance(each, cls):
                each.call.read = each.call.read or resolve_name(func) or func.__name__
                return each.made()
            return type(each)(map(made, each)) if isinstance(each, (tuple, list)) else each

        return func(*made(args), **{name: made(each) for name, each in kwargs.items()})


class _Thread(threading.local):
    inside = False


_thread = _Thread()


def without_logits(
    forward: Callable[..., Any],
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    handle: Any,
) -> Any:
    """Return `forward(model, *args, **kwargs)`, with None for the logits if only the loss needed
    them; else let `handle` say why they were made."""
    if _thread.inside:  # of a model in a model, whose logits the outer one may read
        return forward(model, *args, **kwargs)
    head = model.get_output_embeddings()
    names = [name for name, each in model.named_children() if each is head]
    reason, kind = _obstacle(head, names), type(model).__name__
    if reason is not None:
        handle.say(kind, reason)
        return forward(model, *args, **kwargs)
    call = Head(head, handle)
    before = vars(model) | {"_modules": vars(model)["_modules"] | {names[0]: call}}
    twin = object.__new__(type(model))
    twin.__dict__ = before.copy()
    _thread.inside = True
    try:
        output = forward(twin, *args, **kwargs)
    finally:
        _thread.inside = False
    for name, value in vars(twin).items():  # what `forward` has stored on the model
        if before.get(name, call) is not value:
            setattr(model, name, value)
    if call.read is not None:
        handle.say(kind, f"its forward calls {call.read} of them")
    elif not call.used:
        handle.say(kind, "it computed no loss: it got no labels, as where a trainer smooths them")
    return _finished(output, call)


def _obstacle(head: Any, names: list[str]) -> str | None:
    """Return why the loss cannot be computed from a head's weight and bias, if so."""
    if type(head) is not nn.Linear or not names:  # such as an adapter's
        kind = f"{type(head).__module__}.{type(head).__qualname__}"
        return f"its head is a {kind}, not a torch.nn.Linear of its own"
    if "forward" in vars(head) or any(getattr(head, each) for each in HOOKS):
        return "its head has hooks or a forward of its own"
    weight = head.weight
    if type(weight) not in PLAIN or weight.shape != (head.out_features, head.in_features):
        return f"its head's weight is sharded, a {type(weight).__name__} {tuple(weight.shape)}"
    return None


def _finished(output: Any, call: Head) -> Any:
    """Return the output of a model, with no unmade logits in it."""
    unneeded = call.used and call.read is None

    def finish(each: Any) -> Any:
        if not isinstance(each, UnmadeLogits):
            return each
        return None if unneeded else each.made()

    if isinstance(output, tuple):  # transformers leaves out what is None
        finished = [(each, finish(each)) for each in output]
        return tuple(now for each, now in finished if now is not None or each is None)
    if hasattr(output, "__dataclass_fields__"):
        names = [each.name for each in dataclasses.fields(output)]
        return dataclasses.replace(output, **{name: finish(vars(output)[name]) for name in names})
    return output
