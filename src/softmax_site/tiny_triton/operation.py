"""The library's `Operation` without `dataclasses`, which MicroPython does not have."""


class Operation:
    """What is computed for a row; the fields are those of `triton_softmax.operations.operation`."""

    finish = None
    finish_terms = None
    finish_row = None
    exp_in_finish = False
    sums = 1
    numbers = 0
    adjust = None
    finish_at = None
    placed = False
    row_results = 0
    any_order = False

    def __init__(self, name, **fields):
        self.name = name
        self.fields = fields
        for field, value in fields.items():
            setattr(self, field, value)

    @property
    def reduces(self):
        """Whether only numbers of the row are written."""
        return self.finish is None

    @property
    def results(self):
        """How many tensors are written."""
        return self.row_results + (not self.reduces)


def replace(operation, **changes):
    """Another operation that differs in some fields."""
    fields = dict(operation.fields)
    fields["name"] = operation.name
    fields.update(changes)
    return Operation(**fields)
