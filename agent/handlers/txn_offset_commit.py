"""TxnOffsetCommit: commits offsets of a group once a producer's transaction commits (KIP-98).

- Versions: 0-5. From 3 on the request names a member of the group (KIP-447). From 5 on it makes the group part of the
  transaction, and begins one where none is open (KIP-890). Before, AddOffsetsToTxn did, and the request carries the
  epoch of its connection (safety rule S7).
- Behaviour: the group's coordinator judges the member as for OffsetCommit. It accepts members of classic and of
  consumer groups, and a client that names no member, whether the group has members or not. A partition is called
  unknown only after a barrier (safety rule S4). The response comes once the entry is applied, under the coordinator's
  claim (safety rule S13), or is COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms. So is a commit that waited
  for as long before it could be judged, and it is surely not made (safety rule S23). One request is one entry, so
  that all its offsets are kept or none. A request that does not fit is INVALID_COMMIT_OFFSET_SIZE, as one that does not
  fit into a batch is in Kafka.
- Differs from Kafka: where both the group and the transaction reject it, the error is the group's.
- Source: org.apache.kafka.server.KafkaApis.handleTxnOffsetCommitRequest,
  org.apache.kafka.coordinator.group.OffsetMetadataManager.commitTransactionalOffset (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.groups.group_ledger import CommittingProducer, NotCoordinator, OffsetRow
from agent.request.messages import Values
from agent.request.offset_commits import as_client_error, commit_error, is_overdue, rejection
from agent.request.offset_rows import WantedOffset, answered_topics, of_named_topics, read_rows
from agent.request.services import Request, Services
from agent.request.transactional_requests import offset_commit_epoch_of, stale
from agent.runtime.yielding import inline_or_in_thread
from agent.security.required_rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTION
from coordinator.commands.commands import Rejected
from coordinator.commands.transaction import TransactionalOffsetsPending
from coordinator.ledger.port import OutcomeUnknown
from protocol.errors import ErrorCode
from protocol.limits import OFFSETS_PER_ENTRY_MAX, TRANSACTIONAL_METADATA_BYTES_MAX
from txn.transaction import TransactionVersion
from txn.transaction_requests import answered_code, check_transactional_id, compared_producer, transaction_version

API_KEY = 28
FIRST_WITH_EPOCHS = 2
FIRST_WITH_MEMBERS = 3
NO_GENERATION = -1


async def handle(services: Services, request: Request, body: Any) -> Values:
    denial = await _denial(request, body)
    if denial is not ErrorCode.none:
        count = sum(len(topic.partitions) for topic in body.topics)
        rows = await inline_or_in_thread(count, answered_topics, body.topics, [denial] * count, _named)
        return {"topics": rows}
    has_leader_epochs = request.frame.api_version >= FIRST_WITH_EPOCHS
    named = await of_named_topics(services, request, body.topics, READ_TOPIC, has_leader_epochs=has_leader_epochs)
    errors, wanted = await read_rows(services, named)
    if wanted:
        for each, error_code in zip(wanted, await _pend(services, request, body, wanted), strict=True):
            errors[each.position] = error_code
    return {"topics": await inline_or_in_thread(len(errors), answered_topics, body.topics, errors, _named)}


async def _denial(request: Request, body: Any) -> ErrorCode:
    """NONE where the client may write under the transactional id, and may read the group."""
    if not await request.rights.may_behind_barrier(*WRITE_TRANSACTION, body.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return ErrorCode.group_authorization_failed
    return ErrorCode.none


async def _pend(services: Services, request: Request, body: Any, wanted: Sequence[WantedOffset]) -> list[ErrorCode]:
    """The error for each of `wanted`. The coordinator's comes before that of a note that is too long, as in Kafka."""
    error_code = await _claim(services, request, body)
    if error_code is not ErrorCode.none:
        return [error_code] * len(wanted)
    producer = await _producer(services, request, body)
    rows = [each.row for each in wanted if each.row is not None]
    # The offsets are judged and proposed in one turn of the loop, so that the group does not change in between.
    error_code = _judge(services, request, body, rows)
    if error_code is not ErrorCode.none:
        return await rejection(services, body.group_id, len(wanted), error_code)
    if not rows:
        return [ErrorCode.offset_metadata_too_large] * len(wanted)
    error_codes = iter(await _submit(services, request, body.group_id, rows, producer))
    return [ErrorCode.offset_metadata_too_large if each.row is None else next(error_codes) for each in wanted]


