"""A matrix of callers: every public function, each of its tensors in every form, in every context.

PyTorch's operators answer beside ours. Either both answer, alike in value, dtype, shape, device and
need of a gradient; or both refuse. Where the two differ on purpose `OTHERWISE` says why. An error
is one of PyTorch's kinds, in words, and never comes from the inside.

Kernels answer: in the interpreter, or on a GPU. With TRITON_INTERPRET=0 on the CPU, as most callers
have it there, PyTorch's operators do.

On a GPU the same forms lie there, or beside it: a tensor that was left on the CPU is one more. Then
PyTorch answers on the CPU, where a class out of range is an error and not the end of the process,
and each function must still work after all the calls that it refused.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import triton_softmax as ours
from kernel_cases import INTERPRETED, quiet

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

pytestmark = [quiet, pytest.mark.filterwarnings("ignore")]
if ON_GPU:
    pytestmark.append(pytest.mark.gpu)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


X, HIDDEN, LAYER = drawn(2, 9, seed=0), drawn(2, 6, seed=7), drawn(9, 6, seed=6)
CLASSES = torch.tensor([8, 1], device=DEVICE)
KEPT = (drawn(2, 9, seed=3) > -0.5) | (torch.arange(9, device=DEVICE) == 0)
WEIGHT, ROWS = drawn(9, seed=1).abs() + 0.5, drawn(2, 1, seed=4).abs() + 0.5
BIAS, SHARES = drawn(9, seed=2), torch.softmax(drawn(2, 9, seed=5), 1)


def entropy(logits: Tensor) -> Tensor:
    return -(torch.softmax(logits, -1) * torch.log_softmax(logits, -1)).sum(-1)


def tokens(logits: Tensor, index: Tensor, temperature: Any = 1.0) -> Tensor:
    found = torch.log_softmax(logits / temperature, -1).gather(-1, index.long().unsqueeze(-1))
    return found.squeeze(-1)


def with_sink(input: Tensor, sink: Tensor) -> Tensor:
    sink = sink.expand(len(input), 1).to(input.dtype)
    return torch.softmax(torch.cat([input, sink], -1), -1)[..., :-1]


def masked(input: Tensor, where: Tensor) -> Tensor:
    return torch.softmax(input.masked_fill(~where, -torch.inf), -1)


def linear(input, linear_weight, target, linear_bias, weight) -> Tensor:
    return F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, weight)


def losses(**options: Any) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Ours and PyTorch's."""
    return partial(ours.cross_entropy, **options), partial(F.cross_entropy, **options)


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], dict[str, Tensor]]] = {
    "softmax": (ours.softmax, partial(torch.softmax, dim=-1), {"input": X}),
    "log_softmax": (ours.log_softmax, partial(torch.log_softmax, dim=-1), {"input": X}),
    "logsumexp": (ours.logsumexp, partial(torch.logsumexp, dim=-1), {"input": X}),
    "where": (ours.softmax, masked, {"input": X, "where": KEPT}),
    "bias": (
        ours.softmax,
        lambda input, bias: torch.softmax(input + bias, -1),
        {"input": X, "bias": BIAS},
    ),
    "scale": (
        ours.softmax,
        lambda input, scale: torch.softmax(input * scale, -1),
        {"input": X, "scale": ROWS},
    ),
    "sink": (ours.softmax, with_sink, {"input": X, "sink": ROWS}),
    "classes": (*losses(), {"input": X, "target": CLASSES}),
    "weighted": (*losses(), {"input": X, "target": CLASSES, "weight": WEIGHT}),
    "smoothed": (
        *losses(label_smoothing=0.1),
        {"input": X, "target": CLASSES, "weight": WEIGHT},
    ),
    "each": (*losses(reduction="none"), {"input": X, "target": CLASSES}),
    "probabilities": (*losses(), {"input": X, "target": SHARES, "weight": WEIGHT}),
    "linear": (
        ours.linear_cross_entropy,
        linear,
        dict(input=HIDDEN, linear_weight=LAYER, target=CLASSES, linear_bias=BIAS, weight=WEIGHT),
    ),
    "selective": (ours.selective_log_softmax, tokens, {"logits": X, "index": CLASSES}),
    "entropy": (ours.entropy_from_logits, entropy, {"logits": X}),
    "tokens": (ours.token_logprobs, tokens, {"logits": X, "index": CLASSES}),
    "tempered": (
        ours.token_logprobs,
        tokens,
        {"logits": X, "index": CLASSES, "temperature": ROWS},
    ),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


# --- forms of a tensor ----------------------------------------------------------------------------


def off_by_one(t: Tensor) -> Tensor:
    return t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t)


