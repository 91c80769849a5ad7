"""From a call to a launch: which kernel runs for which geometry, on what, and that the answer is
right."""

import pytest
import torch

import probe
from kernel_cases import (
    DEVICE,
    INTERPRETED,
    assert_near,
    backward,
    backward_kernels,
    dtype_name,
    expected_backward,
    expected_forward,
    forward,
    forward_kernels,
    kernel_name,
    launched,
    matrix,
    quiet,
    watch_accesses,
)
from triton_softmax import IMPLEMENTATIONS, launch, plan
from triton_softmax.launch import WordPool
from triton_softmax.layout import collapse
from triton_softmax.operations import OPERATIONS

pytestmark = quiet
BOTH = pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])


def tensor(*shape, dtype=torch.float32, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (
        (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype).to(DEVICE)
    )


def check(x, dim, *, log=False, ran, out_dtype=None, implementation=None):
    """Forward and backward of x along dim are right, and the named kernel computed them."""
    function = torch.log_softmax if log else torch.softmax
    options = {"log": log, "implementation": implementation}
    y = forward(x, dim, out_dtype=out_dtype, **options)
    assert forward_kernels(x, dim, out_dtype=out_dtype, **options) == kernel_name(ran)
    assert y.shape == x.shape and y.is_contiguous() and y.dtype == (out_dtype or x.dtype)
    wanted = function(x.to(y.dtype).double(), dim)
    assert_near(y, wanted)
    # the result and its gradient laid out as x is
    y2, dy = torch.empty_like(x, dtype=y.dtype), torch.empty_like(x, dtype=y.dtype)
    y2.copy_(wanted)
    dy.copy_(tensor(*x.shape, seed=9, scale=1.0))
    dx = backward(y2, dy, dim, in_dtype=x.dtype, **options)
    assert dx.shape == x.shape and dx.is_contiguous() and dx.dtype == x.dtype
    rows = [t.movedim(dim, -1).reshape(-1, x.shape[dim]) for t in (y2, dy, dx)]
    exact = expected_backward(*rows[:2], log=log)
    coarse = max((x.dtype, y.dtype), key=lambda dtype: torch.finfo(dtype).eps)
    assert_near(
        rows[2],
        exact,
        dtype=coarse,
        atol=1e-5 if coarse == torch.float32 else 2e-3 if coarse != torch.float64 else None,
    )
    return y


@pytest.mark.parametrize(
    "shape, strides, dim, groups",
    [
        ((7,), [(1,)], 0, []),
        ((1, 7), [(7, 1)], 1, []),
        ((3, 7), [(7, 1)], 1, [(3, 7)]),
        ((3, 7), [(7, 1)], 0, [(7, 1)]),
        ((2, 3, 7), [(21, 7, 1)], 2, [(6, 7)]),
        ((2, 3, 7), [(21, 7, 1)], 1, [(2, 21), (7, 1)]),
        ((2, 3, 7), [(21, 7, 1)], 0, [(21, 1)]),
        ((2, 1, 3, 7), [(21, 99, 7, 1)], 3, [(6, 7)]),
        ((2, 3, 7), [(30, 10, 1)], 2, [(6, 10)]),
        ((2, 3, 7), [(31, 10, 1)], 2, [(2, 31), (3, 10)]),
        ((2, 3, 7), [(21, 7, 1), (7, 14, 1)], 2, [(2, 21, 7), (3, 7, 14)]),
        ((2, 3, 7), [(21, 7, 1), (42, 14, 1)], 2, [(6, 7, 14)]),
        ((2, 3, 7), [(0, 0, 1), (21, 7, 1)], 2, [(6, 0, 7)]),
        ((2, 3, 7), [(0, 0, 1)], 2, [(6, 0)]),
        ((2, 3, 4, 5), [(60, 20, 5, 1)], 2, [(6, 20), (5, 1)]),
        ((2, 3, 4, 5), [(1, 2, 6, 24)], 3, [(2, 1), (3, 2), (4, 6)]),
    ],
)
def test_collapse(shape, strides, dim, groups):
    assert collapse(shape, strides, dim) == groups


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=dtype_name)
def test_rows_that_start_on_a_vector_are_packed(dtype, log):
    check(tensor(5, 48, dtype=dtype), 1, log=log, ran="packed_rows")


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=dtype_name)
def test_rows_that_start_anywhere_are_aligned(dtype, log):
    check(tensor(5, 133, dtype=dtype), 1, log=log, ran="aligned_rows")


