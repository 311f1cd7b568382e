"""Transactions as plain values: what /metrics, /api/inspect/transactions and `penstock inspect transactions` show.

Rule: pure functions of the state; values are str, int, None. Keys do not change: programs read them (`--json`). Ages
are by a checked clock, or else by the state's time, which stands still while nothing is written: they are for people,
and nothing is decided by them.
"""

import heapq
from collections.abc import Iterable

from agent.runtime.metrics import TransactionStatistics
from coordinator.state.state import ClusterState
from coordinator.state.transactions import TransactionalId

View = dict[str, object]


def transaction_statistics(state: ClusterState, now_ms: int | None = None) -> TransactionStatistics:
    """The values of the transaction gauges. `now_ms`: of a checked clock; None takes the state's time."""
    ages_ms = (_open_ms(state, state.transactional_ids[name], now_ms) for name in state.open_transactions)
    return TransactionStatistics(
        ids=len(state.transactional_ids),
        open=len(state.open_transactions),
        open_seconds_max=max(ages_ms, default=0) / 1000,
        begun=state.transaction_counts.begun,
        ended={how.value: count for how, count in state.transaction_counts.ended.items()},
        lags=_lags(state),
    )


def _lags(state: ClusterState) -> Iterable[tuple[str, int]]:
    for topic in state.topics.values():
        yield topic.name, max((each.log_end - each.last_stable for each in topic.partitions), default=0)


def _open_ms(state: ClusterState, held: TransactionalId, now_ms: int | None) -> int:
    """For how long its transaction, which is open, has been so."""
    return max(state.time_ms, now_ms or 0) - held.started_ms


def transaction_list(state: ClusterState, limit: int, now_ms: int | None = None) -> View:
    """At most `limit` transactional ids: those whose transaction is open, the oldest first, then those used last."""
    held_of = state.transactional_ids
    names = sorted(state.open_transactions, key=lambda name: held_of[name].started_ms)[:limit]
    if len(names) < limit:
        others = ((name, held) for name, held in held_of.items() if not held.metadata.is_ongoing)
        newest = heapq.nlargest(limit - len(names), others, key=lambda item: item[1].updated_ms or state.time_ms)
        names += [name for name, _ in newest]
    rows = [_row(state, name, held_of[name], now_ms) for name in names]
    return {"transactions": rows, "open": len(state.open_transactions), "ids": len(held_of)}


def _row(state: ClusterState, transactional_id: str, held: TransactionalId, now_ms: int | None) -> View:
    metadata = held.metadata
    first = next(iter(held.partitions), None)
    return {
        "transactional_id": transactional_id,
        "state": metadata.status.value,
        "open_s": _open_ms(state, held, now_ms) // 1000 if metadata.is_ongoing else None,
        "timeout_s": metadata.timeout_ms / 1000,
        "producer_id": metadata.producer_id,
        "epoch": metadata.epoch,
        "version": int(metadata.version),
        "updated_ms": held.updated_ms or None,
        "partitions": len(held.partitions),
        "groups": len(held.groups),
        "first_partition": None if first is None else f"{state.topics[first[0]].name}-{first[1]}",
    }
