"""Transactions as plain values: what /metrics, /api/inspect/transactions and `penstock inspect transactions` show.

Rule: pure functions of the state; values are str, int, None. Keys do not change: programs read them (`--json`). Ages
are the cluster's time less that at which a transaction began: for people, nothing is decided by them.
"""

from collections.abc import Iterable, Iterator

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


def transaction_rows(state: ClusterState) -> Iterator[View]:
    """Every transactional id: those whose transaction is open, the oldest first, then those that were used last."""
    ordered = sorted(state.transactional_ids.items(), key=_age_rank)
    for transactional_id, held in ordered:
        yield _row(state, transactional_id, held)


def _age_rank(item: tuple[str, TransactionalId]) -> tuple[bool, int]:
    held = item[1]
    is_open = held.metadata.is_ongoing
    return not is_open, held.started_ms if is_open else -held.updated_ms


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
