"""A kernel launch that is prepared once and repeated cheaply, and the zeroed words that split rows
need.

`kernel[grid](...)` looks at every argument on every call, to find the compiled variant that fits.
For one shape, dtype and alignment that variant is always the same, so a `Launch` asks once, keeps
the compiled kernel, and from then on hands it pointers and the arguments that never change.
"""

from __future__ import annotations

import threading

import torch
import triton

if torch.version.cuda:
    from torch._C import _cuda_getCurrentRawStream as _current_stream
    from torch._C import _cuda_getDevice as current_device
    from torch._C import _cuda_isCurrentStreamCapturing as _is_capturing
else:

    def current_device() -> int:
        """No CUDA: no tensor is on the current device."""
        return -2


# --8<-- [start:launch]
class Launch:
    """One kernel with everything but its pointers.

    Args:
        kernel: the jitted function; its parameters are pointers, then numbers, then compile-time
            constants.
        grid: number of programs.
        numbers: values of the number parameters.
        constants: values of the compile-time constants, by name, in the order of the parameters.
        options: num_warps and the like.
    """

    __slots__ = ("constants", "grid", "head", "kernel", "launch", "numbers", "options", "tail")

    def __init__(self, kernel, grid: int, numbers: tuple, constants: dict, options: dict):
        self.kernel = kernel
        self.grid = grid
        self.numbers = numbers
        self.constants = constants
        self.options = options
        self.launch = None
        self.head = ()
        self.tail = (*numbers, *constants.values())

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Launch on the current stream of the tensors' device. All calls have tensors of the same
        dtypes and alignment."""
        index = tensors[0].get_device()
        if self.launch is not None and index == current_device():
            self.repeat(index, [tensor.data_ptr() for tensor in tensors])
        elif tensors[0].is_cuda:
            with torch.cuda.device(index):
                compiled = self.kernel[(self.grid,)](
                    *tensors, *self.numbers, **self.constants, **self.options
                )
            if _is_nvidia(compiled):
                self.launch, self.head = _launcher(compiled)
        else:
            self.kernel[(self.grid,)](*tensors, *self.numbers, **self.constants, **self.options)

    def repeat(self, index: int, pointers) -> None:
        """Launch again, with addresses, on the current stream of CUDA device `index`, which is the
        current one."""
        # What kernel[grid] does once it has found the variant; no launch hooks, as nothing here
        # uses them.
        self.launch(self.grid, 1, 1, _current_stream(index), *self.head, *pointers, *self.tail)


# --8<-- [end:launch]


def _is_nvidia(compiled) -> bool:
    return (
        compiled is not None
        and hasattr(compiled, "run")
        and compiled.metadata.target.backend == "cuda"
    )


def _launcher(compiled):
    """(function, arguments) to launch a compiled kernel: called with a grid, a stream, the
    arguments, and those of the kernel."""
    metadata, hooks = compiled.packed_metadata, (None, None, None)
    run = compiled.run
    if (
        triton.__version__.startswith("3.6.")
        and not run.global_scratch_size
        and not run.profile_scratch_size
    ):
        # Triton 3.6 wraps the C function in a Python one that does nothing for a kernel without
        # scratch memory.
        cooperative, dependent = run.launch_cooperative_grid, run.launch_pdl
        return run.launch, (compiled.function, cooperative, dependent, None, None, metadata, *hooks)
    return run, (compiled.function, metadata, *hooks)


# --8<-- [start:words]
class WordPool:
    """Zeroed int64 words, each handed out once.

    A memset before every launch would cost as much as a small softmax. Instead the words of one
    memset serve many launches: each takes words that none has touched. When they run out, a new
        block of zeros is allocated. There is one pool per stream, so the zeros are written before
        any launch that
    gets them; the old block goes back to PyTorch's allocator, which gives it to nobody else on that
    stream until the launches before are done. A launch that fails leaves its words behind, to be
    used by nobody.

    While a CUDA graph is captured the words come from a memset of their own inside the graph, which
    zeroes them again on every replay.
    """

    SIZE = 1 << 18
    ALIGNMENT = 16

    def __init__(self):
        self._lock = threading.Lock()
        self._blocks: dict[tuple, list] = {}

    def take(self, n_words: int, device: torch.device) -> torch.Tensor:
        """n_words zeros on `device`, the current one, for one launch on its current stream."""
        if device.type != "cuda" or n_words > self.SIZE // 16 or _is_capturing():
            return torch.zeros(n_words, dtype=torch.int64, device=device)
        index = device.index
        key = (index, _current_stream(index))
        with self._lock:
            block = self._blocks.get(key)
            if block is None or block[1] + n_words > self.SIZE:
                block = [torch.zeros(self.SIZE, dtype=torch.int64, device=device), 0]
                self._blocks[key] = block
            begin = block[1]
            block[1] = begin + -(-n_words // self.ALIGNMENT) * self.ALIGNMENT
            return block[0][begin : begin + n_words]


# --8<-- [end:words]


words = WordPool()
