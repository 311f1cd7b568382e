"""When a fetch's patience ends: before it waits, while it does, or not at all."""

from agent.fetch.wait import Patience


def test_the_end_wakes_whoever_waits_last() -> None:
    woken: list[str] = []
    patience = Patience()
    patience.wakes(lambda: woken.append("first"))
    patience.wakes(lambda: woken.append("last"))
    assert (patience.is_over, woken) == (False, [])
    patience.end()
    assert (patience.is_over, woken) == (True, ["last"])


def test_it_may_end_before_anybody_waits() -> None:
    patience = Patience()
    patience.end()
    assert patience.is_over
