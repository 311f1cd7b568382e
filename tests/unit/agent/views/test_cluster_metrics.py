"""The metrics of the whole cluster: on the maintenance leader alone, bounded, and computed in part of the time."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.runtime.clock import SystemClock
from agent.runtime.yielding import CooperativeYield
from agent.views.cluster_metrics import KINDS, ClusterMetrics, Dropped, families, limited
from agent.views.cluster_statistics import cluster_statistics
from agent.views.group_lags import GroupLag, GroupRow
from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.state.state import ClusterState
from protocol.limits import METRIC_PARTITIONS_MAX, METRIC_ROWS_PER_TURN
from protocol.types import Milliseconds, Offset, PartitionIndex, SessionId
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.small_agent import TOPIC_ID, made_state


class Scraped:
    """The metrics of an agent with a made state, its leadership and its clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.state = made_state()
        self.is_leader = True
        self.clock = clock
        self.metrics = ClusterMetrics(
            state=lambda: self.state,
            is_leader=lambda: self.is_leader,
            now_ms=lambda: Milliseconds(9_000),
            clock=self.clock,
        )
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)

    async def text(self) -> str:
        await self.metrics.refresh()
        return generate_latest(self.registry).decode()


async def test_the_leader_exposes_the_cluster() -> None:
    agent = Scraped(ManualClock())
    agent.state.groups["g"] = GroupState(
        group_id="g",
        claim_epoch=1,
        claimed_by=SessionId(3),
        offsets={TOPIC_ID: {PartitionIndex(0): CommittedOffset(Offset(10), 0, "", Milliseconds(0))}},
    )
    lines = (await agent.text()).splitlines()
    for line in (
        "penstock_maintenance_leader 1.0",
        "penstock_topics 1.0",
        "penstock_objects_pending_deletion 1.0",
        'penstock_log_end_offset{partition="0",topic="orders"} 15.0',
        'penstock_topic_stored_bytes{topic="orders",where="lake"} 400.0',
        'penstock_topic_unarchived_seconds{topic="orders"} 7.0',
        'penstock_last_stable_offset_lag_seconds{topic="orders"} 0.0',
        'penstock_group_lag_records{group="g",topic="orders"} 5.0',
        'penstock_group_lag_seconds{group="g",topic="orders"} 7.0',
        'penstock_group_members{group="g"} 0.0',
        'penstock_group_info{group="g",state="Empty",type="classic"} 1.0',
        'penstock_transactions_ended_total{how="committed"} 0.0',
        'penstock_series_dropped_total{kind="group_lag"} 0.0',
    ):
        assert line in lines


async def test_another_agent_says_only_that_it_is_not_the_leader() -> None:
    agent = Scraped(ManualClock())
    assert "penstock_topics" in await agent.text()
    agent.is_leader = False
    samples = [line for line in (await agent.text()).splitlines() if not line.startswith("#")]
    assert samples == ["penstock_maintenance_leader 0.0"]


class SlowClock(ManualClock):
    """Each turn of other tasks takes a second."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds + 1.0)


async def test_scrapes_compute_for_a_twentieth_of_the_time() -> None:
    agent = Scraped(SlowClock())
    agent.state.topics[TOPIC_ID].partitions *= METRIC_ROWS_PER_TURN // 2  # one turn
    for _ in range(30):
        await asyncio.gather(agent.metrics.refresh(), agent.metrics.refresh())
        agent.clock.seconds += 1
    assert len(agent.clock.slept) == 2, "at the beginning and after twenty seconds"


class StandingClock(ManualClock):
    """Turns take until somebody says so, and whoever waits for something loses patience at once."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.goes_on.wait()

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(0)


async def test_a_scrape_does_not_wait_for_all_of_a_large_cluster() -> None:
    clock = StandingClock()
    agent = Scraped(clock)
    agent.state.topics[TOPIC_ID].partitions *= METRIC_ROWS_PER_TURN
    async with asyncio.TaskGroup() as tasks:
        await agent.metrics.refresh_in(tasks)
        assert "penstock_topics" not in generate_latest(agent.registry).decode()
        clock.goes_on.set()
        assert "penstock_topics 1.0" in await agent.text()


class NotComputed(Exception):
    """What a broken state does."""


async def test_a_scrape_says_what_is_wrong_and_ends_nothing_else() -> None:
    def fail() -> ClusterState:
        raise NotComputed

    metrics = ClusterMetrics(state=fail, is_leader=lambda: True, now_ms=lambda: None, clock=ManualClock())
    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(asyncio.sleep(0))
        with pytest.raises(NotComputed):
            await metrics.refresh_in(tasks)
        await other


async def test_the_worst_rows_stay_and_the_others_are_counted() -> None:
    made = await cluster_statistics(made_state(), CooperativeYield(SystemClock()), Milliseconds(9_000))
    topics = [made.topics[0]._replace(name="fresh", unarchived_ms=Milliseconds(8_000)), made.topics[0]]
    statistics = replace(
        made,
        topics=topics,
        lags=[GroupLag("g", "a", 900, Milliseconds(8_000)), GroupLag("g", "b", 1, Milliseconds(1_000))],
        groups=[GroupRow("few", "classic", "Stable", 1), GroupRow("many", "classic", "Stable", 5)],
        partitions=METRIC_PARTITIONS_MAX + 1,
    )
    dropped: Dropped = Counter(dict.fromkeys(KINDS, 0))
    shown = limited(statistics, dropped, 1)
    assert [topic.name for topic in shown.topics] == ["orders"]
    assert [lag.topic for lag in shown.lags] == ["b"]
    assert [group.group_id for group in shown.groups] == ["many"]
    assert dropped == {"topic": 1, "group_lag": 1, "group": 1, "partition": METRIC_PARTITIONS_MAX + 1}
    names = {family.name for family in families(shown, dropped)}
    assert "penstock_log_end_offset" not in names
    assert "penstock_topics" in names
