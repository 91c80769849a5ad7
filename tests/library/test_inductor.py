"""What is left of the operators in a graph that Inductor gets."""

import pytest
import torch

from kernel_cases import PAIRS, drawn, quiet
from triton_softmax import arguments, inductor, operators, softmax

pytestmark = quiet


@pytest.fixture
def graphs(monkeypatch):
    """(backend, graphs): a compiler that takes apart what Inductor does, and keeps its graphs.

    What it imports takes seconds, which a run without these tests does not spend.
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import decomposition

    monkeypatch.setattr(arguments, "INTERPRETED", False)
    monkeypatch.setattr(inductor, "_entered", False)
    tables = decomposition.decompositions, decomposition.fast_random_decomps()
    before = [dict(table) for table in tables]
    found = []

    def keep(graph, _):
        found.append({str(node.target) for node in graph.graph.nodes if "call" in node.op})
        return make_boxed_func(graph)

    table = decomposition.select_decomp_table()
    yield aot_autograd(fw_compiler=keep, decompositions=table), found
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    torch._dynamo.reset()


def both_ways(function, x):
    y = function(x)
    return y, *torch.autograd.grad((y * y).sum(), x)


def numbers(*shape):
    return drawn(*shape, dtype=torch.float32).requires_grad_()


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_a_short_row_becomes_pytorchs_operators(graphs, name, dim):
    backend, found = graphs
    x = numbers(3, 5, 4)

    def function(x):
        return PAIRS[name][0](2 * x, dim) + 1

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(both_ways(compiled, x), both_ways(function, x))
    assert len(found) == 2 and not any("triton_softmax" in each for each in set.union(*found))


@pytest.mark.parametrize("name", PAIRS)
def test_a_long_row_keeps_its_kernel_without_the_rule_for_autograd(graphs, name):
    backend, found = graphs
    x = numbers(2, inductor.LONGEST_OF_FEW + 1)
    compiled = torch.compile(lambda x: PAIRS[name][0](x, 1), backend=backend, fullgraph=True)
    torch.testing.assert_close(both_ways(compiled, x), both_ways(PAIRS[name][0], x))
    forward, backward = found
    assert f"triton_softmax._{name}.default" in forward
    assert f"triton_softmax._{name}_backward.default" in backward


@pytest.mark.parametrize(
    "n_rows, n_cols, fused",
    [
        (2**20 // 8192, 8192, True),
        (2**20 // 8192 + 1, 8192, False),
        (2**10 + 1, 1024, True),
        (2**10 + 1, 1025, False),
    ],
)
def test_a_row_that_inductor_reads_as_fast_becomes_pytorchs_operators(
    graphs, n_rows, n_cols, fused
):
    """Rows of up to 1,024, and of up to 8,192 where there are few elements."""
    backend, found = graphs
    x = numbers(n_rows, n_cols)
    torch.compile(lambda x: softmax(x, 1), backend=backend, fullgraph=True)(x)
    assert fused != any("triton_softmax" in each for each in found[0])


def test_what_is_batch_invariant_is_not_decomposed(graphs):
    backend, found = graphs
    x = numbers(2, 5).detach()
    invariant = lambda x: softmax(x, 1, batch_invariant=True)  # noqa: E731
    compiled = torch.compile(invariant, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), softmax(x, 1))
    assert "triton_softmax._softmax.default" in found.pop()


def test_a_length_that_changes(graphs):
    backend, found = graphs
    compiled = torch.compile(lambda x: softmax(x, 1), backend=backend, fullgraph=True, dynamic=True)
    for n_cols in (7, 9, 300):
        x = numbers(3, n_cols).detach()
        torch.testing.assert_close(compiled(x), softmax(x, 1))
    assert len(found) == 1 and "triton_softmax._softmax.default" not in found[0]


def test_without_inductors_table(monkeypatch):
    """A PyTorch that has no such table, or calls it otherwise, changes nothing."""
    monkeypatch.setattr(arguments, "INTERPRETED", False)
    for there in ({}, {"torch._inductor.decomposition": object()}):
        monkeypatch.setattr(inductor, "_entered", False)
        monkeypatch.setattr(inductor.sys, "modules", there)
        inductor.enter(operators._NORMALIZATIONS)
