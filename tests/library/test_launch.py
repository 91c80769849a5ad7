"""Launches that are repeated: what the driver gets, who sees it, and what happens where a private
name of torch or Triton is missing."""

import contextlib
import ctypes
import importlib.util
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
import triton

import probe
from kernel_cases import DEVICE, INTERPRETED, drawn, expected_forward, quiet
from triton_softmax import (
    arguments,
    cross_entropy,
    plan,
    softmax,
    token_logprobs,
)
from triton_softmax.plan import launch, modified, tokens
from triton_softmax.plan import losses as plan_losses
from triton_softmax.plan.launch import Launch, Workspace

pytestmark = quiet


class How(NamedTuple):
    block: int


class Driver:
    """A compiled kernel and the driver under it, which note what they are given."""

    def __init__(self, release: str):
        self.release = release
        self.first, self.public, self.fast = [], [], []
        self.metadata = SimpleNamespace(target=SimpleNamespace(backend="cuda"))
        self.function, self.packed_metadata = "function", "packed"
        if release == "3.6":
            self.run = SimpleNamespace(
                global_scratch_size=0,
                profile_scratch_size=0,
                launch_cooperative_grid=False,
                launch_pdl=False,
                launch=lambda *args: self.fast.append(args),
            )
        else:
            self.run = lambda *args: self.fast.append(args)

    def __getitem__(self, grid):
        return lambda *args: self.public.append((grid, args))


@pytest.fixture(params=["3.6", "3.7", "3.8", "3.9"])
def driver(request, monkeypatch):
    driver = Driver(request.param)
    monkeypatch.setattr(triton, "__version__", f"{request.param}.1")
    monkeypatch.setattr(launch, "current_device", lambda: 3)
    monkeypatch.setattr(launch, "_current_stream", lambda index: 100 + index)
    return driver


def launch_with(driver, numbers=(7, (8, 9))) -> Launch:
    class Kernel:
        __name__ = "kernel"

        def __getitem__(self, grid):
            return lambda *args, **named: driver.first.append((grid, args, named)) or driver

    return Launch(Kernel(), 5, numbers, {"HOW": How(4)}, {"num_warps": 2})


def head(driver) -> tuple:
    """What stands between the stream and the kernel's arguments."""
    hooks = (None, None, None)
    if driver.release == "3.6":
        return ("function", False, False, None, None, "packed", *hooks)
    return ("function", "packed", *hooks)


@pytest.mark.parametrize(("n_inputs", "n_outs"), [(1, 1), (2, 1), (3, 1), (5, 3)])
@pytest.mark.parametrize("n_words", [0, 1], ids=["alone", "words"])
def test_a_repeated_launch_hands_over_addresses(driver, n_inputs, n_outs, n_words):
    inputs = tuple(torch.empty(4) for _ in range(n_inputs))
    outs = tuple(torch.empty(4) for _ in range(n_outs))
    others = [outs, *(torch.empty(4) for _ in range(n_words))]
    run = launch_with(driver)
    run.run(inputs, *others)
    assert driver.first == [((5,), (inputs, *others, 7, (8, 9)), {"HOW": How(4), "num_warps": 2})]
    run.run(inputs, *others)
    run.run(inputs, *others)
    addresses = [tuple(each.data_ptr() for each in group) for group in (inputs, outs)]
    addresses += [each.data_ptr() for each in others[1:]]
    run.launch_at(*addresses)
    assert driver.fast == [(5, 1, 1, 103, *head(driver), *addresses, 7, (8, 9), How(4))] * 3
    assert len(driver.first) == 1 and not driver.public


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hooks_see_every_launch(driver, name, monkeypatch):
    tensors = (torch.empty(4),), (torch.empty(4),)
    run = launch_with(driver)
    run.run(*tensors)
    run.run(*tensors)
    assert (len(driver.fast), len(driver.public)) == (1, 0)
    chain = getattr(triton.knobs.runtime, name)
    chain.add(print)
    try:
        run.run(*tensors)
    finally:
        chain.remove(print)
    addresses = [(each.data_ptr(),) for (each,) in tensors]
    assert driver.public == [((5, 1, 1), (*addresses, 7, (8, 9), How(4)))]
    chain.add(print)
    try:
        run.run(*tensors, torch.empty(2))
    finally:
        chain.remove(print)
    assert len(driver.public[1][1]) == 6, "the workspace too"
    driver.public.pop()
    run.run(*tensors)
    assert (len(driver.fast), len(driver.public)) == (2, 1)
    monkeypatch.setattr(triton.knobs.runtime, name, print)  # a function in place of a chain
    run.run(*tensors)
    assert (len(driver.fast), len(driver.public)) == (2, 2)


@pytest.mark.parametrize("odd", ["release", "backend", "run", "function", "packed_metadata"])
def test_what_is_unknown_is_launched_as_anybody_would(driver, odd, monkeypatch):
    """Of a later release, by another driver, or where the compiled kernel lacks a name."""
    if odd == "release":
        monkeypatch.setattr(triton, "__version__", "3.10.0")
    elif odd == "backend":
        driver.metadata.target.backend = "hip"
    else:
        delattr(driver, odd)
    tensors = (torch.empty(4),), (torch.empty(4),)
    run = launch_with(driver)
    for _ in range(3):
        run.run(*tensors)
    assert len(driver.first) == 3 and not driver.public and not driver.fast


