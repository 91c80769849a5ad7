"""What is known of a launch, wherever it ran: runs under CPython and MicroPython."""

from .judge import compare


class Launched:
    """What labs have in common.

    Attributes:
        seen: how often the last launch did what, by (kind, name of the tensor, place).
        on_matrix: how the kernel that was checked is launched on the ladder's matrix, a
            `timed.MatrixLaunch`; None of what is no softmax of rows.
    """

    seen = {}
    on_matrix = None

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
