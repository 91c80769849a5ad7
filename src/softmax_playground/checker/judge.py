"""Right or wrong, where, and why: runs under CPython and MicroPython.

Two things explain a wrong answer. The input on which it fails says why it is there. And each
exercise lists wrong answers with a remark (`WRONG`): they are run too, and if one of them gives the
same wrong numbers as the reader's, its remark is the reader's.
"""

import math

from ..small_triton.refusals import refused
from ..small_triton.right import is_close, is_list, listed, pairs

ALLOWED = ("math", "triton", "triton.language", "__future__")
"""What an exercise may import, in a page as at the command line."""
FOREIGN = ("np", "numpy", "torch", "math", "exp", "log", "inf", "load", "store", "arange", "where")
"""Names that a reader may expect to be there."""
WRITE_IT = "Write it out: a maximum, exponentials, a sum."
KERNELS_NAMES = 'In a kernel the functions are Triton\'s, as tl.exp, and −∞ is float("-inf").'


class Wrong(Exception):
    """The reader's code does not do what it should.

    Args:
        message: what differs and where.
        symptom: what two answers share that are wrong in the same way; by default the message.
        why: what the input was there for, said of an answer that is not among the known ones.
        cause: what the reader's code raised, if it did.
    """

    def __init__(self, message, symptom=None, why="", cause=None):
        super().__init__(message)
        self.message = message
        self.symptom = symptom or message
        self.why = why
        self.cause = cause


def shown(value):
    """A number as messages write it.

    >>> shown(0.5), shown(float("-inf")), shown(1e-7), shown(3)
    ('0.5', '-inf', '1e-07', '3')
    """
    if isinstance(value, float) and value == value and abs(value) != math.inf:
        return f"{value:.6g}"
    return str(value)


def compare(got, want, what="the result", known=None, why=None, digits=1e-4, least=1e-7):
    """Nothing if `got`, a number or nested lists, is `want`.

    Args:
        known: a function from a position to a word of what is known of that element, or None.
        why: a text, or one for each row: why this input is tried.
        digits, least: the relative and the absolute error that are allowed.

    Raises:
        Wrong: it is not; says which element is the first that differs, and how many do.
    """
    seen = pairs(got, want)
    for at, mine, right in seen:
        name, listed = _place(what, at), is_list(right)
        if listed and is_list(mine):
            raise Wrong(f"{name} has length {len(mine)} and should have {len(right)}.")
        if listed or isinstance(mine, bool) or not isinstance(mine, (int, float)):
            kind = f"a list of {len(right)}" if listed else f"the number {shown(right)}"
            raise Wrong(f"{name} is {mine!r} but should be {kind}.")
    wrong = [each for each in seen if not is_close(each[1], each[2], digits, least)]
    if not wrong:
        return
    at, mine, right = wrong[0]
    message = f"{_place(what, at)} is {shown(mine)} but should be "
    message += f"{shown(right if abs(right) > least else 0)}."
    word = known(at) if known else None
    if word:
        message += " " + word
    if len(seen) > 1:
        message += f" {len(wrong)} of {len(seen)} numbers differ."
    left = len([1 for each in wrong if known and known(each[0])])
    if left and not word:
        message += f" No program writes {left} of them."
    if isinstance(why, (list, tuple)):
        why = why[at[0]]
    if not word and at:
        why = " ".join([each for each in (_pattern(got, want, at[0]), why) if each])
    if not why and not word and isinstance(mine, float) and mine != mine:
        why = "NaN comes from 0/0, inf - inf, a masked lane without `other`, or what nobody wrote."
    symptom = what + (word or "") + shown(right) + " ".join([f"{each[1]:.3g}" for each in seen])
    raise Wrong(message, symptom, why or "")


def _place(what, at):
    return what + "".join([f"[{i}]" for i in at])


def _pattern(got, want, at):
    """What is wrong with a whole row, or with all numbers if they are one row; or nothing."""
    if is_list(want[at]):
        mine, right, this = got[at], want[at], f"Row {at}"
        for other in range(len(want)):
            if other != at and not _away(mine, want[other]) and _away(right, want[other]):
                return f"{this} is what row {other} should be."
    else:
        mine, right, this = got, want, "Everything"
    largest = max(range(len(right)), key=lambda i: abs(right[i]))
    size = abs(right[largest])
    if len([number for number in right if number]) < 3 or not 1e-6 < size < math.inf:
        return ""
    ratio = mine[largest] / right[largest]
    if not abs(ratio) < math.inf:
        return ""
    if ratio and not _away(mine, [ratio * number for number in right]):
        return f"{this} is {ratio:.3g} times what it should be."
    total = sum(mine)
    for usual in (0, 1):
        if is_close(sum(right), usual, 0, 1e-5 * size) and abs(total) < math.inf:
            if not is_close(total, usual, 0, 1e-2 * size):
                return f"{this} adds up to {shown(total)}, not to {usual}."
    return ""


