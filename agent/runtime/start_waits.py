"""Measures the waits of an agent's start: for its ledger, its object store, or the end of a session under its name.

In: waits that the steps of the start begin and end, and outages that others observe. Out: the seconds of each wait, for
a metric, and the line of `/ready`. That line answers strangers, so it names no address.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords


class StartNeed(Enum):
    """The needs of a start that others may hold up. The value is the label `for` of the metric."""

    LEDGER = "ledger"
    STORE = "store"
    NAME = "name"


NOT_READY = "not ready"
_TEXTS = {
    StartNeed.LEDGER: "the ledger",
    StartNeed.STORE: "the object store",
    StartNeed.NAME: "the end of another session under this agent's name",
}


class StartWaits:
    """One start has one. After `finish` it waits for nothing."""

    def __init__(self, clock: Clock, *, kinds: Mapping[StartNeed, str] | None = None) -> None:
        """`kinds`: the kind of ledger and store, such as `etcd`, for the line of `/ready`."""
        self._clock = clock
        self._texts = {
            need: f"{text} ({kinds[need]})" if kinds and need in kinds else text for need, text in _TEXTS.items()
        }
        self._current: tuple[StartNeed, float] | None = None
        """The wait that a step has begun, with the monotonic time of its beginning."""
        self._outages: dict[StartNeed, Callable[[], float]] = {}
        self._logged: dict[StartNeed, Outage] = {
            need: Outage(
                OutageWords(
                    fails=f"the agent cannot start yet: {text} does not answer; it tries again",
                    answers=f"{text} answers: the start goes on",
                ),
                monotonic_s=clock.monotonic_s,
            )
            for need, text in self._texts.items()
            if need is not StartNeed.NAME  # the writer of the ledger logs that one, with its remedy
        }
        """Outages are kept over the steps of the start, so that each need has one line a minute at most."""
        self.is_finished = False

    def observe(self, need: StartNeed, outage_s: Callable[[], float]) -> None:
        """Count an outage that others observe as a wait. `outage_s`: its seconds up to now, 0 without one."""
        self._outages[need] = outage_s

    def begin(self, need: StartNeed) -> None:
        """The start waits for `need` from now on, and for nothing else; nothing changes where it does already."""
        if self._current is None or self._current[0] is not need:
            self._current = need, self._clock.monotonic_s()

    def failed(self, need: StartNeed, reason: str) -> None:
        """`need` did not answer a step, which will be tried again. Logged at most once a minute."""
        self.begin(need)
        self._logged[need].failed("start", reason)

    def end(self) -> None:
        """The step that waited is done."""
        self._current = None
        for outage in self._logged.values():
            outage.answered("start")

    def finish(self) -> None:
        """The agent serves."""
        self.end()
        self.is_finished = True

    def seconds(self, need: StartNeed) -> float:
        """How long the start has waited for `need`; 0 where it does not wait for it."""
        if self.is_finished:
            return 0.0
        own_s = 0.0
        if self._current is not None and self._current[0] is need:
            own_s = self._clock.monotonic_s() - self._current[1]
        observed = self._outages.get(need)
        return own_s if observed is None else max(own_s, observed())

    @property
    def line(self) -> str:
        """The line of `/ready` while the agent does not serve."""
        if self.is_finished:
            return f"{NOT_READY}: the agent is stopping"
        longest = max(StartNeed, key=self.seconds)
        if self.seconds(longest) > 0:
            return f"{NOT_READY}: the start waits for {self._texts[longest]}"
        return f"{NOT_READY}: the agent starts"
