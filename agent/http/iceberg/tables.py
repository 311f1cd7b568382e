"""A topic as the catalog shows it: the metadata of its table, as the ledger names it.

Rule: a barrier comes before every answer about a table, and before a topic is called unknown (safety rule S4). Missing
metadata was replaced and deleted meanwhile: read again behind a barrier, and never answer an older table (S6).
"""

from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from agent.http.services import AdminServices
from coordinator.state.state import TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.tables.edits import TableEdit
from iceberg_export.tables.metadata import TableUnreadable, check_checksum, empty_metadata, encode, table_location
from protocol.decoding import JsonDecoder, Undecodable, decode_json_object
from protocol.limits import (
    CATALOG_LOAD_ATTEMPTS_MAX,
    CATALOG_METADATA_CACHED_BYTES_MAX,
    CATALOG_METADATA_CACHED_MAX,
)
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from storage.refs import topic_folder

_OBJECT = JsonDecoder(dict[str, msgspec.Raw])
_RAW_LIST = JsonDecoder(list[msgspec.Raw])


class NoSuchTopic(Exception):
    """No topic of that name existed at the time of the request."""


class _RefId(msgspec.Struct, rename="kebab"):
    snapshot_id: int


_REF = JsonDecoder(_RefId)
_REFS = JsonDecoder(dict[str, _RefId])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """`metadata` is JSON. `metadata_uri` is None for a table without a commit: the bucket holds nothing of it yet."""

    folder: str
    """The key prefix of all its files."""
    metadata_uri: str | None
    metadata: bytes


class CatalogTables:
    """The tables of the catalog, with a bounded cache of their metadata."""

    def __init__(self, *, services: AdminServices, root_uri: str) -> None:
        self._ledger = services.ledger
        self._store = services.store
        self._updates = services.table_updates
        self._root_uri = root_uri
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cache_bytes = 0

    async def names(self) -> list[str]:
        """All of them in order. Raises `LedgerError`."""
        await self._ledger.barrier()
        return sorted(self._ledger.state.topic_ids)

    async def exists(self, name: str) -> bool:
        """Whether there is such a table now. Raises `LedgerError`."""
        await self._ledger.barrier()
        return name in self._ledger.state.topic_ids

    async def folder(self, name: str) -> str:
        """Where a table's files lie. Raises `NoSuchTopic`, `LedgerError`."""
        await self._ledger.barrier()
        topic = self._topic(name)
        return topic_folder(folder_name(self._ledger.state, topic), topic.topic_id)

    async def edit(self, name: str, edit: TableEdit) -> None:
        """Change the table as `agent.lake.table_updates.TableUpdates.make` does. Raises `NoSuchTopic` too."""
        await self._ledger.barrier()
        await self._updates.make(self._topic(name).topic_id, edit)

    async def load(self, name: str) -> LoadedTable:
        """The table as it is now. Raises `NoSuchTopic`, `LedgerError`, `StoreError`."""
        for _ in range(CATALOG_LOAD_ATTEMPTS_MAX):
            await self._ledger.barrier()
            topic = self._topic(name)
            folder = topic_folder(folder_name(self._ledger.state, topic), topic.topic_id)
            if topic.table is None:
                return LoadedTable(folder=folder, metadata_uri=None, metadata=self._empty(topic))
            key = topic.table.metadata_key
            try:
                metadata = await self._metadata(key)
            except ObjectMissing:
                continue
            return LoadedTable(folder=folder, metadata_uri=f"{self._root_uri}/{key}", metadata=metadata)
        raise StoreUnavailable(f"the bucket lacks the metadata of table {name}: try again, or run penstock audit")

    def _topic(self, name: str) -> TopicState:
        state = self._ledger.state
        topic_id = state.topic_ids.get(name)
        if topic_id is None:
            raise NoSuchTopic(name)
        return state.topics[topic_id]

    def _empty(self, topic: TopicState) -> bytes:
        location = table_location(self._root_uri, folder_name(self._ledger.state, topic), topic.topic_id)
        return encode(
            empty_metadata(
                name=topic.name, topic_id=topic.topic_id, location=location, created_ms=max(0, topic.created_ms)
            )
        )

    async def _metadata(self, key: str) -> bytes:
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        metadata = await self._store.get(key)
        # Engines decode all of it, and cannot compare its checksum (safety rule S20).
        try:
            check_checksum(metadata, key)
            decode_json_object(metadata)
        except (TableUnreadable, Undecodable) as error:
            raise ObjectDamaged(f"{key} is not a table's metadata: {error}; run penstock audit") from error
        if key not in self._cache and len(metadata) <= CATALOG_METADATA_CACHED_BYTES_MAX:
            self._cache[key] = metadata
            self._cache_bytes += len(metadata)
        while self._cache_bytes > CATALOG_METADATA_CACHED_BYTES_MAX or len(self._cache) > CATALOG_METADATA_CACHED_MAX:
            _, evicted = self._cache.popitem(last=False)
            self._cache_bytes -= len(evicted)
        return metadata


def with_named_snapshots(metadata: bytes) -> bytes:
    """The same metadata with only the snapshots that a branch or a tag names (`snapshots=refs`).

    Raises `ObjectDamaged`.
    """
    try:
        fields = _OBJECT.decode(metadata)
        refs = _REFS.decode(fields.get("refs", msgspec.Raw(b"{}")))
        named_ids = {ref.snapshot_id for ref in refs.values()}
        snapshots = _RAW_LIST.decode(fields.get("snapshots", msgspec.Raw(b"[]")))
        named_snapshots = [one for one in snapshots if _REF.decode(one).snapshot_id in named_ids]
    except Undecodable as error:
        raise ObjectDamaged(f"a table's metadata is damaged: {error}; run penstock audit") from error
    fields["snapshots"] = msgspec.Raw(msgspec.json.encode(named_snapshots))
    return msgspec.json.encode(fields)
