"""One classic group on its coordinator: the machine that decides, what it has to write, and whoever waits for answers.

Rule: nothing that the machine says is told before all that was written by then is applied (the machine is ahead of the
ledger); what costs a member its place is told behind a barrier besides (safety rule S4), for another agent may have
gone on with the group. When an entry was refused, or nothing is known of it, or the claim is over, the group is lost:
whoever waits is told, and nothing of this object is used again.
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
from agent.groups.membership_errors import costs_place
from coordinator.commands.commands import Done, Outcome, Refused
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import Join, JoinAnswer, Leaver, Sync, SyncAnswer, Ticket
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

_tickets = itertools.count()


def next_ticket() -> Ticket:
    """A ticket that nobody has had."""
    return Ticket(next(_tickets))


class _Held(NamedTuple):
    """An answer that does not leave before so many entries are applied."""

    entries: int
    costs_place: bool
    tell: Callable[[ErrorCode], None]
    """Takes NONE, or why this agent may not tell it."""


class HostedClassicGroup:
    """One group, as long as this agent holds the claim of `claim_epoch`."""

    def __init__(self, group_id: str, claim_epoch: int, machine: LiveClassicGroup, ledger: GroupLedger) -> None:
        self.group_id = group_id
        self.claim_epoch = claim_epoch
        self.machine = machine
        self.timer_s: float | None = None
        """When somebody looks at its deadline next; earlier than that is nothing to do."""
        self._ledger = ledger
        self._joins: dict[Ticket, tuple[str, asyncio.Future[JoinAnswer]]] = {}
        self._syncs: dict[Ticket, asyncio.Future[SyncAnswer]] = {}
        self._written_count = 0
        self._applied_count = 0
        self._held: deque[_Held] = deque()
        self._settling: dict[asyncio.Future[ErrorCode], None] = {}
        self._lost_with: ErrorCode | None = None
        self.generations_count = 0
        """How many were begun here."""

    @property
    def is_lost(self) -> bool:
        return self._lost_with is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost when this object is: the ledger has all of it."""
        return self.machine.is_idle and not self._joins and not self._syncs and not self._is_ahead

    @property
    def is_awaited(self) -> bool:
        """Whether an answer waits for the ledger."""
        return bool(self._settling)

    @property
    def _is_ahead(self) -> bool:
        return self._applied_count < self._written_count

    def join(self, join: Join, now_s: float) -> asyncio.Future[JoinAnswer]:
        """The answer, when it is time for it."""
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._joins[join.ticket] = join.member_id, future
        self.machine.join(join, now_s)
        self._carry_out()
        return future

    def sync(self, sync: Sync, now_s: float) -> asyncio.Future[SyncAnswer]:
        """Like `join`."""
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._syncs[sync.ticket] = future
        self.machine.sync(sync, now_s)
        self._carry_out()
        return future

    def leave(self, leavers: Sequence[Leaver], now_s: float) -> tuple[ErrorCode, ...]:
        """Not to be told before `settled`."""
        answers = self.machine.leave(leavers, now_s)
        self._carry_out()
        return answers

    def rebalance(self, reason: str, now_s: float) -> None:
        """Have all members join again."""
        self.machine.rebalance(reason, now_s)
        self._carry_out()

    def expire(self, now_s: float) -> None:
        """Let the machine do what the time has come for."""
        self.machine.expire(now_s)
        self._carry_out()

    async def settled(self, *told: ErrorCode) -> ErrorCode:
        """NONE once all that was written by now is applied, and behind a barrier where any of `told` costs a place.

        Else why this agent does not speak for the group.
        """
        is_costly = any(map(costs_place, told))
        if self._lost_with is not None or not (self._is_ahead or is_costly):
            return self._lost_with or ErrorCode.none
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._settling[future] = None
        self._held.append(_Held(self._written_count, is_costly, partial(self._settle, future)))
        self._release()
        return await future

    def lose(self, error_code: ErrorCode) -> None:
        """Tell whoever waits that this agent does not speak for the group (any more)."""
        if self._lost_with is not None:
            return
        self._lost_with = error_code
        self._held.clear()
        for ticket in tuple(self._joins):
            self._tell_join(ticket, JoinAnswer(error_code=error_code, member_id=self._joins[ticket][0]))
        for ticket in tuple(self._syncs):
            self._tell_sync(ticket, SyncAnswer(error_code=error_code))
        for future in tuple(self._settling):
            self._settle(future, error_code)

    def _carry_out(self) -> None:
        work = self.machine.take_work()
        if work.write is not None:
            self.generations_count += not work.write.is_synced
            self._written_count += 1
            self._ledger.write(self.group_id, work.write).add_done_callback(self._written)
        for ticket, told in work.answers:
            is_costly = costs_place(told.error_code)
            self._held.append(_Held(self._written_count, is_costly, partial(self._tell, ticket, told)))
        for what in work.told:
            log.info("a group changes", extra={"group": self.group_id, "what": what})
        self._release()

    def _tell(self, ticket: Ticket, told: JoinAnswer | SyncAnswer, error_code: ErrorCode) -> None:
        if error_code is not ErrorCode.none:
            told = replace(told, error_code=error_code)
        if isinstance(told, JoinAnswer):
            self._tell_join(ticket, told)
        else:
            self._tell_sync(ticket, told)

    def _tell_join(self, ticket: Ticket, told: JoinAnswer) -> None:
        _, future = self._joins.pop(ticket)
        if not future.done():
            future.set_result(told)

    def _tell_sync(self, ticket: Ticket, told: SyncAnswer) -> None:
        future = self._syncs.pop(ticket)
        if not future.done():
            future.set_result(told)

    def _settle(self, future: asyncio.Future[ErrorCode], error_code: ErrorCode) -> None:
        del self._settling[future]
        if not future.done():
            future.set_result(error_code)

    def _written(self, done: asyncio.Future[Outcome]) -> None:
        outcome = done.result()
        if isinstance(outcome, Refused):
            level = logging.DEBUG if outcome.error_code is ErrorCode.not_coordinator else logging.WARNING
            log.log(
                level,
                "what was decided of a group could not be kept; its members are asked to join again",
                extra={"group": self.group_id, "reason": outcome.reason},
            )
            self.lose(_told_of(outcome))
            return
        assert isinstance(outcome, Done), f"unexpected outcome of a group's entry: {outcome}"
        self._applied_count += 1
        self._release()

    def _release(self) -> None:
        while self._held and self._held[0].entries <= self._applied_count:
            held = self._held.popleft()
            if held.costs_place:
                confirmed = self._ledger.confirmed(self.group_id, self.claim_epoch)
                confirmed.add_done_callback(partial(self._confirmed, held.tell))
            else:
                held.tell(ErrorCode.none)

    def _confirmed(self, tell: Callable[[ErrorCode], None], done: asyncio.Future[ErrorCode]) -> None:
        if self._lost_with is None:  # else it was told by then
            tell(done.result())


def _told_of(refused: Refused) -> ErrorCode:
    """As Kafka tells of what it could not write (GroupMetadataManager.appendGroupMetadataErrorToResponseError)."""
    match refused.error_code:
        case ErrorCode.not_coordinator | ErrorCode.coordinator_not_available:
            return refused.error_code
        case ErrorCode.request_timed_out:
            return ErrorCode.coordinator_not_available
        case _:
            return ErrorCode.unknown_server_error
