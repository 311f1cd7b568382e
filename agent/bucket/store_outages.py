"""Outages of the object store, those included in which it does not say no, but nothing at all.

Rule: each operation has its own outages, because a full disk fails puts while gets go on. An operation of which nothing
was answered for `STORE_SILENT_SECONDS`, although requests wait, fails: a time-out would say so much later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords
from protocol.limits import OUTAGE_CHECK_INTERVAL_S, STORE_SILENT_SECONDS
from storage.object_store import StoreError

WORDS = OutageWords(
    fails=(
        "the object store fails: requests are repeated until they succeed or their time is over. Until then nothing is "
        "acknowledged and what is in no cache is not served; clients get retriable errors, and nothing acknowledged is "
        'lost. Run penstock doctor; docs/operations/bucket.md, "Faults of the bucket"'
    ),
    answers="the object store answers again",
)


class StoreOutages:
    """The observer that `storage.decorators.retrying` calls. `run` looks for requests that wait."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._outages: dict[str, Outage] = {}
        self._under_way: dict[str, dict[object, tuple[float, str]]] = {}
        """The tries without an answer of each operation, oldest first: since when, and of which key."""
        self._answered_s: dict[str, float] = {}

    @contextmanager
    def under_way(self, operation: str, key: str) -> Iterator[None]:
        """One try of `operation` on `key`, for as long as it has neither failed nor been answered or given up."""
        tries, one = self._under_way.setdefault(operation, {}), object()
        tries[one] = self._clock.monotonic_s(), key
        try:
            yield
        finally:
            del tries[one]

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        """One try of `operation` on `key` (or prefix) failed."""
        self._of(operation).failed(operation, str(error), key=key)

    def answered(self, operation: str) -> None:
        """One try of `operation` was answered, if only by "missing"."""
        self._answered_s[operation] = self._clock.monotonic_s()
        outage = self._outages.get(operation)
        if outage is not None:
            outage.answered(operation)

    @property
    def seconds(self) -> float:
        """The length of the longest present outage of an operation, 0 without one."""
        return max((outage.seconds for outage in self._outages.values()), default=0.0)

    async def run(self) -> None:
        """Look for silence, for ever."""
        while True:
            await self._clock.sleep(OUTAGE_CHECK_INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Tell of operations of which nothing is answered."""
        now_s = self._clock.monotonic_s()
        for operation, tries in self._under_way.items():
            if not tries:
                continue
            began_s, key = next(iter(tries.values()))
            silent_s = now_s - max(began_s, self._answered_s.get(operation, began_s))
            if silent_s >= STORE_SILENT_SECONDS:
                reason = f"no answer for {silent_s:.0f} s; requests that wait: {len(tries)}"
                self._of(operation).silent(operation, reason, key=key, silent_s=silent_s)

    def _of(self, operation: str) -> Outage:
        found = self._outages.get(operation)
        if found is None:
            found = self._outages[operation] = Outage(WORDS, monotonic_s=self._clock.monotonic_s)
        return found
