"""What a run has to show, as HTML: printed text, matrices, their memory, bytes."""

from .memory import INF

MOST_PLACES = 96  # in a tensor with squares, and in a row and a column of a table


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def number(value, whole=False):
    """A number in few characters; of a status word the bits, in two halves of 32.

    >>> [number(0.25), number(3.0, whole=True), number(float("-inf")), number(1e-9)]
    ['0.2500', '3', '−∞', '1.0e−09']
    >>> number(0x40400000_3F9152F8, whole=True)
    '40400000 3f9152f8'
    """
    if value != value:
        return "NaN"
    if value in (INF, -INF):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if isinstance(value, int) and size >= 2**53:
        bits = f"{value & (2**64 - 1):016x}"
        return f"{bits[:8]} {bits[8:]}"
    if whole:
        text = str(int(value)) if size < 1e6 else f"{value:.2g}"
    elif size and (size < 5e-5 or size >= 1e5):
        text = f"{value:.1e}"
    else:
        text = f"{value:.4f}"
    return text.replace("-", "−")


def matrix(rows, places=None, off=()):
    """Lists of numbers as a tinted table: blue is positive, orange with a minus sign negative.

    Args:
        rows: lists of numbers.
        places: likewise, where each lies in its memory.
        off: places that are marked as wrong.
    """
    numbers = [value for row in rows for value in row]
    finite = [abs(value) for value in numbers if abs(value) < INF]
    largest = max(finite + [0.0]) or 1.0
    whole = not [value for value in finite if value != int(value)]
    lines = []
    for i in range(min(len(rows), MOST_PLACES)):
        cells = []
        for j in range(min(len(rows[i]), MOST_PLACES)):
            value = rows[i][j]
            kinds = ["minus"] * (value < 0) + ["off"] * bool(places and places[i][j] in off)
            tint = abs(value) / largest if abs(value) < INF else 0.0
            cells.append(
                "<td"
                + (f' data-place="{places[i][j]}"' if places else "")
                + (f' class="{" ".join(kinds)}"' if kinds else "")
                + f' style="--tint:{tint:.2f}">{number(value, whole)}</td>'
            )
        cells += ["<td>…</td>"] * (len(rows[i]) > MOST_PLACES)
        lines.append("<tr>" + "".join(cells) + "</tr>")
    lines += ["<tr><td>…</td></tr>"] * (len(rows) > MOST_PLACES)
    return '<table class="matrix"><tbody>' + "".join(lines) + "</tbody></table>"


def by_rows(numbers, shape):
    """A flat list as lists of the last dimension."""
    width = shape[-1] if shape else 1
    return [numbers[i : i + width] for i in range(0, len(numbers), width)]


def tensor(each, index, wrong=()):
    """A tensor as a matrix, and its memory as squares, a gap after every 16 bytes; positions that
    are wrong are marked."""
    places = each.places()
    data = [each.data[place] for place in places]
    shape = " × ".join([str(size) for size in each.shape]) or "a number"
    head = f"<figcaption><b>{escape(each.name)}</b> {shape}, {each.dtype}</figcaption>"
    off = [sum([i * step for i, step in zip(at, each.strides)]) for at in wrong]
    table = matrix(by_rows(data, each.shape), by_rows(places, each.shape), off)
    strip = ""
    if len(each.data) <= MOST_PLACES:
        used = set(places)
        step = 16 // each.dtype.size
        for start in range(0, len(each.data), step):
            strip += "<span>"
            for place in range(start, min(start + step, len(each.data))):
                gap = "" if place in used else ' class="gap"'
                strip += f'<i data-place="{place}"{gap}></i>'
            strip += "</span>"
        strip = f'<div class="run-memory" aria-hidden="true">{strip}</div>'
    return f'<figure class="run-tensor" data-tensor="{index}">{head}{table}{strip}</figure>'


def plain(value, name):
    """A list, a list of lists or a tensor that a cell shows."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    value = value if isinstance(value, (list, tuple)) else [value]
    rows = value if value and isinstance(value[0], (list, tuple)) else [value]
    while rows[0] and isinstance(rows[0][0], (list, tuple)):
        rows = [row for part in rows for row in part]
    head = f"<figcaption><b>{escape(name)}</b></figcaption>" if name else ""
    return f'<figure class="run-tensor">{head}{matrix(rows)}</figure>'


def counter(trace):
    """What moved, in a sentence."""
    of = f"{trace.programs} program" + ("s" if trace.programs != 1 else "")
    if trace.launches > 1:
        of = f"{trace.launches} launches, {of}"
    counts = [("load", "bytes read"), ("store", "bytes written")]
    if trace.bytes("atomic"):
        counts.append(("atomic", "bytes in atomic accesses"))
    counted = [f'<b data-count="{kind}">{trace.bytes(kind)}</b> {what}' for kind, what in counts]
    return f'<p class="run-counter">{of}: ' + ", ".join(counted) + "</p>"
