"""Several files become one; a row that the machine disturbed has no time."""

from __future__ import annotations

import pytest

from softmax_bench import compare, schema
from softmax_bench.results import REASON, undisturbed


def file(case: str, started: str, **environment) -> dict:
    row = {"case": case, "provider": "torch", "status": "ok", "environment": "run3", "samples": 9}
    known = dict.fromkeys(schema.SAME, "x") | {"started": started, **environment}
    return {"environments": {"run3": known}, "rows": [row]}


def test_rows_of_all_files_and_each_environment_once():
    found = compare.merged([file("a", "2026-01-02"), file("b", "2026-01-01")])
    assert [row["case"] for row in found["rows"]] == ["a", "b"]
    assert {row["environment"] for row in found["rows"]} == {"run1"} == {*found["environments"]}
    found = compare.merged([found, file("c", "2026-01-03", commit="another")])
    assert [row["environment"] for row in found["rows"]] == ["run1", "run1", "run2"]


def test_what_does_not_belong_together():
    with pytest.raises(schema.DataError, match="differ in gpu, triton"):
        compare.merged([file("a", ""), file("b", "", gpu="another", triton="y")])


def test_what_was_measured_again_takes_the_place_of_what_was_there():
    """Who was not installed then keeps his row; each row says which run it is of."""
    old, new = file("a", "2026-01-01", commit="old"), file("a", "2026-01-02", commit="new")
    old["rows"].append({**old["rows"][0], "provider": "quack"})
    new["rows"][0]["samples"] = 11
    new["rows"].append({**new["rows"][0], "provider": "quack", "status": "skipped"})
    new["rows"].append({**new["rows"][0], "case": "b", "provider": "quack", "status": "skipped"})
    found = compare.merged([old, new])
    kept = [(row["case"], row["provider"], row["environment"]) for row in found["rows"]]
    assert kept == [("a", "torch", "run2"), ("a", "quack", "run1"), ("b", "quack", "run2")]
    assert [row["samples"] for row in found["rows"][:2]] == [11, 9]


@pytest.mark.parametrize("median, kept", [(2.0, True), (2.1, False)])
def test_a_disturbed_row(median, kept):
    times = {"p20": 1.0, "p50": median, "p80": 9.0}
    row = undisturbed({"status": "ok", "reason": None, "us": times, "us_warm": times})
    assert (row["status"] == "ok") == kept == ("us_warm" in row) == (row["us"] is not None)
    assert (row["reason"] == REASON) != kept
