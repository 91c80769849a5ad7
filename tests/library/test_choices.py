"""What is chosen for thousands of calls is committed, as letters of digests: whoever changes it
sees it. `make regenerate` says which choices are others now, and writes them down."""

import base64
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from triton_softmax import plan
from triton_softmax.config import Device, Masked, Traits, columns_of, rows_of
from triton_softmax.config import choose as both
from triton_softmax.config.measured import ANY, TABLES
from triton_softmax.operations import OPERATIONS
from triton_softmax.operations.operation import in_any_order

FILE = Path(__file__).with_name("choices.json")
LETTERS = 3
DEVICES = {"H200": (132, True), "no NVIDIA": (132, False), "A100": (108, True), "small": (7, True)}
CALLS = {"H200": 1500, "no NVIDIA": 500, "A100": 900, "small": 400}
NAMED = ("packed_rows", "aligned_rows", "split_rows", *(None,) * 12)


def drawn_from() -> dict[str, list]:
    """The thresholds of all tables and the traits of all operations: committed too, so that calls
    stay the same."""
    limits = [limit for lines in TABLES.values() for line in lines for limit in line.limits]
    operations = [each for op in OPERATIONS.values() for each in (op, in_any_order(op))]
    thresholds = sorted({n for at in limits for n in (at.low, at.high) if 0 < n < ANY})
    traits = sorted({tuple(map(int, plan.traits_of(op))) for op in operations})
    return {"thresholds": thresholds, "traits": [*map(list, traits)]}


def calls(kind: str, device: str, thresholds: list, traits: list) -> Iterator[tuple]:
    """Arguments of `chosen`: numbers at and beside thresholds and powers of two, and others."""
    draw, on = random.Random(f"{kind} {device}"), Device(*DEVICES[device])

    def number(powers: int, unit: int = 1) -> int:
        places = draw.choice(thresholds) * unit, 2 ** draw.randrange(powers)
        place = draw.choice((*places, 2 ** draw.uniform(0, powers)))
        return max(1, round(place) + draw.choice((-1, 0, 0, 1)))

    for _ in range(CALLS[device]):
        n_rows, n_cols = number(21, on.multiprocessors), number(draw.choice((11, 14, 27)))
        n_inner = draw.choice((1, number(8), number(13)))
        if kind == "masked":
            adjacent, wide, any_order = [draw.random() < 0.4 for _ in range(3)]
            held, vector = draw.randrange(1, 13), draw.choice((1, 2, 4, 8))
            masked = Masked(n_rows, n_cols, held, vector, adjacent, wide)
            yield masked, Traits(1, any_order=any_order), on
            continue
        of, itemsize = Traits(*draw.choice(traits)), draw.choice((2, 2, 4, 4, 8))
        held = draw.choice((None, None, max(4, itemsize)))
        tensors = of.inputs + (not of.reduces)
        gap, apart = draw.choice((0, 0, 1, 4, 8, 16)), draw.choice((0, 0, 0, 1, 8))
        addresses = tuple(draw.choice((0,) * 9 + (4, 16)) for _ in range(tensors))
        if kind == "rows":
            strides = (n_cols + gap + apart, *(n_cols + gap,) * (tensors - 1))
            rows = rows_of(n_rows, n_cols, itemsize, addresses, strides, held)
            yield rows, of, on, draw.choice(NAMED)
            continue
        n_inner = draw.choice((n_inner, -(-n_inner // 16) * 16))
        shape = max(1, n_rows // n_inner), n_cols, n_inner
        if not draw.randrange(20):  # where 32 bits do not hold the last offset
            shape = shape[0], 1, 2**31 - draw.randrange(1022, 1027)
        outer, inner = (n_inner + apart) * n_cols + gap, draw.choice((1, 1, 1, n_cols))
        more = (outer, n_inner, inner)
        strides = ((outer, n_inner + apart, inner), *(more,) * (tensors - 1))
        yield columns_of(*shape, itemsize, addresses, strides, held), of, on


def answers(drawn: dict[str, list]) -> Iterator[tuple[str, str, str]]:
    """(group, call, choice), in words. Of the model's also of how many it is the fastest."""
    found: list[tuple] = []
    timed = both.timed
    for kind in ("rows", "strided", "masked"):
        for device in DEVICES:
            for call in calls(kind, device, **drawn):
                found.clear()
                try:
                    with patch.object(both, "timed", lambda *a: found.extend(timed(*a)) or found):
                        choice = both.chosen(*call)
                    told = f"{choice} {choice.launches} {choice.programs(99_999)}"
                    told += f" of {len(found)} in {min([each for each, _ in found] or [0]):.4g} ns"
                except ValueError as refused:
                    told = str(refused)
                yield f"{kind}, {device}", str(call), told


def said(drawn: dict[str, list], known: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The letters of each group, and in words what is chosen otherwise than is known."""
    letters: dict[str, str] = {}
    others = []
    for group, call, told in answers(drawn):
        at = len(letters.setdefault(group, ""))
        digest = base64.b64encode(hashlib.sha256(told.encode()).digest())
        letters[group] += digest[:LETTERS].decode()
        if letters[group][at:] != known.get(group, "")[at : at + LETTERS]:
            others.append(f"{group}: {call}\n    now {told}")
    return letters, [f"{len(others)} choices changed", *others[:20]] if others else []


def test_no_choice_changes_unseen():
    committed = json.loads(FILE.read_text("utf8"))
    changed = said(committed["drawn"], committed["said"])[1]
    assert not changed, "\n".join([*changed, "If they should: `make regenerate`"])
    assert drawn_from() == committed["drawn"], "other thresholds or traits: `make regenerate`"


if __name__ == "__main__":
    committed = json.loads(FILE.read_text("utf8"))
    print(*said(committed["drawn"], committed["said"])[1] or ["no choice changed"], sep="\n")
    written = {"drawn": drawn_from(), "said": said(drawn_from(), {})[0]}
    FILE.write_text(json.dumps(written, indent=1) + "\n", "utf8")
