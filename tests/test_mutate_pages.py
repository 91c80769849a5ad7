"""What mistakes a page can have, and that those are noticed that checks promise to notice."""

import json

import pytest

from held import faults
from mutate_pages import RESULT, all_mutants


@pytest.mark.slow
def test_a_mistake_in_a_display_equation_is_noticed():
    """All of them; those that remain are true as well, as j for i beside a δ."""
    mutants = [each for each in all_mutants() if each.kind == "formulas"]
    left = [each for each in mutants if not faults(each.page, each.text)]
    assert len(left) <= 0.01 * len(mutants) > 5, "\n".join(each.change for each in left)


def test_the_committed_result_keeps_what_is_promised():
    kinds = json.loads(RESULT.read_text("utf8"))["kinds"]
    share = {kind: each["noticed"] / each["drawn"] for kind, each in kinds.items()}
    assert sum(each["drawn"] for each in kinds.values()) >= 300
    assert min(share["formulas"], (share["formulas"] + share["formulas in lines"]) / 2) >= 0.97
    assert share["numbers"] >= 0.9 and share["code"] >= 0.95
