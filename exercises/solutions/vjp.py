"""Fill in. The gradient of a loss with respect to x, from y = softmax(x) and the gradient with
respect to y."""


def vjp(y, dy):
    """Lists of the same length in; the list dx out, without building the Jacobian."""
    s = sum(a * b for a, b in zip(y, dy))
    return [a * (b - s) for a, b in zip(y, dy)]