def with_gaps(t: Tensor) -> Tensor:
    return t.new_zeros(*t.shape[:-1], 2 * t.shape[-1])[..., ::2].copy_(t)


def nested(t: Tensor, layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor(list(t) if t.dim() > 1 else [t], layout=layout)


class Subclass(Tensor):
    pass


DTYPES = (
    "int8 int32 int64 uint8 bool complex64 float8_e4m3fn float16 bfloat16 float32 float64".split()
)
FORMS: dict[str, Callable[[Tensor], Any]] = {
    **{name: lambda t, name=name: t.to(getattr(torch, name)) for name in DTYPES},
    "meta": lambda t: t.to("meta"),
    "0-d": lambda t: t.flatten()[0],
    "no rows": lambda t: t[:0],
    "no columns": lambda t: t[..., :0],
    "one more": lambda t: torch.cat([t, t[:1]]),
    "one dimension more": lambda t: t.unsqueeze(0),
    "expanded": lambda t: t[:1].expand(t.shape),
    "off by one": off_by_one,
    "gaps": with_gaps,
    "transposed": lambda t: t.T.contiguous().T if t.dim() == 2 else t,
    "negative": lambda t: torch._neg_view(-t) if t.dtype != torch.bool else t,
    "of a conjugate": lambda t: torch.complex(t, -t).conj().imag if t.is_floating_point() else t,
    "sparse": lambda t: t.to_sparse(),
    "mkldnn": lambda t: t.to_mkldnn() if t.dtype == torch.float32 else t,
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
    "nested": lambda t: nested(t, torch.strided),
    "jagged": lambda t: nested(t, torch.jagged),
    "two": lambda t: TwoTensor(t.clone(), t.clone()),
    "subclass": lambda t: t.as_subclass(Subclass),
    "array": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "None": lambda t: None,
    "text": lambda t: "a",
    "number": lambda t: 0.5,
}

if ON_GPU:
    FORMS["left behind"] = Tensor.cpu

OTHERWISE = {
    # Ours refuses.
    r"(softmax|log_softmax|logsumexp|where|scale)\.(input|where):(mkldnn|nested|jagged)": "dense",
    r"linear\.input:sparse": "no kernel reads it",
    r"probabilities\.weight:(int8|int32|int64|uint8|bool|complex64)": "weights are floats",
    r"linear\.linear_bias:one dimension more": "a bias has one dimension",
    r"probabilities\.target:(sparse|nested|jagged)": "no kernel reads it",
    r"logsumexp\.input:complex64": "no kernel reads it",
    r"(where|bias|scale|sink|selective|entropy|tokens|tempered)\.(input|logits):"
    r"(int8|int32|int64|uint8|bool)": "softmax refuses integers, and so do its relatives",
    r".*\.(bias|scale|sink|temperature):(int8|int32|int64|uint8|bool)": "modifiers are floats",
    r"sink\.sink:(float8_e4m3fn|complex64)": "modifiers are floats",
    r".*\.index:(int8|uint8|bool|complex64|float.*|bfloat16|meta)": "an index is int64 or int32",
    r"(bias|scale)\.(bias|scale|input):number": "numbers are for scale and sink, not for the input",
    r".*:array": "a tensor is asked for",
    r"tempered\.temperature:number": "it is one",
    r"(where|bias|scale|sink)\..*:(0-d|one dimension more|one more)": "modifiers broadcast",
    r"entropy\.logits:0-d": "a row needs a dimension",
    r"(selective|tokens|tempered)\..*:(one more|no rows|no columns|meta)": "gather is lenient",
    r"linear\.linear_weight:meta": "matmul is lenient",
    # Ours answers.
    r".*\.target:(int32|uint8)": "classes may be int32, and uint8 with smoothing",
    r"(where|bias|scale|sink)\.(where|bias|scale|sink):(None|number)": "no modifier, or a number",
    r"(weighted|smoothed|probabilities|linear)\..*weight:None": "no weight",
    r"(bias|scale)\..*:float8_e4m3fn": "it is converted; PyTorch does not promote",
    # Both answer, and the result has the dtype of the input, or float32 for 16-bit logits.
    r"(bias|scale)\..*:(float16|bfloat16|float64)": "the dtype of the input",
    r"probabilities\..*:(float16|bfloat16|float64)": "the dtype of the input",
    r"(tokens|tempered)\..*:(float16|bfloat16|float64)": "float32 for 16-bit logits",
}

KINDS = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError)
INSIDE = re.compile(
    r"has no attribute|NoneType' object|[Ii]nternal|KeyError|unpack|data pointer|storage|"
    r"go together|InterpreterError|Could not run|unexpected keyword"
)