def copy_of(module):
    """The module executed once more, under another name."""
    spec = importlib.util.spec_from_file_location(module.__name__ + "_again", module.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


@pytest.mark.parametrize(
    "name", ["_cuda_getCurrentRawStream", "_cuda_getDevice", "_cuda_isCurrentStreamCapturing"]
)
def test_launch_without_a_private_name_of_torch(name, monkeypatch):
    monkeypatch.delattr(torch._C, name, raising=False)
    without = copy_of(launch)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda i: SimpleNamespace(cuda_stream=40 + i))
    assert name != "_cuda_getCurrentRawStream" or without._current_stream(2) == 42
    assert without.current_device is torch.cuda.current_device or name != "_cuda_getDevice"
    public = torch.cuda.is_current_stream_capturing
    assert without._is_capturing is public or name != "_cuda_isCurrentStreamCapturing"


def test_launch_without_knobs(driver, monkeypatch):
    """There is no telling whether a hook is set, so each launch goes where it would be called."""
    with monkeypatch.context() as patch:
        patch.delattr(triton, "knobs")
        without = copy_of(launch)
    monkeypatch.setattr(without, "current_device", lambda: 3)
    without.repeat(driver, 5, (7,))((64,), (128,))
    assert len(driver.public) == 1 and not driver.fast


