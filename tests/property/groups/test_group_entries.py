"""Whatever is written about groups: only who holds the claim changes one, and no generation goes backwards (S13)."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from coordinator.apply.apply import apply
from coordinator.commands.commands import Command, DeleteTopic, EndSession, StartDrain
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.invariants import check
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.types import SessionId
from tests.support.commands.commands import Cluster, create, start
from tests.support.strategies.group_commands import TOPICS, group_commands

HELD = WriteClassicGroup | WriteConsumerGroup | DeleteOffsets | DeleteGroup

sessions = st.integers(1, 2)
steps = st.lists(
    st.tuples(
        sessions,
        st.one_of(
            group_commands,
            group_commands,
            group_commands,
            st.builds(DeleteTopic, topic_id=st.sampled_from(TOPICS)),
            st.builds(StartDrain, session=sessions.map(SessionId)),
            st.builds(EndSession, session=st.just(SessionId(2))),
        ),
        st.sampled_from([True, True, True, False]),
        st.none() | st.integers(0, 1_000),
    ),
    max_size=40,
)
Step = tuple[int, Command, bool, int | None]


def fitting(state: ClusterState, command: Command) -> Command:
    """The command under the claim and version that are in force."""
    if isinstance(command, CommitOffsets):
        known = [(name, state.groups[name].claim_epoch if name in state.groups else 1) for name, _ in command.groups]
        return replace(command, groups=tuple(known))
    if isinstance(command, HELD) and command.group_id in state.groups:
        found = state.groups[command.group_id]
        if isinstance(command, WriteClassicGroup | WriteConsumerGroup):
            return structs.replace(command, claim_epoch=found.claim_epoch, version=found.version)
        return structs.replace(command, claim_epoch=found.claim_epoch)
    return command


def copied(group: GroupState) -> GroupState:
    value = group.value.copy() if isinstance(group.value, ConsumerGroup) else group.value
    return replace(group, value=value, offsets={topic: dict(found) for topic, found in group.offsets.items()})


def run(entries: Sequence[Step]) -> Cluster:
    cluster = Cluster()
    cluster.do(start("a", node=1))
    cluster.do(start("b", node=2), session=2)
    for topic_id in TOPICS[:2]:
        cluster.do(create(f"t{topic_id[0]}", topic_id=topic_id, partitions=2))
    for session, command, is_fitting, time_ms in entries:
        before = {name: copied(group) for name, group in cluster.state.groups.items()}
        step = fitting(cluster.state, command) if is_fitting else command
        cluster.do(step, session=session, time_ms=time_ms)
        for name, group in before.items():
            judge(group, cluster.state.groups.get(name), step, session)
    return cluster


def judge(before: GroupState, after: GroupState | None, command: Command, session: int) -> None:
    """S13, and generations and epochs that never go backwards."""
    is_changed = after is None or (before.value, before.offsets) != (after.value, after.offsets)
    if is_changed and not isinstance(command, ExpireOffsets | DeleteTopic):
        assert before.claimed_by == session, (before, after, command)
    if after is None:
        assert not before.has_members
        return
    assert (after.claim_epoch, after.version) >= (before.claim_epoch, before.version)
    if isinstance(before.value, ClassicGroup) and isinstance(after.value, ClassicGroup):
        assert after.value.generation >= before.value.generation
    if isinstance(before.value, ConsumerGroup) and isinstance(after.value, ConsumerGroup):
        is_new = isinstance(command, WriteConsumerGroup) and command.change.is_new
        assert is_new or after.value.epoch >= before.value.epoch


@given(steps)
def test_a_group_is_changed_by_whoever_holds_the_claim_and_its_generations_rise(entries: list[Step]) -> None:
    run(entries)


@given(steps)
def test_a_snapshot_at_any_position_leads_to_the_same_groups(entries: list[Step]) -> None:
    cluster = run(entries)
    state = ClusterState.empty("cluster", 1)
    for record in cluster.records:
        apply(state, record)
        state = decode_snapshot(encode_snapshot(state))
        assert check(state) == []
    assert digest(state) == digest(cluster.state)
