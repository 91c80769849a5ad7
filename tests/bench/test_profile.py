"""What Nsight Compute prints becomes the counters of a call; which calls are worth it."""

from softmax_bench import profile
from softmax_bench.launches import DATA
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import ROOT, read_json

WITHOUT = profile.METRICS["xu"]


def printed(*launches: tuple[str, str]) -> list[str]:
    """Launches by kernel, with the value that each counter has; one counter is not there."""
    names = ["ID", "Kernel Name", *(name for name in profile.ASKED if name != WITHOUT)]
    units = [""] * len(names)
    lines = [
        [str(at), kernel, *[value] * (len(names) - 2)]
        for at, (kernel, value) in enumerate(launches)
    ]
    quoted = [",".join(f'"{each}"' for each in line) for line in (names, units, *lines)]
    return ["==PROF== Connected to process 1", *quoted, "==PROF== Disconnected"]


def test_launches_belong_to_the_mark_before_them():
    kernels = [
        ("spin_kernel", "1"),
        ("a", "1,234.567"),
        ("b", "2"),
        ("spin_kernel", "1"),
        ("c", "3"),
    ]
    calls, absent = profile.launches(printed(*kernels))
    assert [[each["kernel"] for each in call] for call in calls] == [["a", "b"], ["c"]]
    assert calls[0][0]["dram_read"] == 1234.6 and calls[1][0]["registers"] == 3
    assert absent == [WITHOUT] and "xu" not in calls[0][0]
    assert len(calls[0][0]["stalls"]) == 3


def test_of_no_launch_nothing_is_said():
    assert profile.launches(["==WARNING== No kernels were profiled."]) == ([], [])


def test_what_misses_a_target_is_profiled_and_a_faster_library_beside_it():
    rows = read_json(ROOT / DATA)["rows"]
    chosen = profile.chosen(rows)
    assert {*profile.GEOMETRIES} <= {*chosen}
    assert all(names[0] == CHOOSER for names in chosen.values())
    assert not any(case.startswith(profile.NO_KERNELS) for case in chosen)
    lines = [" ".join([case, *names]) for case, names in chosen.items()]
    assert len(profile.listed(lines)) == sum(map(len, chosen.values()))
