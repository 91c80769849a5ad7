"""From a call to a launch: which kernel runs for which geometry, on what, and that the answer is
right."""

import pytest
import torch

import probe
from kernel_cases import (
    assert_near,
    assert_result,
    drawn,
    dtype_name,
    expected,
    launched,
    quiet,
)
from triton_softmax import plan
from triton_softmax.plan import KERNELS, launch
from triton_softmax.plan.launch import WordPool
from triton_softmax.plan.layout import collapse, lies_on_vectors, on_vectors, outer_and_inner

pytestmark = quiet


def tensor(*shape, dtype=torch.float32, seed=0, scale=3.0):
    return drawn(*shape, dtype=dtype, seed=seed, scale=scale)


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


@pytest.mark.parametrize(
    "groups, pair",
    [
        ([], [(1, 0), (1, 0)]),
        ([(5, 1)], [(1, 0), (5, 1)]),
        ([(2, 9), (5, 3)], [(2, 9), (5, 3)]),
        ([(2, 1), (5, 2)], [(5, 2), (2, 1)]),
        ([(2, 9), (3, 4), (5, 1)], None),
    ],
)
def test_the_smaller_stride_is_the_inner_one(groups, pair):
    assert outer_and_inner(groups, 1) == pair


def test_what_does_not_lie_on_vectors_is_copied():
    x = tensor(4, 8)
    assert lies_on_vectors(x) and not lies_on_vectors(x.T) and not lies_on_vectors(x.view(-1)[1:9])
    assert on_vectors(x).data_ptr() == x.data_ptr() != on_vectors(x.T).data_ptr()
    assert torch.equal(on_vectors(x[:, 1:]), x[:, 1:])


def apart(dtype=torch.float32):
    """Dimensions that do not join into two groups."""
    return tensor(2, 3, 4, 5, dtype=dtype).permute(3, 1, 0, 2)[:, :2]


# The input, dim, and the kernel that computes the result; where another reduces, that.
CALLS = {
    **{
        f"{name}-{dtype_name(dtype)}": (lambda n=n, dtype=dtype: tensor(5, n, dtype=dtype), 1, name)
        for name, n in (("packed_rows", 48), ("aligned_rows", 133))
        for dtype in (torch.float16, torch.float32, torch.float64)
    },
    "rows-with-gaps": (lambda: tensor(4, 80)[:, :64], 1, "packed_rows"),
    "one-long-row-float16": (lambda: tensor(8200, dtype=torch.float16), 0, "split_rows"),
    "one-long-row": (lambda: tensor(1, 8200), 1, "split_rows"),
    "float64": (lambda: tensor(1, 8192, dtype=torch.float64), 1, "packed_rows"),
    "long-float64": (lambda: tensor(1, 8193, dtype=torch.float64), 1, "two_pass"),
    "long-columns": (lambda: tensor(1, 2049, 3), 1, "two_pass"),
    "columns-float16": (lambda: tensor(2, 40, 3, dtype=torch.float16), 1, "strided"),
    # Views whose other dimensions join into two groups or fewer: no copy is made.
    "middle": (lambda: tensor(4, 5, 6), 1, "strided"),
    "first": (lambda: tensor(5, 4, 6), 0, "strided"),
    "transposed": (lambda: tensor(6, 5).T, 1, "strided"),
    "transposed-columns": (lambda: tensor(6, 5).T, 0, "strided", "packed_rows"),
    "rows-in-another-order": (lambda: tensor(3, 4, 32).transpose(0, 1), 2, "strided"),
    "channels-last": (lambda: tensor(2, 3, 4, 8).permute(0, 3, 1, 2), 1, "strided", "packed_rows"),
    "sliced-rows": (lambda: tensor(6, 40)[::2, :32], 1, "packed_rows"),
    "sliced-columns": (lambda: tensor(6, 40)[:, ::2], 1, "strided"),
    "sliced-middle": (lambda: tensor(3, 9, 6)[:, 2:8:2], 1, "strided"),
    "sliced-start": (lambda: tensor(6, 41)[:, 1:33], 1, "packed_rows"),
    "expanded-rows": (lambda: tensor(1, 1, 3).expand(2, 4, 3), 2, "packed_rows"),
    "one-row": (lambda: tensor(1, 1, 33), 2, "aligned_rows", "packed_rows"),
    "one-column": (lambda: tensor(5, 1, dtype=torch.bfloat16), 1, "packed_rows"),
    "vector": (lambda: tensor(32), 0, "packed_rows"),
    "strided-vector": (lambda: tensor(64)[::2], 0, "strided"),
    "overlapping-rows": (lambda: tensor(9).as_strided((4, 5), (1, 1)), 1, "packed_rows"),
    "diagonal": (lambda: tensor(4, 4, 2).diagonal(), 1, "strided"),
    "copied": (apart, 3, "packed_rows"),
}
OPERATION = pytest.mark.parametrize("operation", ["softmax", "log_softmax", "logsumexp"])


