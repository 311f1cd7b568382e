"""Judges topics' tables at the end of a world: what a reader finds behind each pointer.

Rule: read from the bucket alone, by Penstock's own decoders (PyIceberg holds those to account elsewhere). A table holds
each file of the log that has rows, once; any other file that it holds is one of which the log kept only offsets without
rows, or which it let go of, and which upkeep will drop. All that any kept snapshot needs is in the bucket, and is what
the ledger counts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from coordinator.state.state import ClusterState, TableState, TopicState
from iceberg_export.tables.manifests import (
    ManifestEntry,
    ManifestFile,
    decode_manifest,
    decode_manifest_list,
    key_of_uri,
)
from iceberg_export.tables.metadata import Snapshot, TableMetadata, TableUnreadable, decode


def table_faults(state: ClusterState, objects: Mapping[str, bytes], root: str) -> Iterator[str]:
    """What is wrong with the tables, in sentences. `objects`: the bucket, by key; `root`: its URI in the tables."""
    for topic in state.topics.values():
        held = None if topic.table is None else topic.table
        if held is None:
            if any(_files_of_log(state, topic).values()):
                yield f"{topic.name} has archived files and no table"
            continue
        try:
            yield from _faults(state, topic, held, _Reader(objects, root))
        except (KeyError, TableUnreadable) as error:
            yield f"the table of {topic.name} cannot be read: {error!r}"


def _faults(state: ClusterState, topic: TopicState, table: TableState, reader: "_Reader") -> Iterator[str]:
    metadata = reader.metadata(table.metadata_key)
    live = Counter(entry.file.key for entry in reader.entries(metadata.current()) if entry.is_live)
    twice = [key for key, count in live.items() if count > 1]
    if twice:
        yield f"the table of {topic.name} holds {twice[0]} twice"
    of_log = _files_of_log(state, topic)
    lacking = sorted(key for key, rows in of_log.items() if rows and key not in live)
    if lacking:
        yield f"the table of {topic.name} lacks {lacking[0]}"
    surplus = sorted(live.keys() - of_log.keys() - {state.objects[one].key for one in table.unneeded})
    if surplus:
        yield f"the table of {topic.name} holds {surplus[0]}, which the log has not"
    needed = {table.metadata_key}
    for snapshot in metadata.snapshots:
        needed |= reader.keys_of(snapshot)
    counted = {state.objects[object_id].key for object_id in table.objects}
    if needed != counted:
        yield f"the table of {topic.name}: snapshots need, or the ledger counts, {sorted(needed ^ counted)} alone"
    gone = sorted(key for key in needed if key not in reader.objects)
    if gone:
        yield f"the table of {topic.name} refers to {gone[0]}, which is not in the bucket"


def _files_of_log(state: ClusterState, topic: TopicState) -> Counter[str]:
    """How many rows the topic's log has in each data file, by key: 0 where nothing but offsets without rows is left."""
    rows = Counter[str]()
    for partition in topic.partitions:
        for chunk in partition.index.rows_from(partition.index.first):
            if chunk.is_archived:
                rows[state.objects[chunk.object_id].key] += chunk.row_count
    return rows


class _Reader:
    def __init__(self, objects: Mapping[str, bytes], root: str) -> None:
        self.objects = objects
        self._root = root

    def metadata(self, key: str) -> TableMetadata:
        return decode(self.objects[key], key)

    def manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        key = key_of_uri(snapshot.manifest_list, self._root)
        return decode_manifest_list(self.objects[key], key=key, root=self._root)

    def entries(self, snapshot: Snapshot | None) -> Iterator[ManifestEntry]:
        """The files of a snapshot, those that it dropped among them."""
        for manifest in () if snapshot is None else self.manifests(snapshot):
            yield from decode_manifest(self.objects[manifest.key], manifest=manifest, root=self._root)

    def keys_of(self, snapshot: Snapshot) -> set[str]:
        """Everything that a reader of the snapshot opens."""
        return {
            key_of_uri(snapshot.manifest_list, self._root),
            *(manifest.key for manifest in self.manifests(snapshot)),
            *(entry.file.key for entry in self.entries(snapshot) if entry.is_live),
        }
