"""The table of the page on rounding."""

from softmax_site.computed import rounding_table


def test_what_a_choice_costs_stays_below_its_bound():
    """And the better way is better by more than a digit."""
    assert len(rounding_table.CHOICES) == 6
    for choice in rounding_table.CHOICES:
        loses, keeps = choice()
        for error in (loses, keeps):
            assert 0 < error.measured <= error.bound, choice
        assert keeps.measured < loses.measured / 10, choice
