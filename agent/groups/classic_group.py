"""One classic group on its coordinator: the state machine, the entries that it writes, and the unanswered requests.

The machine is ahead of the ledger: each answer waits until the entries that were written before it are applied. Where
an entry is rejected or its outcome unknown, or the claim is over, the group is unloaded: all requests get an error, and
this object is not used again.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from agent.groups.group_ledger import GroupLedger
from agent.groups.membership_errors import is_fatal_to_member
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import Join, JoinAnswer, Leaver, Sync, SyncAnswer, Ticket
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

_tickets = itertools.count()


def next_ticket() -> Ticket:
    """A ticket that no request has had."""
    return Ticket(next(_tickets))


class _PendingAnswer(NamedTuple):
    """An answer that is sent once `entries` entries of the group are applied."""

    entries: int
    is_fatal_to_member: bool
    deliver: Callable[[ErrorCode], None]
    """Called with NONE to send the answer, or with the error that replaces it."""


class HostedClassicGroup:
    """One group, as long as this agent has the claim of `claim_epoch`."""

    def __init__(self, group_id: str, claim_epoch: int, machine: LiveClassicGroup, ledger: GroupLedger) -> None:
        self.group_id = group_id
        self.claim_epoch = claim_epoch
        self.machine = machine
        self.timer_s: float | None = None
        """The monotonic time of the group's entry in the coordinator's timers; None where it has none."""
        self._ledger = ledger
        self._joins: dict[Ticket, tuple[str, asyncio.Future[JoinAnswer]]] = {}
        self._syncs: dict[Ticket, asyncio.Future[SyncAnswer]] = {}
        self._written_count = 0
        self._applied_count = 0
        self._pending_answers: deque[_PendingAnswer] = deque()
        self._waiting_calls: dict[asyncio.Future[ErrorCode], None] = {}
        self._unload_error: ErrorCode | None = None
        self.generations_count = 0
        """Generations that were begun here."""

    @property
    def is_over(self) -> bool:
        """Whether the group is unloaded."""
        return self._unload_error is not None

    @property
    def is_idle(self) -> bool:
        """Whether this object may be dropped: the ledger has all of the group."""
        return self.machine.is_idle and not self._joins and not self._syncs and not self._has_unapplied_changes

    @property
    def is_awaited(self) -> bool:
        """Whether an answer waits for the ledger."""
        return bool(self._waiting_calls)

    @property
    def _has_unapplied_changes(self) -> bool:
        return self._applied_count < self._written_count

    def join(self, join: Join, now_s: float) -> asyncio.Future[JoinAnswer]:
        """The answer to a JoinGroup, once the rebalance has come so far and its entries are applied."""
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._joins[join.ticket] = join.member_id, future
        self.machine.join(join, now_s)
        self._carry_out()
        return future

    def sync(self, sync: Sync, now_s: float) -> asyncio.Future[SyncAnswer]:
        """The answer to a SyncGroup, once the leader's assignment has come and is applied."""
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._syncs[sync.ticket] = future
        self.machine.sync(sync, now_s)
        self._carry_out()
        return future

    def leave(self, leavers: Sequence[Leaver], now_s: float) -> tuple[ErrorCode, ...]:
        """An error code for each member that leaves. The caller answers after `until_applied`."""
        answers = self.machine.leave(leavers, now_s)
        self._carry_out()
        return answers

    def rebalance(self, reason: str, now_s: float) -> None:
        """Begin a rebalance: all members have to join again."""
        self.machine.rebalance(reason, now_s)
        self._carry_out()

    def expire(self, now_s: float) -> None:
        """Let the machine handle the deadlines that have passed."""
        self.machine.expire(now_s)
        self._carry_out()

    async def until_applied(self, *error_codes: ErrorCode) -> ErrorCode:
        """NONE once every entry that was written by now is applied; an error code where the group is unloaded.

        Where any of `error_codes` is fatal to a member, it waits for a barrier, too (S4).
        """
        is_fatal = any(map(is_fatal_to_member, error_codes))
        if self._unload_error is not None or not (self._has_unapplied_changes or is_fatal):
            return self._unload_error or ErrorCode.none
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._waiting_calls[future] = None
        self._pending_answers.append(_PendingAnswer(self._written_count, is_fatal, partial(self._resolve, future)))
        self._release()
        return await future

    def unload(self, error_code: ErrorCode) -> None:
        """Answer all waiting requests with the error: this agent does not coordinate the group any more."""
        if self._unload_error is not None:
            return
        self._unload_error = error_code
        self._pending_answers.clear()
        for ticket in tuple(self._joins):
            self._answer_join(ticket, JoinAnswer(error_code=error_code, member_id=self._joins[ticket][0]))
        for ticket in tuple(self._syncs):
            self._answer_sync(ticket, SyncAnswer(error_code=error_code))
        for future in tuple(self._waiting_calls):
            self._resolve(future, error_code)

    def _carry_out(self) -> None:
        work = self.machine.take_work()
        if work.write is not None:
            self.generations_count += not work.write.is_synced
            self._written_count += 1
            self._ledger.write(self.group_id, work.write).add_done_callback(self._written)
        for ticket, answer in work.answers:
            is_fatal = is_fatal_to_member(answer.error_code)
            self._pending_answers.append(
                _PendingAnswer(self._written_count, is_fatal, partial(self._deliver, ticket, answer))
            )
        for what in work.log_messages:
            log.info("a group changes", extra={"group": self.group_id, "what": what})
        self._release()

    def _deliver(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer, error_code: ErrorCode) -> None:
        if error_code is not ErrorCode.none:
            answer = replace(answer, error_code=error_code)
        if isinstance(answer, JoinAnswer):
            self._answer_join(ticket, answer)
        else:
            self._answer_sync(ticket, answer)

    def _answer_join(self, ticket: Ticket, answer: JoinAnswer) -> None:
        _, future = self._joins.pop(ticket)
        if not future.done():
            future.set_result(answer)

    def _answer_sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        future = self._syncs.pop(ticket)
        if not future.done():
            future.set_result(answer)

    def _resolve(self, future: asyncio.Future[ErrorCode], error_code: ErrorCode) -> None:
        del self._waiting_calls[future]
        if not future.done():
            future.set_result(error_code)

    def _written(self, done: asyncio.Future[Outcome]) -> None:
        outcome = done.result()
        if isinstance(outcome, Rejected):
            # NOT_COORDINATOR is part of every move of a group to another agent.
            level = logging.DEBUG if outcome.error_code is ErrorCode.not_coordinator else logging.WARNING
            log.log(
                level,
                "a change of a group was not applied; its members have to join again",
                extra={"group": self.group_id, "reason": outcome.reason},
            )
            self.unload(_error_code_of(outcome))
            return
        assert isinstance(outcome, Done), f"unexpected outcome of a group's entry: {outcome}"
        self._applied_count += 1
        self._release()

    def _release(self) -> None:
        while self._pending_answers and self._pending_answers[0].entries <= self._applied_count:
            pending = self._pending_answers.popleft()
            if pending.is_fatal_to_member:
                # Another agent may have gone on with the group, and the member may be in it there (S4).
                confirmed = self._ledger.confirmed(self.group_id, self.claim_epoch)
                confirmed.add_done_callback(partial(self._confirmed, pending.deliver))
            else:
                pending.deliver(ErrorCode.none)

    def _confirmed(self, deliver: Callable[[ErrorCode], None], done: asyncio.Future[ErrorCode]) -> None:
        if self._unload_error is None:  # else `unload` has answered the request
            deliver(done.result())


def _error_code_of(rejection: Rejected) -> ErrorCode:
    """The error of Kafka for a write that failed (GroupMetadataManager.appendGroupMetadataErrorToResponseError)."""
    match rejection.error_code:
        case ErrorCode.not_coordinator | ErrorCode.coordinator_not_available:
            return rejection.error_code
        case ErrorCode.request_timed_out:
            return ErrorCode.coordinator_not_available
        case _:
            return ErrorCode.unknown_server_error
