"""What is right of a row, which numbers are not, and words for it, in plain Python: for cells and
exercises."""

import math

INF = math.inf


def is_list(value):
    return isinstance(value, (list, tuple))


def exponentials(row):
    """(m, the exponentials relative to it); those of nothing but −∞ are 0."""
    m = max(row)
    return m, [math.exp(x - m) if x != -INF else 0.0 for x in row]


def statistics(row):
    """(m, d): the maximum, and the sum of exponentials from it."""
    m, terms = exponentials(row)
    return m, sum(terms)


def logsumexp(row):
    m, d = statistics(row)
    return m + math.log(d) if d else m


def softmax(x, sink=-INF):
    """Softmax of a row, or of each row of a list; the sink takes its share of the sum."""
    if x and is_list(x[0]):
        return [softmax(row, sink) for row in x]
    terms = exponentials(list(x) + [sink])[1]
    total = sum(terms)
    return [term / total if total else math.nan for term in terms[:-1]]


def log_softmax(x):
    """Likewise."""
    if x and is_list(x[0]):
        return [log_softmax(row) for row in x]
    lse = logsumexp(x)
    return [v - lse for v in x]


def softmax_backward(y, dy):
    """The gradient of x, likewise."""
    if y and is_list(y[0]):
        return [softmax_backward(*rows) for rows in zip(y, dy)]
    s = sum([a * b for a, b in zip(y, dy)])
    return [a * (b - s) for a, b in zip(y, dy)]


# ---- Attention, of lists of vectors ----


def product(a, b):
    """The product of two matrices."""
    return [[sum([x * y for x, y in zip(row, column)]) for column in zip(*b)] for row in a]


def scores(q, k, scale=1.0, causal=False):
    """Of each query with each key; −∞ where it does not see the key."""
    found = product([[scale * x for x in row] for row in q], list(zip(*k)))
    seen = [i + 1 + len(k) - len(q) if causal else len(k) for i in range(len(q))]
    return [[x if j < n else -INF for j, x in enumerate(row)] for row, n in zip(found, seen)]


def weights(*given):
    """Softmax of the scores; 0 for a query that sees no key."""
    return [softmax(row) if max(row) > -INF else [0.0] * len(row) for row in scores(*given)]


def attention(q, k, v, *more):
    return product(weights(q, k, *more), v)


def attention_backward(q, k, v, do, scale=1.0, causal=False):
    """(dq, dk, dv)."""
    y = weights(q, k, scale, causal)
    dx = [[scale * x for x in row] for row in softmax_backward(y, product(do, list(zip(*v))))]
    return product(dx, k), product(list(zip(*dx)), q), product(list(zip(*y)), do)


# ---- What differs ----


def is_close(got, wanted, digits=1e-4, least=1e-7):
    """Whether a number is right, up to a relative and an absolute error."""
    if wanted != wanted:
        return got != got
    if abs(wanted) == INF or abs(got) == INF:
        return got == wanted
    return abs(got - wanted) <= least + digits * abs(wanted)


def pairs(got, wanted, at=()) -> list:
    """(position, got, wanted) of each number that is wanted; a list appears there only where the
    two have not the same shape."""
    if not (is_list(got) and is_list(wanted) and len(got) == len(wanted)):
        return [(at, got, wanted)]
    return [each for i in range(len(wanted)) for each in pairs(got[i], wanted[i], at + (i,))]


def listed(words):
    """One, two and three.

    >>> listed(["x"]), listed([1, 2, 3])
    ('x', '1, 2 and 3')
    """
    words = [str(each) for each in words]
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])
