"""A property: any function × any argument × any kind of tensor × any stage (forward, saved for the
backward pass, incoming gradient, second derivative) answers as PyTorch's composition does in
float64, or raises an error that names the argument.

Nothing is listed but functions, kinds and stages. What a call leaves behind must not change the
next plain one, so every kind starts without plans, and a plain call follows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_map_only

import probe
import triton_softmax as ours
from kernel_cases import INTERPRETED, quiet
from tests.library.test_matrix import CLASSES, DEVICE, FUNCTIONS, INSIDE, KINDS, X, nested, tokens

pytestmark = [quiet, pytest.mark.filterwarnings("ignore")]
if torch.cuda.is_available() and not INTERPRETED:
    pytestmark.append(pytest.mark.gpu)


def kept_tokens(logits: Tensor, index: Tensor, row_mask: Tensor) -> Tensor:
    return tokens(logits, index).where(row_mask != 0, 0.0)


EVERY = {
    **FUNCTIONS,
    "kept": (
        lambda **given: ours.selective_log_softmax_and_entropy(**given)[0],
        kept_tokens,
        {"logits": X, "index": CLASSES, "row_mask": torch.tensor([1, 0], device=DEVICE)},
    ),
}
INDEPENDENT = ("target", "index", "row_mask", "where", "weight")
"""The arguments that are never differentiated."""


class Wrapper(Tensor):
    """A tensor without memory of its own, as quantised weights are."""

    inner: Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor):
        like = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        made = Tensor._make_wrapper_subclass(cls, inner.shape, **like)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        given = tree_map_only(Wrapper, lambda t: t.inner, (arguments, named or {}))
        return tree_map_only(Tensor, Wrapper, function(*given[0], **given[1]))


class Named(Tensor):
    """A subclass that only `__torch_function__` knows."""


@cache
def mesh() -> Any:
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return init_device_mesh(DEVICE, (1,))


@pytest.fixture(scope="module", autouse=True)
def without_group_afterwards():
    """Other tests of the process, and snippets of pages, start groups of their own."""
    before = dist.is_initialized()
    yield
    if not before and dist.is_initialized():
        dist.destroy_process_group()
        mesh.cache_clear()


def behind(t: Tensor) -> Tensor:
    return torch.cat([t.new_ones(3), t.flatten()])[3:].view(t.shape)


MAKERS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": Tensor.clone,
    "wrapper": lambda t: Wrapper(t.clone()),
    "torch function": lambda t: t.clone().as_subclass(Named),
    "negated": lambda t: torch._neg_view(-t),
    "conjugated": lambda t: torch.complex(t, -t).conj().imag,
    "expanded": lambda t: t[:1].expand(t.shape),
    "offset": behind,
    "lazy": torch._lazy_clone,
    "zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype, device=t.device),
    "collective": lambda t: AsyncCollectiveTensor(t.clone()),
    "DTensor": lambda t: distribute_tensor(t.clone(), mesh(), [Replicate()]),
    "nested": lambda t: nested(t, torch.strided),
    "sparse": Tensor.to_sparse,
    "meta": lambda t: t.to("meta"),
    "fake": lambda t: FakeTensorMode().from_tensor(t),
}
MAY_REFUSE = ("DTensor", "nested", "sparse", "meta", "fake")
STAGES = ("forward", "saved", "incoming", "second")


def dense(t: Tensor) -> Tensor:
    """The numbers of a tensor of any kind."""
    t = t.detach()
    if isinstance(t, Wrapper):
        return dense(t.inner)
    if isinstance(t, AsyncCollectiveTensor):
        return t.trigger_wait()
    if isinstance(t, DTensor):
        return dense(t.full_tensor())
    if t.is_nested:
        return torch.stack(t.unbind())
    t = t.as_subclass(Tensor) if isinstance(t, Named) else t
    return t.to_dense().clone() if t.layout == torch.sparse_coo else t.resolve_neg().clone()


def answer(function: Callable[..., Any], given: dict[str, Tensor], stage: str, dy: Any) -> Any:
    """What a stage of a call yields: a result, or gradients."""
    leaves = []
    for name, t in given.items():
        if stage != "forward" and t.is_floating_point() and name not in INDEPENDENT:
            leaves.append(t.requires_grad_())
    y = function(**given)
    if stage == "forward":
        return [y]
    second = stage == "second"
    found = torch.autograd.grad(y, leaves, dy(y), create_graph=second, allow_unused=True)
    found = [g for g in found if g is not None]
    if not second:
        return found
    total: Any = sum([(g * g).sum() for g in found])
    return [t for t in torch.autograd.grad(total, leaves, allow_unused=True) if t is not None]


def gradient(y: Tensor) -> Tensor:
    """A plain gradient at a result."""
    return torch.linspace(0.5, 1.5, y.numel(), device=y.device, dtype=y.dtype).view(y.shape)


def outcome(*call: Any) -> Any:
    try:
        return answer(*call)
    except Exception as error:
        return error


def judge(name: str, argument: str | None, kind: str, stage: str) -> str | None:
    """Return what is wrong with a case, or None; without an argument it is the incoming gradient
    that has the kind."""
    function, composed, tensors = EVERY[name]
    make, dy = MAKERS[kind], gradient
    if argument is None:
        dy = lambda y: make(gradient(y))  # noqa: E731

    def given() -> dict[str, Tensor]:
        return {n: make(t) if n == argument else t.clone() for n, t in tensors.items()}

    try:
        values = {n: dense(t) if kind not in ("meta", "fake") else t for n, t in given().items()}
        dy(next(iter(values.values()))[:1])
    except (RuntimeError, TypeError, NotImplementedError):
        return None  # there is no such tensor
    got = outcome(function, given(), stage, dy)
    case = f"{name}, {argument or 'gradient'}: {kind}, {stage}"
    if isinstance(got, Exception):
        words = str(got)
        refused = kind in MAY_REFUSE and (argument or "") in words.replace(
            "the input", argument or ""
        )
        refused = refused and type(got) in KINDS and not INSIDE.search(words)
        final = stage == "second" and "cannot differentiate it again" in words
        if final or refused or isinstance(outcome(composed, given(), stage, dy), Exception):
            return None
        return f"{case}: {type(got).__name__}: {words.splitlines()[0][:150]}"
    if any(t.is_meta or isinstance(t, FakeTensor) for t in got):
        return None if kind in ("meta", "fake") else f"{case}: no numbers"
    exact = {n: t.double() if t.is_floating_point() else t for n, t in values.items()}
    if argument is None:
        want = answer(composed, exact, stage, lambda y: dense(dy(y)))
    else:
        want = answer(composed, exact, stage, gradient)
    for a, b in zip(map(dense, got), want, strict=True):
        if not torch.allclose(a.double(), b, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"{case}: {a.flatten().tolist()[:6]}, PyTorch {b.flatten().tolist()[:6]}"
    return None


def cases(name: str) -> list[tuple[str | None, str]]:
    """The arguments of a function, and the stages at which each may be of another kind: at one, the
    incoming gradient is, and no argument."""
    of_arguments = [stage for stage in STAGES if stage != "incoming"]
    stages = [(argument, stage) for argument in EVERY[name][2] for stage in of_arguments]
    return [*stages, (None, "incoming")]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", EVERY)
def test_any_tensor(name, kind):
    probe.forget()
    found = [judge(name, a, kind, stage) for a, stage in cases(name)]
    argument = next(iter(EVERY[name][2]))
    found += [judge(name, argument, "plain", stage) for stage in ("forward", "saved")]
    wrong = [each for each in found if each]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(-1)], ids=str)
@pytest.mark.parametrize("argument", EVERY["linear"][2])
def test_a_layer_of_dtensors_is_refused(argument, placement):
    """By the name of the argument: PyTorch would speak of mixed tensors, from within."""
    function, _, given = EVERY["linear"]
    sharded = distribute_tensor(given[argument], mesh(), [placement])
    with pytest.raises(NotImplementedError, match=f"^{argument} is a DTensor"):
        function(**{**given, argument: sharded})


NUMBERS: dict[str, Callable[[float], Any]] = {
    "int": int,
    "float32": np.float32,
    "float64": np.float64,
    "int64": np.int64,
    "array": np.array,
    "0-d": torch.tensor,
    "0-d int": lambda value: torch.tensor(int(value)),
}
TAKES = {
    ours.softmax: ("scale", "softcap", "sink"),
    ours.log_softmax: ("scale", "softcap", "sink"),
    ours.cross_entropy: ("label_smoothing", "z_loss", "softcap", "scale", "ignore_index"),
    ours.linear_cross_entropy: ("label_smoothing", "z_loss", "softcap", "scale", "ignore_index"),
    ours.token_logprobs: ("temperature",),
    ours.selective_log_softmax_and_entropy: ("temperature",),
}


@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize(
    "function, parameter", [(f, p) for f, names in TAKES.items() for p in names]
)
def test_any_number(function, parameter, form):
    """A number of NumPy, or in a tensor, is a number; the second call finds what the first left."""
    tensors = FUNCTIONS["linear"][2] if function is ours.linear_cross_entropy else {}
    given = list(tensors.values())[:3] if tensors else [X, CLASSES]
    given = [X] if function in (ours.softmax, ours.log_softmax) else given
    number = NUMBERS[form](1.0)
    if isinstance(number, Tensor) and parameter in ("scale", "sink", "temperature"):
        if not number.is_floating_point():
            return  # where a tensor may be given, it holds floats
        number = number.to(DEVICE)
    if parameter == "ignore_index" and form in ("float32", "float64", "0-d", "array"):
        return
    for _ in range(2):
        found = function(*given, **{parameter: number})
        want = function(*given, **{parameter: 1 if parameter == "ignore_index" else 1.0})
        torch.testing.assert_close(found, want)


def test_a_number_that_requires_a_gradient_is_none():
    with pytest.raises(TypeError, match="z_loss must be a number"):
        number: Any = torch.tensor(0.1, requires_grad=True)
        ours.cross_entropy(X, CLASSES, z_loss=number)
