"""Attention: softmax whose sum is a vector, in rungs that each change one thing.

- `in_memory`: PyTorch's lines, with the scores in memory
- `vectors`: one loop over the keys with the triple (m, d, a)
- `diagonal`: powers of two with the scale folded in, and a mask for edges only
- `descriptors`: tiles copied by the hardware, some stages ahead
- `warp_groups`: groups of warps with a tile of queries each, and a warp that only loads; in Gluon,
  for Hopper
- `split_keys`: few queries and many keys, which are split among programs
- `backward`: gradients by recomputation from lse
- `function`: `attention`, with checks and gradient
- `tiles`: sizes of a tile, and descriptors of tensors
"""

from softmax_tutorial.attention.function import attention

__all__ = ["attention"]
