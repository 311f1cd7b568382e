"""Counters of quotas: a rate over windows of time, and a bucket of tokens. Pure: the time is an argument.

A rate is what was counted in the last windows, over the time that these cover; one that has just begun covers all of
them but the newest, so that a burst counts for little. A client above its limit T by rate O waits (O - T) / T * W, W
being the time that is covered. A single amount of more than all windows allow is above the limit until it is forgotten,
and clients that go on counting such amounts exceed T, as in Kafka. A bucket is refilled at its limit and holds so many
windows of it; what was taken may exceed what was there, and the next one waits until nothing is owed.
Source: org.apache.kafka.common.metrics.stats.Rate, SampledStat, TokenBucket (SampledStat.purgeObsoleteSamples keeps a
window that the covered time only overlaps), org.apache.kafka.server.quota.QuotaUtils (Kafka 4.3).
"""

from collections import deque
from dataclasses import dataclass

SECONDS_MIN = 0.001
"""The least time that a rate covers."""


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """How many windows are looked at, and how long each is."""

    count: int
    seconds: float

    @property
    def full_seconds(self) -> float:
        """The time of all windows but the newest."""
        return (self.count - 1) * self.seconds


@dataclass(slots=True)
class CountedWindow:
    """The amount of one window, and when it was first and last added to."""

    began_s: float
    used_s: float
    amount: float = 0.0


class CountedRate:
    """Amounts counted in the last windows. The caller keeps to one unit: bytes, percents, connections."""

    __slots__ = ("__weakref__", "_windows", "amount")

    def __init__(self) -> None:
        self._windows: deque[CountedWindow] = deque()
        """The oldest first; the last one is being counted in."""
        self.amount = 0.0
        """Counted in all of them."""

    def count(self, amount: float, now_s: float, windows: QuotaWindows) -> None:
        """Count an amount at the monotonic time `now_s`; a negative one takes back what was counted."""
        kept = self._windows
        if not kept or now_s - kept[-1].began_s >= windows.seconds:
            kept.append(CountedWindow(now_s, now_s))
        newest = kept[-1]
        newest.amount += amount
        newest.used_s = now_s
        self.amount += amount

    def is_empty(self, now_s: float, windows: QuotaWindows) -> bool:
        """Whether nothing is counted in the windows until now."""
        kept, age_s = self._windows, windows.count * windows.seconds
        while kept and now_s - kept[0].used_s >= age_s:
            self.amount -= kept.popleft().amount
        if not kept:
            self.amount = 0.0  # what rounding has left
        return self.amount <= 0.0

    def throttle_s(self, limit: float, now_s: float, windows: QuotaWindows) -> float:
        """Seconds to wait until the rate is `limit` a second; 0 where it is not above."""
        if self.is_empty(now_s, windows):
            return 0.0
        covered_s = now_s - self._windows[0].began_s
        missing_count = windows.count - 1 - int(covered_s / windows.seconds)
        covered_s = max(covered_s + max(missing_count, 0) * windows.seconds, SECONDS_MIN)
        rate = self.amount / covered_s
        return (rate - limit) / limit * covered_s if rate > limit else 0.0


class TokenBucket:
    """Tokens that come at a rate, up to what all windows bring together. It begins full."""

    __slots__ = ("__weakref__", "_refilled_s", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._refilled_s = 0.0

    def owed_s(self, limit: float, now_s: float, windows: QuotaWindows) -> float:
        """Seconds until nothing is owed; 0 where nothing is."""
        return max(0.0, -self._refilled(limit, now_s, windows) / limit)

    def take(self, tokens: float, limit: float, now_s: float, windows: QuotaWindows) -> None:
        """Take tokens, whether or not they are there."""
        self._tokens = self._refilled(limit, now_s, windows) - tokens

    def _refilled(self, limit: float, now_s: float, windows: QuotaWindows) -> float:
        full = windows.count * windows.seconds * limit
        tokens = full if self._tokens is None else self._tokens + limit * (now_s - self._refilled_s)
        self._tokens, self._refilled_s = min(full, tokens), now_s
        return self._tokens
