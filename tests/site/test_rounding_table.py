"""The table that opens the page on rounding."""

from softmax_site.computed import rounding_table


def test_what_a_choice_costs_stays_below_its_bound():
    """And the better way is better by more than a digit."""
    found = rounding_table.choices()
    assert len(found) == 6
    for choice in found:
        for error in (choice.loses, choice.keeps):
            assert 0 < error.measured <= error.bound, choice
        assert choice.keeps.measured < choice.loses.measured / 10, choice.what
