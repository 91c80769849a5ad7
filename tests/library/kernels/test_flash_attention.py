"""Scalar attention in one loop over the keys."""

import numpy as np
import pytest
import torch

from kernel_cases import DEVICE, DTYPES, INTERPRETED, assert_near, quiet, watch_accesses
from softmax_bench import traffic
from softmax_tutorial import reference
from softmax_tutorial.flash_attention import attention_forward

pytestmark = quiet


def vectors(n_queries, n_keys, dtype, scale=3.0):
    """q, k, v with NaN on both sides of each."""
    generator = torch.Generator().manual_seed(n_queries * 1000 + n_keys)
    result = []
    for size in (n_queries, n_keys, n_keys):
        buffer = torch.full((size + 32,), float("nan"), dtype=dtype)
        buffer[16:-16] = torch.randn(size, generator=generator) * scale
        result.append(buffer.to(DEVICE)[16:-16])
    return result


def expected(q, k, v):
    q, k, v = (vector.double() for vector in (q, k, v))
    return torch.softmax(q[:, None] * k[None, :], dim=1) @ v


@pytest.mark.parametrize(
    "sizes, dtype", list(zip([(1, 65), (64, 64), (65, 63), (66, 129)], DTYPES)), ids=str
)
def test_attention(sizes, dtype):
    q, k, v = vectors(*sizes, dtype)
    o = attention_forward(q, k, v)
    assert o.dtype == dtype
    assert_near(o, expected(q, k, v), atol=2e-6 if dtype == torch.float32 else None)


@pytest.mark.parametrize("blocks", [(4, 4), (16, 8), (4, 128)], ids=str)
def test_any_tile(blocks):
    q, k, v = vectors(9, 33, torch.float64)
    o = attention_forward(q, k, v, block_queries=blocks[0], block_keys=blocks[1])
    assert_near(o, expected(q, k, v))
    np.testing.assert_allclose(
        o.cpu(), reference.attention_online(*(t.cpu().numpy() for t in (q, k, v))), rtol=1e-12
    )


@pytest.mark.parametrize("place", range(5))
def test_keys_at_minus_infinity(place):
    q = torch.tensor([1.0, 2.0], device=DEVICE)
    k = torch.randn(80, generator=torch.Generator().manual_seed(place)).to(DEVICE)
    k[place * 16 : (place + 1) * 16] = float("-inf")
    v = torch.linspace(-1, 1, 80, device=DEVICE)
    o = attention_forward(q, k, v, block_keys=16)
    assert_near(o, expected(q, k, v))


def test_no_key_at_all_is_nan():
    q = torch.ones(2, device=DEVICE)
    k = torch.full((20,), float("-inf"), device=DEVICE)
    assert attention_forward(q, k, k.new_ones(20)).isnan().all()


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter records addresses")
def test_accesses():
    q, k, v = vectors(65, 40, torch.float32)
    with watch_accesses() as accesses:
        o = attention_forward(q, k, v, block_queries=32, block_keys=16)
    accesses.assert_reads_only(q, k, v)
    accesses.assert_writes_once(o)
    with traffic.count_elements() as count:
        attention_forward(q, k, v, block_queries=32, block_keys=16)
    assert count.reads + count.writes == traffic.attention_elements(65, 40, 32)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda q, k, v: (q[None], k, v), "vector as q"),
        (lambda q, k, v: (q, k[:0], v), "vector as k"),
        (lambda q, k, v: (q, k, v[::2]), "vector as v"),
        (lambda q, k, v: (q, k.double(), v), "not torch.float64 as k"),
        (lambda q, k, v: (q.int(), k, v), "not torch.int32 as q"),
        (lambda q, k, v: (q, k[:3], v), "one value per key"),
    ],
    ids=["matrix", "empty", "strided", "mixed", "integers", "lengths"],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        attention_forward(*change(*vectors(4, 8, torch.float32)))
