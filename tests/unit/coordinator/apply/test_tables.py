"""A table's pointer moves with the log or by itself, and what its snapshots need stays (safety rule S6)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from coordinator.commands.commands import (
    ApplyRetention,
    ArchivedChunk,
    DeleteTopic,
    Done,
    NewObject,
    PartitionReplacement,
    Rejected,
    ReplaceChunks,
    ReplacedChunk,
    TableCommit,
)
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import TableState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId, TopicId
from storage.refs import (
    MANIFEST_LIST_SUFFIX,
    MANIFEST_SUFFIX,
    ObjectKind,
    intake_key,
    metadata_copy_key,
    parquet_key,
    version_hint_key,
)
from tests.support.commands.commands import TOPIC, Batch, Cluster
from tests.support.commands.table_commits import commit_table, metadata_key, table_commit

SESSION = SessionId(1)


def file(number: int) -> str:
    return parquet_key("t", TOPIC, SESSION, ObjectNumber(number))


def archive(number: int, table: TableCommit | None) -> ReplaceChunks:
    """What the intake object of that number holds, offsets [10 * number, 10 * number + 10), as a file."""
    first, end = Offset(10 * number), Offset(10 * number + 10)
    old = ReplacedChunk(
        offset_first=first, offset_end=end, object_key=intake_key(SESSION, ObjectNumber(number)), byte_first=0
    )
    new = ArchivedChunk(
        offset_first=first,
        offset_end=end,
        row_group=0,
        row_first=0,
        row_count=10,
        byte_first=4,
        byte_count=70,
        max_timestamp=Milliseconds(1_000),
    )
    return ReplaceChunks(
        topic_id=TOPIC,
        object_session=SESSION,
        object_key=file(number),
        object_bytes=5_000,
        partitions=(PartitionReplacement(partition=PartitionIndex(0), replaced=(old,), archived=(new,)),),
        table=table,
    )


def cluster_of_two() -> Cluster:
    """Two intake objects of ten records each; the first one is archived and in the table."""
    cluster = Cluster.started()
    for number in range(2):
        cluster.produce(number, Batch(records=10))
    assert cluster.do(archive(0, table_commit(100, data_files=(file(0),))), time_ms=50) == Done()
    return cluster


def table(cluster: Cluster) -> TableState:
    found = cluster.state.topics[TOPIC].table
    assert found is not None
    return found


def keys(cluster: Cluster) -> set[str]:
    return {cluster.state.objects[object_id].key for object_id in table(cluster).objects}


def test_log_and_table_change_in_one_entry() -> None:
    cluster = cluster_of_two()
    assert (table(cluster).metadata_key, table(cluster).version) == (metadata_key(100), 1)
    metadata = {metadata_key(100), metadata_key(100, MANIFEST_LIST_SUFFIX), metadata_key(100, MANIFEST_SUFFIX)}
    assert keys(cluster) == {file(0), *metadata}
    held = {found.key: found for found in cluster.state.objects.values()}
    assert held[file(0)].references == 2
    assert {(held[key].kind, held[key].references) for key in metadata} == {(ObjectKind.TABLE_METADATA, 1)}
    assert (held[metadata_key(100)].object_bytes, held[metadata_key(100, MANIFEST_SUFFIX)].object_bytes) == (300, 100)


def test_what_the_next_version_does_not_need_is_released() -> None:
    cluster = cluster_of_two()
    gone = (metadata_key(100), metadata_key(100, MANIFEST_LIST_SUFFIX))
    second = table_commit(101, replaces=metadata_key(100), data_files=(file(1),), released=gone)
    assert cluster.do(archive(1, second), time_ms=70) == Done()
    assert (table(cluster).metadata_key, table(cluster).version) == (metadata_key(101), 2)
    assert {file(0), file(1), metadata_key(100, MANIFEST_SUFFIX)} <= keys(cluster)
    assert {key for key, at in cluster.state.released.items() if at == 70} == {
        *gone,
        intake_key(SESSION, ObjectNumber(1)),
    }


def test_a_file_stays_while_log_or_table_needs_it() -> None:
    cluster = cluster_of_two()
    everything = ApplyRetention(
        now_ms=Milliseconds(10**9), topic_ids=(TOPIC,), retention_ms=-1, retention_bytes=0, is_deleting=True
    )
    cluster.do(everything, time_ms=10**9)
    object_id = cluster.state.object_ids[file(0)]
    assert (cluster.state.objects[object_id].references, table(cluster).unneeded) == (1, {object_id})
    assert decode_snapshot(encode_snapshot(cluster.state)).topics[TOPIC].table == table(cluster)
    drop = table_commit(101, replaces=metadata_key(100), released=(metadata_key(100), file(0)))
    assert cluster.do(commit_table(drop)) == Done()
    assert file(0) in cluster.state.released
    assert table(cluster).unneeded == set()


def test_a_file_that_is_in_the_log_alone_goes_with_its_last_chunk() -> None:
    cluster = cluster_of_two()
    cluster.do(archive(1, None))
    cluster.do(
        ApplyRetention(
            now_ms=Milliseconds(10**9), topic_ids=(TOPIC,), retention_ms=-1, retention_bytes=0, is_deleting=True
        ),
        time_ms=10**9,
    )
    assert file(1) in cluster.state.released
    assert file(0) not in cluster.state.released


def test_a_file_of_the_log_may_enter_later() -> None:
    cluster = cluster_of_two()
    cluster.do(archive(1, None))
    later = table_commit(101, replaces=metadata_key(100), data_files=(file(1),), released=(metadata_key(100),))
    assert cluster.do(commit_table(later)) == Done()
    assert file(1) in keys(cluster)


def test_a_table_is_part_of_the_state() -> None:
    cluster = cluster_of_two()
    copy = decode_snapshot(encode_snapshot(cluster.state))
    assert copy.topics[TOPIC].table == table(cluster)
    assert digest(copy) == digest(cluster.state)
    table(cluster).version += 1
    assert digest(copy) != digest(cluster.state)


def test_the_table_goes_with_its_topic_and_so_do_the_copies_of_its_metadata() -> None:
    cluster = cluster_of_two()
    held = keys(cluster)
    for number in range(101, 105):
        before = metadata_key(number - 1)
        cluster.do(commit_table(table_commit(number, replaces=before, released=(before,))), time_ms=80)
        held = keys(cluster)
    assert cluster.do(DeleteTopic(topic_id=TOPIC), time_ms=90) == Done()
    assert not cluster.state.objects
    copies = {metadata_copy_key("t", TOPIC, version) for version in (3, 4, 5)}
    gone = {key for key, at in cluster.state.released.items() if at == 90}
    assert gone == {*held, *copies, version_hint_key("t", TOPIC), intake_key(SESSION, ObjectNumber(1))}


NEXT = table_commit(101, replaces=metadata_key(100), data_files=(file(1),), released=(metadata_key(100),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: replace(c, replaces=""), "the command replaces ''"),
        (lambda c: replace(c, replaces=metadata_key(99)), "the command replaces"),
        (lambda c: replace(c, data_files=(file(1), file(1))), "enters the table twice"),
        (lambda c: replace(c, added=(*c.added, c.metadata)), "enters the table twice"),
        (
            lambda c: replace(c, metadata=NewObject(key="lake/x.metadata.json", object_bytes=1)),
            "does not begin",
        ),
        (
            lambda c: replace(c, metadata=NewObject(key=metadata_key(101, session=2), object_bytes=1)),
            "does not begin",
        ),
        (lambda c: replace(c, added=(NewObject(key=metadata_key(100), object_bytes=1),)), "known already"),
        (
            lambda c: replace(c, metadata=replace(c.metadata, key=metadata_key(9, ".snap.avro"))),
            "does not end with",
        ),
        (lambda c: replace(c, data_files=(file(0),)), "in the table already"),
        (lambda c: replace(c, data_files=(file(7),)), "is no data file"),
        (lambda c: replace(c, data_files=(intake_key(SESSION, ObjectNumber(1)),)), "is no data file"),
        (lambda c: replace(c, released=(metadata_key(100), metadata_key(100))), "leaves the table twice"),
        (lambda c: replace(c, released=(metadata_key(100), file(1))), "is not in it"),
        (lambda c: replace(c, released=(file(0),)), "does not leave the table"),
    ],
)
@pytest.mark.parametrize("is_pass", [True, False])
def test_any_difference_from_the_state_refuses_all_of_it(
    change: Callable[[TableCommit], TableCommit], reason: str, *, is_pass: bool
) -> None:
    cluster = cluster_of_two()
    commit = change(NEXT)
    if not is_pass:
        cluster.do(archive(1, None))
    before = digest(cluster.state)
    outcome = cluster.do(archive(1, commit) if is_pass else commit_table(commit))
    assert isinstance(outcome, Rejected)
    assert outcome.error_code is ErrorCode.invalid_request
    assert reason in outcome.reason
    held = decode_snapshot(encode_snapshot(cluster.state))
    held.sessions[SESSION].entry_next -= 1
    held.position = type(held.position)(held.position - 1)
    held.appends_count -= 1
    assert digest(held) == before


def test_a_commit_of_another_session_or_to_no_topic_is_refused() -> None:
    cluster = cluster_of_two()
    for command, reason in (
        (commit_table(NEXT, session=2), "session 2"),
        (commit_table(NEXT, topic_id=TopicId(bytes([7] * 16))), "no topic"),
    ):
        outcome = cluster.do(command)
        assert isinstance(outcome, Rejected)
        assert reason in outcome.reason


def test_a_table_of_which_a_part_is_lost_begins_anew_at_a_recovery() -> None:
    cluster = cluster_of_two()
    state = cluster.state
    StateRecovery(state=state, topic_names={}).forget_lost({"lake/elsewhere"}, 2)
    assert state.topics[TOPIC].table is not None
    StateRecovery(state=state, topic_names={}).forget_lost({metadata_key(100, MANIFEST_SUFFIX)}, 2)
    assert state.topics[TOPIC].table is None
    assert [found.references for found in state.objects.values()] == [1, 1]
    assert {metadata_key(100), metadata_key(100, MANIFEST_SUFFIX)} <= state.released.keys()
