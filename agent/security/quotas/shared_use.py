"""The use of quotas of the whole cluster by producers, through all agents (`penstock.quota.scope=cluster`).

An agent puts the bytes of its clients' Produce requests into the entries with which it commits their records, by whom a
quota holds for. Every agent adds up what the entries of others say, by its own monotonic clock, to what it counted
itself, and throttles its own connections by the sum.
Rule: an entry never has a name in it that a client chose: a user and a client id stand there as a number
(`use_key`). Bytes that came longer ago than all windows cover are left out.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from weakref import WeakValueDictionary

from agent.runtime.clock import Clock
from agent.security.quotas.quota_windows import CountedRate, QuotaWindows
from coordinator.commands.commands import QuotaUse
from coordinator.security.quota_rules import AppliedQuota
from protocol.limits import QUOTA_CLIENTS_COUNTED_MAX, QUOTA_OWN_SESSIONS_MAX, QUOTA_USES_PER_COMMIT_MAX
from protocol.types import SessionId


def use_key(applied: AppliedQuota) -> int:
    """The number of those who share a quota, from 0 to 2^63 - 1: the same at every agent."""
    text = f"{len(applied.user)} {applied.user}{applied.client_id}"
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()) >> 1


@dataclass(slots=True)
class _Unsent:
    """Bytes that no entry has yet, and when the first of them came."""

    byte_count: int
    since_s: float


class SharedUse:
    """The bytes of Produce requests by quota, of this agent and of all others. All methods run on the event loop."""

    def __init__(self, *, clock: Clock, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self._unsent: OrderedDict[int, _Unsent] = OrderedDict()
        self._rates: WeakValueDictionary[int, CountedRate] = WeakValueDictionary()
        """Rates that are among the recent ones, or whose quota a client of this agent has."""
        self._recent: OrderedDict[int, CountedRate] = OrderedDict()
        """The least recently used first."""
        self._own_sessions: OrderedDict[SessionId, None] = OrderedDict()

    def rate_of(self, applied: AppliedQuota) -> CountedRate:
        """The bytes through all agents of those who share a quota."""
        return self._rate(use_key(applied))

    def sent(self, applied: AppliedQuota, byte_count: int) -> None:
        """Note a request of this agent's clients for the next entry. The caller counts it here."""
        key = use_key(applied)
        unsent = self._unsent.get(key)
        if unsent is not None:
            unsent.byte_count += byte_count
        elif len(self._unsent) < QUOTA_CLIENTS_COUNTED_MAX:
            self._unsent[key] = _Unsent(byte_count, self._clock.monotonic_s())

    def take(self, session: SessionId) -> tuple[QuotaUse, ...]:
        """The use for the next entry of this agent's session."""
        self._own_sessions[session] = None
        if len(self._own_sessions) > QUOTA_OWN_SESSIONS_MAX:
            self._own_sessions.popitem(last=False)
        uses: list[QuotaUse] = []
        since_s_min = self._clock.monotonic_s() - self._windows.count * self._windows.seconds
        while self._unsent and len(uses) < QUOTA_USES_PER_COMMIT_MAX:
            key, unsent = self._unsent.popitem(last=False)
            if unsent.since_s >= since_s_min:
                uses.append(QuotaUse(key=key, byte_count=unsent.byte_count))
        return tuple(uses)

    def applied(self, session: SessionId, uses: Iterable[QuotaUse]) -> None:
        """Count the use in an applied entry. That of this agent's own entries is counted already."""
        if session in self._own_sessions:
            return
        now_s = self._clock.monotonic_s()
        for use in uses:
            self._rate(use.key).count(use.byte_count, now_s, self._windows)

    def _rate(self, key: int) -> CountedRate:
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = CountedRate()
        self._recent[key] = rate
        self._recent.move_to_end(key)
        if len(self._recent) > QUOTA_CLIENTS_COUNTED_MAX:
            self._recent.popitem(last=False)
        return rate