@pytest.mark.parametrize(
    "dtype, log", [(torch.float16, True), (torch.float32, False)], ids=["float16-log", "float32"]
)
def test_one_long_row_is_split(dtype, log):
    check(tensor(1, 8200, dtype=dtype)[0], 0, log=log, ran="split_rows")


@BOTH
def test_long_float64_rows_are_read_twice(log):
    check(tensor(1, 8193, dtype=torch.float64), 1, log=log, ran="two_pass")


@pytest.mark.parametrize(
    "implementation", [None, "split_rows", "packed_rows", "aligned_rows", "strided"], ids=str
)
@pytest.mark.parametrize(
    "in_dtype, out_dtype, log",
    [
        (torch.float16, torch.float32, False),
        (torch.float64, torch.float32, True),
        (torch.float32, torch.float64, False),
    ],
    ids=str,
)
def test_out_dtype(in_dtype, out_dtype, log, implementation):
    """As when half-precision logits are summed in float32: rows of both widths in one kernel."""
    x = tensor(1, 1030, dtype=in_dtype)
    if implementation == "split_rows" and out_dtype == torch.float64:
        with pytest.raises(ValueError, match="does not take float64"):
            forward(x, 1, log=log, out_dtype=out_dtype, implementation=implementation)
        return
    ran = implementation or "packed_rows"  # a single row of this length has no edges
    if implementation == "strided" and out_dtype == torch.float64:
        ran = "two_pass"
    check(x, 1, log=log, out_dtype=out_dtype, implementation=implementation, ran=ran)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_implementation_by_name(implementation):
    x, dy = tensor(2, 1, 5), tensor(2, 1, 5, seed=1)
    for dim in (0, 2):
        options = {"implementation": implementation}
        y = forward(x, dim, **options)
        assert forward_kernels(x, dim, **options) == kernel_name(implementation)
        assert_near(y, torch.softmax(x.double(), dim))
        dx = backward(y, dy, dim, **options)
        assert backward_kernels(y, dy, dim, **options) == kernel_name(implementation, "backward")
        flat = [t.movedim(dim, -1).flatten(0, 1) for t in (y, dy, dx)]
        assert_near(flat[2], expected_backward(*flat[:2]), atol=1e-5)


# Views whose other dimensions join into two groups or fewer: no copy is made.
VIEWS = {
    "middle": (lambda: tensor(4, 5, 6), 1, "strided"),
    "first": (lambda: tensor(5, 4, 6), 0, "strided"),
    "transposed": (lambda: tensor(6, 5).T, 1, "strided"),
    "transposed-columns": (lambda: tensor(6, 5).T, 0, "strided"),
    "rows-in-another-order": (lambda: tensor(3, 4, 32).transpose(0, 1), 2, "strided"),
    "channels-last": (lambda: tensor(2, 3, 4, 8).permute(0, 3, 1, 2), 1, "strided"),
    "sliced-rows": (lambda: tensor(6, 40)[::2, :32], 1, "packed_rows"),
    "sliced-columns": (lambda: tensor(6, 40)[:, ::2], 1, "strided"),
    "sliced-middle": (lambda: tensor(3, 9, 6)[:, 2:8:2], 1, "strided"),
    "sliced-start": (lambda: tensor(6, 41)[:, 1:33], 1, "packed_rows"),
    "one-row": (lambda: tensor(1, 1, 33), 2, "aligned_rows"),
    "one-column": (lambda: tensor(5, 1), 1, "packed_rows"),
    "vector": (lambda: tensor(32), 0, "packed_rows"),
    "strided-vector": (lambda: tensor(64)[::2], 0, "strided"),
}


EVERY_VIEW = pytest.mark.parametrize(
    "view, log", [(view, i % 2 > 0) for i, view in enumerate(VIEWS)], ids=str
)


@EVERY_VIEW
def test_views_without_a_copy(view, log, monkeypatch):
    make, dim, ran = VIEWS[view]
    x = make()
    monkeypatch.setattr(torch.Tensor, "contiguous", lambda *_: pytest.fail("copied"))
    y = forward(x, dim, log=log)
    assert forward_kernels(x, dim, log=log) == kernel_name(ran)
    assert_near(y, (torch.log_softmax if log else torch.softmax)(x.double(), dim))


@EVERY_VIEW
def test_gradients_laid_out_unlike_the_result(view, log):
    """y contiguous, dy a view: whichever kernel the two layouts together allow."""
    make, dim, _ = VIEWS[view]
    dy = make()
    y = torch.empty(dy.shape, device=DEVICE)
    y.copy_((torch.log_softmax if log else torch.softmax)(tensor(*dy.shape, seed=5).double(), dim))
    dx = backward(y, dy, dim, log=log)
    flat = [t.movedim(dim, -1).reshape(-1, t.shape[dim]) for t in (y, dy, dx)]
    assert_near(flat[2], expected_backward(*flat[:2], log=log), atol=2e-5)


