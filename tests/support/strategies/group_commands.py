"""Commands on a few groups, as Hypothesis draws them: epochs and versions are small, so that they often fit."""

from hypothesis import strategies as st

from coordinator.commands.consumer_group_values import (
    AssignmentRow,
    ConsumerGroupChange,
    ConsumerMember,
    MemberState,
)
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup
from protocol.types import Milliseconds, PartitionIndex, TopicId
from tests.support.commands.group_commands import generation, member

TOPICS = [TopicId(bytes([number] * 16)) for number in range(1, 4)]

group_ids = st.sampled_from(["g", "h", "i"])
epochs = st.integers(1, 6)
versions = st.integers(0, 4)
member_ids = st.sampled_from(["m1", "m2", "m3"])
topic_ids = st.sampled_from(TOPICS)
partitions = st.integers(0, 3)

classic_groups: st.SearchStrategy[ClassicGroup] = st.builds(
    lambda number, ids: generation(number, *map(member, sorted(ids))), st.integers(0, 5), st.sets(member_ids)
)
consumer_members = st.builds(
    ConsumerMember,
    member_id=member_ids,
    instance_id=st.none(),
    rack_id=st.none(),
    client_id=st.just("c"),
    client_host=st.just("h"),
    rebalance_timeout_ms=st.just(1),
    subscribed_names=st.just(("a",)),
    subscribed_regex=st.just(""),
    server_assignor=st.none(),
)
targets = st.lists(
    st.tuples(member_ids, topic_ids.map(lambda topic_id: ((topic_id, (PartitionIndex(0),)),))), max_size=2
)
assignments = st.lists(
    st.builds(
        AssignmentRow,
        member_id=member_ids,
        epoch=epochs,
        previous_epoch=epochs,
        state=st.sampled_from(MemberState),
        assigned=topic_ids.map(lambda topic_id: ((topic_id, ((PartitionIndex(1), 2),)),)),
        revoking=st.just(()),
    ),
    max_size=2,
)
changes = st.builds(
    ConsumerGroupChange,
    epoch=epochs,
    target_epoch=epochs,
    topics_hash=st.just(b""),
    is_new=st.booleans(),
    removed=st.lists(member_ids, max_size=1).map(tuple),
    members=st.lists(consumer_members, max_size=2).map(tuple),
    assignments=assignments.map(tuple),
    targets=targets.map(tuple),
)


@st.composite
def commits(draw: st.DrawFn) -> CommitOffsets:
    groups = draw(st.lists(st.tuples(group_ids, epochs), min_size=1, max_size=2))
    count = draw(st.integers(1, 4))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=count, max_size=count))

    return CommitOffsets(
        groups=tuple(groups),
        topic_ids=tuple(TOPICS),
        group=column(st.integers(0, len(groups) - 1)),
        topic=column(st.integers(0, len(TOPICS) - 1)),
        partition=column(partitions),
        offset=column(st.integers(-1, 9)),
        leader_epoch=column(st.integers(-1, 1)),
        retention_ms=column(st.sampled_from([-1, -1, 100])),
        metadata=draw(st.sampled_from([(), ("text",) * count])),
    )


group_commands: st.SearchStrategy[GroupCommand] = st.one_of(
    st.builds(ClaimGroups, group_ids=st.lists(group_ids, min_size=1, max_size=3).map(tuple)),
    st.builds(WriteClassicGroup, group_id=group_ids, claim_epoch=epochs, version=versions, group=classic_groups),
    st.builds(WriteConsumerGroup, group_id=group_ids, claim_epoch=epochs, version=versions, change=changes),
    commits(),
    commits(),
    st.builds(
        DeleteOffsets,
        group_id=group_ids,
        claim_epoch=epochs,
        partitions=st.lists(st.tuples(topic_ids, partitions.map(PartitionIndex)), max_size=2).map(tuple),
    ),
    st.builds(DeleteGroup, group_id=group_ids, claim_epoch=epochs),
    st.builds(
        ExpireOffsets,
        now_ms=st.integers(0, 1_500).map(Milliseconds),
        retention_ms=st.integers(0, 1_000),
        group_ids=st.lists(group_ids, max_size=3).map(tuple),
    ),
)
