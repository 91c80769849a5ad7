"""The two speeds of launches: what alternates, the kernel or what passes around it."""

import torch

from softmax_bench.pace import taken_apart

MICROSECOND = 1000


def launches(inside: list[int], outside: list[float]):
    """Two programs a launch, 1.5 cycles a nanosecond; the second begins a little later."""
    stamps = torch.zeros(len(inside), 2, 3, dtype=torch.int64)
    for launch, took in zip(stamps, inside, strict=True):
        begin = 1_763_990_000_000_000_000  # as large as a clock's: no float holds it
        launch[0] = torch.tensor([begin, begin + took // 2, 3 * took // 4])
        launch[1] = torch.tensor([begin + took // 4, begin + took, 9 * took // 8])
    events = [a / MICROSECOND + b for a, b in zip(inside, outside, strict=True)]
    return taken_apart(events, stamps)


def test_what_alternates_is_told_from_what_does_not():
    around = launches([8000] * 6, [4.0, 4.5] * 3)
    assert around["inside"]["apart"] == 0 and around["outside"]["apart"] == 0.5
    assert around["events"] == {"all": 12.25, "even": 12.0, "odd": 12.5, "apart": 0.5}
    within = launches([8000, 8800] * 3, [4.0] * 6)
    assert within["inside"]["apart"] == 0.8 and within["outside"]["apart"] == 0
    assert around["ghz"] == {"low": 1.5, "high": 1.5}
