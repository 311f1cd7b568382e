"""Transactions: what they take of a producer's speed, and how long a commit takes by its number of partitions.

Rule: Java's client, which speaks V2 (KIP-890) with every peer. The idempotent producer beside a transactional one runs
just before it, on a topic of its own, so that what the machine does at that moment hits both.
"""

from benchmarks.cases import Case
from benchmarks.measure.rows import WARM_UP_SHARE, Bench, topic_of
from benchmarks.peers.brokers import Peer
from benchmarks.peers.tool_output import read_committed

COMMIT_WARM_UP = 10


def produce(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    """TRANSACTIONS: as fast as it goes, without transactions and with them."""
    records = bench.scale.records(case, peer.name)
    warm_up = records // WARM_UP_SHARE
    with topic_of(peer, case.partitions) as topic:
        plain = bench.tools.produce(peer.bootstrap, topic, case, records=records, warm_up_records=warm_up)
    with topic_of(peer, case.partitions) as topic:
        before = peer.cpu_seconds()
        figures = bench.tools.produce(
            peer.bootstrap,
            topic,
            case,
            records=records,
            warm_up_records=warm_up,
            transaction_ms=case.transaction_ms,
        )
        cpu = peer.cpu_seconds() - before
    return {
        "mb_per_s": figures["mb_per_s"],
        "idempotent_mb_per_s": plain["mb_per_s"],
        "overhead_percent": (1 - figures["mb_per_s"] / plain["mb_per_s"]) * 100,
        "cpu_s_per_gb": cpu / (records * case.value_bytes / 1e9),
    }


def commit(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    """COMMIT: one record in every partition, one transaction after the other."""
    with topic_of(peer, case.partitions) as topic:
        output = bench.tools.commit(
            peer.bootstrap,
            topic,
            partitions=case.partitions,
            transactions=bench.scale.commits,
            warm_up=COMMIT_WARM_UP,
        )
    return read_committed(output)