def outcome(function: Callable[..., Any], tensors: dict[str, Any]) -> Any:
    try:
        return function(**tensors)
    except Exception as error:
        return error


def beside(composed: Callable[..., Any], tensors: dict[str, Any], form: str) -> Any:
    """What PyTorch answers."""
    if form == "left behind" and len(tensors) > 1:
        return RuntimeError("tensors on two devices")
    moved = {n: t.cpu() if isinstance(t, Tensor) and t.is_cuda else t for n, t in tensors.items()}
    return outcome(composed, moved)


def compare(case: str, got: Any, want: Any) -> str | None:
    """Return what is wrong, or None."""
    if isinstance(got, Exception):
        # Dynamo and others derive from these; a refusal is of the kind itself.
        if type(got) not in KINDS or INSIDE.search(str(got)):
            return f"{case}: {type(got).__name__}: {got}"
        return None if isinstance(want, Exception) else f"{case} refuses: {got}"
    if isinstance(want, Exception):
        return f"{case} answers; PyTorch: {want}"
    for what in ("__class__", "shape", "dtype", "device", "requires_grad"):
        if getattr(got, what) != getattr(want, what):
            return f"{case}: {getattr(got, what)}, PyTorch {getattr(want, what)}"
    if got.is_meta:
        return None
    got, want = (t.a if isinstance(t, TwoTensor) else t for t in (got.detach(), want.detach()))
    tolerance = 2e-2 if got.dtype.itemsize == 2 or "autocast" in case else 1e-4
    close = torch.allclose(got, want, rtol=tolerance, atol=tolerance / 2, equal_nan=True)
    return None if close else f"{case}: {got}, PyTorch {want}"


@every_function
def test_every_form_of_every_tensor(name):
    function, composed, tensors = FUNCTIONS[name]
    wrong = []
    for argument, form in [(a, f) for a in tensors for f in FORMS]:
        case = f"{name}.{argument}:{form}"
        try:
            changed = {**tensors, argument: FORMS[form](tensors[argument])}
        except (RuntimeError, TypeError):
            continue  # there is no such tensor
        got = outcome(function, changed)
        got = got.cpu() if isinstance(got, Tensor) and got.is_cuda else got
        found = compare(case, got, beside(composed, changed, form))
        inside = found is not None and not re.match(
            rf"{re.escape(case)}( refuses| answers|: torch\.|: <class)", found
        )
        on_purpose = any(re.fullmatch(pattern, case) for pattern in OTHERWISE)
        if found is not None and (inside or not on_purpose):
            wrong.append(found.splitlines()[0][:200])
    assert not wrong, "\n".join(wrong)
    found = compare(name, function(**tensors), composed(**tensors))
    assert found is None, f"after all this, {found}"


