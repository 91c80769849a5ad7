"""The gradient without the matrix

kind: fill in
level: 2
minutes: 8
teaches: the vector-Jacobian product in one sum, with two products per element

From y = softmax(x) and the gradient dy of a loss with respect to y, compute dx, the gradient with
respect to x, with [one sum per row and two products per element](../math/vjp.md). The check builds
the whole matrix and compares.

hint: Write out the sum over i of dy[i] · y[i] · ((i = j) − y[j]). One term of the first part is
left.

hint: The second part is y[j] times a sum that is the same for all j. That is `s`.
"""


def vjp(y, dy):
    """Lists of the same length in; the list dx out, without building the Jacobian."""
    # start
    s = ...
    return ...
    # solved
    s = sum([a * b for a, b in zip(y, dy)])
    return [a * (b - s) for a, b in zip(y, dy)]
    # end


# ---- check ----
from softmax_playground.checker.judge import Wrong, compare, needs
from softmax_playground.checker.rows import Counted, gradients, hostile
from softmax_playground.small_triton.right import softmax


def check(names, lab):
    function = needs(names, "vjp")
    rows = [[1.0, 2.0, 3.0], [0.0]] + hostile(6)[0]
    for x, dy in zip(rows, gradients(rows)):
        y = softmax(x)
        n = range(len(y))
        right = [sum([dy[i] * y[i] * ((i == j) - y[j]) for i in n]) for j in n]  # by the matrix
        compare(function(y[:], dy[:]), [round(each, 12) for each in right], "dx", least=1e-12)
    size, number = 16, Counted()
    try:
        function([number] * size, [number] * size)
    except TypeError:
        said = "The result is right, but its products cannot be counted."
        raise Wrong(said, said, "Use nothing but +, −, × and / on the elements.") from None
    if number.operations > 8 * size:
        count = f"{number.operations} operations for {size} elements"
        raise Wrong(f"The result is right, but takes {count}.", "too many operations")
    return "Right: it is what the whole Jacobian gives, for a fraction of the work."


SUM = "s = sum([a * b for a, b in zip(y, dy)])"
MATRIX = """matrix = [[a * ((i == j) - b) for i, a in enumerate(y)] for j, b in enumerate(y)]
    return [sum([a * b for a, b in zip(row, dy)]) for row in matrix]"""
WHOLE = SUM + "\n    return [a * (b - s) for a, b in zip(y, dy)]"
SQUARED = "That is n² products, as many as a matrix has: s is the same for all j, so sum it once."
FLOAT = "float(…) hides the elements from the count: use them as they are."
WRONG = [
    (WHOLE, MATRIX, SQUARED),
    (WHOLE, f"y, dy = list(y), list(dy)\n    {MATRIX}", SQUARED),
    ("a * (b - s)", "a * (b - sum([c * d for c, d in zip(y, dy)]))", SQUARED),
    (WHOLE, MATRIX.replace("a * b", "float(a) * b"), FLOAT),
    (SUM, "s = sum(dy)", "That is the gradient's own sum; s weights every dy[i] with y[i]."),
    (SUM, "s = sum(dy) / len(dy)", "The mean of dy weights all alike; s weights with y."),
    (SUM, "s = 0.0", "y · dy alone ignores that the outputs share one sum: subtract y · s."),
    (SUM, "s = sum(y)", "The sum of y is 1 always. s is the sum of y[i] · dy[i]."),
    ("a * (b - s)", "a * (b + s)", "The sign: what all outputs have in common is subtracted."),
    ("a * (b - s)", "a * b - s", "s belongs into the bracket: y[j] · dy[j] − y[j] · s."),
    ("a * (b - s)", "b - s", "The factor y[j] in front is missing."),
    ("a * (b - s)", "b - a * s", "That is log-softmax's. Softmax has y[j] before both terms."),
]
