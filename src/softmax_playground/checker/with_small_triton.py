"""Kernels in the small Triton of the page: runs under CPython and MicroPython."""

import math

from .judge import Wrong, compare, outside

INF = math.inf
"""What a masked lane without `other` holds: on a GPU it may be anything, and neither a sum nor a
maximum overlooks ∞."""


class Lab:
    """Where kernels run.

    Args:
        triton: the module `small_triton`.

    Attributes:
        seen: how often the last launch did what, by (kind, name of the tensor, place).
        accesses: of how many loads and stores.
        on_matrix: how the kernel that was checked is launched on the ladder's matrix, a
            `timed.MatrixLaunch`; None of what is no softmax of rows.
    """

    def __init__(self, triton):
        self.triton, self.seen, self.accesses, self.on_matrix = triton, {}, 0, None

    def tensor(self, values, name, gap=0, dtype="float32"):
        """Lists as a tensor whose rows have `gap` elements between them."""
        strides = (len(values[0]) + gap, 1) if gap else None
        return self.triton.Tensor(values, getattr(self.triton, dtype), name, strides)

    def empty(self, shape, name, gap=0, dtype="float32"):
        """A tensor that nobody has written."""
        strides = (shape[1] + gap, 1) if gap else None
        tensor = self.triton.empty(shape, getattr(self.triton, dtype), name, strides)
        tensor.written = set()
        return tensor

    def launch(self, kernel, grid, *arguments, **constants):
        """Run all programs.

        Raises:
            Wrong: one reads or writes what it must not.
        """
        access = self.triton.access
        nothing, access.NAN, left = access.NAN, INF, None
        with self.triton.record() as trace:
            try:
                kernel[grid](*arguments, **constants)
            except IndexError as error:
                left = str(error)
                if not left.startswith("tl."):
                    raise
            finally:
                access.NAN = nothing
        self.seen, self.accesses = {}, len(trace.accesses)
        own = {}
        for each in trace.accesses:
            tensor = each.tensor
            if id(tensor) not in own:
                own[id(tensor)] = set(tensor.places())
            between = set(each.places) - own[id(tensor)]
            if between:
                place, size = min(between), len(tensor.data)
                raise Wrong(outside(each.kind, tensor.name, each.program, place, size, True))
            for place in each.places:
                key = each.kind, tensor.name, place
                self.seen[key] = self.seen.get(key, 0) + 1
            if each.kind == "store" and hasattr(tensor, "written"):
                tensor.written.update(each.places)
        if left:
            words = left.replace(":", "").replace(",", "").split()  # as access.py says it
            raise Wrong(outside(words[0][3:], words[2], words[4], int(words[8]), int(words[-1])))

    def values(self, tensor):
        """Its numbers, rounded to its type."""
        return tensor.tolist()

    def count(self, kind, name=None):
        """Elements that the last launch read ("load") or wrote ("store"), of one tensor or all."""
        return sum([n for key, n in self.seen.items() if key[0] == kind and name in (None, key[1])])

    def most(self, kind, name):
        """How often the last launch accessed one element of a tensor, at most."""
        return max([0] + [n for key, n in self.seen.items() if key[:2] == (kind, name)])

    def compare(self, tensor, right, why=None, **error):
        """Nothing if the tensor is right; see `judge.compare`."""

        def known(at):
            place = sum([i * step for i, step in zip(at, tensor.strides)])
            return None if place in tensor.written else "No program writes it."

        compare(self.values(tensor), right, tensor.name, known, why, **error)
