"""Every shipped kernel once or twice on small tensors, for `compute-sanitizer --tool ... python
tests/gpu/sanitize.py`.

Prints one line per case; a wrong result stops it. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor
is an allocation of its own, so that memcheck sees its ends.
"""

import torch

import triton_softmax
from triton_softmax import dispatch

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
    ((3, 1501), -1, "three_loops"),
    ((3, 1501), -1, "two_loops"),
    ((3, 1501), -1, "single_block"),
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
        {"max_programs": None, "two_launches": True},
    ),
]


def check(dtype: torch.dtype, shape: tuple[int, ...], dim: int, implementation: str | None) -> None:
    """Softmax, log-softmax and log-sum-exp with their gradients, on a tensor of its own."""
    host = torch.randn(shape).to(dtype)
    want = torch.softmax(host.double(), dim)
    x = host.cuda().requires_grad_(True)
    for op in (triton_softmax.softmax, triton_softmax.log_softmax):
        y = op(x, dim, implementation=implementation)
        plan = dispatch.plan_of(op.__name__, (x,), dim, None, implementation)
        y.backward(torch.ones_like(y))
        got = y.detach().cpu().double()
        got = got.exp() if op is triton_softmax.log_softmax else got
        assert (got - want).abs().max() < 3e-2
    triton_softmax.logsumexp(x, dim).sum().backward()
    torch.cuda.synchronize()
    print(dtype, shape, dim, *plan.kernels, "ok", flush=True)


if __name__ == "__main__":
    choose = dispatch.choose_rows

    def told(way):
        constants, launch = way

        def choose_told(*args, **kwargs):
            choice = choose(*args, **kwargs)
            return choice._replace(how=choice.how._replace(**constants), **launch)

        return choose_told

    for dtype in (torch.float32, torch.bfloat16):
        for shape, dim, implementation in CASES:
            check(dtype, shape, dim, implementation)
        for way in WAYS:
            dispatch.choose_rows = told(way)
            dispatch.clear_plans()
            for shape in ((3, 40_000), (3, 20_001)):
                check(dtype, shape, -1, "split_rows")
        dispatch.choose_rows = choose
        dispatch.clear_plans()