@pytest.mark.parametrize(
    "implementation, log", [(None, False), ("strided", True), ("packed_rows", False)], ids=str
)
def test_three_groups_are_copied(implementation, log):
    x = tensor(2, 3, 4, 5).permute(3, 1, 0, 2)[:, :2]
    assert len(collapse(x.shape, [x.stride()], 3)) == 3
    options = {"log": log, "implementation": implementation}
    y = forward(x, 3, **options)
    ran = kernel_name(implementation or "packed_rows")
    assert forward_kernels(x, 3, **options) == ran
    assert_near(y, (torch.log_softmax if log else torch.softmax)(x.double(), 3))
    assert y.is_contiguous()
    dx = backward(y, x, 3, **options)
    ran = kernel_name(implementation or "packed_rows", "backward")
    assert backward_kernels(y, x, 3, **options) == ran
    assert_near(
        dx.flatten(0, 2), expected_backward(y.flatten(0, 2), x.flatten(0, 2), log=log), atol=2e-5
    )


@pytest.mark.parametrize("implementation", ["packed_rows", "aligned_rows", "split_rows"])
def test_rows_by_name_along_another_dimension_are_copied(implementation):
    x = tensor(2, 33, 2)
    y = forward(x, 1, implementation=implementation)
    assert forward_kernels(x, 1, implementation=implementation) == kernel_name(implementation)
    assert y.is_contiguous() and y.shape == x.shape
    assert_near(y, torch.softmax(x.double(), 1))


def test_plans_are_made_once(monkeypatch):
    made = []
    keep = plan.plans.keep
    monkeypatch.setattr(plan.plans, "keep", lambda *args: made.append(args) or keep(*args))
    probe.forget()
    x, dy = tensor(4, 32), tensor(4, 32, seed=1)
    for _ in range(3):
        y = forward(x, 1)
        backward(y, dy, 1)
    assert len(made) == 2
    forward(x.clone(), 1)
    assert len(made) == 2, "the same geometry elsewhere"
    for other in (
        lambda: forward(x, 0),
        lambda: forward(x, 1, log=True),
        lambda: forward(x, 1, out_dtype=torch.float16),
        lambda: forward(x, 1, implementation="aligned_rows"),
        lambda: forward(x.half(), 1),
        lambda: forward(x[:3], 1),
        lambda: forward(tensor(4, 36)[:, :32], 1),
        lambda: forward(tensor(132)[1:129].view(4, 32), 1),
        lambda: backward(x, dy.expand(4, 32)[:1].expand(4, 32), 1),
        lambda: backward(x, tensor(132)[1:129].view(4, 32), 1),
    ):
        before = len(made)
        other()
        assert len(made) == before + 1, "another geometry, dtype or alignment"
        other()
        assert len(made) == before + 1


def test_plans_do_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(plan.plans, "MOST", 3)
    probe.forget()
    for n_rows in range(1, 6):
        x = tensor(n_rows, 16)
        assert_near(forward(x, 1), expected_forward(x))
        assert len(plan.plans) <= 3


@pytest.mark.parametrize(
    "implementation, make, message",
    [
        ("packed_rows", lambda: tensor(1, 65537), "at most 65,536 columns, not 65,537"),
        ("aligned_rows", lambda: tensor(1, 65537), "at most 65,536 columns, not 65,537"),
        ("aligned_rows", lambda: tensor(4, 33)[:, :32], "row strides that agree"),
        ("aligned_rows", lambda: tensor(132)[1:129].view(4, 32), "start on 16 bytes"),
        ("split_rows", lambda: tensor(4, 32, dtype=torch.float64), "does not take float64"),
    ],
)
def test_what_an_implementation_refuses(implementation, make, message):
    x = make()
    with pytest.raises(ValueError, match=message):
        forward(x, 1, implementation=implementation)
    with pytest.raises(ValueError, match=message):
        backward(x, x, 1, implementation=implementation)


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
@pytest.mark.parametrize(
    "implementation, log", [(name, i % 2 > 0) for i, name in enumerate(IMPLEMENTATIONS)], ids=str
)
@pytest.mark.parametrize("shape", [(3, 33), (2, 1030)], ids=str)
def test_poisoned_surroundings(shape, implementation, log, monkeypatch):
    """Rows amid NaN: nothing else is read, and each element of the result is written once."""
    pool = []
    take = launch.words.take
    monkeypatch.setattr(
        launch.words, "take", lambda *args: pool.append(take(*args)) or pool[-1], raising=False
    )
    for dtype in (torch.float16, torch.float32):
        width = 16 // dtype.itemsize
        gap = (
            width - shape[1] % width + (0 if implementation == "packed_rows" else shape[1] % width)
        )
        x = matrix(*shape, dtype, gap=gap)
        pool.clear()
        with watch_accesses() as accesses:
            y = forward(x, 1, log=log, implementation=implementation)
        ran = forward_kernels(x, 1, log=log, implementation=implementation)
        assert ran == kernel_name(implementation)
        accesses.assert_reads_only(x, *pool)
        accesses.assert_writes_once(y)
        assert_near(y, expected_forward(x, log=log))
        dy = matrix(*shape, dtype, gap=gap + width, scale=1.0, seed=1)
        pool.clear()
        with watch_accesses() as accesses:
            dx = backward(y, dy, 1, log=log, implementation=implementation)
        accesses.assert_reads_only(y, dy, *pool)
        accesses.assert_writes_once(dx)


