"""Every geometry with every operation, losses and score modifiers on small tensors, for
`compute-sanitizer --tool ... python tests/gpu/sanitize.py`.

Prints one line per case; a wrong result stops it, and so does a geometry that has not run with
every operation. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of its own, so
that memcheck sees its ends.
"""

from collections.abc import Iterator

import torch

import probe
import triton_softmax
from kernel_cases import expected
from softmax_tutorial import ladder
from triton_softmax import plan
from triton_softmax.operations import OPERATIONS

CASES = [
    ((5, 64), -1, None),
    ((5, 33), -1, None),
    ((3, 781), -1, None),
    ((2, 20_001), -1, None),
    ((2, 40_000), -1, None),
    ((3, 40, 17), 1, None),
    ((2, 3000, 9), 1, None),
    ((2, 1100, 40), 1, None),
    ((2, 1104, 12), 1, None),
    ((1, 20_000, 9), 1, None),
    *(((3, 1501), -1, rung) for rung in ladder.RUNGS if rung != "naive"),
]

# What split rows does while it waits is a matter of size. Here the size stays small, and the
# chooser is told.
WAYS = [
    # constants of the kernel, and how it is launched
    ({"depth": 0}, {"max_programs": None}),
    ({"depth": 1, "keep_terms": False}, {"max_programs": 8}),
    ({"depth": 2, "keep_terms": False}, {"max_programs": 8}),
    (
        {"depth": 0, "keep_terms": False, "wait": False},
        {"max_programs": None, "apart": True},
    ),
]

seen: set[tuple[str, str]] = set()


def run(operation: str, inputs: tuple[torch.Tensor, ...], dim: int, kernel: str | None):
    """The result on the host, in float64; what has run is noted."""
    if kernel in ladder.RUNGS:
        step = ladder.backward if operation.endswith("_backward") else ladder.softmax
        result = step(*inputs, dim, rung=kernel, log=operation.startswith("log"))
        torch.cuda.synchronize()
        return result.cpu().double(), (kernel,)
    call = probe.plan_of(operation, inputs, dim, None, kernel)
    result = call(*inputs)
    torch.cuda.synchronize()
    seen.update((kernel, operation) for kernel in call.kernels)
    return result.cpu().double(), call.kernels


def check(dtype: torch.dtype, shape: tuple[int, ...], dim: int, kernel: str | None) -> None:
    """All operations, each tensor of its own."""
    x, dy = (torch.randn(shape).to(dtype) for _ in range(2))
    for name, op in OPERATIONS.items():
        inputs = (x,)
        if op.numbers:
            inputs = x, torch.randn(x.select(dim, 0).shape).to(dtype)
        elif name.endswith("_backward"):
            inputs = expected(name.removesuffix("_backward"), (x,), dim).to(dtype), dy
        # Log-sum-exp has no rungs.
        by = kernel if not name.startswith("logsumexp") or kernel == "split_rows" else None
        by = None if op.numbers else by
        got, kernels = run(name, tuple(each.cuda() for each in inputs), dim, by)
        want = expected(name, inputs, dim)
        assert (got - want).abs().max() < (3e-2 if name == "softmax" else 1e-1)
        assert name != "log_softmax" or (got.exp() - want.exp()).abs().max() < 3e-2
        if name == "softmax":
            print(dtype, shape, dim, *kernels, end=" ")
    print("ok", flush=True)


def check_public(dtype: torch.dtype, n_rows: int, n: int) -> None:
    """Losses and score modifiers with their gradients, beside the library's answer on a CPU."""
    host = torch.randn(n_rows, n).to(dtype)
    target = torch.randint(n, (n_rows,))
    target[0] = -100
    weight, bias = torch.rand(n).to(dtype), torch.randn(n_rows, n).to(dtype)
    head, keep = torch.randn(n + 1, 30).to(dtype), torch.rand(n_rows, n) > 0.3

    def results(x: torch.Tensor) -> Iterator[torch.Tensor]:
        classes, masked = target.to(x.device), keep.to(x.device)
        yield triton_softmax.cross_entropy(
            x, classes, weight.to(x), label_smoothing=0.1, z_loss=1e-3
        )
        yield triton_softmax.cross_entropy(x, classes, softcap=5.0, reduction="sum")
        yield triton_softmax.cross_entropy(x, classes, label_smoothing=0.1)
        yield triton_softmax.linear_cross_entropy(x[:, :30], head.to(x), classes)
        tokens = classes.clamp(min=0)
        yield sum(triton_softmax.token_logprobs(x, tokens, temperature=0.7, return_entropy=True))
        yield triton_softmax.softmax(
            x, scale=0.5, softcap=4.0, bias=bias.to(x), where=masked, sink=0.3
        )

    on_gpu, on_cpu = host.cuda().requires_grad_(), host.double().requires_grad_()
    for got, want in zip(results(on_gpu), results(on_cpu), strict=True):
        dy = torch.randn(want.shape).double()
        pairs = [(got, want)]
        pairs += zip(
            torch.autograd.grad(got, on_gpu, dy.to(got)), torch.autograd.grad(want, on_cpu, dy)
        )
        torch.cuda.synchronize()
        for ours, exact in pairs:
            error = (ours.cpu().double() - exact).abs().max()
            assert error < (1e-1 if dtype == torch.bfloat16 else 1e-4), (error, want.shape)
    print(dtype, n_rows, n, "losses, score modifiers ok", flush=True)


if __name__ == "__main__":
    choose = plan.chosen

    def told(way):
        constants, launch = way

        def choose_told(*args):
            choice = choose(*args)
            return choice._replace(how=choice.how._replace(**constants), **launch)

        return choose_told

    for dtype in (torch.float32, torch.bfloat16):
        seen.clear()
        for shape, dim, kernel in CASES:
            check(dtype, shape, dim, kernel)
        for way in WAYS:
            plan.chosen = told(way)
            probe.forget()
            for shape in ((3, 40_000), (3, 20_001)):
                check(dtype, shape, -1, "split_rows")
        plan.chosen = choose
        probe.forget()
        geometries = {kernel.__name__ for kernel in plan.GEOMETRIES.values()}
        missing = {(g, name) for g in geometries for name in OPERATIONS} - seen
        assert not missing, missing
        for n in (33, 9001):
            check_public(dtype, 3, n)
    for shape, dim in (((3, 33), -1), ((2, 9001), -1), ((3, 40, 17), 1), ((2, 1100, 9), 1)):
        check(torch.float64, shape, dim, None)
    x = torch.randn(3, 781, device="cuda", requires_grad=True)
    triton_softmax.softmax(x, -1).sum().backward()  # through autograd too
    torch.cuda.synchronize()