def check(operation, x, dim, ran, *, out_dtype=None, kernel=None):
    """Forward and backward of x along dim are right, and the named kernel computed the result."""
    ways = {"dtype": out_dtype, "kernel": kernel}
    y = probe.run(operation, (x,), dim, *ways.values())
    kernels = launched(probe.plan_of(operation, (x,), dim, *ways.values()))
    assert {*kernels} - {"merge_chunks_kernel"} == {f"{ran}_kernel"}
    assert y.is_contiguous() and y.dtype == (out_dtype or x.dtype)
    assert_result(operation, y, (x.to(y.dtype),), dim)
    dy = tensor(*y.shape, dtype=y.dtype, seed=9, scale=1.0)
    inputs = (x, dy)
    if operation != "logsumexp":  # the result and its gradient laid out as x is
        wanted = expected(operation, (x.to(y.dtype),), dim)
        inputs = [torch.empty_like(x, dtype=y.dtype).copy_(each) for each in (wanted, dy)]
    back = f"{operation}_backward"
    dx = probe.run(back, tuple(inputs), dim, x.dtype, kernel)
    assert dx.shape == x.shape and dx.is_contiguous() and dx.dtype == x.dtype
    if kernel:
        kernels = launched(probe.plan_of(back, tuple(inputs), dim, x.dtype, kernel))
        assert {*kernels} - {"merge_chunks_kernel"} == {f"{ran}_kernel"}
    coarse = max((x.dtype, y.dtype), key=lambda dtype: torch.finfo(dtype).eps)
    atol = {torch.float32: 2e-5, torch.float64: None}.get(coarse, 4e-3)
    assert_near(dx, expected(back, tuple(inputs), dim), dtype=coarse, atol=atol)


@pytest.mark.parametrize(
    "call, operation",
    [(call, "softmax") for call in CALLS]
    + [(call, ("log_softmax", "logsumexp")[i % 2]) for i, call in enumerate(CALLS)]
    + [(call, "logsumexp") for call in ("packed_rows-float32", "aligned_rows-float32", "copied")],
)
def test_what_computes_a_call(call, operation, monkeypatch):
    """Rows that start on a vector are packed, others aligned; long ones are split or read twice."""
    make, dim, *ran = CALLS[call]
    x = make()
    if call != "copied":
        contiguous = torch.Tensor.contiguous
        monkeypatch.setattr(
            torch.Tensor, "contiguous", lambda t: pytest.fail("copied") if t is x else contiguous(t)
        )
    check(operation, x, dim, ran[-1] if operation == "logsumexp" else ran[0])


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log"])
@pytest.mark.parametrize(
    "call", ["transposed", "channels-last", "sliced-rows", "sliced-start", "strided-vector"]
)
def test_gradients_laid_out_unlike_the_result(call, log):
    """y contiguous, dy a view: whichever kernel the two layouts together allow."""
    make, dim, *_ = CALLS[call]
    operation, dy = "log_softmax" if log else "softmax", make()
    y = expected(operation, (tensor(*dy.shape, seed=5),), dim).to(dy.dtype).contiguous()
    dx = probe.run(f"{operation}_backward", (y, dy), dim)
    assert_near(dx, expected(f"{operation}_backward", (y, dy), dim), atol=2e-5)


@pytest.mark.parametrize(
    "kernel", [None, "split_rows", "packed_rows", "aligned_rows", "strided"], ids=str
)
@pytest.mark.parametrize(
    "in_dtype, out_dtype, operation",
    [
        (torch.float16, torch.float32, "softmax"),
        (torch.float64, torch.float32, "log_softmax"),
        (torch.float32, torch.float64, "softmax"),
    ],
    ids=str,
)
def test_out_dtype(in_dtype, out_dtype, operation, kernel):
    """As when half-precision logits are summed in float32: rows of both widths in one kernel."""
    x, ways = tensor(1, 1030, dtype=in_dtype), {"kernel": kernel}
    if kernel == "split_rows" and out_dtype == torch.float64:
        with pytest.raises(ValueError, match="does not take float64"):
            check(operation, x, 1, "split_rows", out_dtype=out_dtype, **ways)
        return
    ran = kernel or "packed_rows"  # a single row of this length has no edges
    if kernel == "strided" and out_dtype == torch.float64:
        ran = "two_pass"
    check(operation, x, 1, ran, out_dtype=out_dtype, **ways)


