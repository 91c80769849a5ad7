"""What mistakes a page can have, and that those are noticed that checks promise to notice."""

import json

import pytest

from held import faults
from mutate_pages import KINDS, RESULT, all_mutants

MUTANTS = {}
for _mutant in all_mutants():
    MUTANTS.setdefault(_mutant.kind, []).append(_mutant)


def test_every_kind_has_places():
    assert set(MUTANTS) == set(KINDS) and min(map(len, MUTANTS.values())) > 500


@pytest.mark.slow
def test_a_mistake_in_a_display_equation_is_noticed():
    """All of them; those that remain are true as well, as j for i beside a δ."""
    left = [each for each in MUTANTS["formulas"] if not faults(each.page, each.text)]
    assert len(left) <= 0.01 * len(MUTANTS["formulas"]), "\n".join(each.change for each in left)


def test_the_committed_result_keeps_what_is_promised():
    kinds = json.loads(RESULT.read_text("utf8"))["kinds"]
    share = {kind: each["noticed"] / each["drawn"] for kind, each in kinds.items()}
    assert sum(each["drawn"] for each in kinds.values()) >= 300
    assert min(share["formulas"], (share["formulas"] + share["formulas in lines"]) / 2) >= 0.97
    assert share["numbers"] >= 0.9 and share["code"] >= 0.95
