"""What is right of a row, and which numbers are not, in plain Python: for cells and exercises."""

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


def scores(q, k, scale=1.0, causal=False):
    """Of each query those of the keys that it sees; all are lists of vectors."""
    found = [[scale * sum([x * y for x, y in zip(a, b)]) for b in k] for a in q]
    earlier = len(k) - len(q) if causal else len(k)
    return [found[i][: max(0, i + 1 + earlier)] for i in range(len(q))]


def attention(q, k, v, scale=1.0, causal=False):
    """The values of the keys, weighted by softmax; 0 for a query that sees no key."""
    weights = [softmax(row) for row in scores(q, k, scale, causal)]
    columns = [*zip(*v)]
    return [[sum([w * x for w, x in zip(row, each)]) for each in columns] for row in weights]


def attention_lse(q, k, scale=1.0, causal=False):
    """The log-sum-exp of the scores of each query; −∞ for one that sees no key."""
    return [logsumexp(row + [-INF]) for row in scores(q, k, scale, causal)]


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
