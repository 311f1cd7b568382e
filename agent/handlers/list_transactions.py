"""ListTransactions: the transactional ids that this agent coordinates. A client that needs all asks every agent.

- Versions: 0-2. 1 adds a filter by duration (KIP-994), 2 one by a regular expression of RE2 (KIP-1152).
- Behaviour: the request takes a barrier first (safety rule S4). Any agent could list all, but then tools would show
  each id once for every agent. So they do behind one address for several agents, where a client cannot ask each of
  them, and a missing id would be worse. A duration is measured by the agent's clock where that agrees with the object
  store's, else by the cluster's time.
- Differs from Kafka: a filter by duration matches only open transactions.
- Source: org.apache.kafka.coordinator.transaction.TransactionStateManager.listTransactionStates (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.admin.cluster_view import sessions_behind
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.regexes import matcher, regex_problem
from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.required_rights import DESCRIBE_TRANSACTION
from agent.security.rights import Rights
from coordinator.state.rendezvous import owners_of, transaction_key
from coordinator.state.transactions import TransactionalId
from protocol.errors import ErrorCode
from protocol.types import SessionId
from txn.transaction import TransactionStatus

API_KEY = 66
FIRST_WITH_DURATION = 1
FIRST_WITH_PATTERN = 2
KAFKAS_STATES: Final = frozenset(status.value for status in TransactionStatus) | {
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "Dead",
}
"""States that never occur here are valid filters (org.apache.kafka...TransactionState)."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in KAFKAS_STATES]
    pattern = (body.transactional_id_pattern or "") if version >= FIRST_WITH_PATTERN else ""
    if pattern and await run_in_thread(regex_problem, pattern) is not None:
        return _error(ErrorCode.invalid_regular_expression)
    if not await passes_barrier(services):
        return _error(ErrorCode.coordinator_not_available)
    request.rights.refresh()
    transactions = await _wanted(services, request.rights, body, version)
    sessions = sessions_behind(services.state, request.listener, services.ledger.agent) | {services.ledger.session}
    rows = await inline_or_in_thread(len(transactions), _found_at, sessions, services, transactions)
    if pattern:
        rows = await run_in_thread(_matching, rows, pattern)
    return {"error_code": ErrorCode.none, "unknown_state_filters": unknown, "transaction_states": rows}


def _error(error_code: ErrorCode) -> Values:
    return {"error_code": error_code, "unknown_state_filters": (), "transaction_states": ()}


async def _wanted(services: Services, rights: Rights, body: Any, version: int) -> list[Mapping[str, Any]]:
    """The ids of all agents that pass the filters by state, producer id and duration."""
    pacer = CooperativeYield(services.clock, after_turn=rights.refresh)
    states, producer_ids = frozenset(body.state_filters), frozenset(body.producer_id_filters)
    open_ms_least = body.duration_filter if version >= FIRST_WITH_DURATION else -1
    now_ms = max(services.state.time_ms, services.checked_time() or 0)
    transactions: list[Mapping[str, Any]] = []
    names = services.state.open_transactions if open_ms_least >= 0 else services.state.transactional_ids
    for transactional_id in tuple(names):
        held = services.state.transactional_ids.get(transactional_id)
        await pacer.step()
        if (
            held is None
            or not rights.may(*DESCRIBE_TRANSACTION, transactional_id)
            or (open_ms_least >= 0 and not _is_open_for(held, now_ms, open_ms_least))
        ):
            continue
        metadata = held.metadata
        if (producer_ids and metadata.producer_id not in producer_ids) or (
            states and metadata.status.value not in states
        ):
            continue
        transactions.append(
            {
                "transactional_id": transactional_id,
                "producer_id": metadata.producer_id,
                "transaction_state": metadata.status.value,
            }
        )
    return transactions


def _is_open_for(held: TransactionalId, now_ms: int, open_ms: int) -> bool:
    return held.metadata.is_ongoing and now_ms - held.started_ms > open_ms


def _found_at(
    sessions: frozenset[SessionId], services: Services, rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The rows of the ids for which clients find the agent of one of the sessions."""
    keys = [transaction_key(row["transactional_id"]) for row in rows]
    owners = owners_of(keys, services.state.sessions)
    return [row for row, owner in zip(rows, owners, strict=True) if owner in sessions]


def _matching(rows: Sequence[Mapping[str, Any]], pattern: str) -> list[Mapping[str, Any]]:
    matching = frozenset(matcher(row["transactional_id"] for row in rows)(pattern))
    return [row for row in rows if row["transactional_id"] in matching]
