"""The metrics for which a scrape asks the ledger."""

import asyncio
from contextlib import AbstractAsyncContextManager

from agent.ledger.ledger_metrics import LedgerMetrics
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Head, LedgerSize
from protocol.limits import METRIC_LEDGER_INTERVAL_S
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.small_agent import PromptClient


class SizedLedger(MemoryLedger):
    """Has a quota, and counts how often its head was asked for."""

    def __init__(self, quota_bytes: int | None = 100) -> None:
        super().__init__()
        self.quota_bytes = quota_bytes
        self.asked_count = 0
        self.is_silent = False

    async def head(self) -> Head:
        self.asked_count += 1
        if self.is_silent:
            await asyncio.Event().wait()
        return Head(position=(await super().head()).position, appends_count=7)

    async def size(self) -> LedgerSize:
        return LedgerSize(used_bytes=40, quota_bytes=self.quota_bytes)


class ImpatientClock(ManualClock):
    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(0.01)


async def values_of(ledger: SizedLedger, *, is_leader: bool = True) -> dict[str, float]:
    """A scrape's values."""
    client = PromptClient(ledger)
    client.state.appends_count = 4
    metrics = LedgerMetrics(ledger=client, is_leader=lambda: is_leader, clock=ImpatientClock())
    await metrics.refresh()
    return {sample.name: sample.value for family in metrics.collect() for sample in family.samples}


async def test_the_leader_reports_size_and_quota_and_each_agent_its_lag() -> None:
    lag = {"penstock_ledger_apply_lag_entries": 3.0}
    size = {"penstock_ledger_bytes": 40.0}
    assert await values_of(SizedLedger()) == lag | size | {"penstock_ledger_quota_bytes": 100.0}
    assert await values_of(SizedLedger(quota_bytes=None)) == lag | size
    assert await values_of(SizedLedger(), is_leader=False) == lag


async def test_a_ledger_without_an_answer_leaves_the_metrics_out() -> None:
    away, silent = SizedLedger(), SizedLedger()
    away.is_reachable = False
    silent.is_silent = True
    assert await values_of(away) == {}
    assert await values_of(silent) == {}


async def test_scrapes_in_a_row_ask_the_ledger_once() -> None:
    ledger, clock = SizedLedger(), ImpatientClock()
    metrics = LedgerMetrics(ledger=PromptClient(ledger), is_leader=lambda: True, clock=clock)
    await asyncio.gather(metrics.refresh(), metrics.refresh())
    assert ledger.asked_count == 1
    clock.seconds += METRIC_LEDGER_INTERVAL_S
    await metrics.refresh()
    assert ledger.asked_count == 2
