"""Prepare kernel launches once and repeat them cheaply, and manage the kernels' workspace.

`kernel[grid](...)` inspects every argument on every call, to find the matching compiled variant.
For one shape, dtype and alignment that is always the same variant, so a `Launch` looks it up once,
and from then on passes it the pointers and the arguments that never change.

Only this module knows how Triton launches. If a private name is missing, its public counterpart
does the same, some microseconds slower.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from ..arguments import INTERPRETED

# Triton's interpreter keeps the program that runs in globals, so threads take turns. It computes
# with NumPy, which warns of what masked lanes and infinite rows hold.
ONE_AT_A_TIME: Any = threading.RLock() if INTERPRETED else contextlib.nullcontext()
WITHOUT_WARNINGS: Any = contextlib.nullcontext
if INTERPRETED:
    WITHOUT_WARNINGS = partial(triton.runtime.interpreter.np.errstate, all="ignore")

_C = torch._C
current_device = getattr(_C, "_cuda_getDevice", None) or torch.cuda.current_device
_is_capturing = (
    getattr(_C, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing
)
_current_stream = getattr(_C, "_cuda_getCurrentRawStream", None) or (
    lambda index: torch.cuda.current_stream(index).cuda_stream
)
_hooks: Any = getattr(getattr(triton, "knobs", None), "runtime", None)


def cuda_index(tensor: Tensor) -> int:
    """Return the index of a tensor's CUDA device; -1 for other devices."""
    return tensor.get_device() if tensor.is_cuda else -1


class Memo(dict):
    """A thread-safe cache of what a kind of call prepares, by key; cleared when full."""

    MOST = 4096

    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()

    def keep(self, key: tuple, made: Any) -> Any:
        """Store `made` for the key, unless another thread was first; return what is stored."""
        with self._lock:
            if len(self) >= self.MOST:
                self.clear()
            return self.setdefault(key, made)


plans = Memo()
"""The plans of all calls, by key. Only a new kind of call is checked: a plan means that a call like
it has passed. So its key holds all that the checks read, but for numbers that may change at every
call, which are checked each time."""


@dataclass(slots=True, eq=False)
class Launch:
    """A prepared launch: one kernel and all arguments but its pointers, for tensors of the same
    dtypes, alignment and device.

    `run(inputs, outs, *more)` launches on the current stream of the current device; what more a
    kernel takes of each call is a workspace, a number, or both. The first launch goes through
    Triton; later ones repeat what it found. `launch_at` does the same with addresses; it is None
    before the first launch, and if this Triton is unknown.

    Args:
        kernel: the jitted function; its parameters are a tuple of inputs, a tuple of results, what
            more it takes of each call, then numbers, then compile-time constants.
        grid: number of programs.
        numbers: values of the number parameters; a tuple where the kernel takes a tuple.
        constants: values of the compile-time constants by name, in parameter order.
        options: compile options such as num_warps.
    """

    kernel: Any
    grid: int
    numbers: tuple
    constants: dict
    options: dict
    launch_at: Any = field(default=None, init=False)

    def run(
        self, inputs: tuple[Tensor, ...], outs: tuple[Tensor, ...], *more: Tensor | float
    ) -> None:
        if self.launch_at is not None:
            more = tuple([each.data_ptr() if isinstance(each, Tensor) else each for each in more])
            self.launch_at(addresses_of(inputs), addresses_of(outs), *more)
            return
        with ONE_AT_A_TIME, WITHOUT_WARNINGS():
            compiled = self.kernel[(self.grid,)](
                inputs, outs, *more, *self.numbers, **self.constants, **self.options
            )
        # Other backends specialise on properties that may differ between these calls.
        if compiled is not None and compiled.metadata.target.backend == "cuda":
            tail = (*self.numbers, *self.constants.values())
            self.launch_at = repeat(compiled, self.grid, tail)


