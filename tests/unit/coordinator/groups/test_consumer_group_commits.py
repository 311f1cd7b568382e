"""Which members of a consumer group may commit which offsets (KIP-848, KIP-1251)."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from coordinator.commands.consumer_group_values import ClassicProtocols, ConsumerGroup, MemberAssignment, MemberState
from coordinator.groups.consumer_group_commits import commit_error
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex, TopicId
from tests.support.groups.consumer_groups import Coordinated, beat

GIVEN = TopicId(bytes(15) + b"\7")


def one() -> Coordinated:
    """The member `a` alone, at epoch 2, with the topic `t`."""
    group = Coordinated({"t": 2})
    group.say(beat("a"))
    return group


class TestCommits:
    """Source: ConsumerGroup.validateOffsetCommit. Recorded: live.commit."""

    def commit(
        self,
        group: ConsumerGroup,
        member_id: str,
        epoch: int,
        version: int = 9,
        partitions: Sequence[tuple[TopicId, PartitionIndex]] = ((GIVEN, PartitionIndex(0)),),
    ) -> ErrorCode:
        return commit_error(group, member_id=member_id, epoch=epoch, api_version=version, partitions=iter(partitions))

    def test_a_member_commits_at_its_epoch(self) -> None:
        group = one().group
        assert self.commit(group, "a", 2) is ErrorCode.none
        assert self.commit(group, "a", 1) is ErrorCode.stale_member_epoch
        assert self.commit(group, "a", 3) is ErrorCode.stale_member_epoch
        assert self.commit(group, "nobody", 2) is ErrorCode.unknown_member_id
        assert self.commit(group, "", -1) is ErrorCode.unknown_member_id

    def test_at_an_older_epoch_it_commits_what_it_had_by_then(self) -> None:
        index = [PartitionIndex(number) for number in range(5)]
        standing = MemberAssignment(
            epoch=7,
            previous_epoch=5,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=((GIVEN, ((index[0], 3), (index[1], 6))),),
            revoking=((GIVEN, ((index[2], 4),)),),
        )
        group = one().group
        group.assignments["a"] = standing
        for epoch, had in {2: [], 3: [0], 4: [0, 2], 5: [0, 2], 6: [0, 1, 2]}.items():
            for number in range(5):
                told = self.commit(group, "a", epoch, partitions=[(GIVEN, index[number])])
                assert (told is ErrorCode.none) == (number in had), (epoch, number)
            assert self.commit(group, "a", epoch, partitions=[(GIVEN, index[n]) for n in had]) is ErrorCode.none
            with_another = [*((GIVEN, index[n]) for n in had), (GIVEN, index[4])]
            assert self.commit(group, "a", epoch, partitions=with_another) is ErrorCode.stale_member_epoch
        assert self.commit(group, "a", 7, partitions=[(GIVEN, index[4])]) is ErrorCode.none
        assert self.commit(group, "a", 8, partitions=[(GIVEN, index[0])]) is ErrorCode.stale_member_epoch

    def test_before_version_9_a_member_cannot_say_its_epoch(self) -> None:
        group = one().group
        assert self.commit(group, "a", 2, version=8) is ErrorCode.unsupported_version

    def test_anybody_commits_for_an_empty_group(self) -> None:
        assert self.commit(ConsumerGroup(), "", -1) is ErrorCode.none
        assert self.commit(ConsumerGroup(), "a", 0) is ErrorCode.unknown_member_id

    def test_a_member_of_the_classic_protocol_has_a_generation(self) -> None:
        group = one().group
        classic = ClassicProtocols(session_timeout_ms=1, protocols=())
        group.members["a"] = structs.replace(group.members["a"], classic=classic)
        assert self.commit(group, "a", 2, version=2) is ErrorCode.none
        assert self.commit(group, "a", 1, version=2) is ErrorCode.illegal_generation
        (topic_id, rows), *_ = group.assignment("a").assigned
        group.assignments["a"] = replace(group.assignment("a"), epoch=3)
        assert self.commit(group, "a", 2, partitions=[(topic_id, rows[0][0])]) is ErrorCode.illegal_generation


class TestCommitsInTransactions:
    """Source: OffsetMetadataManager.validateTransactionalOffsetCommit."""

    def commit(self, member_id: str, epoch: int, instance: str | None = None) -> str:
        return commit_error(
            one().group,
            member_id=member_id,
            group_instance_id=instance,
            epoch=epoch,
            api_version=3,
            partitions=iter([(GIVEN, PartitionIndex(0))]),
            is_transactional=True,
        ).name

    def test_a_member_commits_at_its_epoch_in_any_version(self) -> None:
        assert self.commit("a", 2) == "none"
        assert self.commit("nobody", 2) == "unknown_member_id"

    def test_another_epoch_is_told_as_a_generation(self) -> None:
        assert [self.commit("a", epoch) for epoch in (1, 3)] == ["illegal_generation"] * 2

    def test_who_names_no_member_commits_too(self) -> None:
        assert self.commit("", -1) == "none"
        assert self.commit("", -1, instance="i") == "unknown_member_id"
        assert self.commit("nobody", -1) == "unknown_member_id"
