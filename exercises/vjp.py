"""Fill in. The gradient of a loss by x, given y = softmax(x) and the gradient by y."""


def vjp(y, dy):
    """Lists of the same length in; the list dx out, without building the Jacobian."""
    s = ...
    return ...
