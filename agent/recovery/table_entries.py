"""Compares a table's manifests with its data files and the log's index, for a deep audit.

It changes nothing. Contradictions are returned, never raised. One topic at a time is in memory.
"""

from typing import NamedTuple

from agent.runtime.threads import run_in_thread
from coordinator.state.state import ClusterState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.manifests import key_of_uri
from iceberg_export.tables.metadata import TableUnreadable
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore
from storage.refs import topic_folder


class Contradiction(NamedTuple):
    """A contradiction in a table's metadata. `key`: the object that holds it."""

    key: str
    detail: str


class _NamedFile(NamedTuple):
    manifest_key: str
    file: DataFile


class TableEntries:
    """The manifest entries of one table at a time, while an audit reads all files topic by topic."""

    def __init__(self, state: ClusterState, store: ObjectStore) -> None:
        self._state = state
        self._store = store
        self._topic_id: TopicId | None = None
        self._entries: dict[str, _NamedFile] = {}

    async def enter(self, topic_id: TopicId | None) -> list[Contradiction]:
        """Read the manifests of a topic's table, and compare them with the log's index. Raises `StoreUnavailable`."""
        if topic_id == self._topic_id:
            return []
        self._topic_id, self._entries = topic_id, {}
        topic = None if topic_id is None else self._state.topics.get(topic_id)
        if topic is None or topic.table is None:
            return []
        try:
            contradictions = await self._read(topic, topic.table.metadata_key)
        except ObjectMissing:
            return []  # replaced meanwhile, or missing: `agent.recovery.audit` reports missing objects
        if not contradictions:
            missing = await run_in_thread(self._missing, topic)
            contradictions = [
                Contradiction(topic.table.metadata_key, f"the table lacks {key}, which has records of the log")
                for key in missing
            ]
        return contradictions

    def compared(self, key: str, data_file: DataFile) -> Contradiction | None:
        """The contradiction between the manifests and a file of the topic; None where they agree."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        listed = entry.file
        names = ["object_bytes", "record_count", "bounds"] + (["split_offsets"] if listed.split_offsets else [])
        differing = [name for name in names if getattr(listed, name) != getattr(data_file, name)]
        differences = "; ".join(
            f"{name} {getattr(listed, name)} instead of {getattr(data_file, name)}" for name in differing
        )
        return Contradiction(entry.manifest_key, f"its entry of {key} has {differences}") if differing else None

    async def _read(self, topic: TopicState, key: str) -> list[Contradiction]:
        """Read the entries into memory. Returns the damage that it met."""
        reader = TableReader(root="", store=self._store, cache=TableCache(), run_in_thread=run_in_thread)
        try:
            metadata = await reader.metadata(key)
            current = metadata.current()
            if current is None:
                return []
            folder = topic_folder(folder_name(self._state, topic), topic.topic_id)
            root = metadata.location.removesuffix(f"/{folder[:-1]}")
            reader = TableReader(root=root, store=self._store, cache=TableCache(), run_in_thread=run_in_thread)
            key = key_of_uri(current.manifest_list, root)
            for manifest in await reader.manifests(current):
                key = manifest.key
                for entry in await reader.entries(manifest):
                    if entry.is_live:
                        self._entries[entry.file.key] = _NamedFile(key, entry.file)
        except (TableUnreadable, ObjectDamaged) as error:
            return [Contradiction(key, str(error))]
        return []

    def _missing(self, topic: TopicState) -> list[str]:
        """Files with records of the log that the table does not name. CPU work for a thread."""
        ids = {object_id for partition in topic.partitions for object_id in partition.index.archived_objects()}
        keys = {stored.key for object_id, stored in self._state.objects.items() if object_id in ids}
        return sorted(keys - self._entries.keys())
