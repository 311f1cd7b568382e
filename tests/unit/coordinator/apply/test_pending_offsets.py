"""Offsets that a group commits in a transaction: true with it, gone with it, and never half."""

from dataclasses import replace

import msgspec
import pytest

from coordinator.apply import transactions as apply_transactions
from coordinator.codec.transaction_wire import WireTransactionalId, transactional_id_to_wire
from coordinator.commands.commands import DeleteTopic, Done, Rejected
from coordinator.commands.group import (
    ClaimGroups,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import GroupState
from coordinator.commands.transaction import CommitTransactionalOffsets, TransactionalOffsetsPending
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state import transactions
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, PartitionIndex, ProducerId, TopicId
from tests.support.commands.commands import TOPIC, Cluster, create, start
from tests.support.commands.group_commands import GENERATION, JOINED, offsets
from tests.support.commands.transaction_commands import ID, V1, add, begin, decided, end, pending, transactional

OTHER = TopicId(bytes([1] * 16))


def started(*, partitions: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.do(start())
    cluster.do(create(partitions=partitions))
    cluster.do(ClaimGroups(group_ids=("g",)))
    decided(cluster, begin())
    return cluster


def told(cluster: Cluster, command: CommitTransactionalOffsets, *, session: int = 1) -> list[int]:
    outcome = cluster.do(command, session=session)
    assert isinstance(outcome, TransactionalOffsetsPending), outcome
    assert not outcome.is_stale
    return list(outcome.error_codes)


def group(cluster: Cluster) -> GroupState:
    return cluster.state.groups["g"]


def forget(partition: int) -> DeleteOffsets:
    return DeleteOffsets(group_id="g", claim_epoch=1, partitions=((TOPIC, PartitionIndex(partition)),))


def committed(cluster: Cluster) -> list[int]:
    return [found.offset for partitions in group(cluster).offsets.values() for found in partitions.values()]


class TestV2:
    def test_offsets_are_true_when_the_transaction_commits_and_not_before(self) -> None:
        cluster = started()
        assert told(cluster, pending(5, metadata=["note"])) == [0]
        assert (committed(cluster), list(group(cluster).pending)) == ([], [0])
        outcome = decided(cluster, end(), time_ms=9)
        assert outcome.ended_groups == ("g",)
        assert (committed(cluster), group(cluster).pending) == ([5], {})
        (found,) = group(cluster).offsets[TOPIC].values()
        assert (found.metadata, found.commit_ms) == ("note", 9)

    def test_they_are_forgotten_when_it_aborts(self) -> None:
        cluster = started()
        told(cluster, pending(5))
        decided(cluster, end())
        told(cluster, pending(8, epoch=1))
        decided(cluster, end(epoch=1, is_commit=False))
        assert committed(cluster) == [5]

    def test_they_are_forgotten_when_another_instance_fences_their_producer(self) -> None:
        cluster = started()
        told(cluster, pending(5))
        decided(cluster, begin())
        assert (committed(cluster), group(cluster).pending) == ([], {})
        assert told(cluster, pending(6)) == [ErrorCode.producer_fenced]

    def test_the_newest_of_a_transaction_counts(self) -> None:
        cluster = started()
        told(cluster, pending(5))
        told(cluster, pending(3))
        decided(cluster, end())
        assert committed(cluster) == [3]

    def test_a_partition_that_is_not_there_is_its_rows_error(self) -> None:
        cluster = started()
        assert told(cluster, pending(5, 6)) == [0, ErrorCode.unknown_topic_or_partition]
        cluster.do(DeleteTopic(topic_id=TOPIC))
        assert group(cluster).pending == {}
        assert told(cluster, pending(5)) == [ErrorCode.unknown_topic_or_partition]
        assert decided(cluster, end()).error_code is ErrorCode.none


class TestTheNewestCommitCounts:
    """However transactions end: as in Kafka, where its place in the log decides."""

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_one_outside_overtakes_those_that_are_pending(self, is_commit: bool) -> None:
        cluster = started(partitions=2)
        told(cluster, pending(5, 6))
        cluster.do(offsets(("g", 1), 9))
        assert group(cluster).pending_partitions() == {(TOPIC, 0), (TOPIC, 1)}
        decided(cluster, end(is_commit=is_commit))
        assert committed(cluster) == ([9, 6] if is_commit else [9])

    @pytest.mark.parametrize("is_first_ended_first", [True, False])
    def test_of_two_transactions_the_later_ones_stands(self, is_first_ended_first: bool) -> None:
        cluster = started()
        decided(cluster, begin(transactional_id="other"))
        told(cluster, pending(5))
        told(cluster, replace(pending(7, producer=1), transactional_id="other"))
        ends = [end(), end(producer=1, transactional_id="other")]
        for each in ends if is_first_ended_first else reversed(ends):
            decided(cluster, each)
        assert committed(cluster) == [7]

    def test_a_snapshot_remembers_which_was_the_newest(self) -> None:
        cluster = started()
        told(cluster, pending(5))
        cluster.do(offsets(("g", 1), 9))
        cluster.state = decode_snapshot(encode_snapshot(cluster.state))
        decided(cluster, end())
        assert committed(cluster) == [9]


class TestWhatIsDeleted:
    def test_is_deleted_from_open_transactions_too(self) -> None:
        cluster = started(partitions=2)
        cluster.do(offsets(("g", 1), 2))
        told(cluster, pending(5, 6))
        cluster.do(forget(0))
        assert (committed(cluster), group(cluster).pending_partitions()) == ([], {(TOPIC, 1)})
        cluster.do(forget(1))
        assert group(cluster).pending == {}
        assert not group(cluster).is_vacant
        decided(cluster, end())
        assert committed(cluster) == []

    def test_what_is_committed_after_that_is_true(self) -> None:
        cluster = started()
        told(cluster, pending(5))
        cluster.do(forget(0))
        told(cluster, pending(6))
        decided(cluster, end())
        assert committed(cluster) == [6]

    def test_what_an_open_transaction_may_replace_does_not_expire(self) -> None:
        cluster = started()
        cluster.do(offsets(("g", 1), 2))
        expire = ExpireOffsets(now_ms=Milliseconds(1 << 40), retention_ms=0, group_ids=("g",))
        told(cluster, pending(5))
        cluster.do(expire)
        assert committed(cluster) == [2]
        decided(cluster, end(is_commit=False))
        cluster.do(expire)
        assert "g" not in cluster.state.groups


@pytest.mark.parametrize(
    "change",
    [
        WriteClassicGroup(group_id="g", claim_epoch=1, version=0, group=GENERATION),
        WriteConsumerGroup(group_id="g", claim_epoch=1, version=0, change=JOINED),
    ],
)
def test_pending_offsets_stay_where_the_group_changes_its_kind(change: GroupCommand) -> None:
    cluster = started()
    told(cluster, pending(5))
    assert cluster.do(change) == Done()
    assert group(cluster).pending_partitions() == {(TOPIC, 0)}
    decided(cluster, end())
    assert committed(cluster) == [5]


class TestV1:
    def test_a_group_is_added_before(self) -> None:
        cluster = started()
        assert told(cluster, pending(5, version=V1)) != [0]
        decided(cluster, add(groups=("g",)))
        assert told(cluster, pending(5, version=V1)) == [0]
        decided(cluster, end(version=V1))
        assert committed(cluster) == [5]

    def test_s7_a_commit_on_an_older_connection_changes_nothing(self) -> None:
        cluster = started()
        decided(cluster, add(groups=("g",)))
        told(cluster, pending(5, version=V1, connection_epoch=(4, 2)))
        outcome = cluster.do(pending(3, version=V1, connection_epoch=(4, 1)))
        assert outcome == TransactionalOffsetsPending(error_codes=(), is_stale=True)
        assert told(cluster, pending(6, version=V1, connection_epoch=(4, 3))) == [0]
        decided(cluster, end(version=V1))
        assert committed(cluster) == [6]

    def test_s7_one_of_another_epoch_is_judged_by_that(self) -> None:
        cluster = started()
        decided(cluster, add(groups=("g",)))
        told(cluster, pending(5, version=V1, connection_epoch=(4, 2)))
        assert told(cluster, pending(3, version=V1, epoch=9, connection_epoch=(4, 1))) == [ErrorCode.producer_fenced]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A V1 transaction of the groups g, h and i, where epochs of two are kept."""
    monkeypatch.setattr(transactions, "OFFSET_COMMIT_EPOCHS_MAX", 2)
    cluster = started()
    cluster.do(ClaimGroups(group_ids=("h", "i")))
    decided(cluster, add(groups=("g", "h", "i")))
    return cluster


CLAIMS = {"g": 1, "h": 2, "i": 3}


def commit_for(group_id: str, connection_epoch: tuple[int, int], *, epoch: int = 0) -> CommitTransactionalOffsets:
    return pending(
        5, group_id=group_id, claim_epoch=CLAIMS[group_id], version=V1, connection_epoch=connection_epoch, epoch=epoch
    )


def is_stale(cluster: Cluster, command: CommitTransactionalOffsets) -> bool:
    outcome = cluster.do(command)
    assert isinstance(outcome, TransactionalOffsetsPending)
    return outcome.is_stale


class TestConnectionEpochsOfManyGroups:
    """S7: only the newest epochs are kept, and without one the age of those that were dropped decides."""

    def test_s7_what_a_dropped_stamp_refused_is_refused_without_it(self, cluster: Cluster) -> None:
        told(cluster, commit_for("g", (5, 2)))
        dropped_at = cluster.state.position
        for group_id in ("h", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        held = cluster.state.transactional_ids[ID]
        assert (list(held.offset_commit_epochs), held.offset_commit_epochs_from) == (["h", "i"], dropped_at + 1)
        for began_at in range(5, dropped_at + 1):
            assert is_stale(cluster, commit_for("g", (began_at, 1)))
        assert group(cluster).pending_partitions() == {(TOPIC, 0)}

    def test_s7_the_next_connection_is_let_in(self, cluster: Cluster) -> None:
        for group_id in ("g", "h", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        assert is_stale(cluster, commit_for("g", (5, 2)))
        assert told(cluster, commit_for("g", (cluster.state.position, 3))) == [0]

    def test_s7_groups_that_have_a_stamp_go_by_that_alone(self, cluster: Cluster) -> None:
        for group_id in ("g", "h", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        assert told(cluster, commit_for("h", (5, 2))) == [0]
        assert is_stale(cluster, commit_for("h", (5, 1)))

    def test_the_one_that_acted_longest_ago_is_dropped(self, cluster: Cluster) -> None:
        for group_id in ("g", "h", "g", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        assert set(cluster.state.transactional_ids[ID].offset_commit_epochs) == {"g", "i"}

    def test_a_new_epoch_lets_every_connection_in(self, cluster: Cluster) -> None:
        for group_id in ("g", "h", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        decided(cluster, begin(producer=0, epoch=0))
        decided(cluster, add(groups=("g",), epoch=1))
        assert told(cluster, commit_for("g", (5, 1), epoch=1)) == [0]

    def test_what_was_dropped_is_part_of_the_state(self, cluster: Cluster) -> None:
        for group_id in ("g", "h", "i"):
            told(cluster, commit_for(group_id, (5, 2)))
        copy = decode_snapshot(encode_snapshot(cluster.state))
        assert digest(copy) == digest(cluster.state)
        assert copy.transactional_ids == cluster.state.transactional_ids

    def test_a_snapshot_without_it_dropped_nothing(self, cluster: Cluster) -> None:
        told(cluster, commit_for("g", (5, 2)))
        held = cluster.state.transactional_ids[ID]
        fields = msgspec.to_builtins(transactional_id_to_wire(ID, held))
        assert msgspec.convert(fields[:-1], WireTransactionalId).value() == held


def test_s13_an_agent_without_the_claim_keeps_nothing() -> None:
    cluster = started()
    outcome = cluster.do(replace(pending(5), claim_epoch=7))
    assert isinstance(outcome, Rejected)
    assert outcome.error_code is ErrorCode.not_coordinator


def test_an_unknown_transactional_id_is_told() -> None:
    cluster = started()
    unknown = replace(pending(5), transactional_id="x")
    assert told(cluster, unknown) == [ErrorCode.invalid_producer_id_mapping]
    assert group(cluster).is_vacant


def test_a_group_with_pending_offsets_alone_is_kept_until_they_are_decided() -> None:
    cluster = started()
    told(cluster, pending(5))
    assert not group(cluster).is_vacant
    cluster.do(ExpireOffsets(now_ms=Milliseconds(1 << 40), retention_ms=0, group_ids=("g",)))
    assert list(group(cluster).pending) == [0]
    decided(cluster, end(is_commit=False))
    cluster.do(ExpireOffsets(now_ms=Milliseconds(1 << 40), retention_ms=0, group_ids=("g",)))
    assert "g" not in cluster.state.groups


def test_a_group_that_is_deleted_takes_its_pending_offsets_with_it() -> None:
    cluster = started()
    told(cluster, pending(5))
    cluster.do(DeleteGroup(group_id="g", claim_epoch=1))
    assert decided(cluster, end()).error_code is ErrorCode.none
    assert "g" not in cluster.state.groups


def test_two_producers_wait_in_one_group_each_for_itself() -> None:
    cluster = started()
    decided(cluster, begin(transactional_id="other"))
    told(cluster, pending(5))
    told(cluster, replace(pending(7, producer=1), transactional_id="other"))
    copy = decode_snapshot(encode_snapshot(cluster.state))
    assert digest(copy) == digest(cluster.state)
    assert copy.groups["g"].pending == group(cluster).pending
    decided(cluster, end(is_commit=False))
    assert (committed(cluster), list(group(cluster).pending)) == ([], [1])
    decided(cluster, end(producer=1, transactional_id="other"))
    assert committed(cluster) == [7]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_coordinator_that_changes_meanwhile_loses_nothing(is_commit: bool) -> None:
    cluster = started()
    cluster.do(offsets(("g", 1), 2))
    told(cluster, pending(5))
    cluster.do(start("b", node=2), session=2)
    cluster.do(ClaimGroups(group_ids=("g",)), session=2)
    decided(cluster, end(is_commit=is_commit), session=2)
    assert committed(cluster) == [5 if is_commit else 2]


def test_a_topic_that_is_deleted_takes_its_own_pending_offsets_alone() -> None:
    cluster = started()
    cluster.do(create("u", topic_id=OTHER))
    told(cluster, pending(5))
    told(cluster, replace(pending(7), topic_ids=(OTHER,)))
    cluster.do(DeleteTopic(topic_id=TOPIC))
    assert list(group(cluster).pending[ProducerId(0)]) == [OTHER]
    decided(cluster, end())
    assert committed(cluster) == [7]


def test_a_transaction_that_is_full_takes_no_group_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = started()
    cluster.produce(0, transactional(0))
    monkeypatch.setattr(apply_transactions, "TRANSACTION_MEMBERS_MAX", 1)
    assert told(cluster, pending(5)) == [ErrorCode.policy_violation]
