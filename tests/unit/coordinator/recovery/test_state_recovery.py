"""What a recovery makes of objects: here what is rare; whole recoveries are tested with those who run them."""

import pytest

from coordinator.commands.commands import CommitChunks
from coordinator.commands.rules import (
    RULES_CHECKED_ENTRIES,
    RULES_CHECKED_STORAGE,
    RULES_FIRST,
    RULES_NEWEST,
    RULES_SECURITY,
)
from coordinator.ledger.port import LedgerCorrupt
from coordinator.recovery.intake_objects import FoundObject, read_object
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.snapshot import decode_snapshot, encode_snapshot
from coordinator.state.chunk_index import NO_CHECKSUM
from protocol.limits import PARTITIONS_MAX
from protocol.records.batch import check_crcs
from protocol.types import Milliseconds, ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, idempotent
from tests.support.commands.every_command import CREATE_TOKEN, TOKEN_ID
from tests.support.records.plain_records import Record, make_batch

OTHER = TopicId(bytes([7] * 16))


def found(command: CommitChunks) -> FoundObject:
    return FoundObject(key="", modified_ms=Milliseconds(5), command=command, faults=())


def object_of(number: int, *batches: Batch, topic_id: TopicId = TOPIC, partition: int = 0) -> FoundObject:
    return found(commit(number, Chunk(batches=batches, topic_id=topic_id, partition=partition)))


def recovery() -> StateRecovery:
    return StateRecovery(state=Cluster.started().state, topic_names={})


def test_a_batch_that_is_out_of_order_waits_for_a_later_copy_of_itself() -> None:
    recovering = recovery()
    early, late = object_of(0, idempotent(3)), object_of(1, idempotent(0), idempotent(1), idempotent(2), idempotent(3))
    recovering.expect(early)
    assert not recovering.is_in_order(early)
    recovering.expect(late)
    assert recovering.is_in_order(early)


def test_partitions_that_the_state_does_not_know_come_back_with_their_records() -> None:
    recovering = recovery()
    recovering.commit(object_of(0, Batch(records=3), partition=2))
    partitions = recovering.state.topics[TOPIC].partitions
    assert [partition.log_end for partition in partitions] == [0, 0, 3]
    assert recovering.state.partitions_count == 3


def test_a_topic_for_which_there_is_no_room_stops_the_recovery() -> None:
    recovering = recovery()
    recovering.state.partitions_count = PARTITIONS_MAX
    with pytest.raises(LedgerCorrupt, match="cannot be made again"):
        recovering.commit(object_of(0, Batch(), topic_id=OTHER))


def test_a_batch_of_an_epoch_that_is_over_is_counted_as_rejected() -> None:
    recovering = recovery()
    recovering.commit(object_of(0, idempotent(0, epoch=1)))
    recovering.commit(object_of(1, idempotent(1, epoch=0)))
    recovered = recovering.topics[TOPIC]
    assert (recovered.batches, recovered.rejected) == (1, 1)


@pytest.mark.parametrize(("rules", "is_confirmed"), [(RULES_CHECKED_ENTRIES, True), (RULES_SECURITY, False)])
def test_acls_are_doubted_where_the_rules_have_them(rules: int, *, is_confirmed: bool) -> None:
    recovering = StateRecovery(state=Cluster.started(rules).state, topic_names={})
    recovering.doubt_acls()
    assert recovering.state.is_acls_confirmed == is_confirmed
    assert decode_snapshot(encode_snapshot(recovering.state)).is_acls_confirmed == is_confirmed


def test_a_doubtful_recovery_removes_delegation_tokens() -> None:
    cluster = Cluster.started(RULES_NEWEST)
    cluster.do(CREATE_TOKEN, time_ms=1_000)
    recovering = StateRecovery(state=decode_snapshot(encode_snapshot(cluster.state)), topic_names={})
    assert list(recovering.state.tokens) == [TOKEN_ID]
    recovering.doubt_acls()
    assert (recovering.state.tokens, recovering.tokens_removed_count) == ({}, 1)


@pytest.mark.parametrize("rules", [RULES_FIRST, RULES_CHECKED_STORAGE])
def test_what_comes_back_has_the_checksums_that_its_commits_would_have_had(rules: int) -> None:
    batches = [make_batch([Record(offset=0, timestamp=time)]) for time in (1, 2)]
    chunk = ChunkParts(topic_id=TOPIC, partition=PartitionIndex(0), parts=batches)
    content = b"".join(encode_object(SessionId(1), ObjectNumber(3), [chunk]).parts)
    recovering = StateRecovery(state=Cluster.started(rules).state, topic_names={})
    recovering.commit(read_object("k", content, session=SessionId(1), number=ObjectNumber(3), modified_ms=5))
    (row,) = recovering.state.topics[TOPIC].partitions[0].index.rows_from(0)
    assert row.offset_end == 2
    assert row.checksum == (NO_CHECKSUM if rules == RULES_FIRST else check_crcs(b"".join(batches)))
