"""What Nsight Compute prints becomes the counters of a call; which calls are worth it."""

from pathlib import Path
from types import SimpleNamespace

from softmax_bench import launches, profile, random_shapes
from softmax_bench.launches import DATA, read_rows
from softmax_bench.roster import CHOOSER
from softmax_bench.schema import ROOT, read_json

WITHOUT = profile.METRICS["xu"]


def printed(*launches: tuple[str, str, str]) -> list[str]:
    """Launches by stream and kernel, with the value of each counter; one counter is not there."""
    counters = [name for name in profile.ASKED if name != WITHOUT]
    lines = [["ID", "Kernel Name", "Stream", *counters], [""] * (3 + len(counters))]
    lines += [["0", kernel, at, *[value] * len(counters)] for at, kernel, value in launches]
    quoted = [",".join(f'"{each}"' for each in line) for line in lines]
    return ["==PROF== Connected to process 1", *quoted, "==PROF== Disconnected"]


def test_launches_in_a_row_on_one_stream_are_a_call():
    text = printed(
        ("7", "a", "1,234.567"), ("7", "f<int>(T1)", "2"), ("9", "c", "3"), ("7", "d", "4")
    )
    calls, absent = profile.launches(text)
    assert [[each["kernel"] for each in call] for call in calls] == [["a", "f"], ["c"], ["d"]]
    assert calls[0][0]["dram_read"] == 1234.6 and calls[1][0]["registers"] == 3
    assert absent == [WITHOUT] and "xu" not in calls[0][0]
    assert set(calls[0][0]["stalls"].values()) == {round(100 / len(profile.STALLS), 1)}


def test_the_published_profile_has_every_counter():
    data = read_json(ROOT / profile.FILE)
    assert data["format"] == profile.FORMAT
    for run in data["runs"]:
        calls = [call for of in run["cells"].values() for call in of.values()]
        launches = [launch for call in calls for launch in call]
        assert run["absent"] == [] and launches
        assert all({*profile.METRICS, "stalls"} <= {*launch} for launch in launches)


def test_what_was_profiled_is_launched_today():
    """In each cell the kernels of today, in their order; what others launch stands in between."""
    today = launches.read(ROOT).today
    for run in read_json(ROOT / profile.FILE)["runs"]:
        for case, of in run["cells"].items():
            names = [each.kernel for each in today[f"{case} {CHOOSER}"]]
            found = [
                [name for name in names if each["kernel"].endswith(name)] for each in of[CHOOSER]
            ]
            assert [max(each, key=len) for each in found if each] == names, case


def test_of_no_launch_nothing_is_said():
    assert profile.launches(["==WARNING== No kernels were profiled."]) == ([], [])


def test_what_misses_a_target_is_profiled_and_a_faster_library_beside_it():
    chosen = profile.chosen(read_rows(ROOT / DATA))
    assert {*profile.GEOMETRIES} <= {*chosen}
    assert all(names[0] == CHOOSER for names in chosen.values())
    assert not any(case.startswith(profile.NO_KERNELS) for case in chosen)
    drawn = random_shapes.draw(5)[0].id  # by another seed than that of the published cells
    lines = [" ".join([case, *names]) for case, names in [*chosen.items(), (drawn, ["torch"])]]
    listed = profile.listed(lines)
    assert len(listed) == sum(map(len, chosen.values())) + 1 and listed[-1][0].id == drawn


def test_a_profile_is_one_file(tmp_path, monkeypatch):
    """What Nsight Compute was given and has said goes."""
    line, out = f"{profile.GEOMETRIES[0]} torch", tmp_path / "out/profile.json"

    def run(command, **more):
        if command[0] != "ncu":
            return SimpleNamespace(returncode=1, stdout="")
        assert Path(command[command.index("--list") + 1]).read_text() == line
        Path(command[command.index("--inside") + 1]).write_text(line)
        counted = Path(command[command.index("--log-file") + 1])
        counted.write_text("\n".join(printed(("7", "copy_kernel", "1"))))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(profile.subprocess, "run", run)
    (tmp_path / "calls").write_text(line)
    out.parent.mkdir()
    profile.run(out, tmp_path / "calls", ROOT / DATA, "c" * 40, 1.0, 0)
    assert [*out.parent.iterdir()] == [out]
    ((launch,),) = read_json(out)["runs"][0]["cells"][profile.GEOMETRIES[0]].values()
    assert launch["kernel"] == "copy_kernel"
