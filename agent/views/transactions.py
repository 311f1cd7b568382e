"""Transactions as plain values: for /metrics, /api/inspect/transactions and `penstock inspect transactions`.

Rule: pure functions of the state; values are str, int, None. Keys do not change: programs read them (`--json`). Ages
use a checked clock, or else the state's time, which stands still without entries. They are for people only: nothing is
decided by them.
"""

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from coordinator.state.state import ClusterState
from coordinator.state.transactions import TransactionalId

View = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatistics:
    """The values of the transaction metrics, for the whole cluster at one moment."""

    ids: int
    open: int
    open_seconds_max: float
    """The age of the oldest open transaction; 0 while none is open."""
    begun: int
    """Started transactions since this agent began to apply the ledger."""
    ended: Mapping[str, int]
    """Ended transactions since then, by outcome."""


def transaction_statistics(state: ClusterState, now_ms: int | None = None) -> TransactionStatistics:
    """The values of the transaction gauges. `now_ms`: a checked clock's time; None uses the state's time."""
    ages_ms = (_open_ms(state, state.transactional_ids[name], now_ms) for name in state.open_transactions)
    return TransactionStatistics(
        ids=len(state.transactional_ids),
        open=len(state.open_transactions),
        open_seconds_max=max(ages_ms, default=0) / 1000,
        begun=state.transaction_counts.begun,
        ended={how.value: count for how, count in state.transaction_counts.ended.items()},
    )


def _open_ms(state: ClusterState, entry: TransactionalId, now_ms: int | None) -> int:
    """The age of the id's open transaction."""
    return max(state.time_ms, now_ms or 0) - entry.started_ms


def transaction_list(
    state: ClusterState,
    limit: int,
    now_ms: int | None = None,
    ids: Collection[str] | None = None,
    topics: Collection[str] | None = None,
) -> View:
    """At most `limit` transactional ids: those with open transactions, oldest first, then the most recently used.

    `ids` and `topics`: the only ones that are shown and counted; None for all.
    """
    entries = state.transactional_ids
    if ids is not None:
        entries = {name: entry for name, entry in entries.items() if name in ids}
    open_names = [name for name in state.open_transactions if name in entries]
    names = sorted(open_names, key=lambda name: entries[name].started_ms)[:limit]
    if len(names) < limit:
        others = ((name, entry) for name, entry in entries.items() if not entry.metadata.is_ongoing)
        newest = heapq.nlargest(limit - len(names), others, key=lambda item: item[1].updated_ms or state.time_ms)
        names += [name for name, _ in newest]
    rows = [_row(state, name, entries[name], now_ms, topics) for name in names]
    return {"transactions": rows, "open": len(open_names), "ids": len(entries)}


def _row(
    state: ClusterState,
    transactional_id: str,
    entry: TransactionalId,
    now_ms: int | None,
    topics: Collection[str] | None,
) -> View:
    metadata = entry.metadata
    partitions = ((state.topics[topic_id].name, partition) for topic_id, partition in entry.partitions)
    first = next((each for each in partitions if topics is None or each[0] in topics), None)
    return {
        "transactional_id": transactional_id,
        "state": metadata.status.value,
        "open_s": _open_ms(state, entry, now_ms) // 1000 if metadata.is_ongoing else None,
        "timeout_s": metadata.timeout_ms / 1000,
        "producer_id": metadata.producer_id,
        "epoch": metadata.epoch,
        "version": int(metadata.version),
        "updated_ms": entry.updated_ms or None,
        "partitions": len(entry.partitions),
        "groups": len(entry.groups),
        "first_partition": None if first is None else f"{first[0]}-{first[1]}",
    }
