"""Which files hold a topic's log, in an order that is right for every partition."""

from coordinator.commands.commands import ArchivedChunk, Done, PartitionReplacement, ReplaceChunks, ReplacedChunk
from coordinator.state.chunk_index import ChunkIndex
from iceberg_export.compaction.topic_files import TopicFile, merge_chunks, topic_files
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId
from storage.refs import intake_key, parquet_key
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, create, start

SESSION = SessionId(1)


def file_key(number: int) -> str:
    return parquet_key("t", TOPIC, SESSION, ObjectNumber(number))


def put_file(cluster: Cluster, number: int, *partitions: PartitionReplacement) -> None:
    command = ReplaceChunks(
        topic_id=TOPIC,
        object_session=SESSION,
        object_key=file_key(number),
        object_bytes=1_000 + number,
        partitions=partitions,
    )
    assert cluster.do(command) == Done()


def swap(partition: int, *old: ReplacedChunk, timestamp: int) -> PartitionReplacement:
    first, end = old[0].offset_first, old[-1].offset_end
    new = ArchivedChunk(
        offset_first=first,
        offset_end=end,
        row_group=0,
        row_first=0,
        row_count=end - first,
        byte_first=4,
        byte_count=70,
        max_timestamp=Milliseconds(timestamp),
    )
    return PartitionReplacement(partition=PartitionIndex(partition), replaced=old, archived=(new,))


def old(first: int, end: int, key: str, byte_first: int) -> ReplacedChunk:
    return ReplacedChunk(offset_first=Offset(first), offset_end=Offset(end), object_key=key, byte_first=byte_first)


def cluster_of_three_files() -> Cluster:
    """Partition 0: 0-10 in file 1, 10-20 in 2; partition 1: 0-10 in file 2, 10-20 in 3, 20-30 not archived."""
    cluster = Cluster()
    cluster.do(start())
    cluster.do(create(partitions=3))
    ten = [Batch(records=10)]
    chunks = [Chunk(partition=partition, batches=ten) for partition in (0, 0, 1, 1, 1)]
    for number, chunk in enumerate(chunks):
        cluster.do(commit(number, chunk))
    keys = [intake_key(SESSION, ObjectNumber(number)) for number in range(len(chunks))]
    put_file(cluster, 11, swap(0, old(0, 10, keys[0], 0), timestamp=50))
    put_file(
        cluster,
        12,
        swap(0, old(10, 20, keys[1], 0), timestamp=-1),
        swap(1, old(0, 10, keys[2], 0), timestamp=70),
    )
    put_file(cluster, 13, swap(1, old(10, 20, keys[3], 0), timestamp=-1))
    return cluster


def indexes(cluster: Cluster) -> list[ChunkIndex]:
    return [partition.index.archived() for partition in cluster.state.topics[TOPIC].partitions]


def files_of(cluster: Cluster) -> list[TopicFile]:
    return topic_files(indexes(cluster))


def keys(cluster: Cluster, files: list[TopicFile]) -> list[str]:
    return [cluster.state.objects[file.object_id].key for file in files]


def test_files_come_in_the_order_of_offsets_with_their_rows_and_newest_times() -> None:
    cluster = cluster_of_three_files()
    found = files_of(cluster)
    assert keys(cluster, found) == [file_key(11), file_key(12), file_key(13)]
    assert [file.rows for file in found] == [{0: (0, 1)}, {0: (1, 2), 1: (0, 1)}, {1: (1, 2)}]
    assert [file.chunk_count for file in found] == [1, 2, 1]
    assert [file.newest_ms for file in found] == [50, 70, -1]
    chunks = merge_chunks(found[:2], indexes(cluster))
    assert [each.partition for each in chunks] == [0, 0, 1]
    assert [each.file for each in chunks] == [0, 1, 1]
    assert [each.chunk.offset_first for each in chunks] == [0, 10, 0]


def test_a_file_that_came_late_in_the_place_of_old_ones_stands_before_what_follows_it() -> None:
    cluster = cluster_of_three_files()
    put_file(cluster, 14, swap(0, old(0, 10, file_key(11), 4), timestamp=50))
    assert keys(cluster, files_of(cluster)) == [file_key(14), file_key(12), file_key(13)]


def test_a_topic_without_files_has_none() -> None:
    cluster = Cluster.started()
    assert files_of(cluster) == []