def test_a_choice_knows_the_narrowest_and_the_widest_element(monkeypatch):
    """Vectors hold elements of the one, registers elements of the other."""
    asked, rows_of = [], plan.rows_of
    keep = lambda *a: asked.append((a[2], a[5])) or rows_of(*a)  # noqa: E731
    monkeypatch.setattr(plan, "rows_of", keep)
    y = tensor(2, 40)
    for inputs in ((y, y.half()), (y.half(), y)):
        probe.forget()
        probe.run("softmax_backward", inputs, 1, torch.float16)
    assert asked == [(2, 4), (2, 4)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_by_name(kernel):
    """What a kernel cannot take as it lies is copied; columns only one takes."""
    check("softmax", tensor(2, 1, 5), 2, kernel, kernel=kernel)
    check("log_softmax", apart(), 3, kernel, kernel=kernel)
    assert probe.run("softmax", (tensor(),), 0, None, kernel) == 1
    if kernel == "strided":
        check("softmax", tensor(2, 33, 2), 1, kernel, kernel=kernel)
    else:
        for x in (tensor(2, 33, 2), tensor(2, 66)[:, ::2]):
            with pytest.raises(ValueError, match=f"{kernel} does not support dim=0 of shape"):
                probe.run("softmax", (x,), 0, None, kernel)
    with pytest.raises(ValueError, match="unknown kernel 'fastest'; expected None or"):
        probe.run("softmax", (tensor(2, 3),), 1, None, "fastest")


def test_plans_are_made_once(monkeypatch):
    made = []
    keep = plan.plans.keep
    monkeypatch.setattr(plan.plans, "keep", lambda *args: made.append(args) or keep(*args))
    probe.forget()
    x, dy = tensor(4, 32), tensor(4, 32, seed=1)
    shifted = tensor(132)[1:129].view(4, 32)
    for same in (x, x.clone()):
        probe.run("softmax", (same,), 1)
    assert len(made) == 1, "the same geometry elsewhere"
    for other in (
        ("softmax_backward", (x, dy), 1),
        ("softmax", (x,), 0),
        ("log_softmax", (x,), 1),
        ("softmax", (x,), 1, torch.float16),
        ("softmax", (x,), 1, None, "aligned_rows"),
        *(("softmax", (y,), 1) for y in (x.half(), x[:3], tensor(4, 36)[:, :32], shifted)),
        *(("softmax_backward", (x, y), 1) for y in (dy[:1].expand(4, 32), shifted)),
        # What is copied or converted before and after, empty, or in chunks.
        ("softmax", (apart(),), 3),
        ("softmax", (apart(),), 3, None, "packed_rows"),
        ("softmax", (x,), 1, torch.float64),
        ("logsumexp_backward", (apart(), apart()[..., 0]), 3),
        *(("softmax", (y,), 0) for y in (tensor(), tensor(3, 0), tensor(2049, 3))),
    ):
        before = len(made)
        for _ in range(2):
            probe.run(*other)
            assert len(made) == before + 1, "another geometry, dtype or alignment"


@pytest.mark.parametrize(
    "kernel, make, message",
    [
        ("packed_rows", lambda: tensor(1, 65537), "packed_rows holds .* 65,536 .*, not 65,537"),
        ("aligned_rows", lambda: tensor(1, 65537), "aligned_rows holds .* 65,536 .*, not 65,537"),
        ("aligned_rows", lambda: tensor(4, 33)[:, :32], "row strides that agree"),
        ("aligned_rows", lambda: tensor(132)[1:129].view(4, 32), "start on 16 bytes"),
        ("split_rows", lambda: tensor(4, 32, dtype=torch.float64), "does not take float64"),
    ],
)
def test_what_a_kernel_refuses(kernel, make, message):
    x = make()
    for name, inputs in (("softmax", (x,)), ("softmax_backward", (x, x))):
        with pytest.raises(ValueError, match=message):
            probe.run(name, inputs, 1, None, kernel)


@OPERATION
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


def test_words_by_address_are_those_of_the_tensor(fake_cuda, monkeypatch):
    monkeypatch.setattr(launch, "words", WordPool())
    workspace, device = launch.Workspace(20, zeroed=True), FakeDevice()
    first = workspace.take(device)
    block, address = workspace.reserve(device)
    assert address == first.data_ptr() + 8 * 32 and block.data_ptr() == first.data_ptr()
    assert workspace.take(device).data_ptr() == address + 8 * 32


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
