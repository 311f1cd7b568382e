"""The online migration of groups between the classic and the consumer protocol (KIP-848). Decides, and writes nothing.

An upgrade that is not possible is an error for the consumer that joins. A downgrade that is not possible is logged, and
the group stays one of the consumer protocol.
Source: GroupMetadataManager.getOrMaybeCreateConsumerGroup, validateOnlineUpgrade, validateOnlineDowngrade (Kafka 4.3).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from coordinator.commands.consumer_group_values import GROUP_EPOCH_FIRST, ConsumerGroup
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.configs.broker_configs import broker_value
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_copy import FindTopic
from coordinator.groups.consumer_group_messages import GroupRejection
from coordinator.groups.group_migration import (
    DOWNGRADING,
    UPGRADING,
    NotMigratable,
    downgraded,
    is_classic_but_for,
    upgraded,
)
from protocol.consumer_protocol import PROTOCOL_TYPE
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_MEMBERS_MAX, CONSUMER_GROUP_MEMBERS_MAX
from protocol.types import TopicId


class ClassicGroups(Protocol):
    """The questions to the groups of the other kind when a group changes its kind."""

    def protocol_type(self, group_id: str) -> str | None:
        """The protocol type of a loaded group's members; None where it is not loaded, or has no members."""
        ...

    def forget(self, group_id: str, error_code: ErrorCode) -> None:
        """Unload the group, which is of the other kind now, and answer its waiting requests with the error."""
        ...

    def take_over(self, group_id: str, reason: str, *, is_rebalanced: bool) -> None:
        """Load the group, which is in the ledger as a classic one now."""
        ...


def consumers_max(broker_configs: Mapping[str, str]) -> int:
    """The number of members that a consumer group may have."""
    return min(CONSUMER_GROUP_MEMBERS_MAX, int(broker_value(broker_configs, "group.consumer.max.size")))


class GroupMigrations:
    """The migrations that this agent's configs allow."""

    def __init__(
        self,
        *,
        broker_configs: Mapping[str, str],
        classic: ClassicGroups,
        find_topic: FindTopic,
        name_of: Callable[[TopicId], str | None],
    ) -> None:
        self._classic = classic
        self._find_topic = find_topic
        self._name_of = name_of
        self._policy = broker_value(broker_configs, "group.consumer.migration.policy")
        self._size_max = consumers_max(broker_configs)
        self._classic_size_max = min(CLASSIC_MEMBERS_MAX, int(broker_value(broker_configs, "group.max.size")))

    def begun(self, group: GroupState) -> ConsumerGroup | None:
        """The consumer group that a classic one becomes; None where there was no group. Raises `GroupRejection`."""
        value = group.value
        self.check_joining(group)
        if not isinstance(value, ClassicGroup):
            return None
        if not value.members:
            # Epochs go on from the generation: else offsets committed by old members would look valid (S13).
            epoch = max(GROUP_EPOCH_FIRST, value.generation)
            return ConsumerGroup(epoch=epoch, target_epoch=epoch)
        if len(value.members) > self._size_max:
            raise group_not_found(
                group.group_id,
                f"it cannot become one: it has {len(value.members)} members, {self._size_max} is the most",
            )
        try:
            return upgraded(value, self._find_topic)
        except NotMigratable as error:
            raise group_not_found(group.group_id, str(error)) from error

    def check_joining(self, group: GroupState) -> None:
        """Raise `GroupRejection` where members of the classic protocol prevent a first consumer from joining."""
        # Members that are joining now count, too, although the ledger has nothing of them yet.
        joining = self._classic.protocol_type(group.group_id)
        if (group.has_members or joining is not None) and self._policy not in UPGRADING:
            raise group_not_found(group.group_id, "online upgrade is switched off")
        if joining not in (None, PROTOCOL_TYPE):
            raise group_not_found(group.group_id, f"its members are no consumers, but speak {joining!r}")

    def downgraded(
        self, live: LiveConsumerGroup, leaving: Sequence[str], *, is_rebalance_due: bool
    ) -> ClassicGroup | None:
        """The classic group of the remaining members; None where the group stays one of the consumer protocol.

        It becomes a classic one where all of them speak that protocol, and configs and size allow it.
        """
        group = live.group
        may_downgrade = (
            self._policy in DOWNGRADING
            and len(group.members) - len(leaving) <= self._classic_size_max
            and is_classic_but_for(group, leaving)
        )
        if not may_downgrade:
            live.problems.note(_NOT_CLASSIC, is_so=False)
            return None
        try:
            return downgraded(group, leaving, self._name_of, is_rebalance_due=is_rebalance_due)
        except NotMigratable as error:
            live.problems.note(_NOT_CLASSIC, str(error))
            return None


_NOT_CLASSIC = "it cannot become a classic group, and stays as it is"


def group_not_found(group_id: str, why: str = "") -> GroupRejection:
    """GROUP_ID_NOT_FOUND, with the reason why the group does not become a consumer group."""
    reason = f": {why}" if why else ""
    return GroupRejection(ErrorCode.group_id_not_found, f"there is no consumer group {group_id!r}{reason}")
