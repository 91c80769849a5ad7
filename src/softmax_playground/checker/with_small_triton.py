"""Kernels in the small Triton of the page: runs under CPython and MicroPython."""

from .judge import Wrong, compare, outside


class Lab:
    """Where kernels run.

    Args:
        triton: the module `small_triton`.
    """

    def __init__(self, triton):
        self.triton = triton
        self.counts = {}

    def tensor(self, values, name, gap=0):
        """Lists as a tensor whose rows have `gap` elements between them."""
        strides = (len(values[0]) + gap, 1) if gap else None
        return self.triton.Tensor(values, name=name, strides=strides)

    def empty(self, shape, name, gap=0):
        """A tensor that nobody has written."""
        strides = (shape[1] + gap, 1) if gap else None
        tensor = self.triton.empty(shape, name=name, strides=strides)
        tensor.written = set()
        return tensor

    def launch(self, kernel, grid, *arguments, **constants):
        """Run all programs.

        Raises:
            Wrong: one reads or writes what it must not.
        """
        try:
            trace = kernel[grid](*arguments, **constants)
        except IndexError as error:
            if str(error).startswith("tl."):
                raise Wrong(self._words(str(error))) from error
            raise
        self.counts = {"load": 0, "store": 0}
        own = {}
        for each in trace.accesses:
            self.counts[each.kind] = self.counts.get(each.kind, 0) + len(each.places)
            tensor = each.tensor
            if id(tensor) not in own:
                own[id(tensor)] = set(tensor.places())
            between = set(each.places) - own[id(tensor)]
            if between:
                place, size = min(between), len(tensor.data)
                raise Wrong(outside(each.kind, tensor.name, each.program, place, size, True))
            if each.kind == "store" and hasattr(tensor, "written"):
                tensor.written.update(each.places)

    def _words(self, message):
        """tl.load leaves x: program 1 asks for element 12, and there are 12"""
        words = message.replace(":", "").replace(",", "").split()
        kind, name, program, place = words[0][3:], words[2], words[4], int(words[8])
        return outside(kind, name, program, place, int(words[-1]))

    def count(self, kind):
        """Elements that the last launch read ("load") or wrote ("store")."""
        return self.counts[kind]

    def compare(self, tensor, right):
        """Nothing if the tensor is right; see `judge.compare`."""

        def known(at):
            place = sum([i * step for i, step in zip(at, tensor.strides)])
            return None if place in tensor.written else "No program writes it."

        compare(tensor.tolist(), right, tensor.name, known)