def check_logsumexp(x, dim, *, ran, back=None):
    """Log-sum-exp of x along dim and its gradient are right, and the named kernels launched."""
    lse = probe.run("logsumexp", (x,), dim)
    assert launched(probe.plan_of("logsumexp", (x,), dim)) == ran
    assert lse.is_contiguous() and lse.dtype == x.dtype
    assert_near(lse, torch.logsumexp(x.double(), dim))
    dlse = tensor(*lse.shape, seed=7, scale=1.0).to(x.dtype)
    dx = probe.run("logsumexp_backward", (x, dlse), dim)
    plan_back = probe.plan_of("logsumexp_backward", (x, dlse), dim)
    assert launched(plan_back) == (back or ran)
    assert dx.is_contiguous() and dx.shape == x.shape and dx.dtype == x.dtype
    assert_near(dx, dlse.double().unsqueeze(dim) * torch.softmax(x.double(), dim), atol=1e-5)


def test_logsumexp_along_every_dimension():
    x = tensor(2, 4, 3)
    views = {
        "contiguous": (x, ("strided", "strided", "packed_rows")),
        "transposed": (x.transpose(0, 2), ("strided",) * 3),
        "sliced": (x[:, ::2], ("strided", "strided", "packed_rows")),
        "expanded-rows": (x[:1, :1].expand(2, 4, 3), ("strided", "strided", "packed_rows")),
    }
    # The rows of the gradient are contiguous, and so out of step with these inputs.
    otherwise = {("sliced", 2): "packed_rows", ("expanded-rows", 2): "packed_rows"}
    for label, (view, names) in views.items():
        for dim, name in enumerate(names):
            back = kernel_name(otherwise.get((label, dim), name))
            check_logsumexp(view, dim, ran=kernel_name(name), back=back)


LOGSUMEXP = {
    # shape, dtype, dim: kernels
    "packed": ((4, 64), torch.float32, 1, kernel_name("packed_rows")),
    "aligned": ((4, 133), torch.float16, 1, kernel_name("aligned_rows")),
    "scalar-rows": ((5, 1), torch.bfloat16, 1, kernel_name("packed_rows")),
    "split": ((1, 8200), torch.float32, 1, kernel_name("split_rows") * 2),
    "float64": ((3, 8192), torch.float64, 1, kernel_name("packed_rows")),
    "float64-loops": ((2, 8193), torch.float64, 1, kernel_name("two_pass") * 2),
    "strided": ((2, 40, 3), torch.float16, 1, kernel_name("strided")),
    "strided-loops": ((2, 2049, 3), torch.float32, 1, kernel_name("two_pass") * 2),
}


@pytest.mark.parametrize("case", LOGSUMEXP)
def test_logsumexp_of_every_length_and_dtype(case):
    shape, dtype, dim, ran = LOGSUMEXP[case]
    check_logsumexp(tensor(*shape, dtype=dtype), dim, ran=ran)
    if dim == 1 and len(shape) == 2 and shape[1] < 8192:
        check_logsumexp(matrix(*shape, dtype, gap=16), dim, ran=ran)


def test_logsumexp_of_three_groups_is_copied():
    x = tensor(2, 3, 4, 5).permute(3, 1, 0, 2)[:, :2]
    check_logsumexp(x, 3, ran=kernel_name("packed_rows"))
    assert type(probe.plan_of("logsumexp", (x,), 3)) is plan.CopyFirst


