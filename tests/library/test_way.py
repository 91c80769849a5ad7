"""The way of a later call through the library: how many of its functions it enters before the
kernels run, and in how many files. Each costs a reader a jump and a caller time."""

import pytest

import probe
from kernel_cases import DEVICE
from softmax_site.computed import road

CEILINGS = {
    "softmax": (5, 4),
    "softmax, gradient": (6, 5),
    "logsumexp": (4, 4),
    "cross_entropy": (12, 6),
    "cross_entropy, gradient": (13, 6),
    "softmax, where=": (11, 6),
    "softmax, where=, gradient": (12, 6),
    "token_logprobs": (10, 6),
    "token_logprobs, gradient": (11, 6),
    "linear_cross_entropy, gradient": (19, 8),
}
"""The most functions and files of each kind of call: never more than 7 functions for softmax and
log-sum-exp and 14 for everything else, in 6 files; 20 in 8 for a layer with its loss."""


@pytest.mark.parametrize("name", CEILINGS)
def test_later_calls_enter_few_functions_of_few_files(name):
    kind = name.removesuffix(", gradient")
    way = probe.way_of(road.calls(kind != name, DEVICE)[kind])
    frames, files = CEILINGS[name]
    assert 0 < len(way.frames) <= frames, way.frames
    assert len(way.files) <= files, sorted(way.files)


def test_what_triton_runs_is_not_counted():
    way = probe.way_of(road.calls(False, DEVICE)["softmax"])
    assert not any(each.startswith(("kernels/", "operations/")) for each in way.frames)


def test_a_frame_stands_within_the_one_that_called_it():
    frames = road.frames_of(road.calls(False, DEVICE)["softmax"])
    assert frames[0] == ("functional:softmax", 0)
    assert all(0 < after.depth <= frame.depth + 1 for frame, after in zip(frames, frames[1:]))


def test_no_room_of_the_house_stands_on_one_of_its_own_floor_or_above():
    floors, imports = road.floors(), road.rooms()
    level = {room: -at for at, floor in enumerate(floors) for room in floor}
    assert level.keys() == imports.keys() and level["config"] < level["plan"] < level["functional"]
    assert all(level[below] < level[room] for room in imports for below in imports[room])
