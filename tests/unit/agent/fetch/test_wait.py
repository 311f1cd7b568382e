"""When a fetch's patience ends: before it waits, while it does, or not at all."""

from agent.fetch.wait import FetchWait


def test_the_end_wakes_whoever_waits_last() -> None:
    woken: list[str] = []
    fetch_wait = FetchWait()
    fetch_wait.wakes(lambda: woken.append("first"))
    fetch_wait.wakes(lambda: woken.append("last"))
    assert (fetch_wait.is_over, woken) == (False, [])
    fetch_wait.end()
    assert (fetch_wait.is_over, woken) == (True, ["last"])


def test_it_may_end_before_anybody_waits() -> None:
    fetch_wait = FetchWait()
    fetch_wait.end()
    assert fetch_wait.is_over