async def _claim(services: Services, request: Request, body: Any) -> ErrorCode:
    """NONE once this agent coordinates the group. A member of an unknown group is rejected without an entry."""
    ledger, group_id = services.group_ledger, body.group_id
    if not group_id:
        return ErrorCode.invalid_group_id
    error_code = check_transactional_id(body.transactional_id)
    if error_code is not ErrorCode.none:
        return error_code
    is_of_member = request.frame.api_version >= FIRST_WITH_MEMBERS and body.generation_id >= 0
    try:
        if is_of_member and not ledger.owns(group_id) and await ledger.check_readable(group_id) is None:
            return ErrorCode.illegal_generation
        await ledger.claim(group_id)
    except NotCoordinator as error:
        return error.error_code
    return ErrorCode.none


async def _producer(services: Services, request: Request, body: Any) -> CommittingProducer:
    version = transaction_version(API_KEY, request.frame.api_version)
    producer_id, epoch = compared_producer(body.producer_id, body.producer_epoch)
    return CommittingProducer(
        transactional_id=body.transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        version=version,
        connection_epoch=await offset_commit_epoch_of(services, request) if version is TransactionVersion.V1 else None,
    )


def _judge(services: Services, request: Request, body: Any, rows: Sequence[OffsetRow]) -> ErrorCode:
    if is_overdue(services, request):
        return ErrorCode.coordinator_not_available
    version = request.frame.api_version
    names_member = version >= FIRST_WITH_MEMBERS
    return commit_error(
        services,
        body.group_id,
        member_id=body.member_id if names_member else "",
        group_instance_id=body.group_instance_id if names_member else None,
        generation=body.generation_id if names_member else NO_GENERATION,
        api_version=version,
        rows=rows,
        is_transactional=True,
    )


async def _submit(
    services: Services, request: Request, group_id: str, rows: Sequence[OffsetRow], producer: CommittingProducer
) -> Sequence[ErrorCode]:
    """The error for each row. Raises `NoAnswerOwed` where the request is stale (S7)."""
    if not _fits(rows):
        return [ErrorCode.invalid_commit_offset_size] * len(rows)
    pending = services.group_ledger.commit_in_transaction(group_id, rows, producer)
    try:
        async with services.clock.timeout(services.group_ledger.commit_timeout_s):
            outcome = await pending
    except TimeoutError:
        return [ErrorCode.coordinator_not_available] * len(rows)
    except OutcomeUnknown:
        return [ErrorCode.not_coordinator] * len(rows)
    if isinstance(outcome, Rejected):
        return [as_client_error(outcome.error_code)] * len(rows)
    assert isinstance(outcome, TransactionalOffsetsPending), f"unexpected outcome of a commit: {outcome}"
    if outcome.is_stale:
        raise stale(services, request, producer.transactional_id, f"commit offsets of the group {group_id}")
    error_codes = list(map(ErrorCode, outcome.error_codes))
    return [answered_code(API_KEY, request.frame.api_version, error_code) for error_code in error_codes]


def _fits(rows: Sequence[OffsetRow]) -> bool:
    """Whether one entry has space for all of them."""
    metadata_bytes = sum(len(row.metadata.encode()) for row in rows)
    return len(rows) <= OFFSETS_PER_ENTRY_MAX and metadata_bytes <= TRANSACTIONAL_METADATA_BYTES_MAX


def _named(topic: Any) -> dict[str, Any]:
    return {"name": topic.name}
