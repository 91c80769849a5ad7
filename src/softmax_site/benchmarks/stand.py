"""How ours stands over some cases: ahead, level, behind, by how much, and where worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

from softmax_bench.report import LEVEL, Answers, answers, best_peer, by_case, ratio, standing
from softmax_bench.roster import CHOOSER, COPY, LIBRARIES, label_of
from softmax_site.benchmarks.data import case_words
from softmax_site.benchmarks.tables import Group, answers_words, share_of
from softmax_site.benchmarks.values import Factor, Values
from softmax_site.benchmarks.words import kernel_words, link, listed


def over_best(group: Group, time: Callable[[dict | None], float | None]) -> float | None:
    """Ours over the best other library by another `time`."""
    ours = time(group.get(CHOOSER))
    best = min((us for name in LIBRARIES if (us := time(group.get(name)))), default=None)
    return best / ours if ours and best else None


class Case:
    """One case, ours or what is called `who` beside another provider."""

    def __init__(self, group: Group, other: str, who: str = CHOOSER):
        self.group, self.row = group, group[who]
        self.words, self.link = case_words(self.row), link(self.row, case_words(self.row))
        self.kernel, self.other = kernel_words(self.row), label_of(other)
        factor = ratio(group, other, who)
        self.factor = None if factor is None else Factor(factor)


class Stand:
    """How ours, or what is called `who`, stands over some cases, against the best other library
    unless `over` finds another; a case without an answer of another does not count, one without an
    answer of ours is behind."""

    def __init__(
        self,
        groups: Iterable[Group],
        over: Callable[[Group], str | None] = best_peer,
        who: str = CHOOSER,
    ) -> None:
        self.groups = [group for group in groups if who in group]
        self.over, self.who = over, who

    @cached_property
    def compared(self) -> list[tuple[Group, str]]:
        """The cases that count, each with whom ours is compared with."""
        return [(group, other) for group in self.groups if (other := self.over(group))]

    @cached_property
    def states(self) -> Counter[str]:
        """How many are ahead, level and behind."""
        return Counter(standing(*each, self.who) for each in self.compared)

    ahead = property(lambda self: self.states["ahead"])
    level = property(lambda self: self.states["level"])
    behind = property(lambda self: self.states["behind"])
    cases = property(lambda self: len(self.compared))
    lost = property(lambda s: [(g, o) for g, o in s.compared if standing(g, o, s.who) == "behind"])
    longer = property(lambda s: Values(1 / f for g, o in s.lost if (f := ratio(g, o, s.who))))
    measured = property(lambda self: len(self.groups))
    unanswered = property(lambda self: self.measured - self.cases)
    at_least_level = property(lambda self: (self.cases - self.behind) / self.cases)

    @property
    def changed(self) -> Stand:
        """The cases in which ours launches something else today."""
        return Stand(group for group in self.groups if group[CHOOSER].get("changed"))

    def values(self, of: Callable[[Group], float | None]) -> Values:
        """What `of` finds in the cases, where it finds something."""
        return Values(value for group, _ in self.compared if (value := of(group)))

    @cached_property
    def answered(self) -> dict[str, Answers]:
        """What became of the cases, by library."""
        return answers(self.groups)

    @property
    def rule(self) -> str:
        """What counts as level in these cases."""
        kept = ["us_turns" in group[self.who] for group, _ in self.compared]
        by_turns, by_share = "2 % or noise", f"{LEVEL:.0%}".replace("%", " %")
        said = [by_turns] * any(kept) + [by_share] * (not all(kept))
        return f"within {' or '.join(said)}"

    @property
    def rivals(self) -> str:
        """The other libraries that have a right answer in some case."""
        return listed(label_of(name) for name, each in self.answered.items() if each.right)

    right = property(lambda self: answers_words(self.groups))

    @cached_property
    def factors(self) -> Values:
        """Ours over the best other."""
        return Values(factor for each in self.compared if (factor := ratio(*each, self.who)))

    over_best = property(lambda self: self.factors.mean)
    over_torch = property(lambda self: self.values(lambda group: ratio(group, "torch")).mean)

    @cached_property
    def of_copy(self) -> Values:
        """Ours over the copy."""
        return Values(share for group in self.groups if (share := share_of(group, self.who)))

    @cached_property
    def best_of_copy(self) -> Values:
        """The best other over the copy."""
        return Values(share for each in self.compared if (share := share_of(*each)))

    @property
    def worst(self) -> Case:
        """The case in which ours stands worst: of those behind, if there are any."""
        worst = min(self.lost or self.compared, key=lambda each: ratio(*each, self.who) or 0.0)
        return Case(*worst, self.who)

    @property
    def slowest(self) -> Case:
        """The case that is furthest below the copy."""
        found = [group for group in self.groups if share_of(group)]
        return Case(min(found, key=lambda group: share_of(group) or 0.0), COPY)


def of_rows(rows: Iterable[dict]) -> Stand:
    """How ours stands in some rows."""
    return Stand(by_case(list(rows)).values())
