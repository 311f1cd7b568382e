"""What of a consumer group fits into one ledger entry, judged by the bytes that are written."""

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from coordinator.commands.commands import Proposal
from coordinator.commands.consumer_group_values import (
    AssignmentRow,
    ClassicProtocols,
    ConsumerGroupChange,
    ConsumerMember,
    MemberAssignment,
    MemberState,
    owned,
    partitions,
)
from coordinator.commands.group import WriteClassicGroup, WriteConsumerGroup
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.groups.consumer_group_size import classic_fits, fits
from protocol.limits import CONSUMER_GROUP_CHANGE_BYTES_MAX, LEDGER_ENTRY_BYTES_MAX
from protocol.types import PartitionIndex, TopicId
from tests.support.commands.entries import encode

RANDOM = Random(7)
IDS = [TopicId(RANDOM.randbytes(16)) for _ in range(40_000)]
NONE = ConsumerGroupChange(epoch=2, target_epoch=2, topics_hash=b"12345678")


def noise(count: int) -> str:
    """Text that no compression makes much smaller."""
    return "".join(RANDOM.choices([chr(number) for number in range(0x4E00, 0x4E00 + 16_384)], k=count))


def written(change: ConsumerGroupChange) -> int:
    command = WriteConsumerGroup(group_id="", claim_epoch=1, version=1, change=change)
    return len(encode(Proposal(time_ms=None, command=command)))


def member(text: str, metadata: bytes = b"") -> ConsumerMember:
    return ConsumerMember(
        member_id=text,
        instance_id=text,
        rack_id=text,
        client_id=text,
        client_host=text,
        rebalance_timeout_ms=1 << 30,
        subscribed_names=(text,),
        subscribed_regex=text,
        server_assignor=text,
        classic=ClassicProtocols(session_timeout_ms=1 << 30, protocols=((text, metadata),)),
    )


def assignment(count: int) -> MemberAssignment:
    rows = owned({topic_id: {PartitionIndex(9_999): 1 << 30} for topic_id in IDS[:count]})
    return MemberAssignment(epoch=1, previous_epoch=1, state=MemberState.STABLE, assigned=rows, revoking=rows)


ROWS: dict[str, Callable[[int], ConsumerGroupChange]] = {
    "removed": lambda size: replace(NONE, removed=(noise(size),)),
    "members": lambda size: replace(NONE, members=(member(noise(size), RANDOM.randbytes(size)),)),
    "assignments": lambda size: replace(NONE, assignments=(AssignmentRow.of(noise(size), assignment(size)),)),
    "targets": lambda size: replace(
        NONE, targets=((noise(size), partitions({topic_id: [9_999] for topic_id in IDS[:size]})),)
    ),
    "regexes": lambda size: replace(NONE, regexes=((noise(size), (noise(size),) * 2),)),
    "regexes_removed": lambda size: replace(NONE, regexes_removed=(noise(size),)),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("size", [1, 300, 3_000])
def test_nothing_is_said_to_fit_that_does_not(rows: str, size: int) -> None:
    change = ROWS[rows](size)
    assert fits(change, written(change))
    assert not fits(change, written(change) - 1)


def test_it_is_what_is_written_that_counts() -> None:
    names = tuple(f"a-topic-of-the-department-number-{number:09}" for number in range(20_000))
    change = replace(NONE, regexes=((".*", names),))
    assert sum(map(len, names)) > CONSUMER_GROUP_CHANGE_BYTES_MAX
    assert fits(change)
    assert not fits(replace(NONE, targets=(("a", partitions({topic_id: [0] for topic_id in IDS})),)))


def test_what_would_unpack_to_too_much_does_not_fit_however_small_it_is() -> None:
    change = replace(NONE, removed=("a" * (17 << 20),))
    assert not fits(change)


@pytest.mark.parametrize("size", [1_000, LEDGER_ENTRY_BYTES_MAX // 2, LEDGER_ENTRY_BYTES_MAX])
def test_a_classic_group_is_judged_alike(size: int) -> None:
    group = ClassicGroup(
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        members=(
            ClassicMember(
                member_id="m",
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=1,
                session_timeout_ms=1,
                protocols=(("range", RANDOM.randbytes(size)),),
                assignment=bytes(size),
            ),
        ),
        is_synced=True,
    )
    command = WriteClassicGroup(group_id="", claim_epoch=1, version=1, group=group)
    is_small = len(encode(Proposal(time_ms=None, command=command))) <= CONSUMER_GROUP_CHANGE_BYTES_MAX
    assert classic_fits(group) is is_small
