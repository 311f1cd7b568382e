"""Proposes the offsets that a group commits, and returns an error for each, as clients read it.

They are judged and proposed in the same turn of the loop. Where the judgement is outdated when the entry is applied,
safety rule S13 rejects it. The coordinator judges ahead of the ledger. So an error is returned once all changes that it
may follow from are applied, and behind a barrier (safety rule S4): it is fatal to a member. Many rows take several
entries, and other tasks run in between.

A request that changes offsets and waited too long changes nothing (`is_overdue`). Its client has given it up by then,
and may have committed more on another connection, which an older commit would take back.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from agent.groups.group_ledger import OffsetRow
from agent.groups.membership_errors import is_fatal_to_member
from agent.request.services import Request, Services
from coordinator.commands.consumer_group_values import ConsumerGroup
from protocol.errors import ErrorCode
from protocol.limits import OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_COMMIT_ENTRY_MAX


def is_too_long(metadata: str, length_max: int) -> bool:
    """Whether a note is longer than offset.metadata.max.bytes, which counts UTF-16 units as Java does.

    A note that a response of some version cannot hold is too long as well.
    """
    if len(metadata) * 4 <= min(length_max, OFFSET_METADATA_BYTES_MAX):
        return False
    units_count = len(metadata.encode("utf-16-le")) // 2
    return units_count > length_max or len(metadata.encode()) > OFFSET_METADATA_BYTES_MAX


def commit_error(
    services: Services,
    group_id: str,
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    api_version: int,
    rows: Sequence[OffsetRow],
    is_transactional: bool = False,
) -> ErrorCode:
    """The error of the group's coordinator for a commit. For a consumer group `generation` is the member's epoch."""
    group = services.state.groups.get(group_id)
    if group is None:
        return ErrorCode.not_coordinator
    if isinstance(group.value, ConsumerGroup) or services.consumer_groups.is_live(group_id):
        return services.consumer_groups.check_commit(
            group,
            member_id=member_id,
            group_instance_id=group_instance_id,
            epoch=generation,
            api_version=api_version,
            partitions=((row.topic_id, row.partition) for row in rows),
            is_transactional=is_transactional,
        )
    return services.groups.check_commit(
        group_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        generation=generation,
        api_version=api_version,
        is_transactional=is_transactional,
    )


def is_overdue(services: Services, request: Request) -> bool:
    """Whether a request has waited on this agent for longer than offsets.commit.timeout.ms, or for its session.

    It stood behind others of its connection, or waited for the ledger. Clients wait longer for an answer, and a client
    that left the connection need not be known to have left. In Kafka no broker comes between a client and its
    coordinator, so what a client sends later comes later.

    An agent that was paused reads what was sent to it meanwhile when it goes on, and loses its session. The group may
    have had another coordinator since, through which the client has committed more.
    """
    arrived_s = request.arrived_s
    if arrived_s is None:
        return False
    waited_s = services.clock.monotonic_s() - arrived_s
    return waited_s > services.group_ledger.commit_timeout_s or arrived_s < services.ledger.opened_s


async def commit_offsets(
    services: Services, group_id: str, rows: Sequence[OffsetRow], judge: Callable[[Sequence[OffsetRow]], ErrorCode]
) -> list[ErrorCode]:
    """The error for each row, once it is applied or offsets.commit.timeout.ms is over; it may be applied later then.

    The caller has judged the rows in this turn of the loop. `judge` returns the error of the group's coordinator, which
    this agent has to be, for those of a later turn. From the first that are rejected on, all are.
    """
    ledger = services.group_ledger
    pending = [ledger.commit(group_id, rows[:OFFSETS_PER_COMMIT_ENTRY_MAX])]
    rejected: list[ErrorCode] = []
    for first in range(OFFSETS_PER_COMMIT_ENTRY_MAX, len(rows), OFFSETS_PER_COMMIT_ENTRY_MAX):
        await services.clock.sleep(0)
        share = rows[first : first + OFFSETS_PER_COMMIT_ENTRY_MAX]
        error_code = judge(share)
        if error_code is not ErrorCode.none:
            rejected = await rejection(services, group_id, len(rows) - first, error_code)
            break
        pending.append(ledger.commit(group_id, share))
    return [as_client_error(error_code) for future in pending for error_code in await future] + rejected


async def rejection(services: Services, group_id: str, rows_count: int, error_code: ErrorCode) -> list[ErrorCode]:
    """The error for each row of a commit that the group's coordinator rejects with `error_code`.

    COORDINATOR_NOT_AVAILABLE says nothing that a change might make wrong, so it is answered at once.

    NOT_COORDINATOR where the changes that it may follow from were not made, COORDINATOR_NOT_AVAILABLE where nothing is
    known of them within offsets.commit.timeout.ms: the client asks again.
    """
    client_error_code = ErrorCode.coordinator_not_available
    if error_code is client_error_code:
        return [client_error_code] * rows_count
    with suppress(TimeoutError):
        async with services.clock.timeout(services.group_ledger.commit_timeout_s):
            client_error_code = as_client_error(await _confirmed(services, group_id, error_code))
    return [client_error_code] * rows_count


def _confirmed(services: Services, group_id: str, error_code: ErrorCode) -> asyncio.Future[ErrorCode]:
    """The error once the changes that it may follow from are applied, or the error that replaces it."""
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    ledger, group = services.group_ledger, services.state.groups.get(group_id)
    claim_epoch = None if group is None else group.claim_epoch

    def complete(confirmed: asyncio.Future[ErrorCode]) -> None:
        if not future.done():
            future.set_result(error_code if confirmed.result() is ErrorCode.none else confirmed.result())

    def confirm(settled: asyncio.Future[ErrorCode]) -> None:
        if claim_epoch is not None and is_fatal_to_member(error_code) and settled.result() is ErrorCode.none:
            ledger.confirmed(group_id, claim_epoch).add_done_callback(complete)
        else:
            complete(settled)

    ledger.until_applied(group_id).add_done_callback(confirm)
    return future


def as_client_error(error_code: ErrorCode) -> ErrorCode:
    """The error for the client: an overloaded ledger is COORDINATOR_NOT_AVAILABLE, as in Kafka."""
    return ErrorCode.coordinator_not_available if error_code is ErrorCode.request_timed_out else error_code