def addresses_of(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    """Return where tensors begin, as `Launch.launch_at` takes them."""
    return tuple(map(Tensor.data_ptr, tensors))


def repeat(compiled, grid: int, tail: tuple) -> Callable[..., None] | None:
    """Return the `launch_at` of a `Launch`, for a compiled kernel with the other arguments `tail`.
    It skips Triton's preparation, unless a hook, such as a profiler's, must see each launch."""
    form = fast_form(compiled)
    if form is None:
        return None
    launch, head = form
    public = compiled[(grid, 1, 1)]
    index, stream_of = current_device(), _current_stream

    def launch_at(addresses, results, *more):
        try:
            hooked = _hooks.launch_enter_hook.calls or _hooks.launch_exit_hook.calls
        except AttributeError:  # a single function instead of a chain, or unknown
            hooked = True
        if hooked:
            public(addresses, results, *more, *tail)
        else:
            launch(grid, 1, 1, stream_of(index), *head, addresses, results, *more, *tail)

    return launch_at


def fast_form(compiled):
    """Return (function, head) to launch a kernel directly: `function(*grid, stream, *head,
    *arguments)` with addresses as pointers. None if this Triton release is unknown."""
    release = ".".join(triton.__version__.split(".")[:2])
    if release not in ("3.6", "3.7", "3.8", "3.9"):
        return None
    no_hooks = (None, None, None)  # the metadata for the hooks, and the hooks
    try:
        run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
        if release == "3.6" and not run.global_scratch_size and not run.profile_scratch_size:
            # Triton 3.6 wraps the C function in a Python one that does nothing for a kernel
            # without scratch memory.
            attributes = (run.launch_cooperative_grid, run.launch_pdl, None, None)
            return run.launch, (function, *attributes, metadata, *no_hooks)
        return run, (function, metadata, *no_hooks)
    except AttributeError:
        return None


class WordPool:
    """Zeroed int64 words, each handed out once.

    A memset before every launch would cost as much as a small softmax. So one memset serves many
    launches, each of which takes untouched words; when they run out, a new block is allocated. Each
    stream has its own, so its zeros are written before any launch that gets them, and PyTorch's
    allocator reuses an old block only after earlier launches there. The words of a failed launch
    are never reused. During CUDA graph capture, words come from a memset inside the graph, which
    zeroes them again on every replay.
    """

    SIZE = 1 << 18
    ALIGNMENT = 16

    def __init__(self):
        self._lock = threading.Lock()
        self._blocks: dict[tuple, list] = {}

    def take(self, n_words: int, device: torch.device) -> Tensor:
        """Return n_words zeros on `device`, the current one, for a launch on its current stream."""
        block, begin = self.reserve(n_words, device)
        return block[begin : begin + n_words]

    def reserve(self, n_words: int, device: torch.device) -> tuple[Tensor, int]:
        """Return the same as a block and where in it the zeros begin: a slice takes longer to make
        than some kernels to launch."""
        if device.type != "cuda" or n_words > self.SIZE // 16 or _is_capturing():
            return torch.zeros(n_words, dtype=torch.int64, device=device), 0
        index = device.index
        key = (index, _current_stream(index))
        with self._lock:
            block = self._blocks.get(key)
            if block is None or block[1] + n_words > self.SIZE:
                block = [torch.zeros(self.SIZE, dtype=torch.int64, device=device), 0]
                self._blocks[key] = block
            begin = block[1]
            block[1] = begin + -(-n_words // self.ALIGNMENT) * self.ALIGNMENT
            return block[0], begin


words = WordPool()


@dataclass(slots=True, eq=False)
class Workspace:
    """The int64 words that the launches of a plan share.

    Args:
        n_words: number of words; 0 if the kernel takes an address and does not use it.
        zeroed: whether they must start as zeros, because a launch reads unwritten words.
    """

    n_words: int
    zeroed: bool

    def take(self, device: torch.device) -> Tensor:
        """Return the words for one call on `device`, the current one."""
        if self.zeroed:
            return words.take(self.n_words, device)
        return torch.empty(max(1, self.n_words), dtype=torch.int64, device=device)

    def reserve(self, device: torch.device) -> tuple[Tensor | None, int]:
        """Return the same as an address, with the memory that must outlive the launches."""
        if not self.n_words:
            return None, 0
        if self.zeroed:
            block, begin = words.reserve(self.n_words, device)
            return block, block.data_ptr() + 8 * begin
        block = self.take(device)
        return block, block.data_ptr()
