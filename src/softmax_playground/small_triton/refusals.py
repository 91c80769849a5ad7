"""What Triton's compiler refuses in a kernel though Python runs it, as far as a text shows it."""

from .probes import by_kernel, parameters, targets, words

FORMS = "break continue def class lambda import from raise try global nonlocal del yield".split()
MARKS = {"{": "dictionary or set", ":=": ":=", " for ": "list made by for", "lambda ": "lambda"}
NAMES = "abs all any enumerate map pow reversed round set sorted sum tuple zip".split()


def used(text):
    """The names that a text reads: no attributes, and no names of arguments."""
    found, at = [], 0
    for name in words(text):
        at = text.index(name, at)
        before, at = text[:at].rstrip()[-1:], at + len(name)
        after = text[at:].lstrip() + "  "
        if before != "." and (after[0] != "=" or after[1] == "="):
            found.append(name)
    return found


def refused(code, path=""):
    """(what Triton refuses, its line) of the first such thing in a jitted function, or None."""
    plain, kernels = {}, {}
    for head, each in by_kernel(code, path):
        if head is not None:
            kernels.setdefault(head, []).append(each)
        elif each.word == "def":
            plain[words(each.text)[1]] = "write @triton.jit above it"
        elif "= tl." not in each.text:
            for name in targets(each):
                plain[name] = f"hand it over, or write {name} = tl.constexpr(…)"
    for head in kernels:
        plain.pop(words(head.text)[1], None)
    found = [each for head in kernels for each in _refused(head, kernels[head], plain)]
    return min(found, key=lambda pair: pair[1]) if found else None


def _refused(head, body, plain):
    own = parameters(head.text) + [name for each in body for name in targets(each)]
    for each in body:
        text, line = " ".join(each.text.replace("'", '"').split('"')[::2]), each.at[0]
        text = text.split(" in ", 1)[-1] if each.word == "for" else text
        forms = [each.word] * (each.word in FORMS) + [MARKS[m] for m in MARKS if m in text]
        for name in [name for name in used(text) if name not in own]:
            forms += [name] * (name in NAMES)
            if name in plain:
                yield f"Triton reads no global {name} in a kernel: {plain[name]}.", line
        for form in forms:
            instead = f": use tl.{form}" if form in ("abs", "sum") else ""
            yield f"Triton takes no {form} in a kernel{instead}.", line
