"""Groups in the ledger: who may coordinate and change one, generations, committed offsets, and what goes when."""

from dataclasses import replace

import pytest
from msgspec import structs

from coordinator.apply.groups import claim_groups
from coordinator.commands.commands import Command, DeleteTopic, Done, Outcome, Rejected, StartDrain
from coordinator.commands.group import (
    ClaimGroups,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupsClaimed,
    OffsetsCommitted,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import (
    NO_GROUP,
    ClassicGroup,
    CommittedOffset,
    GroupState,
    count_offsets,
    group_key,
)
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import NO_TIME
from protocol.errors import ErrorCode
from protocol.limits import GROUP_IDS_PER_CLAIM_MAX, GROUPS_MAX, VACANT_GROUPS_MAX
from protocol.types import Milliseconds, Offset, PartitionIndex, SessionId, TopicId
from tests.support.commands.commands import TOPIC, Cluster, create, start
from tests.support.commands.group_commands import JOINED, generation, member, offsets

HOUR_MS = 3_600_000
FIRST = PartitionIndex(0)


EMPTY = generation(9)


class Groups(Cluster):
    """A cluster with session 1 and the topic `t`, whose groups session 1 coordinates."""

    def claim(self, *group_ids: str, session: int = 1) -> GroupsClaimed:
        outcome = self.do(ClaimGroups(group_ids=group_ids), session=session)
        assert isinstance(outcome, GroupsClaimed)
        return outcome

    def group(self, group_id: str = "g") -> GroupState:
        return self.state.groups[group_id]

    def write(self, group: ClassicGroup, group_id: str = "g", *, time_ms: int | None = None) -> Outcome:
        """Under the claim and version that are in force."""
        found = self.group(group_id)
        return self.do(
            WriteClassicGroup(group_id=group_id, claim_epoch=found.claim_epoch, version=found.version, group=group),
            time_ms=time_ms,
        )

    def commit(self, offset: int, group_id: str = "g", *, time_ms: int | None = None, retention_ms: int = -1) -> int:
        """Commit for the topic's first partition; returns the error code."""
        outcome = self.do(
            offsets((group_id, self.group(group_id).claim_epoch), offset, retention_ms=retention_ms), time_ms=time_ms
        )
        assert isinstance(outcome, OffsetsCommitted)
        (error_code,) = outcome.error_codes
        return error_code

    def committed(self, group_id: str = "g") -> CommittedOffset | None:
        return self.group(group_id).offsets.get(TOPIC, {}).get(FIRST)

    def expire(self, now_ms: int, *, time_ms: int | None = None, retention_ms: int = HOUR_MS) -> None:
        """Of all groups, in the order of their names."""
        group_ids = tuple(sorted(self.state.groups))
        command = ExpireOffsets(now_ms=Milliseconds(now_ms), retention_ms=retention_ms, group_ids=group_ids)
        assert self.do(command, time_ms=time_ms) == Done()


@pytest.fixture
def groups() -> Groups:
    cluster = Groups()
    cluster.do(start(), time_ms=HOUR_MS)
    cluster.do(create())
    return cluster


def refused(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected), outcome
    return outcome.error_code


class TestS13GroupClaims:
    def test_a_claim_is_given_to_the_session_that_hashing_names(self, groups: Groups) -> None:
        groups.do(start("b", node=2), session=2)
        names = [f"group-{number}" for number in range(20)]
        first, second = groups.claim(*names), groups.claim(*names, session=2)
        for name, mine, others in zip(names, first.claim_epochs, second.claim_epochs, strict=True):
            owner = owner_of(group_key(name), groups.state.sessions)
            assert (mine > 0, others > 0) == (owner == 1, owner == 2)
            assert groups.group(name).claimed_by == owner
        assert {*first.error_codes, *second.error_codes} == {0, ErrorCode.not_coordinator}

    def test_every_claim_has_an_epoch_of_its_own(self, groups: Groups) -> None:
        assert groups.claim("a", "b").claim_epochs == (1, 2)
        assert groups.claim("b", "a").claim_epochs == (3, 4)

    def test_an_agent_that_drains_gets_no_claim_while_another_stays(self, groups: Groups) -> None:
        groups.do(start("b", node=2), session=2)
        groups.do(StartDrain(session=SessionId(1)))
        names = [f"group-{number}" for number in range(20)]
        assert set(groups.claim(*names).claim_epochs) == {-1}
        assert min(groups.claim(*names, session=2).claim_epochs) > 0

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_entries_under_another_claim_change_nothing(self, groups: Groups, epoch: int) -> None:
        groups.claim("g")
        before = digest_of_groups(groups)
        commands: list[Command] = [
            WriteClassicGroup(group_id="g", claim_epoch=epoch, version=0, group=generation(1, member())),
            WriteConsumerGroup(group_id="g", claim_epoch=epoch, version=0, change=JOINED),
            DeleteOffsets(group_id="g", claim_epoch=epoch, partitions=((TOPIC, FIRST),)),
            DeleteGroup(group_id="g", claim_epoch=epoch),
        ]
        for command in commands:
            assert refused(groups.do(command)) is ErrorCode.not_coordinator
        assert groups.do(offsets(("g", epoch), 5)) == OffsetsCommitted(error_codes=[ErrorCode.not_coordinator])
        assert digest_of_groups(groups) == before

    def test_a_coordinator_that_lost_its_claim_can_commit_nothing(self, groups: Groups) -> None:
        """It was paused, another agent came and claimed the group, and it wakes up with a commit on its way."""
        with_another = {**groups.state.sessions, SessionId(2): replace(groups.state.sessions[SessionId(1)], name="b")}
        names = [f"group-{number}" for number in range(20)]
        name = next(name for name in names if owner_of(group_key(name), with_another) == SessionId(2))
        (epoch,) = groups.claim(name).claim_epochs
        groups.do(start("b", node=2), session=2)
        groups.claim(name, session=2)
        assert groups.do(offsets((name, epoch), 5)) == OffsetsCommitted(error_codes=[ErrorCode.not_coordinator])
        assert groups.group(name).offsets == {}

    def test_the_number_of_groups_is_bounded(self, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("coordinator.apply.groups.GROUPS_MAX", 1)
        groups.claim("g")
        groups.commit(5)
        assert groups.claim("a", "g").error_codes == (ErrorCode.group_max_size_reached, 0)

    def test_groups_that_are_nothing_but_a_claim_keep_no_other_out(
        self, groups: Groups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coordinator.apply.groups.GROUPS_MAX", 2)
        monkeypatch.setattr("coordinator.apply.groups.VACANT_GROUPS_MAX", 3)
        groups.claim("g", "h")
        groups.commit(5)
        for number in range(20):
            assert groups.claim(f"invented-{number}", "h").error_codes == (0, 0)
        assert sorted(groups.state.groups) == ["g", "h", "invented-18", "invented-19"]
        groups.commit(5, "h")
        assert list(groups.state.vacant_groups) == ["invented-18", "invented-19"]
        assert groups.claim("i").error_codes == (ErrorCode.group_max_size_reached,)

    def test_more_invented_ids_than_there_may_be_groups_do_not_keep_a_real_one_out(self, groups: Groups) -> None:
        groups.claim("g")
        groups.commit(5)
        for first in range(0, GROUPS_MAX + GROUP_IDS_PER_CLAIM_MAX, GROUP_IDS_PER_CLAIM_MAX):
            invented = tuple(f"invented-{number}" for number in range(first, first + GROUP_IDS_PER_CLAIM_MAX))
            claim_groups(groups.state, SessionId(1), ClaimGroups(group_ids=invented))
        assert len(groups.state.groups) == 1 + VACANT_GROUPS_MAX
        assert groups.claim("real").error_codes == (0,)
        assert groups.commit(6, "real") == 0
        assert groups.committed() is not None


def digest_of_groups(groups: Groups) -> list[object]:
    return [
        (group.claim_epoch, group.version, group.value, dict(group.offsets)) for group in groups.state.groups.values()
    ]


class TestGenerations:
    def test_a_generation_is_what_its_coordinator_wrote_last(self, groups: Groups) -> None:
        groups.claim("g")
        assert groups.write(generation(1, member("a"), member("b"))) == Done()
        assert groups.write(generation(2, member("b"))) == Done()
        assert (groups.group().value, groups.group().version) == (generation(2, member("b")), 2)

    def test_it_never_goes_backwards(self, groups: Groups) -> None:
        groups.claim("g")
        groups.write(generation(2, member()))
        assert refused(groups.write(generation(1, member()))) is ErrorCode.illegal_generation
        assert groups.write(structs.replace(generation(2, member()), is_synced=False)) == Done()

    @pytest.mark.parametrize("version", [0, 2])
    def test_a_change_of_another_version_is_refused(self, groups: Groups, version: int) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        groups.write(generation(1, member()))
        command = WriteClassicGroup(group_id="g", claim_epoch=epoch, version=version, group=EMPTY)
        assert refused(groups.do(command)) is ErrorCode.not_coordinator

    def test_it_is_known_since_when_a_group_is_empty(self, groups: Groups) -> None:
        groups.claim("g")
        groups.write(generation(1, member()), time_ms=HOUR_MS)
        assert groups.group().empty_since_ms is None
        groups.write(EMPTY, time_ms=HOUR_MS + 5)
        groups.write(EMPTY, time_ms=HOUR_MS + 9)
        assert groups.group().empty_since_ms == HOUR_MS + 5


class TestConsumerGroups:
    def test_rows_are_applied_to_what_is_there(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        write = WriteConsumerGroup(group_id="g", claim_epoch=epoch, version=0, change=JOINED)
        assert groups.do(write) == Done()
        assert groups.group().has_members
        left = structs.replace(JOINED, epoch=3, is_new=False, members=(), removed=("m1",))
        assert groups.do(structs.replace(write, version=1, change=left), time_ms=HOUR_MS + 1) == Done()
        assert (groups.group().has_members, groups.group().empty_since_ms) == (False, HOUR_MS + 1)

    def test_rows_for_a_group_that_is_none_are_refused(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        write = WriteConsumerGroup(
            group_id="g", claim_epoch=epoch, version=0, change=structs.replace(JOINED, is_new=False)
        )
        assert refused(groups.do(write)) is ErrorCode.not_coordinator

    def test_rows_that_cannot_be_a_coordinators_are_refused(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        change = structs.replace(JOINED, target_epoch=JOINED.epoch + 1)
        write = WriteConsumerGroup(group_id="g", claim_epoch=epoch, version=0, change=change)
        assert refused(groups.do(write)) is ErrorCode.not_coordinator
        assert groups.group().value is None

    def test_a_classic_group_is_replaced_by_a_new_one(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        groups.write(EMPTY)
        change = structs.replace(JOINED, epoch=EMPTY.generation + 1)
        write = WriteConsumerGroup(group_id="g", claim_epoch=epoch, version=1, change=change)
        assert groups.do(write) == Done()
        assert groups.group().empty_since_ms is None

    def test_generations_and_epochs_go_on_from_each_other(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        groups.write(generation(3))
        write = WriteConsumerGroup(group_id="g", claim_epoch=epoch, version=1, change=JOINED)
        assert refused(groups.do(write)) is ErrorCode.illegal_generation
        assert groups.do(structs.replace(write, change=structs.replace(JOINED, epoch=3))) == Done()
        assert refused(groups.write(generation(2, member()))) is ErrorCode.illegal_generation
        assert groups.write(generation(3, member())) == Done()


class TestOffsets:
    def test_what_was_committed_last_counts(self, groups: Groups) -> None:
        groups.claim("g")
        assert [groups.commit(5), groups.commit(3, time_ms=HOUR_MS + 7)] == [0, 0]
        assert groups.committed() == CommittedOffset(
            offset=Offset(3), leader_epoch=-1, metadata="text", commit_ms=Milliseconds(HOUR_MS + 7), number=2
        )

    def test_a_partition_that_is_not_there_is_its_rows_error(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        for command in (offsets(("g", epoch), 5, partition=1), offsets(("g", epoch), 5, topic_id=TopicId(bytes(16)))):
            assert groups.do(command) == OffsetsCommitted(error_codes=[ErrorCode.unknown_topic_or_partition])
        assert groups.group().is_vacant

    def test_offsets_of_a_deleted_topic_are_gone(self, groups: Groups) -> None:
        groups.claim("g", "h")
        groups.commit(5)
        groups.commit(6, "h")
        groups.write(generation(1, member()), "h")
        groups.claim("vacant")
        groups.do(DeleteTopic(topic_id=TOPIC))
        assert count_offsets(groups.state.groups.values()) == 0
        assert [groups.group(name).value for name in ("g", "h", "vacant")] == [NO_GROUP, generation(1, member()), None]

    def test_offsets_can_be_deleted_one_by_one(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        groups.commit(5)
        command = DeleteOffsets(group_id="g", claim_epoch=epoch, partitions=((TOPIC, FIRST), (TOPIC, FIRST)))
        assert [groups.do(command), groups.do(command)] == [Done(), Done()]
        assert (groups.group().value, groups.group().version) == (NO_GROUP, 0)
        assert groups.write(generation(1, member())) == Done()

    def test_a_claim_alone_is_no_group_though_offsets_are_deleted_that_it_never_had(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        assert groups.do(DeleteOffsets(group_id="g", claim_epoch=epoch, partitions=((TOPIC, FIRST),))) == Done()
        assert groups.group().is_vacant

    def test_the_other_offsets_of_a_topic_stay(self, groups: Groups) -> None:
        wide = TopicId(bytes(15) + b"\2")
        groups.do(create("wide", topic_id=wide, partitions=2))
        (epoch,) = groups.claim("g").claim_epochs
        for partition in (0, 1):
            groups.do(offsets(("g", epoch), 5, topic_id=wide, partition=partition))
        groups.do(DeleteOffsets(group_id="g", claim_epoch=epoch, partitions=((wide, FIRST),)))
        assert list(groups.group().offsets[wide]) == [1]

    def test_a_group_with_members_cannot_be_deleted(self, groups: Groups) -> None:
        (epoch,) = groups.claim("g").claim_epochs
        groups.commit(5)
        groups.write(generation(1, member()))
        command = DeleteGroup(group_id="g", claim_epoch=epoch)
        assert refused(groups.do(command)) is ErrorCode.non_empty_group
        groups.write(EMPTY)
        assert groups.do(command) == Done()
        assert groups.state.groups == {}

    def test_a_snapshot_keeps_everything(self, groups: Groups) -> None:
        groups.claim("g", "h", "i")
        groups.claim("z", "a")
        groups.commit(5)
        groups.commit(6, "h", retention_ms=5)
        groups.write(generation(1, member("a"), member("b")))
        groups.do(WriteConsumerGroup(group_id="i", claim_epoch=3, version=0, change=JOINED))
        read = decode_snapshot(encode_snapshot(groups.state))
        assert (read.groups, read.group_claims_count) == (groups.state.groups, 5)
        assert list(read.vacant_groups) == list(groups.state.vacant_groups) == ["z", "a"]
        assert digest(read) == digest(groups.state)


class TestExpiry:
    def test_offsets_go_when_they_are_old_and_the_group_with_them(self, groups: Groups) -> None:
        groups.claim("g")
        groups.commit(5, time_ms=2 * HOUR_MS)
        groups.expire(3 * HOUR_MS - 1, time_ms=9 * HOUR_MS)
        assert groups.committed() is not None
        groups.expire(3 * HOUR_MS, time_ms=9 * HOUR_MS)
        assert groups.state.groups == {}

    def test_s2_a_time_ahead_of_the_states_counts_as_that(self, groups: Groups) -> None:
        groups.claim("g")
        groups.commit(5, time_ms=2 * HOUR_MS)
        groups.expire(99 * HOUR_MS, time_ms=2 * HOUR_MS)
        assert groups.committed() is not None

    def test_a_group_with_members_stays(self, groups: Groups) -> None:
        groups.claim("g", "h")
        groups.write(generation(1, member()))
        groups.expire(99 * HOUR_MS, time_ms=99 * HOUR_MS)
        assert list(groups.state.groups) == ["g"]

    def test_s2_what_nobody_told_the_time_of_is_as_old_as_the_first_entry_that_asks(self, groups: Groups) -> None:
        """The state's time may be long past: an offset that is committed meanwhile must not be gone at the next one."""
        groups.claim("g")
        groups.write(generation(1, member()))
        groups.write(EMPTY)
        groups.commit(5)
        groups.expire(99 * HOUR_MS, time_ms=99 * HOUR_MS)
        found = groups.committed()
        assert found is not None
        assert (found.commit_ms, groups.group().empty_since_ms) == (99 * HOUR_MS, 99 * HOUR_MS)
        groups.expire(100 * HOUR_MS, time_ms=100 * HOUR_MS)
        assert groups.state.groups == {}

    def test_s2_an_expiry_whose_entry_tells_no_time_makes_nothing_older(self, groups: Groups) -> None:
        """The clock was found wrong after it was proposed: what was committed just now is not as old as the state."""
        groups.claim("g")
        groups.commit(5)
        groups.expire(99 * HOUR_MS)
        groups.expire(99 * HOUR_MS, time_ms=99 * HOUR_MS)
        found = groups.committed()
        assert found is not None
        assert found.commit_ms == 99 * HOUR_MS

    def test_s2_where_no_time_is_proposed_groups_go_of_which_nothing_is_left_and_no_offset_ages(
        self, groups: Groups
    ) -> None:
        groups.claim("g", "timed", "untimed", "vacant")
        groups.write(EMPTY)
        groups.commit(5, "timed", time_ms=2 * HOUR_MS)
        groups.commit(5, "untimed")
        before = [groups.committed("timed"), groups.committed("untimed")]
        groups.expire(NO_TIME, time_ms=99 * HOUR_MS)
        assert sorted(groups.state.groups) == ["timed", "untimed"]
        assert [groups.committed("timed"), groups.committed("untimed")] == before

    def test_groups_that_are_not_there_are_passed_over(self, groups: Groups) -> None:
        command = ExpireOffsets(now_ms=Milliseconds(1), retention_ms=1, group_ids=("none",))
        assert groups.do(command) == Done()
