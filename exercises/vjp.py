"""Fill in. The gradient of a loss with respect to x, from y = softmax(x) and the gradient with
respect to y."""


def vjp(y, dy):
    """Lists of the same length in; the list dx out, without building the Jacobian."""
    s = ...
    return ...
