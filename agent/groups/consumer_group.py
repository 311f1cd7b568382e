"""One consumer group on its coordinator: its live copy, and the changes of it that are on their way to the ledger.

Rule: nobody is told anything of the copy, no refusal either, before all that was changed by then is applied; what costs
a member its place takes a barrier besides (safety rule S4), for another agent may have gone on with the group. Where a
change was refused, or nothing is known of it, the group is lost: nothing of this object is used again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.logging import log_changes, log_instance_rejected
from agent.groups.membership_errors import check_confirmed, is_fatal_to_member
from agent.runtime.clock import Clock
from coordinator.commands.commands import Done, Outcome, Refused
from coordinator.commands.consumer_group_values import ConsumerGroup, ConsumerGroupChange
from coordinator.commands.group_values import GroupState
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_messages import GroupRefusal
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.limits import GROUP_LEDGER_SECONDS_MAX

log = logging.getLogger(__name__)

_INSTANCE_TAKEN = (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id)


class HostedConsumerGroup:
    """One group, as long as this agent holds the claim of `claim_epoch`."""

    def __init__(
        self,
        state: GroupState,
        group: LiveConsumerGroup,
        ledger: GroupLedger,
        clock: Clock,
        lose: Callable[["HostedConsumerGroup"], None],
    ) -> None:
        """`unload` is called where a change was refused."""
        self.group_id = state.group_id
        self.claim_epoch = state.claim_epoch
        self.group = group
        self._unloaded: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._waiting_count = 0
        self.names_seen = -1
        """The number of the set of topic names that its expressions were held against."""
        self._ledger = ledger
        self._clock = clock
        self._unload = lose
        self._newest: asyncio.Future[Outcome] | None = None
        """The newest change that is on its way."""
        self._logged_epochs = group.group.epoch, group.group.target_epoch
        """The group's, and that of its target assignment, which the log has."""
        self._refused_instances: set[str] = set()
        """The instance ids of rejected clients that the log has named."""

    @property
    def is_over(self) -> bool:
        return self._unloaded.done()

    def end(self) -> None:
        """Whoever waits is told NOT_COORDINATOR."""
        if not self._unloaded.done():
            self._unloaded.set_result(ErrorCode.not_coordinator)

    @property
    def is_awaited(self) -> bool:
        """Whether an answer waits for the ledger."""
        return self._waiting_count > 0

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in the group, and the ledger has all of it."""
        return not self.group.group.members and self._newest is None

    def write(self, change: ConsumerGroupChange) -> None:
        """Send the rows of a change on their way."""
        self._newest = self._ledger.write_consumer(self.group_id, change)
        self._newest.add_done_callback(self._written)
        self._log_change(change)

    def _log_change(self, change: ConsumerGroupChange) -> None:
        changes = list(self.group.changes)
        self.group.changes.clear()
        epoch_before, target_before = self._logged_epochs
        self._logged_epochs = change.epoch, change.target_epoch
        if change.epoch != epoch_before and not changes:
            changes.append(("other topics are subscribed to, or look different", ()))
        if change.target_epoch != target_before:
            changes.append(("a new target assignment", ()))
        log_changes(self.group_id, self._logged_epochs, changes)

    def log_members_gone(self, why: str, member_ids: list[str]) -> None:
        """Log the members that the group loses as it becomes a classic one."""
        log_changes(self.group_id, self._logged_epochs, [(why, member_ids)])

    def _written(self, done: asyncio.Future[Outcome]) -> None:
        if self._newest is done:
            self._newest = None
        outcome = done.result()
        if isinstance(outcome, Refused):
            log.info(
                "a change of a consumer group was refused, its members look for the coordinator",
                extra={"group": self.group_id, "reason": outcome.reason},
            )
            self._unload(self)

    async def until_applied(self, *error_codes: ErrorCode) -> None:
        """Return once all that was changed by now is applied, and behind a barrier where any of `error_codes` is fatal
        to a member.

        Raises `NotCoordinator` where that is not so.
        """
        self._waiting_count += 1
        try:
            if self._newest is not None:
                await until_applied(self._clock, self._newest)
            if any(map(is_fatal_to_member, error_codes)) and not self.is_over:
                confirmed = self._ledger.confirmed(self.group_id, self.claim_epoch)
                await asyncio.wait([confirmed, self._unloaded], return_when=asyncio.FIRST_COMPLETED)
                if confirmed.done() and confirmed.result() is not ErrorCode.none:
                    raise NotCoordinator(confirmed.result())
        finally:
            self._waiting_count -= 1
        if self.is_over:
            raise NotCoordinator(ErrorCode.not_coordinator)

    async def check_stays(self, state: ClusterState, member_id: str) -> None:
        """Raise `GroupRefusal` where the member was taken out again while its answer waited for the ledger: what it
        would be told to read may be another one's by now. It may be out by `state` or by what is on its way: both are
        applied at once where the ledger is behind, and then the other one's answer may arrive first.

        Differs from Kafka: there it is told at its next heartbeat.
        """
        group = state.groups.get(self.group_id)
        value = None if group is None else group.value
        is_in = isinstance(value, ConsumerGroup) and member_id in value.members
        if not is_in or member_id not in self.group.group.members:
            refusal = self.group.unknown(member_id)
            await self.until_applied(refusal.error_code)
            raise refusal

    @asynccontextmanager
    async def refusing(self, instance_id: str | None = None, client_id: str = "") -> AsyncIterator[None]:
        """Around what decides on a request: a refusal goes on once the group is `until_applied`, and begins no new
        group.

        That an instance is refused which is another client's is told the operator once.
        """
        try:
            yield
        except GroupRefusal as refusal:
            if self.group.copy.is_new:
                self._unload(self)
                if is_fatal_to_member(refusal.error_code):
                    # Of a classic group with members, which may have gone on elsewhere.
                    await check_confirmed(self._ledger, self.group_id, self.claim_epoch)
            else:
                await self.until_applied(refusal.error_code)
            if refusal.error_code in _INSTANCE_TAKEN and instance_id is not None:
                self._log_instance_rejected(instance_id, client_id, refusal.message)
            raise

    def _log_instance_rejected(self, instance_id: str, client_id: str, reason: str) -> None:
        if instance_id not in self._refused_instances:
            # No more of them than the group has static members.
            self._refused_instances = {each for each in self._refused_instances if self.group.copy.static_member(each)}
            self._refused_instances.add(instance_id)
            log_instance_rejected(self.group_id, instance_id, client_id, reason)


async def until_applied(clock: Clock, written: asyncio.Future[Outcome]) -> None:
    """Return once an entry is applied. Raises `NotCoordinator` where it was refused, or the ledger does not answer.

    Cancelling the caller changes nothing: the entry goes its way.
    """
    try:
        async with clock.timeout(GROUP_LEDGER_SECONDS_MAX):
            await asyncio.wait([written])
    except TimeoutError as error:
        raise NotCoordinator(ErrorCode.coordinator_not_available, "the ledger does not answer") from error
    outcome = written.result()
    if isinstance(outcome, Refused):
        raise NotCoordinator(outcome.error_code, outcome.reason)
    assert isinstance(outcome, Done), f"unexpected outcome of a group's entry: {outcome}"
