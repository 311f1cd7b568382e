"""Every metric that an agent exposes, from the product's own registry: for docs/reference and deploy/monitoring."""

from collections import Counter
from unittest.mock import Mock

from agent.ledger.ledger_metrics import ledger_families
from agent.runtime.metrics import MetricRow, Metrics
from agent.views.cluster_metrics import ClusterMetrics, families
from agent.views.cluster_statistics import ClusterStatistics, TopicStatistics
from agent.views.group_lags import GroupLag, GroupRow
from agent.views.transactions import TransactionStatistics
from coordinator.ledger.port import LedgerSize
from protocol.types import Milliseconds


def metric_rows() -> list[MetricRow]:
    """Every metric, by name: those of each agent, and those of the cluster."""
    topic = TopicStatistics(
        name="orders",
        log_ends=[0],
        chunks=0,
        intake_bytes=0,
        lake_bytes=0,
        unarchived_ms=None,
        unstable_records=0,
        unstable_ms=None,
    )
    statistics = ClusterStatistics(
        now_ms=Milliseconds(0),
        leader_epoch=1,
        topics=[topic],
        groups=[GroupRow("billing", "classic", "Stable", 1)],
        lags=[GroupLag("billing", "orders", 0, None)],
        transactions=TransactionStatistics(ids=0, open=0, open_seconds_max=0, begun=0, ended={"committed": 0}),
        topics_count=1,
        partitions=1,
        chunks=0,
        objects=0,
        objects_pending_deletion=0,
        sessions=1,
        producers=0,
        producers_dropped=0,
    )
    leader = ClusterMetrics(state=Mock(), is_leader=lambda: False, now_ms=Mock(), clock=Mock())
    size = LedgerSize(used_bytes=0, quota_bytes=1)
    computed = [
        MetricRow(
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            tuple(family.samples[0].labels),
            family.documentation,
        )
        for family in [*leader.collect(), *families(statistics, Counter(topic=0)), *ledger_families(0, size)]
    ]
    return sorted([*Metrics().rows, *computed])
