"""The metrics of the whole cluster, which the maintenance leader alone exposes.

So sums over all agents are right, a scrape of N agents costs one computation, and `max` holds over a handover. Another
agent exposes `penstock_maintenance_leader 0` and nothing else of these.

Rule: `refresh` computes the values in turns, and a scrape shows the newest ones. It is called for each scrape, and
computes again at most for `METRIC_REFRESH_SHARE_MAX` of the time. What it makes of many rows at once, it makes in a
thread.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.runtime.clock import Clock
from agent.runtime.supervisor import begin_in, result_or_error
from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import CooperativeYield
from agent.views.append_times import age_seconds
from agent.views.cluster_statistics import ClusterStatistics, TopicStatistics, cluster_statistics
from agent.views.group_lags import GroupLag, GroupRow
from agent.views.transactions import TransactionStatistics
from coordinator.state.state import ClusterState
from protocol.limits import (
    ARCHIVE_AGE_MS_DEFAULT,
    METRIC_PARTITIONS_MAX,
    METRIC_REFRESH_SECONDS_MAX,
    METRIC_REFRESH_SHARE_MAX,
    METRIC_ROWS_PER_TURN,
    METRIC_SERIES_MAX,
)
from protocol.types import Milliseconds

Dropped = Counter[str]
"""The rows that were left out above a limit, by kind."""
KINDS = ("group", "group_lag", "partition", "topic")


class ClusterMetrics(Collector):
    """Every agent has one."""

    def __init__(
        self,
        *,
        state: Callable[[], ClusterState],
        is_leader: Callable[[], bool],
        now_ms: Callable[[], Milliseconds | None],
        clock: Clock,
        pass_interval_ms: int = ARCHIVE_AGE_MS_DEFAULT,
    ) -> None:
        """`now_ms`: the time of a checked clock; None while it is not trusted, then ages stand still.

        `pass_interval_ms`: the usual time between two archive passes of a topic.
        """
        self._state = state
        self._is_leader = is_leader
        self._now_ms = now_ms
        self._clock = clock
        self._pass_interval_ms = pass_interval_ms
        self._refreshing = asyncio.Lock()
        self._next_s = float("-inf")
        """The monotonic time before which the statistics are not computed again."""
        self._families: Sequence[Metric] | None = None
        self._dropped: Dropped = Counter(dict.fromkeys(KINDS, 0))

    async def refresh_in(self, tasks: asyncio.TaskGroup) -> None:
        """Refresh as a task of the group, and wait for it as long as a scrape may take.

        Those of a large cluster take longer: this scrape shows the former ones, and a later one the new ones.
        """
        refreshing = begin_in(tasks, result_or_error(self.refresh()))
        if refreshing is None:
            return
        with suppress(TimeoutError):
            async with self._clock.timeout(METRIC_REFRESH_SECONDS_MAX):
                error = await asyncio.shield(refreshing)
                if error is not None:
                    raise error

    async def refresh(self) -> None:
        """Compute the metrics again, unless that was just done. Cancelled, it leaves the former ones."""
        async with self._refreshing:  # a second scrape shows what the first one computes
            if not self._is_leader():
                self._families = None
                return
            began_s = self._clock.monotonic_s()
            if self._families is not None and began_s < self._next_s:
                return
            turns = CooperativeYield(self._clock, METRIC_ROWS_PER_TURN)
            statistics = await cluster_statistics(self._state(), turns, self._now_ms(), self._pass_interval_ms)
            self._families = await run_in_thread(_families_of, statistics, self._dropped)
            ended_s = self._clock.monotonic_s()
            self._next_s = ended_s + (ended_s - began_s) / METRIC_REFRESH_SHARE_MAX

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        is_leader = self._is_leader()
        yield GaugeMetricFamily(
            "penstock_maintenance_leader", "1 on the agent that is the maintenance leader.", value=float(is_leader)
        )
        if is_leader and self._families is not None:
            yield from self._families


def _families_of(statistics: ClusterStatistics, dropped: Dropped) -> Sequence[Metric]:
    return list(families(limited(statistics, dropped), dropped))


def limited(statistics: ClusterStatistics, dropped: Dropped, series_max: int = METRIC_SERIES_MAX) -> ClusterStatistics:
    """The statistics without the rows above the limits, which are added to `dropped`. The worst rows stay."""

    def age_ms(time_ms: Milliseconds | None) -> int:
        return 0 if time_ms is None else statistics.now_ms - time_ms

    topics = heapq.nlargest(
        series_max,
        statistics.topics,
        key=lambda row: (max(age_ms(row.unstable_ms), age_ms(row.unarchived_ms)), row.intake_bytes + row.lake_bytes),
    )
    lags = heapq.nlargest(series_max, statistics.lags, key=lambda row: (age_ms(row.oldest_ms), row.records))
    groups = heapq.nlargest(series_max, statistics.groups, key=lambda row: row.members)
    dropped["topic"] += len(statistics.topics) - len(topics)
    dropped["group_lag"] += len(statistics.lags) - len(lags)
    dropped["group"] += len(statistics.groups) - len(groups)
    if statistics.partitions > METRIC_PARTITIONS_MAX:
        dropped["partition"] += statistics.partitions
    return replace(statistics, topics=topics, lags=lags, groups=groups)


def families(statistics: ClusterStatistics, dropped: Dropped) -> Iterable[Metric]:
    """All metrics of the cluster, in one state of it."""
    yield from _state_families(statistics)
    yield from _topic_families(statistics.topics, statistics.now_ms)
    yield from _group_families(statistics.groups, statistics.lags, statistics.now_ms)
    yield from _transaction_families(statistics.transactions)
    yield _counter("series_dropped", "Series left out of scrapes above a limit, by what they are of.", "kind", dropped)


def _state_families(statistics: ClusterStatistics) -> Iterable[Metric]:
    for name, text, value in (
        ("maintenance_leader_epoch", "How often an agent became the maintenance leader.", statistics.leader_epoch),
        ("topics", "Topics.", statistics.topics_count),
        ("partitions", "Partitions.", statistics.partitions),
        ("chunks", "Chunks in the chunk index.", statistics.chunks),
        ("objects", "Objects that the state references.", statistics.objects),
        (
            "objects_pending_deletion",
            "Unreferenced objects that wait for deletion.",
            statistics.objects_pending_deletion,
        ),
        ("sessions", "Live agent sessions.", statistics.sessions),
        (
            "producer_states",
            "Producer states of all partitions. A producer counts in each partition that it wrote to.",
            statistics.producers,
        ),
    ):
        yield GaugeMetricFamily(f"penstock_{name}", text, value=value)
    text = "Producer states dropped above the limit, in the whole cluster."
    yield CounterMetricFamily("penstock_producer_states_dropped", text, value=statistics.producers_dropped)
    if statistics.partitions <= METRIC_PARTITIONS_MAX:
        log_end = _labelled("log_end_offset", "Log end offset of a partition.", "topic", "partition")
        for topic in statistics.topics:
            for number, offset in enumerate(topic.log_ends):
                log_end.add_metric((topic.name, str(number)), offset)
        yield log_end


def _topic_families(topics: Sequence[TopicStatistics], now_ms: Milliseconds) -> Iterable[Metric]:
    stored = _labelled(
        "topic_stored_bytes", "Stored bytes of a topic, before its archive pass and after it.", "topic", "where"
    )
    unarchived = _labelled(
        "topic_unarchived_seconds", "Age of a topic's oldest record that is not in its table; 0 without one.", "topic"
    )
    lag = _labelled(
        "last_stable_offset_lag",
        "Records above the last stable offset, hidden from read_committed: a topic's worst partition.",
        "topic",
    )
    lag_seconds = _labelled(
        "last_stable_offset_lag_seconds",
        "Age of a topic's oldest record above a last stable offset; 0 without one.",
        "topic",
    )
    for topic in topics:
        stored.add_metric((topic.name, "intake"), topic.intake_bytes)
        stored.add_metric((topic.name, "lake"), topic.lake_bytes)
        unarchived.add_metric((topic.name,), age_seconds(topic.unarchived_ms, now_ms))
        lag.add_metric((topic.name,), topic.unstable_records)
        lag_seconds.add_metric((topic.name,), age_seconds(topic.unstable_ms, now_ms))
    yield from (stored, unarchived, lag, lag_seconds)


def _group_families(groups: Sequence[GroupRow], lags: Sequence[GroupLag], now_ms: Milliseconds) -> Iterable[Metric]:
    records = _labelled(
        "group_lag_records", "Records of a topic that a group has not consumed, by committed offsets.", "group", "topic"
    )
    seconds = _labelled(
        "group_lag_seconds",
        "Time since the first record that a group has not consumed was appended; 0 if it has consumed all.",
        "group",
        "topic",
    )
    for lag in lags:
        records.add_metric((lag.group_id, lag.topic), lag.records)
        seconds.add_metric((lag.group_id, lag.topic), age_seconds(lag.oldest_ms, now_ms))
    members = _labelled("group_members", "Members of a group.", "group")
    info = _labelled(
        "group_info", "1 for each group, with its type and Kafka's name of its state.", "group", "type", "state"
    )
    for group in groups:
        members.add_metric((group.group_id,), group.members)
        info.add_metric((group.group_id, group.type, group.state), 1)
    yield from (records, seconds, members, info)


def _transaction_families(statistics: TransactionStatistics) -> Iterable[Metric]:
    for name, text, value in (
        ("transactional_ids", "Known transactional ids.", statistics.ids),
        ("transactions_open", "Open transactions.", statistics.open),
        (
            "transaction_oldest_open_seconds",
            "Age of the oldest open transaction; 0 while none is open.",
            statistics.open_seconds_max,
        ),
    ):
        yield GaugeMetricFamily(f"penstock_{name}", text, value=value)
    yield CounterMetricFamily("penstock_transactions_started", "Started transactions.", value=statistics.begun)
    yield _counter("transactions_ended", "Ended transactions, by how they ended.", "how", statistics.ended)


def _labelled(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_{name}", text, labels=labels)


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"penstock_{name}", text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family
