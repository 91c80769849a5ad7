"""Handles of integrations: what they count, and when what they put in goes."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from triton_softmax.integrations import Handle
from triton_softmax.integrations.handle import Replacement


class Log(Replacement):
    def __init__(self):
        self.log: list[str] = []
        super().__init__(lambda: self.log.append("in"), lambda: self.log.append("out"))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_ours_goes_with_the_last_of_several_and_the_last_that_is_in_answers(order):
    ours = Log()
    handles = [Handle(ours) for _ in range(3)]
    left = list(handles)
    for number in order:
        assert ours.answering() is left[-1]
        assert ours.log == ["in"]
        handles[number].remove()
        left.remove(handles[number])
        assert not handles[number].active
    assert ours.log == ["in", "out"]
    assert ours.answering() is None
    handles[0].remove()
    assert ours.log == ["in", "out"]


def test_a_handle_is_its_own_context_and_does_not_come_back():
    ours = Log()
    handle = Handle(ours)
    with handle as entered:
        assert entered is handle and handle.active
    assert ours.log == ["in", "out"]
    with pytest.raises(RuntimeError, match="removed"), handle:
        pass


def test_ours_goes_when_the_block_raises():
    ours = Log()
    with pytest.raises(ZeroDivisionError), Handle(ours):
        1 / 0  # noqa: B018
    assert ours.log == ["in", "out"]


def test_counts_are_exact_over_threads_and_stay_after_removal():
    handle = Handle(Log())

    def many(_):
        for _ in range(5_000):
            handle.count("softmax")

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(many, range(4))] == [None] * 4
    handle.count("loss")
    handle.remove()
    handle.count("loss")
    assert type(handle.calls) is dict
    assert handle.calls == {"softmax": 20_000, "loss": 1}


def test_a_handle_that_nobody_keeps_stays():
    ours = Log()
    Handle(ours)
    assert ours.log == ["in"]
    ours.handles[-1].remove()
    assert ours.log == ["in", "out"]


def test_what_does_not_install_leaves_no_handle():
    def fails():
        raise ImportError("transformers is missing")

    ours = Replacement(fails, lambda: None)
    with pytest.raises(ImportError):
        Handle(ours)
    assert ours.answering() is None