def _away(mine, right):
    """Whether two rows differ."""
    return any([not is_close(a, b) for a, b in zip(mine, right)])


def compare_calls(calls):
    """Nothing if each of some calls answers what it should.

    Args:
        calls: (what it is called, the function without arguments, what is right, why it is tried).

    Raises:
        Wrong: the first that does not, or that raises; what all of them give is the symptom.
    """
    first, symptoms = None, []
    for what, call, right, why in calls:
        wrong = None
        try:
            compare(call(), right, what, why=why)
        except Wrong as error:
            wrong = error
        except Exception as error:
            said = _failure(error, 0).rstrip(".")
            wrong = Wrong(f"{what} raises {said}.", None, why or "", error)
        symptoms.append(wrong.symptom if wrong else "")
        first = first or wrong
    if first:
        raise Wrong(first.message, "|".join(symptoms), first.why, first.cause)


def number(names, right, said, digits=0.0, among=()):
    """What to say of a predicted number that is right, up to a relative error. Where a size is
    asked at which a kernel fails, it is one `among` several."""
    answer = needs(names, "ANSWER")
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise Wrong(f"ANSWER is {answer!r} but should be a number.")
    if not is_close(answer, right, digits, 1e-12):
        whole = abs(answer) < math.inf and answer == int(answer)
        kind = str(int(answer)) if whole else f"~{answer:.2g}"
        why = f"Choose among {listed(among)}." if among else _usual(answer, right, digits)
        if answer in among:
            why = f"For {shown(answer)} the result is right."
        raise Wrong(f"It is not {shown(answer)}.", kind, why)
    return said


def _usual(answer, right, digits):
    """What is usual of a wrong number that is not among the known ones."""
    if digits and is_close(answer, right, 0.05):
        return "Close, but not to three digits."
    if digits and is_close(answer, 100 * right, 0.01):
        return "That is in percent."
    if answer == -right:
        return "Its sign is wrong."
    if not digits and abs(answer - right) == 1:
        return "It is off by one: does the count begin with 0?"
    for times in () if digits else (2, 4, 8):
        if right and answer in (right * times, right / times):
            way = "large" if abs(answer) > abs(right) else "small"
            return f"It is {times} times too {way}: elements or bytes, one tensor or two?"
    if answer < 0 and right < 0:
        return "It is too near to 0." if answer > right else "It is too far below 0."
    return "It is too large." if answer > right else "It is too small."


def outside(kind, name, program, place, size, between=False):
    """An access that must not happen, in words."""
    verb = "reads" if kind == "load" else "writes"
    text = f"Program {program} {verb} {name} out of range: "
    if between:
        return text + f"element {place} of its memory lies between two rows."
    if place < 0:
        return text + f"{-place} before its first element."
    return text + f"element {place}, and the last one is {size - 1}. Is the mask right?"


def needs(names, what):
    """A function of the reader's; raises `Wrong` if it is not there any more."""
    if what not in names:
        raise Wrong(f"There is no `{what}` any more; the check calls it by that name.")
    return names[what]


# ---- What was typed ----


def plain_number(text):
    """A number as people type it, as Python writes it; nothing if it is none.

    >>> [plain_number(each) for each in ("1,5", "−0,06", "1,600", "1 600", "+3/4", "two", "1e3")]
    ['1.5', '-0.06', '1600', '1600', '0.75', '', '1e3']
    """
    text = text.strip().replace("−", "-").replace(" ", "").replace("_", "").replace("'", "")
    text = text[1:] if text.startswith("+") else text
    if "/" in text:
        above, below = [plain_number(part) for part in text.split("/", 1)]
        return str(float(above) / float(below)) if above and below and float(below) else ""
    parts = text.split(",")
    if len(parts) > 1:
        groups = [len(part) == 3 and part.isdigit() for part in parts[1:-1]]
        last = parts[-1].split(".")[0]
        thousands = len(last) == 3 and parts[0].lstrip("-") not in ("", "0")
        if all(groups) and (thousands or len(parts) > 2):
            text = "".join(parts)
        elif len(parts) == 2 and "." not in text:
            text = ".".join(parts)
        else:
            return ""
    try:
        float(text)
    except ValueError:
        return ""
    return text if text.lower().strip("-") not in ("nan", "inf", "infinity") else ""


def understood(source):
    """The source with what is written after `ANSWER =` as Python writes a number.

    Raises:
        Wrong: there is none, or it is not a number.
    """
    lines = source.split("\n")
    for i in range(len(lines)):
        if lines[i].startswith("ANSWER ="):
            typed = lines[i].split("=", 1)[1].split("#")[0].strip().strip("\"'")
            if typed in ("...", ""):
                raise Wrong("There is no number yet.")
            number = plain_number(typed)
            if not number:
                raise Wrong(f'"{typed}" is not a number. Write it like 12, -0.5 or 3/4.')
            lines[i] = "ANSWER = " + number
    return "\n".join(lines)