@pytest.mark.parametrize("operation", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("n_cols, vector", [(1024, 4), (1023, 4), (8200, 4), (8201, 4)])
def test_a_single_row_is_moved_in_vectors(operation, n_cols, vector):
    """It is in step with its result, whatever its length; but from 1,025 to 8,192 columns edges
    cost more than they bring."""
    x = tensor(1, n_cols)
    names = [operation] if operation == "logsumexp" else [operation, f"{operation}_backward"]
    for name in names:
        launches = probe.plan_of(name, (x, x)[: 1 + ("backward" in name)], 1).launches
        for each in launches:
            assert each.constants["HOW"].vector == vector


@pytest.mark.parametrize("shape, dim", [((4, 64), 1), ((4, 133), 1), ((1, 8200), 1), ((4, 65), 0)])
def test_one_kernel_serves_all_operations(shape, dim):
    """A geometry takes the operation as a constant."""
    x = tensor(*shape)
    kernels = set()
    for name, op in OPERATIONS.items():
        inputs = (x,) * op.inputs + (x.sum(dim),) * op.numbers
        launches = probe.plan_of(name, inputs, dim).launches
        assert {each.constants["OP"] for each in launches} == {op}
        kernels |= {each.kernel for each in launches}
    assert len(kernels) == 1


def test_words_without_a_gpu_are_fresh_zeros():
    pool = WordPool()
    cpu = torch.device("cpu")
    first, second = pool.take(5, cpu), pool.take(5, cpu)
    assert first.dtype == torch.int64 and first.shape == (5,) and not first.any()
    first.fill_(-1)
    assert not second.any() and not pool.take(5, cpu).any()
    assert not pool._blocks


class FakeDevice:
    """What the pool asks of a device: its type, its index, and memory, here on the host."""

    type = "cuda"

    def __init__(self, index=0):
        self.index = index


@pytest.fixture
def fake_cuda(monkeypatch):
    """The pool believes in a GPU with a current stream; its blocks lie on the host and are
    counted."""
    state = {"stream": 1, "capturing": False, "blocks": []}
    zeros = torch.zeros

    def zeros_on_host(size, *, dtype, device):
        state["blocks"].append(zeros(size, dtype=dtype))
        return state["blocks"][-1]

    monkeypatch.setattr(launch.torch, "zeros", zeros_on_host)
    monkeypatch.setattr(launch, "_current_stream", lambda index: state["stream"], raising=False)
    monkeypatch.setattr(launch, "_is_capturing", lambda: state["capturing"], raising=False)
    return state


def test_words_are_handed_out_once_and_zeroed(fake_cuda):
    pool, device, seen = WordPool(), FakeDevice(), set()
    pool.SIZE = 1024
    for n_words in [1, 15, 16, 17, 31, 33, 64, 1] * 20:
        words = pool.take(n_words, device)
        assert words.shape == (n_words,) and words.dtype == torch.int64 and not words.any()
        assert words.data_ptr() % 64 == 0, "words of two launches share no cache sector"
        mine = {words.data_ptr() + 8 * i for i in range(n_words)}
        assert not mine & seen, "handed out before"
        seen |= mine
        words.fill_(-1)  # what the launch does to them
    assert len(fake_cuda["blocks"]) > 2, "more than one block was used up"
    assert all(len(block) == pool.SIZE for block in fake_cuda["blocks"])


def test_a_block_is_used_to_its_last_word(fake_cuda):
    pool = WordPool()
    pool.SIZE = 256
    for _ in range(16):
        pool.take(16, FakeDevice())
    assert len(fake_cuda["blocks"]) == 1
    pool.take(1, FakeDevice())
    assert len(fake_cuda["blocks"]) == 2


def test_streams_and_devices_do_not_share_words(fake_cuda):
    pool = WordPool()
    pool.take(8, FakeDevice(0))
    fake_cuda["stream"] = 2
    pool.take(8, FakeDevice(0))
    pool.take(8, FakeDevice(1))
    assert len(fake_cuda["blocks"]) == 3
    pool.take(8, FakeDevice(1))
    fake_cuda["stream"] = 1
    pool.take(8, FakeDevice(0))
    assert len(fake_cuda["blocks"]) == 3


def test_many_words_and_words_in_a_graph_are_zeroed_for_the_launch(fake_cuda):
    pool = WordPool()
    assert len(pool.take(pool.SIZE // 16 + 1, FakeDevice())) == pool.SIZE // 16 + 1
    assert not pool._blocks
    fake_cuda["capturing"] = True
    assert len(pool.take(3, FakeDevice())) == 3 and len(fake_cuda["blocks"][-1]) == 3
    assert not pool._blocks
    fake_cuda["capturing"] = False
    pool.take(pool.SIZE // 16, FakeDevice())
    assert len(pool._blocks) == 1
