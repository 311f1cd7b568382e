"""One consumer group on its coordinator: its live copy, and the changes of it that are not applied yet.

The copy is ahead of the ledger: each answer, also an error, waits until the changes before it are applied. Where a
change is rejected or its outcome unknown, the group is unloaded, and this object is not used again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.logging import log_changes, log_instance_rejected
from agent.groups.membership_errors import check_confirmed, is_fatal_to_member
from agent.runtime.clock import Clock
from agent.security.rights import Rights
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.commands.consumer_group_values import ConsumerGroup, ConsumerGroupChange
from coordinator.commands.group_values import GroupState
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_messages import GroupRejection
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.limits import GROUP_LEDGER_SECONDS_MAX

log = logging.getLogger(__name__)

_INSTANCE_TAKEN = (ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id)


class HostedConsumerGroup:
    """One group, as long as this agent has the claim of `claim_epoch`."""

    def __init__(
        self,
        state: GroupState,
        group: LiveConsumerGroup,
        ledger: GroupLedger,
        clock: Clock,
        unload: Callable[["HostedConsumerGroup"], None],
    ) -> None:
        """`unload` is called where a change was rejected."""
        self.group_id = state.group_id
        self.claim_epoch = state.claim_epoch
        self.group = group
        self._unloaded: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._waiting_count = 0
        self.rights_by_regex: dict[str, Rights] = {}
        """The rights of the member that last sent a heartbeat with each regular expression."""
        self.names_seen = -1
        """The number of the set of topic names that its regular expressions were matched with."""
        self._ledger = ledger
        self._clock = clock
        self._unload = unload
        self._newest: asyncio.Future[Outcome] | None = None
        """The newest change that is not applied yet."""
        self._logged_epochs = group.group.epoch, group.group.target_epoch
        """The group's epoch and that of its target assignment in the last log line."""
        self._rejected_instances: set[str] = set()
        """The instance ids of rejected clients that were logged."""

    @property
    def is_over(self) -> bool:
        """Whether the group is unloaded."""
        return self._unloaded.done()

    def end(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR."""
        if not self._unloaded.done():
            self._unloaded.set_result(ErrorCode.not_coordinator)

    @property
    def is_awaited(self) -> bool:
        """Whether an answer waits for the ledger."""
        return self._waiting_count > 0

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, and the ledger has all of it."""
        return not self.group.group.members and self._newest is None

    def write(self, change: ConsumerGroupChange) -> None:
        """Propose a change of the group's copy."""
        self._newest = self._ledger.write_consumer(self.group_id, change)
        self._newest.add_done_callback(self._written)
        self._log_change(change)

    def _log_change(self, change: ConsumerGroupChange) -> None:
        changes = list(self.group.changes)
        self.group.changes.clear()
        epoch_before, target_before = self._logged_epochs
        self._logged_epochs = change.epoch, change.target_epoch
        if change.epoch != epoch_before and not changes:
            changes.append(("its subscribed topics, or their partitions, have changed", ()))
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
        if isinstance(outcome, Rejected):
            log.info(
                "a change of a consumer group was rejected; its members look up the coordinator again",
                extra={"group": self.group_id, "reason": outcome.reason},
            )
            self._unload(self)

    async def until_applied(self, *error_codes: ErrorCode) -> None:
        """Return once every change that was proposed by now is applied.

        Where any of `error_codes` is fatal to a member, it waits for a barrier, too: another agent may have gone on
        with the group (S4). Raises `NotCoordinator` where the group is unloaded, or the claim is not confirmed.
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
        """Raise `GroupRejection` where the member was removed while its answer waited for the ledger.

        The partitions of that answer may be another member's by now. Differs from Kafka: there the member gets the
        answer, and the error with its next heartbeat.
        """
        # The state and the copy are both checked: where the agent was behind, several changes are applied at once, and
        # the other member's answer may be sent first.
        group = state.groups.get(self.group_id)
        value = None if group is None else group.value
        is_in = isinstance(value, ConsumerGroup) and member_id in value.members
        if not is_in or member_id not in self.group.group.members:
            rejection = self.group.unknown(member_id)
            await self.until_applied(rejection.error_code)
            raise rejection

    @asynccontextmanager
    async def rejecting(self, instance_id: str | None = None, client_id: str = "") -> AsyncIterator[None]:
        """A context for the decision on a request: a `GroupRejection` is raised again once it may be answered.

        A new group that it rejects is not begun. A rejected `group.instance.id` is logged once.
        """
        try:
            yield
        except GroupRejection as rejection:
            if self.group.copy.is_new:
                self._unload(self)
                if is_fatal_to_member(rejection.error_code):
                    # The error follows from a classic group's members, which may have joined at another agent (S4).
                    await check_confirmed(self._ledger, self.group_id, self.claim_epoch)
            else:
                await self.until_applied(rejection.error_code)
            if rejection.error_code in _INSTANCE_TAKEN and instance_id is not None:
                self._log_instance_rejected(instance_id, client_id, rejection.message)
            raise

    def _log_instance_rejected(self, instance_id: str, client_id: str, reason: str) -> None:
        if instance_id not in self._rejected_instances:
            # Bounded by the number of static members: ids without one are dropped.
            static_member = self.group.copy.static_member
            self._rejected_instances = {each for each in self._rejected_instances if static_member(each)}
            self._rejected_instances.add(instance_id)
            log_instance_rejected(self.group_id, instance_id, client_id, reason)


async def until_applied(clock: Clock, written: asyncio.Future[Outcome]) -> None:
    """Return once an entry is applied. Raises `NotCoordinator` where it was rejected, or the ledger does not answer.

    A cancellation does not withdraw the entry.
    """
    try:
        async with clock.timeout(GROUP_LEDGER_SECONDS_MAX):
            await asyncio.wait([written])
    except TimeoutError as error:
        raise NotCoordinator(ErrorCode.coordinator_not_available, "the ledger does not answer") from error
    outcome = written.result()
    if isinstance(outcome, Rejected):
        raise NotCoordinator(outcome.error_code, outcome.reason)
    assert isinstance(outcome, Done), f"unexpected outcome of a group's entry: {outcome}"
