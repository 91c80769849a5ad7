"""How many elements one access moves: what addresses, lengths and strides allow."""

from __future__ import annotations

VECTOR_BYTES = 16
"""The widest access of one thread."""


def ceil_div(n: int, divisor: int) -> int:
    """n / divisor, rounded up.

    >>> ceil_div(8, 4), ceil_div(9, 4)
    (2, 3)
    """
    return -(-n // divisor)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> [next_power_of_2(n) for n in (0, 1, 2, 3, 4097)]
    [1, 1, 2, 4, 8192]
    """
    return 1 << max(0, n - 1).bit_length()


def vector_width(itemsize: int, addresses: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements per access that rows of these tensors allow: a whole vector, or 1.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: of the tensors' first elements, in bytes.
        strides: from row to row of each tensor, in elements.

    A vector works if every tensor starts on one and all rows with the same number start equally far
    from one.

    >>> vector_width(2, (0, 512), (50257, 50257))
    8
    >>> vector_width(2, (0, 512), (50264, 50257))  # rows out of step
    1
    >>> vector_width(4, (4, 512), (8, 8))  # the first tensor starts within a vector
    1
    """
    width = VECTOR_BYTES // itemsize
    aligned = all(address % VECTOR_BYTES == 0 for address in addresses)
    in_step = all((stride - strides[0]) % width == 0 for stride in strides)
    return width if aligned and in_step else 1


def vector_of_lines(itemsize: int, addresses: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Elements per access across the inner dimension of strided tensors: the largest power of two,
    up to a whole vector, that divides all counts.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: of the tensors' first elements, in bytes.
        counts: the inner dimension's length and all strides but the inner ones, in elements.

    >>> vector_of_lines(2, (0, 512), (196, 4116))
    4
    >>> vector_of_lines(4, (0, 512), (1024, 65536))
    4
    >>> vector_of_lines(4, (4, 512), (1024, 65536))  # the first tensor starts within a vector
    1
    """
    width = VECTOR_BYTES // itemsize
    if any(address % VECTOR_BYTES for address in addresses):
        return 1
    while any(count % width for count in counts):
        width //= 2
    return width