# --- contexts -------------------------------------------------------------------------------------


def gradients(y: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    leaves = [t for t in tensors.values() if t.requires_grad]
    if not y.requires_grad:
        return y
    dy = torch.arange(1.0, y.numel() + 1, device=y.device).view(y.shape)
    found = torch.autograd.grad(y, leaves, dy.to(y.dtype))
    return torch.cat([each.flatten() for each in found])


def first(f, t):
    return gradients(f(**t), t)


def within(context: Callable[[], Any]):
    def run(f, t):
        with context():
            return first(f, t)

    return run


def between(switch: Callable[[Any], None], on: Any, off: Any):
    def run(f, t):
        switch(on)
        try:
            return first(f, t)
        finally:
            switch(off)

    return run


def described(y: Tensor) -> Tensor:
    return torch.empty(y.shape, dtype=y.dtype, device="meta").requires_grad_(y.requires_grad)


def fake(f, t):
    mode = FakeTensorMode()
    return described(f(**{name: mode.from_tensor(each) for name, each in t.items()}))


def fake_within(f, t):
    with FakeTensorMode() as mode:
        return described(f(**{name: mode.from_tensor(each) for name, each in t.items()}))


def fake_mixed(f, t):
    with FakeTensorMode(allow_non_fake_inputs=True):
        return described(f(**t))


def on_meta(f, t):
    t = {n: each.detach().to("meta").requires_grad_(each.requires_grad) for n, each in t.items()}
    y = f(**t)
    y.sum().backward()
    assert all(each.grad.shape == each.shape for each in t.values() if each.requires_grad)
    return y


def positional(f, t):
    return lambda *tensors: f(**dict(zip(t, tensors, strict=True)))


def others(t):
    """Tensors like these that hold something else, so that no result is taken into a trace."""
    return tuple(each.detach().flip(0).requires_grad_(each.requires_grad) for each in t.values())


def traced(f, t, mode="real"):
    return make_fx(positional(f, t), tracing_mode=mode)(*others(t))(*t.values()).detach()


def symbolic(f, t):
    return traced(f, t, "symbolic")


def scripted(f, t):
    function = torch.jit.trace(positional(f, t), others(t), check_trace=False)
    return gradients(function(*t.values()), t)


def exported(f, t, strict=False):
    class Module(torch.nn.Module):
        def forward(self, *tensors):
            return positional(f, t)(*tensors)

    program = torch.export.export(Module(), others(t), strict=strict)
    return gradients(program.module()(*t.values()), t)


def compiled(f, t, dynamic=False):
    torch._dynamo.reset()
    function = torch.compile(positional(f, t), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    return gradients(function(*t.values()), t)


def twice(f, t):
    y, leaves = f(**t), [each for each in t.values() if each.requires_grad]
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    return torch.cat([each.grad.flatten() for each in leaves])


def batched(f, t):
    y, leaves = f(**t), [each for each in t.values() if each.requires_grad]
    dy = drawn(3, *y.shape, seed=8)
    found = torch.autograd.grad(y, leaves, dy, is_grads_batched=True)
    return torch.cat([each.flatten() for each in found])


def second(f, t):
    y, leaves = f(**t), [each for each in t.values() if each.requires_grad]
    g = torch.autograd.grad(y.sum(), leaves, create_graph=True)
    found = torch.autograd.grad(sum(each.square().sum() for each in g) + y.sum(), leaves)
    return torch.cat([each.flatten() for each in found])


def checkpointed(f, t):
    return gradients(checkpoint(positional(f, t), *t.values(), use_reentrant=False), t)


def of_input(f, t):
    """f as a function of its first tensor alone, and this tensor."""
    (name, x), *rest = t.items()
    return lambda x: f(**{name: x, **{n: each.detach() for n, each in rest}}), x.detach()


def transformed(transform):
    def run(f, t):
        f, x = of_input(f, t)
        return transform(lambda x: f(x).sum())(x)

    return run


def tangent(f, t):
    f, x = of_input(f, t)
    return torch.func.jvp(f, (x,), (torch.arange(x.numel()).view(x.shape).to(x),))[1]


def mapped(f, t):
    f, x = of_input(f, t)
    return torch.func.vmap(f)(torch.stack([x, x.flip(-1), -x]))


def gradients_of_each(f, t):
    f, x = of_input(f, t)
    return torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.stack([x, x.flip(-1), -x]))


def changed_before_backward(f, t):
    (name, x), *_ = t.items()
    copy = x * 1
    y = f(**{**t, name: copy})
    copy.mul_(2)
    return torch.autograd.grad(y.sum(), x)[0]


CONTEXTS: dict[str, Callable[..., Tensor]] = {
    "plain": first,
    "no grad": within(torch.no_grad),
    "inference": lambda f, t: within(torch.inference_mode)(
        f, {name: each.detach() for name, each in t.items()}
    ),
    "autocast": within(lambda: torch.autocast(DEVICE, torch.bfloat16)),
    "anomaly": within(lambda: torch.autograd.detect_anomaly(check_nan=True)),
    "saved elsewhere": within(torch.autograd.graph.save_on_cpu),
    "a default device": within(lambda: torch.device("meta")),
    "default dtype": between(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": between(torch.use_deterministic_algorithms, True, False),
    "fake": fake,
    "fake within": fake_within,
    "fake mixed": fake_mixed,
    "meta": on_meta,
    "make_fx": traced,
    "make_fx symbolic": symbolic,
    "jit": scripted,
    "export": exported,
    "export strict": lambda f, t: exported(f, t, strict=True),
    "compile": compiled,
    "compile dynamic": lambda f, t: compiled(f, t, dynamic=True),
    "twice": twice,
    "batched": batched,
    "second": second,
    "checkpoint": checkpointed,
    "changed": changed_before_backward,
    "grad": transformed(torch.func.grad),
    "hessian": transformed(torch.func.hessian),
    "jvp": tangent,
    "vmap": mapped,
    "vmap of grad": gradients_of_each,
}

OTHERWISE_IN = {
    r"second/(classes|weighted|smoothed|each|probabilities|linear)": "refuses: a number by then",
    r"changed/(selective|entropy|tokens)": "refuses: backward reads the logits, not their softmax",
    r"changed/linear": "answers: the gradient is known by then",
}


SOME = ("softmax", "where", "classes", "linear", "tempered")
SLOW = dict.fromkeys(("compile dynamic", "export strict"), SOME)
"""Contexts that take seconds, and the functions that take different ways there; "compile" asks the
same of all functions, by way of the same tracer."""


@pytest.mark.parametrize(
    "context, name", [(c, n) for c in CONTEXTS for n in FUNCTIONS if n in SLOW.get(c, FUNCTIONS)]
)
def test_every_context(context, name):
    function, composed, tensors = FUNCTIONS[name]
    kinds = ("input", "logits", "bias", "scale", "sink", "linear_weight", "linear_bias")

    def run(which):
        given = {
            n: t.clone().requires_grad_() if n in (*kinds, "temperature") else t
            for n, t in tensors.items()
        }
        return outcome(lambda: CONTEXTS[context](which, given), {})

    got, want = run(function), run(composed)
    case = f"{context}/{name}"
    if "with symbolic sizes" in str(want):
        pytest.skip("a fault of PyTorch 2.11")
    if any(re.fullmatch(pattern, case) for pattern in OTHERWISE_IN):
        # Where PyTorch's operators compute, second derivatives are right.
        differ = isinstance(got, KINDS) != isinstance(want, KINDS)
        assert differ or (not INTERPRETED and compare(case, got, want) is None)
        assert not (isinstance(got, Exception) and INSIDE.search(str(got)))
        return
    found = compare(case, got, want)
    assert found is None, found
