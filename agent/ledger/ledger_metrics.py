"""The metrics for which a scrape asks the ledger: how far this agent is behind its head, and how full it is.

The ledger's size is the same for all agents, so the maintenance leader alone asks for it. A ledger that does not answer
in time leaves the metrics out, and delays scrapes by `METRIC_LEDGER_SECONDS_MAX` at most.
"""

import asyncio
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.ledger.port import LedgerError, LedgerSize
from protocol.limits import METRIC_LEDGER_INTERVAL_S, METRIC_LEDGER_SECONDS_MAX


class LedgerMetrics(Collector):
    """Every agent has one."""

    def __init__(self, *, ledger: LedgerClient, is_leader: Callable[[], bool], clock: Clock) -> None:
        self._ledger = ledger
        self._is_leader = is_leader
        self._clock = clock
        self._refreshing = asyncio.Lock()
        self._next_s = float("-inf")
        """The monotonic time before which the ledger is not asked again."""
        self._apply_lag: int | None = None
        self._size: LedgerSize | None = None

    async def refresh(self) -> None:
        """Ask the ledger, unless it was asked just now."""
        async with self._refreshing:
            if self._clock.monotonic_s() < self._next_s:
                return
            self._apply_lag = self._size = None
            try:
                async with self._clock.timeout(METRIC_LEDGER_SECONDS_MAX):
                    head = await self._ledger.backend.head()
                    # This agent may have applied more by now than there was when the ledger answered.
                    self._apply_lag = max(0, head.appends_count - self._ledger.state.appends_count)
                    if self._is_leader():
                        self._size = await self._ledger.backend.size()
            except (LedgerError, TimeoutError):
                pass  # `penstock_ledger_outage_seconds` says so
            self._next_s = self._clock.monotonic_s() + METRIC_LEDGER_INTERVAL_S

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from ledger_families(self._apply_lag, self._size)


def ledger_families(apply_lag: int | None, size: LedgerSize | None) -> Iterable[Metric]:
    """The metrics of what is known."""
    if apply_lag is not None:
        yield GaugeMetricFamily(
            "penstock_ledger_apply_lag_entries",
            "Appends to the ledger that this agent has not applied; left out while the ledger does not answer.",
            value=apply_lag,
        )
    if size is not None:
        text = "Bytes of the ledger that are in use; in etcd those of other users too. The maintenance leader's."
        yield GaugeMetricFamily("penstock_ledger_bytes", text, value=size.used_bytes)
        if size.quota_bytes is not None:
            text = "The quota of the ledger's bytes; left out where it grows with its disk. The maintenance leader's."
            yield GaugeMetricFamily("penstock_ledger_quota_bytes", text, value=size.quota_bytes)
