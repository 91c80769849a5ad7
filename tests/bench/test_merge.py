"""Files that were measured at once become one; rows that the machine disturbed are not kept."""

from __future__ import annotations

import pytest

from softmax_bench import compare, schema


def file(case: str, started: str, us=None, **environment) -> dict:
    times = us or {"p20": 1.0, "p50": 1.1, "p80": 1.3}
    row = {"case": case, "provider": "torch", "status": "ok", "reason": None, "us": times}
    row |= {"us_warm": times, "environment": "run3", "samples": 9}
    known = {"gpu": "a GPU", "started": started, **environment}
    return {"format": "f", "environments": {"run3": known}, "rows": [row]}


def test_rows_of_all_files_and_the_first_environment():
    found = compare.merged([file("a", "2026-01-02"), file("b", "2026-01-01")])
    assert [row["case"] for row in found["rows"]] == ["a", "b"]
    assert {row["environment"] for row in found["rows"]} == {"run1"} == {*found["environments"]}
    assert found["environments"]["run1"]["started"] == "2026-01-01"


def test_what_does_not_belong_together():
    with pytest.raises(compare.Different, match="differ in gpu"):
        compare.merged([file("a", ""), file("b", "", gpu="another")])
    with pytest.raises(compare.Different, match="torch of a was measured twice"):
        compare.merged([file("a", ""), file("a", "")])


@pytest.mark.parametrize("median, kept", [(2.0, True), (2.1, False)])
def test_a_disturbed_row(median, kept):
    times = {"p20": 1.0, "p50": median, "p80": 9.0}
    (row,) = compare.merged([file("a", "", times)])["rows"]
    assert (row["status"] == "ok") == kept == ("us_warm" in row) == (row["us"] is not None)
    assert (row["reason"] == compare.REASON) != kept


def test_what_was_measured_again_takes_the_place_of_what_was_there():
    """Who was not installed then keeps his row; each row says which run it is of."""
    software = dict.fromkeys(schema.SAME, "x")
    old, new = (file("a", day, **software) for day in ("2026-01-01", "2026-01-02"))
    old["rows"].append({**old["rows"][0], "provider": "quack"})
    new["rows"][0]["samples"] = 11
    new["rows"].append({**new["rows"][0], "provider": "quack", "status": "skipped", "us": None})
    new["rows"].append({**new["rows"][0], "case": "b", "provider": "quack", "status": "skipped"})
    found = compare.renewed(compare.merged([old]), compare.merged([new]))
    assert {*found["environments"]} == {"run1", "run2"}
    kept = [(row["case"], row["provider"], row["environment"]) for row in found["rows"]]
    assert kept == [("a", "torch", "run2"), ("a", "quack", "run1"), ("b", "quack", "run2")]
    assert [row["samples"] for row in found["rows"][:2]] == [11, 9]
    with pytest.raises(compare.Different, match="differ in triton"):
        compare.renewed(old, file("a", "", **{**software, "triton": "y"}))
