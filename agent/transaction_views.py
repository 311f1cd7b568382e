"""Transactions as plain values: what /metrics, /api/inspect/transactions and `penstock inspect transactions` show.

Rule: pure functions of the state; values are str, int, None. Keys do not change: programs read them (`--json`). Ages
are the cluster's time less that at which a transaction began: for people, nothing is decided by them.
"""

import heapq
from collections.abc import Iterable

from agent.metrics import TransactionFigures
from coordinator.state import ClusterState
from coordinator.transactions import TransactionalId

View = dict[str, object]


def transaction_figures(state: ClusterState, now_ms: int | None = None) -> TransactionFigures:
    """What the gauges show. `now_ms`: of a checked clock; None takes the state's time."""
    began_ms = min((state.transactional_ids[name].started_ms for name in state.open_transactions), default=None)
    return TransactionFigures(
        ids=len(state.transactional_ids),
        open=len(state.open_transactions),
        open_seconds_max=0.0 if began_ms is None else max(0, (now_ms or state.time_ms) - began_ms) / 1000,
        begun=state.transaction_counts.begun,
        ended={how.value: count for how, count in state.transaction_counts.ended.items()},
        lags=_lags(state),
    )


def _lags(state: ClusterState) -> Iterable[tuple[str, int]]:
    for topic in state.topics.values():
        yield topic.name, max((each.log_end - each.last_stable for each in topic.partitions), default=0)


def transaction_list(state: ClusterState, limit: int) -> View:
    """At most `limit` transactional ids: those whose transaction is open, the oldest first, then those used last."""
    held_of = state.transactional_ids
    names = sorted(state.open_transactions, key=lambda name: held_of[name].started_ms)[:limit]
    if len(names) < limit:
        others = ((name, held) for name, held in held_of.items() if not held.metadata.is_ongoing)
        newest = heapq.nlargest(limit - len(names), others, key=lambda item: item[1].updated_ms)
        names += [name for name, _ in newest]
    rows = [_row(state, name, held_of[name]) for name in names]
    return {"transactions": rows, "open": len(state.open_transactions), "ids": len(held_of)}


def _row(state: ClusterState, transactional_id: str, held: TransactionalId) -> View:
    metadata = held.metadata
    first = next(iter(held.partitions), None)
    return {
        "transactional_id": transactional_id,
        "state": metadata.status.value,
        "open_s": (state.time_ms - held.started_ms) // 1000 if metadata.is_ongoing else None,
        "timeout_s": metadata.timeout_ms / 1000,
        "producer_id": metadata.producer_id,
        "epoch": metadata.epoch,
        "version": int(metadata.version),
        "updated_ms": held.updated_ms,
        "partitions": len(held.partitions),
        "groups": len(held.groups),
        "first_partition": None if first is None else f"{state.topics[first[0]].name}-{first[1]}",
    }
