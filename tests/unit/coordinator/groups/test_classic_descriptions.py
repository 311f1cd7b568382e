"""What whoever looks is told of a classic group: the same of what is held and of what the ledger has."""

import pytest
from msgspec.structs import replace

from coordinator.commands.group_values import NO_GROUP, ClassicGroup
from coordinator.groups.classic_descriptions import describe, describe_kept
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import GroupLimits
from coordinator.groups.classic_states import ClassicGroupState
from tests.support.commands.group_commands import generation, member

GROUP = generation(3, replace(member("a"), assignment=b"one"), replace(member("b"), assignment=b"two"))
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, members_max=10)


@pytest.mark.parametrize(
    ("group", "state"),
    [
        (NO_GROUP, "Empty"),
        (generation(3), "Empty"),
        (GROUP, "Stable"),
        (replace(GROUP, is_synced=False), "CompletingRebalance"),
        (replace(GROUP, is_rebalance_due=True), "PreparingRebalance"),
    ],
)
def test_a_group_that_nobody_holds_is_told_as_its_coordinator_would(group: ClassicGroup, state: str) -> None:
    told = describe_kept(group)
    assert told.state == state
    assert told == LiveClassicGroup(group, LIMITS, 0.0).describe()


def test_metadata_and_assignments_are_reported_while_they_are_settled() -> None:
    settled = describe(ClassicGroupState.STABLE, "consumer", "range", GROUP.members)
    assert (settled.protocol, [each.assignment for each in settled.members]) == ("range", [b"one", b"two"])
    assert [each.metadata for each in settled.members] == [dict(each.protocols)["range"] for each in GROUP.members]
    unsettled = describe(ClassicGroupState.PREPARING, "consumer", "range", GROUP.members)
    assert (unsettled.protocol, [(each.metadata, each.assignment) for each in unsettled.members]) == (
        "",
        [(b"", b"")] * 2,
    )


def test_a_member_without_the_groups_protocol_has_no_metadata() -> None:
    told = describe(ClassicGroupState.STABLE, "consumer", "roundrobin", GROUP.members)
    assert [each.metadata for each in told.members] == [b"", b""]