def test_the_package_is_imported_without_any_one_private_name():
    """Each name is taken away in a process of its own, forked when torch and triton are there."""
    code = """
import os, sys, torch, triton
from torch.autograd import forward_ad
names = [
    (torch._C, "_are_functorch_transforms_active"), (torch._C, "_get_tracing_state"),
    (torch._C, "_is_any_autocast_enabled"),
    (torch._C, "_len_torch_dispatch_stack"), (torch._C, "_len_torch_function_stack"),
    (forward_ad, "_current_level"),
    (torch._C, "_AutoDispatchBelowAutograd"), (torch._C, "_any_requires_grad"),
    (torch._C, "_cuda_getDevice"), (torch._C, "_cuda_getCurrentRawStream"),
    (torch._C, "_cuda_isCurrentStreamCapturing"),
]
for owner, name in names:
    child = os.fork()
    if child == 0:
        if hasattr(owner, name):
            delattr(owner, name)
        from triton_softmax import modes, operators
        right = modes.AVAILABLE == (names.index((owner, name)) >= 6)
        right = right and modes.transformed() == (name in (names[0][1], "_current_level"))
        os._exit(0 if right and torch.ops.triton_softmax.softmax.default else 1)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Launches by address


def pointer(address: int, dtype: torch.dtype | None) -> torch.Tensor | int:
    if dtype is None:  # a number of the call
        return address
    if not address:  # of a workspace without words
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_byte * dtype.itemsize).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


def in_float32(number):
    """A number as a compiled kernel takes it, or a tuple of them."""
    if isinstance(number, tuple):
        return tuple(map(in_float32, number))
    return torch.tensor(number, dtype=torch.float32).item() if type(number) is float else number


class ByAddress(Launch):
    """A launch in the interpreter that is repeated by address, as one on a GPU is."""

    repeated = 0

    def __init__(self, kernel, grid, numbers, *others):
        super().__init__(kernel, grid, in_float32(numbers), *others)

    def run(self, inputs, outs, *more) -> None:
        first = self.launch_at is None
        super().run(inputs, outs, *map(in_float32, more))
        if first:
            groups = (inputs, outs, more)
            dtypes = [[getattr(each, "dtype", None) for each in group] for group in groups]
            self.launch_at = lambda *addresses: self.again(dtypes, addresses)

    def again(self, dtypes, addresses) -> None:
        ByAddress.repeated += 1
        inputs, outs, *more = addresses
        assert not {*inputs} & {*outs[1:]}, "another program may still read it"
        groups = [tuple(map(pointer, *each)) for each in zip((inputs, outs, more), dtypes)]
        once = Launch(self.kernel, self.grid, self.numbers, self.constants, self.options)
        once.run(groups[0], groups[1], *groups[2])


def loss_of(**options) -> Callable:
    return lambda x, target: cross_entropy(x, target, **options)


WEIGHT = torch.linspace(0.5, 2.0, 9)
REPEATED = {
    "softmax": lambda x, _: softmax(x),
    "another type": lambda x, _: softmax(x, dtype=torch.float16),
    "exchanged": lambda x, _: softmax(x.repeat(1, 250), batch_invariant=True),
    "scale": lambda x, _: softmax(x, scale=0.7, where=torch.arange(9) % 4 > 0),
    "scale of float64": lambda x, _: softmax(x.double(), scale=0.7),
    "tokens": lambda x, target: token_logprobs(x, target, return_entropy=True),
    "loss": loss_of(),
    "loss and log-sum-exp": loss_of(return_lse=True),
    "all losses": loss_of(reduction="none", weight=WEIGHT, z_loss=0.1),
    "smoothed": loss_of(label_smoothing=0.1, z_loss=0.1),
    "counted in parts": loss_of(weight=WEIGHT),
    "in place": lambda x, target: cross_entropy(x * 1, target, inplace_backward=True),
    "columns": lambda x, target: cross_entropy(x.view(2, 9, 3), target.view(2, 3)),
    "target apart": lambda x, target: cross_entropy(x, target.repeat_interleave(2)[::2]),
    "weight apart": loss_of(weight=WEIGHT.repeat_interleave(2)[::2]),
    "logits apart": lambda x, target: cross_entropy(x.T.contiguous().T, target),
}


@pytest.mark.skipif(not INTERPRETED, reason="a GPU's launches are repeated by address anyway")
@pytest.mark.parametrize("name", REPEATED)
def test_a_call_by_address_on_another_device_gives_the_same_bits(name, monkeypatch):
    """The second call of a kind, of other elements; numbers have 24 bits there."""

    def call(seed: int) -> list[torch.Tensor]:
        x = drawn(6, 9, dtype=torch.float32, seed=seed).requires_grad_()
        found = REPEATED[name](x, (torch.arange(6) * seed) % 9)
        found = found if isinstance(found, tuple) else (found,)
        of = [each for each in found if each.requires_grad]
        along = [torch.linspace(1, 2, each.numel()).view_as(each) for each in of]
        return [*found, *torch.autograd.grad(of, x, along)]

    few = 0 if name == "counted in parts" else plan_losses.FEW
    monkeypatch.setattr(plan_losses, "FEW", few)
    probe.forget()
    wanted = call(2)
    probe.forget()
    current = [7]

    @contextlib.contextmanager
    def device(index):
        current.append(index)
        yield
        current.pop()

    monkeypatch.setattr(ByAddress, "repeated", 0)
    for module in (plan, plan_losses, tokens, modified):
        monkeypatch.setattr(module, "Launch", ByAddress)
    for module in (plan, plan_losses):
        monkeypatch.setattr(module, "current_device", lambda: current[-1])
        monkeypatch.setattr(module, "cuda_index", lambda _: 3)
    monkeypatch.setattr(torch.cuda, "device", device)
    call(1)
    found = call(2)
    probe.forget()
    assert ByAddress.repeated
    assert all(map(torch.equal, found, wanted))


# Plans


def test_a_gradient_of_another_shape_or_device_is_refused():
    y = torch.randn(3, 4, device=DEVICE)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(3, 4\), not \(4,\)"):
        probe.run("softmax_backward", (y, y[0]), 1)
    with pytest.raises(RuntimeError, match="another input is on meta, and the input on"):
        probe.run("softmax_backward", (y, torch.empty(3, 4, device="meta")), 1)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(3,\), not \(3, 4\)"):
        probe.run("logsumexp_backward", (y, y), 1)


def test_threads_may_plan_and_forget_at_once(monkeypatch):
    """Plans are made, looked up and dropped by several threads: every result is right."""
    monkeypatch.setattr(plan.plans, "MOST", 3)
    probe.forget()
    inputs = [torch.randn(n, 8) for n in range(1, 7)]
    wanted = [expected_forward(x).float() for x in inputs]
    # In the interpreter the threads would take turns.
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    failures = []
    start = threading.Barrier(4)

    def work(seed):
        start.wait()
        for step in range(300):
            i = (step * (seed + 1)) % len(inputs)
            got = probe.run("softmax", (inputs[i],), 1)
            if not torch.allclose(got, wanted[i], atol=1e-6):
                failures.append((seed, step))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(work, range(4))] == [None] * 4
    finally:
        sys.setswitchinterval(interval)
    assert not failures and len(plan.plans) <= 3


def test_workspace_is_zeroed_only_where_zeros_are_read(monkeypatch):
    calls = []
    take = launch.words.take
    monkeypatch.setattr(launch.words, "take", lambda *a: calls.append(a) or take(*a), raising=False)
    device = torch.device("cpu")
    zeroed = Workspace(20, zeroed=True).take(device)
    assert len(calls) == 1 and zeroed.shape == (20,) and not zeroed.any()
    words = Workspace(20, zeroed=False).take(device)
    assert len(calls) == 1 and words.shape == (20,) and words.dtype == torch.int64
    assert Workspace(0, zeroed=False).reserve(device) == (None, 0)
    block, address = Workspace(20, zeroed=False).reserve(device)
    assert address == block.data_ptr() and len(block) == 20


@pytest.mark.skipif(not arguments.INTERPRETED, reason="a GPU warns of nothing")
def test_the_interpreter_warns_of_nothing():
    rows = torch.tensor([[0.0, -torch.inf, 1e38], [torch.inf, torch.nan, 0.0]])
    target = torch.tensor([0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        softmax(rows), token_logprobs(rows, target, return_entropy=True, softcap=2.0)
        cross_entropy(rows.requires_grad_(), target, softcap=2.0).backward()