def before_running(source):
    """What can be said of a source without running it: (message, line), or None."""
    lines = source.split("\n")
    left = [i + 1 for i in range(len(lines)) if "..." in lines[i].split("#")[0]]
    if left:
        which = ("lines " if left[1:] else "line ") + listed(left)
        return f"There is a ... left to fill in, in {which}.", left[0]
    has_math = [1 for line in lines if line.split()[:2] == ["import", "math"]]
    for i in range(len(lines)):
        code = lines[i].split("#")[0]
        if ".softmax(" in code:
            return f"Line {i + 1} calls a softmax that is there already. {WRITE_IT}", i + 1
        if not has_math and [1 for part in code.split("math.")[:-1] if part[-1:] not in "._`"]:
            error = NameError("name 'math' is not defined")  # MicroPython knows math.inf anyway
            return _failure(error, i + 1, "triton.jit" in source), i + 1
        words = lines[i].split()
        module = words[1].rstrip(",") if len(words) > 1 and words[0] in ("import", "from") else ""
        if module and module not in ALLOWED and (words[0] == "import" or "import" in words):
            has = "a page has only `math`, `triton` and `triton.language`."
            return f"Line {i + 1} imports {module}, which is not there: {has}", i + 1
    refusal = refused(source)
    return refusal and (f"{refusal[0]} Line {refusal[1]} does.", refusal[1])


# ---- The verdict ----


class Sheet:
    """What is right and what is wrong in an exercise.

    Args:
        check: source that defines `check(names, lab)`, which answers what to say of a right
            solution and raises `Wrong` of any other, and `WRONG`: (old, new, remark), the solution
            with a piece replaced, or (number, remark).
        solution: source.
    """

    def __init__(self, check, solution):
        names: dict = {"__name__": "check"}
        exec(check, names)
        self.check = names["check"]
        self.solution = solution
        self.wrong = [(self._variant(*each[:-1]), each[-1]) for each in names["WRONG"]]
        self.symptoms: dict = {}  # of these, once they have run

    def _variant(self, old, new=None):
        if new is None:
            lines = [line for line in self.solution.split("\n") if line.startswith("ANSWER =")]
            old, new = lines[0], f"ANSWER = {old}"
        assert old in self.solution, f"{old!r} is not there"
        return self.solution.replace(old, new)

    def failure(self, source, run, lab):
        """(sentence, None) of what is right; (None, the exception) of anything else."""
        try:
            return self.check(run(understood(source)), lab), None
        except Exception as error:
            return None, error

    def verdict(self, source, run, lab, line_of, also=None):
        """(solved, message, line) for the reader's source; the line is where it fails, from 1, or
        0.

        Args:
            run: runs a source and answers its names.
            lab: where kernels run.
            line_of: from an exception to the line of the source where it happened, or None.
            also: (run, lab) of Triton, in which a kernel that is right has to be right too; it
                alone decides where the first lacks something of Triton's.
        """
        predicts = "\nANSWER =" in "\n" + source
        said = None if predicts else before_running(source)
        if said:
            return False, said[0], said[1]
        said, error = self.failure(source, run, lab)
        in_kernel = "triton.jit" in source
        if also and in_kernel and not predicts and (not error or _lacks(error)):
            run, lab = also
            said, error = self.failure(source, run, lab)
        if not error:
            return True, said, 0
        told = isinstance(error, Wrong)
        raised = error.cause if told else error
        line = line_of(raised) or 0 if raised else 0
        message = error.message if told else _failure(error, line, in_kernel)
        message += f" Line {line} does." if told and line else ""
        remark = self.remark(error, run, lab)
        return False, message + ("" if message.endswith(remark) else " " + remark), line

    def remark(self, error, run, lab):
        """What is known of an answer that is wrong in this way."""
        symptom = _symptom(error)
        for place, (variant, remark) in enumerate(self.wrong):
            ran = place, type(lab)
            if ran not in self.symptoms:
                found = self.failure(variant, run, lab)[1]
                self.symptoms[ran] = found and _symptom(found)
            if self.symptoms[ran] == symptom:
                return remark
        return error.why if isinstance(error, Wrong) else ""


def _lacks(error):
    """Whether a kernel asks for what the small Triton does not have."""
    named = isinstance(error, TypeError) and "keyword" in str(error)
    return named or isinstance(error, (AttributeError, NotImplementedError))


def _symptom(error):
    return error.symptom if isinstance(error, Wrong) else type(error).__name__ + str(error)


def _failure(error, line, in_kernel=False):
    where = f" in line {line}" if line else ""
    text = (getattr(error, "msg", None) or str(error)).replace("isn't defined", "is not defined")
    said = "{}{}{}".format(type(error).__name__, where, ": " + text if text else "")
    names = [name for name in FOREIGN if f"name '{name}'" in text or f"tl.{name} " in text]
    if names or (in_kernel and "Tile" in text):
        said += ". " + (KERNELS_NAMES if in_kernel else "`import math` has exp, log and inf.")
    return said
