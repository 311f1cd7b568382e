"""The lag of groups, by their committed offsets."""

import pytest

from agent.runtime.clock import SystemClock
from agent.runtime.yielding import CooperativeYield
from agent.views.append_times import AppendTimes
from agent.views.group_lags import GroupLag, GroupRow, group_lag, group_row
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import ClassicGroup, ClassicMember, CommittedOffset, GroupState
from protocol.types import Milliseconds, Offset, PartitionIndex, SessionId
from tests.support.agent.small_agent import TOPIC_ID, made_state

MEMBER = ClassicMember(
    member_id="m",
    group_instance_id=None,
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=1,
    session_timeout_ms=1,
    protocols=(("range", b""),),
)


async def lag_of(*offsets: int, log_start: int = 0) -> GroupLag:
    """The lag of a group that committed these offsets of the partitions of `orders`: ends 15 and 0."""
    state = made_state()
    topic = state.topics[TOPIC_ID]
    topic.partitions[0].log_start = Offset(log_start)
    committed = {
        PartitionIndex(number): CommittedOffset(Offset(offset), 0, "", Milliseconds(0))
        for number, offset in enumerate(offsets)
    }
    return await group_lag("g", topic, committed, AppendTimes(state.objects, 30_000), CooperativeYield(SystemClock()))


@pytest.mark.parametrize(
    ("offsets", "log_start", "records", "oldest_ms"),
    [
        ((), 0, 0, None),
        ((15, 0), 0, 0, None),
        ((12,), 0, 3, 2_000),
        ((0, 0), 0, 15, 105),
        ((0,), 12, 15, 2_000),
        ((99,), 0, 0, None),
    ],
    ids=["nothing", "all consumed", "tail", "nothing consumed", "deleted records", "beyond the end"],
)
async def test_a_lag_is_the_records_above_the_offset_and_the_time_of_the_first(
    offsets: tuple[int, ...], log_start: int, records: int, oldest_ms: int | None
) -> None:
    assert await lag_of(*offsets, log_start=log_start) == ("g", "orders", records, oldest_ms)


def classic(*members: ClassicMember, is_synced: bool = True, is_rebalance_due: bool = False) -> ClassicGroup:
    return ClassicGroup(
        generation=1,
        protocol_type="consumer",
        protocol="range" if members else None,
        leader="m" if members else None,
        members=members,
        is_synced=is_synced,
        is_rebalance_due=is_rebalance_due,
    )


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (None, ("classic", "Empty", 0)),
        (classic(), ("classic", "Empty", 0)),
        (classic(MEMBER), ("classic", "Stable", 1)),
        (classic(MEMBER, is_synced=False), ("classic", "CompletingRebalance", 1)),
        (classic(MEMBER, is_rebalance_due=True), ("classic", "PreparingRebalance", 1)),
        (ConsumerGroup(), ("consumer", "Empty", 0)),
    ],
)
def test_a_group_is_described_in_kafkas_words(
    value: ClassicGroup | ConsumerGroup | None, row: tuple[str, str, int]
) -> None:
    group = GroupState(group_id="g", claim_epoch=1, claimed_by=SessionId(1), value=value)
    assert group_row(group) == GroupRow("g", *row)
