"""An archive pass becomes true, or nothing of it (safety rule S6)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from coordinator.commands.commands import (
    ArchivedChunk,
    Done,
    ForgetObjects,
    PartitionReplacement,
    Rejected,
    ReplaceChunks,
    ReplacedChunk,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.snapshot import digest
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId, TopicId
from storage.refs import ObjectKind, intake_key, parquet_key
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, create, start
from tests.support.commands.table_commits import table_commit
from tests.support.commands.transaction_commands import begin, end, transactional

SESSION = SessionId(1)
FILE = parquet_key("t", TOPIC, SESSION, ObjectNumber(9))
OTHER_FILE = parquet_key("t", TOPIC, SESSION, ObjectNumber(10))


def key(number: int) -> str:
    return intake_key(SESSION, ObjectNumber(number))


def cluster_of_three() -> Cluster:
    """Offsets 0-10, 10-20 and 20-30 in objects 0, 1 and 2; a second partition with offsets 0-5 in object 2."""
    cluster = Cluster()
    cluster.do(start())
    cluster.do(create(partitions=2))
    for number in range(2):
        cluster.do(commit(number, Chunk(batches=[Batch(records=10)])))
    cluster.do(commit(2, Chunk(batches=[Batch(records=10)]), Chunk(partition=1, batches=[Batch(records=5)])))
    return cluster


def replaced(first: int, end: int, number: int, byte_first: int = 0) -> ReplacedChunk:
    return ReplacedChunk(
        offset_first=Offset(first), offset_end=Offset(end), object_key=key(number), byte_first=byte_first
    )


def archived(first: int, end: int, *, group: int = 0) -> ArchivedChunk:
    return ArchivedChunk(
        offset_first=Offset(first),
        offset_end=Offset(end),
        row_group=group,
        row_first=0,
        row_count=end - first,
        byte_first=4,
        byte_count=70,
        max_timestamp=Milliseconds(1_000),
    )


def swap(
    *,
    partition: int = 0,
    old: tuple[ReplacedChunk, ...] = (replaced(0, 10, 0), replaced(10, 20, 1)),
    new: tuple[ArchivedChunk, ...] = (archived(0, 20),),
) -> PartitionReplacement:
    return PartitionReplacement(partition=PartitionIndex(partition), replaced=old, archived=new)


def archive(*partitions: PartitionReplacement) -> ReplaceChunks:
    return ReplaceChunks(
        topic_id=TOPIC, object_session=SESSION, object_key=FILE, object_bytes=5_000, partitions=partitions
    )


def test_chunks_become_rows_of_a_file_and_their_objects_are_released() -> None:
    cluster = cluster_of_three()
    assert cluster.do(archive(swap()), time_ms=70) == Done()
    first, last = cluster.partition.index.rows_from(0)
    assert (first.offset_first, first.offset_end, first.row_group, first.row_count) == (0, 20, 0, 20)
    assert (last.offset_first, last.is_archived) == (20, False)
    found = cluster.state.objects[first.object_id]
    assert (found.key, found.kind, found.object_bytes, found.references) == (FILE, ObjectKind.PARQUET, 5_000, 1)
    assert cluster.state.released == {key(0): 70, key(1): 70}


def test_an_object_is_released_with_its_last_chunk() -> None:
    cluster = cluster_of_three()
    old = (replaced(20, 30, 2),)
    assert cluster.do(archive(swap(old=old, new=(archived(20, 25), archived(25, 30, group=1))))) == Done()
    assert cluster.state.released == {}
    other = replace(archive(), object_key=FILE.replace("9.parquet", "a.parquet"))
    second = swap(partition=1, old=(replaced(0, 5, 2, 100),), new=(archived(0, 5),))
    assert cluster.do(replace(other, partitions=(second,))) == Done()
    assert list(cluster.state.released) == [key(2)]


def test_several_partitions_change_together() -> None:
    cluster = cluster_of_three()
    second = swap(partition=1, old=(replaced(0, 5, 2, 100),), new=(archived(0, 5, group=1),))
    assert cluster.do(archive(swap(), second)) == Done()
    assert sorted(found.references for found in cluster.state.objects.values()) == [1, 2]


OTHER_PARTITION = swap(partition=1, old=(replaced(0, 5, 2, 100),), new=(archived(0, 5),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: replace(c, object_session=SessionId(2)), "session 2"),
        (lambda c: replace(c, topic_id=TopicId(bytes([7] * 16))), "no topic"),
        (lambda c: replace(c, object_key="lake/elsewhere/data/1.parquet"), "does not begin"),
        (lambda c: replace(c, partitions=(swap(), swap())), "named twice"),
        (lambda c: replace(c, partitions=(OTHER_PARTITION, swap(partition=2))), "no partition 2"),
        (lambda c: replace(c, partitions=(OTHER_PARTITION, swap(old=()))), "nothing is replaced"),
        (lambda c: replace(c, partitions=(swap(new=()),)), "nothing replaces"),
        (lambda c: replace(c, partitions=(swap(old=(replaced(30, 40, 3),)),)), "are not there"),
        (
            lambda c: replace(c, partitions=(swap(old=(replaced(20, 30, 2), replaced(30, 40, 3))),)),
            "are not there",
        ),
        (
            lambda c: replace(c, partitions=(swap(old=(replaced(0, 10, 0), replaced(10, 20, 0))),)),
            "the index holds",
        ),
        (
            lambda c: replace(c, partitions=(swap(old=(replaced(0, 10, 0, 1), replaced(10, 20, 1))),)),
            "the index holds",
        ),
        (
            lambda c: replace(c, partitions=(swap(old=(replaced(5, 10, 0), replaced(10, 20, 1))),)),
            "the index holds",
        ),
        (
            lambda c: replace(c, partitions=(swap(new=(archived(0, 10), archived(11, 20))),)),
            "offset 10 is next",
        ),
        (lambda c: replace(c, partitions=(swap(new=(archived(0, 0), archived(0, 20))),)), "offset 0 is next"),
        (lambda c: replace(c, partitions=(swap(new=(archived(0, 19),)),)), "rows end at offset 19"),
        (lambda c: replace(c, partitions=(swap(new=(archived(0, 21),)),)), "rows end at offset 21"),
    ],
)
def test_any_difference_from_the_state_refuses_all_of_it(
    change: Callable[[ReplaceChunks], ReplaceChunks], reason: str
) -> None:
    cluster = cluster_of_three()
    outcome = cluster.do(change(archive(swap())))
    assert isinstance(outcome, Rejected)
    assert outcome.error_code is ErrorCode.invalid_request
    assert reason in outcome.reason
    assert len(cluster.partition.index) == 3
    assert not any(chunk.is_archived for chunk in cluster.partition.index.rows_from(0))
    assert not cluster.state.released


def test_a_file_is_named_once() -> None:
    cluster = cluster_of_three()
    cluster.do(archive(swap()))
    outcome = cluster.do(archive(swap(old=(replaced(20, 30, 2),), new=(archived(20, 30),))))
    assert isinstance(outcome, Rejected)
    assert "known already" in outcome.reason


def test_released_objects_are_remembered_until_they_are_forgotten() -> None:
    cluster = cluster_of_three()
    cluster.do(archive(swap()))
    assert cluster.do(ForgetObjects(object_keys=(key(0), key(2), "intake/elsewhere"))) == Done()
    assert list(cluster.state.released) == [key(1)]
    assert key(2) in cluster.state.object_ids


class TestWhatEntersTheTable:
    """An entry that no agent can carry out would end every agent that reads it, again at each start (S6)."""

    def test_a_file_whose_chunks_are_all_replaced_does_not_enter(self) -> None:
        cluster = cluster_of_three()
        cluster.do(archive(swap()))
        merged = replace(
            archive(
                swap(old=(ReplacedChunk(offset_first=Offset(0), offset_end=Offset(20), object_key=FILE, byte_first=4),))
            ),
            object_key=OTHER_FILE,
            table=table_commit(1, data_files=(OTHER_FILE, FILE)),
        )
        before = digest(cluster.state)
        outcome = cluster.do(merged)
        assert isinstance(outcome, Rejected)
        assert "enters the table, and the command replaces all of its chunks" in outcome.reason
        assert FILE in cluster.state.object_ids
        assert digest(cluster.state) != before  # its entry counts
        assert cluster.do(replace(merged, table=table_commit(1, data_files=(OTHER_FILE,)))) == Done()

    def test_a_file_that_keeps_a_chunk_enters(self) -> None:
        cluster = cluster_of_three()
        cluster.do(archive(swap(new=(archived(0, 10), archived(10, 20)))))
        half = ReplacedChunk(offset_first=Offset(0), offset_end=Offset(10), object_key=FILE, byte_first=4)
        merged = replace(
            archive(swap(old=(half,), new=(archived(0, 10),))),
            object_key=OTHER_FILE,
            table=table_commit(1, data_files=(OTHER_FILE, FILE)),
        )
        assert cluster.do(merged) == Done()

    def test_a_new_file_without_chunks_does_not_enter(self) -> None:
        cluster = cluster_of_three()
        outcome = cluster.do(replace(archive(), table=table_commit(1, data_files=(FILE,))))
        assert isinstance(outcome, Rejected)
        assert "no chunk refers to it" in outcome.reason
        assert not cluster.state.released


class TestTransactions:
    """The partition holds offset 0 of an aborted transaction, its marker, and offset 2 of an open one."""

    ABORTED = (
        replaced(0, 1, 0),
        ReplacedChunk(offset_first=Offset(1), offset_end=Offset(2), object_key="", byte_first=0),
    )

    def cluster(self) -> Cluster:
        cluster = Cluster.started()
        cluster.do(begin())
        cluster.produce(0, transactional(0))
        cluster.do(end(is_commit=False))
        cluster.produce(1, transactional(0, epoch=1))
        return cluster

    def test_s5_a_marker_is_replaced_by_its_producer_and_its_aborted_range_goes_with_it(self) -> None:
        cluster = self.cluster()
        no_rows = replace(archived(0, 2), row_count=0)
        assert cluster.do(archive(swap(old=self.ABORTED, new=(no_rows,)))) == Done()
        assert [chunk.offset_end for chunk in cluster.partition.index.rows_from(0)] == [2, 3]
        transactions = cluster.partition.transactions
        assert transactions is not None
        assert transactions.aborted_count == 0
        assert cluster.partition.last_stable == 2

    def test_s5_a_marker_is_not_replaced_before_what_its_producer_wrote(self) -> None:
        """Its range goes with it: readers would take the aborted record, which is in the log, for a committed one."""
        cluster = self.cluster()
        marker = replace(archived(1, 2), row_count=0)
        alone = archive(swap(old=self.ABORTED[1:], new=(marker,)))
        cluster.state.rules_version = RULES_CHECKED_STORAGE
        cluster.state.sessions[SESSION].rules_version = RULES_CHECKED_STORAGE
        outcome = cluster.do(alone)
        assert isinstance(outcome, Rejected)
        assert "chunks before offset 1 are not archived" in outcome.reason
        transactions = cluster.partition.transactions
        assert transactions is not None
        assert transactions.aborted_count == 1
        first = replace(archived(0, 1), row_count=0)
        assert cluster.do(archive(swap(old=self.ABORTED[:1], new=(first,)))) == Done()
        assert transactions.aborted_count == 1
        assert cluster.do(replace(alone, object_key=OTHER_FILE)) == Done()
        assert transactions.aborted_count == 0

    def test_s3_the_first_rules_let_it_be_replaced(self) -> None:
        cluster = self.cluster()
        assert cluster.do(archive(swap(old=self.ABORTED[1:], new=(archived(1, 2),)))) == Done()

    def test_s6_a_marker_of_another_producer_is_another_chunk(self) -> None:
        other = replace(self.ABORTED[1], byte_first=1)
        refused = self.cluster().do(archive(swap(old=(self.ABORTED[0], other), new=(archived(0, 2),))))
        assert isinstance(refused, Rejected)

    def test_nothing_is_archived_from_an_open_transaction_on(self) -> None:
        cluster = self.cluster()
        with_open = swap(old=(*self.ABORTED, replaced(2, 3, 1)), new=(archived(0, 3),))
        refused = cluster.do(archive(with_open))
        assert isinstance(refused, Rejected)
        assert "open before offset 3" in refused.reason
        cluster.do(end(epoch=1))
        assert cluster.do(archive(with_open)) == Done()
