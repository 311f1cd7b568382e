"""Proposes the commands of transactional requests, and returns their outcomes.

Nothing is decided here. An unknown outcome is an error after which clients repeat the request, never a success. A
request that came on a connection which its client has left gets no response (safety rule S7).
Source of the errors: org.apache.kafka.clients.producer.internals.TransactionManager (Kafka 4.3).
"""

import logging

from agent.request.services import NoAnswerOwed, Request, Services
from coordinator.commands.commands import Rejected
from coordinator.commands.transaction import (
    AddToTransaction,
    ConnectionEpoch,
    EndTransaction,
    InitTransactionalProducer,
    TransactionDecided,
)
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.limits import CUT_OFF_HOLD_SECONDS, LEDGER_WAIT_SECONDS_MAX
from protocol.types import NO_PRODUCER_ID, ProducerId
from txn.producer_state import is_stale

log = logging.getLogger(__name__)

NOT_KNOWN = TransactionDecided(error_code=ErrorCode.coordinator_not_available)
"""The ledger has not answered in time, or never will: the command may be applied."""
REDIRECTION = TransactionDecided(error_code=ErrorCode.not_coordinator)
"""This agent is stopping, or cut off from the ledger: the client asks another one."""


async def decided(
    services: Services, request: Request, command: InitTransactionalProducer | AddToTransaction | EndTransaction
) -> TransactionDecided:
    """The outcome of the command once it is applied.

    Raises `NoAnswerOwed` where the request is stale (S7), and `LedgerUnavailable` as `Services.redirects` does.
    """
    if await services.redirects(request, CUT_OFF_HOLD_SECONDS):
        return REDIRECTION
    try:
        async with services.clock.timeout(LEDGER_WAIT_SECONDS_MAX):
            outcome = await services.ledger.propose(command)
    except (OutcomeUnknown, TimeoutError):
        return NOT_KNOWN
    if isinstance(outcome, Rejected):
        is_later = outcome.error_code is ErrorCode.request_timed_out
        return NOT_KNOWN if is_later else TransactionDecided(error_code=outcome.error_code)
    assert isinstance(outcome, TransactionDecided), f"unexpected outcome of {type(command).__name__}: {outcome}"
    if outcome.is_stale:
        raise stale(services, request, command.transactional_id, _asked(command))
    return outcome


class BatchesOfTransaction:
    """Judges the transactional batches of one Produce request by its transactional id, before they are written.

    At apply a batch is judged by its producer id alone, so the pair of both ids is checked here. Once it is right, it
    stays right, or the batch is rejected at apply.

    A producer id whose epochs were exhausted belongs to no transactional id. Partitions that have its marker reject its
    late batches with INVALID_PRODUCER_EPOCH, as in Kafka (UnifiedLog.maybeStartTransactionVerification).
    Differs from Kafka: other partitions do, too, until the next transaction begins. INVALID_PRODUCER_ID_MAPPING would
    be fatal to a client that may abort and go on.
    """

    def __init__(self, services: Services, transactional_id: str | None) -> None:
        self._services = services
        self._transactional_id = transactional_id
        self._is_caught_up = False

    async def error(self, partition: PartitionState, producer_id: int, epoch: int) -> ErrorCode:
        """NONE where the producer id belongs to the transactional id. An error follows a barrier (S4)."""
        if self._is_known(producer_id):
            return ErrorCode.none
        if not self._is_caught_up:
            try:
                await self._services.ledger.barrier()
            except LedgerUnavailable:
                return ErrorCode.not_leader_or_follower
            self._is_caught_up = True
        if self._is_known(producer_id):
            return ErrorCode.none
        is_outdated = is_stale(partition.producers.get(ProducerId(producer_id)), epoch) or self._was_its_own(
            producer_id
        )
        return ErrorCode.invalid_producer_epoch if is_outdated else ErrorCode.invalid_producer_id_mapping

    def _is_known(self, producer_id: int) -> bool:
        owner = self._services.state.producers_of_transactions.get(ProducerId(producer_id))
        return owner is not None and owner == self._transactional_id

    def _was_its_own(self, producer_id: int) -> bool:
        held = self._services.state.transactional_ids.get(self._transactional_id or "")
        return held is not None and held.metadata.previous_producer_id == producer_id != NO_PRODUCER_ID


async def connection_epoch_of(services: Services, request: Request) -> ConnectionEpoch | None:
    """The epoch of the request's connection, None for a request without one.

    Raises `NoAnswerOwed` where the connection gets none: the client comes back by a newer one (safety rule S7).
    """
    if request.connection_epoch is None:
        return None
    return _owed_epoch(await request.connection_epoch.known(services.clock))


async def offset_commit_epoch_of(services: Services, request: Request) -> ConnectionEpoch | None:
    """The same for a TxnOffsetCommit, which another agent may have relayed. Raises `NoAnswerOwed`."""
    if services.relayed_epochs is None or request.connection_epoch is None:
        return await connection_epoch_of(services, request)
    epoch = await request.connection_epoch.of_client(services.clock)
    return _owed_epoch(None if epoch is None else services.relayed_epochs.rank(epoch))


def _owed_epoch(epoch: ConnectionEpoch | None) -> ConnectionEpoch:
    if epoch is None:
        raise NoAnswerOwed("this connection has no epoch, and transactions need one: its client has to connect again")
    return epoch


def stale(services: Services, request: Request, transactional_id: str, asked: str) -> NoAnswerOwed:
    """Counts and logs a request on a connection that its client has left. The caller raises the result (S7)."""
    services.metrics.transactions_fenced_requests.inc()
    log.warning(
        "a request of a transaction came on a connection that its client had left for a newer one, and did nothing: "
        "closing the connection",
        extra={
            "transactional_id": transactional_id,
            "client_id": request.frame.client_id,
            "peer": request.peer,
            "asked": asked,
        },
    )
    return NoAnswerOwed("its client has a newer connection")


def _asked(command: InitTransactionalProducer | AddToTransaction | EndTransaction) -> str:
    match command:
        case EndTransaction(is_commit=is_commit):
            return "commit" if is_commit else "abort"
        case AddToTransaction(partitions=partitions, groups=groups):
            return f"add {len(partitions)} partitions, {len(groups)} groups"
        case InitTransactionalProducer():
            return "begin under a new epoch"
