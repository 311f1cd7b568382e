"""The lag of the event loop: what a sleep takes beyond its time."""

import pytest

from agent.runtime.loop_lag import observe_loop_lag
from tests.support.agent.ledger_parts import ManualClock


class LateClock(ManualClock):
    """Sleeps end late."""

    def __init__(self, *late_s: float) -> None:
        super().__init__()
        self._late_s = iter(late_s)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds + next(self._late_s))


class EnoughObserved(Exception):
    """Ends the loop."""


async def test_the_lag_is_the_time_beyond_a_sleep() -> None:
    observed: list[float] = []

    def observe(seconds: float) -> None:
        observed.append(round(seconds, 6))
        if len(observed) == 3:
            raise EnoughObserved

    with pytest.raises(EnoughObserved):
        await observe_loop_lag(LateClock(0.25, 0.0, 3.0), observe)
    assert observed == [0.25, 0.0, 3.0]
