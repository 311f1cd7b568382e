"""Outages of the object store: failed requests, and requests without any answer.

Each operation has its own outages, because a full disk fails puts while gets succeed. An operation without an answer
for STORE_SILENT_SECONDS, while requests wait, counts as failed; their time-outs come much later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords
from protocol.limits import OUTAGE_CHECK_INTERVAL_S, STORE_SILENT_SECONDS
from storage.object_store import StoreError

WORDS = OutageWords(
    fails=(
        "the object store fails: requests are repeated until they succeed or time out. Until then no record is "
        "acknowledged, and only cached records are served. Clients get retriable errors, and no acknowledged record is "
        'lost. Run penstock doctor; docs/operations/bucket.md, "Faults of the bucket"'
    ),
    answers="the object store answers again",
)


class StoreOutages:
    """The observer that `storage.decorators.retrying` calls. `run` finds operations without answers."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._outages: dict[str, Outage] = {}
        self._under_way: dict[str, dict[object, tuple[float, str]]] = {}
        """The unanswered tries of each operation, oldest first: the monotonic time of its beginning, and the key."""
        self._answered_s: dict[str, float] = {}

    @contextmanager
    def under_way(self, operation: str, key: str) -> Iterator[None]:
        """A context for one try of `operation` on `key`: it is unanswered for as long as the context is open."""
        tries, token = self._under_way.setdefault(operation, {}), object()
        tries[token] = self._clock.monotonic_s(), key
        try:
            yield
        finally:
            del tries[token]

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        """One try of `operation` on `key` (or prefix) failed."""
        self._of(operation).failed(operation, str(error), key=key)

    def answered(self, operation: str) -> None:
        """One try of `operation` was answered. "Missing" is an answer, too."""
        self._answered_s[operation] = self._clock.monotonic_s()
        outage = self._outages.get(operation)
        if outage is not None:
            outage.answered(operation)

    @property
    def seconds(self) -> float:
        """The length of the longest present outage of an operation, 0 without one."""
        return max((outage.seconds for outage in self._outages.values()), default=0.0)

    async def run(self) -> None:
        """Check for operations without answers every OUTAGE_CHECK_INTERVAL_S. Runs until it is cancelled."""
        while True:
            await self._clock.sleep(OUTAGE_CHECK_INTERVAL_S)
            self.check()

    def check(self) -> None:
        """Report operations whose tries have had no answer for STORE_SILENT_SECONDS."""
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
        outage = self._outages.get(operation)
        if outage is None:
            outage = self._outages[operation] = Outage(WORDS, monotonic_s=self._clock.monotonic_s)
        return outage
