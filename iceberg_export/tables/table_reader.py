"""Reads a table's metadata from the bucket, through a cache.

An object is decoded once, in a thread, and cached by its key. A key is never written twice, so cached objects never
become stale. The cache may have objects of a commit that the ledger rejected; no later read asks for their keys.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from iceberg_export.rows.executor import RunInThread
from iceberg_export.tables.data_file import LiveFile
from iceberg_export.tables.manifests import (
    ManifestEntry,
    ManifestFile,
    decode_manifest,
    decode_manifest_list,
    key_of_uri,
)
from iceberg_export.tables.metadata import Snapshot, TableMetadata, TableUnreadable, decode
from protocol.limits import TABLE_CACHE_BYTES_MAX, TABLE_REQUESTS_IN_FLIGHT_MAX
from storage.object_store import ObjectStore, StoreError

T = TypeVar("T")
R = TypeVar("R")


class TableCache:
    """Decoded objects of table metadata by key. The least recently used ones are evicted first.

    `bytes_max`: the limit of their encoded sizes.
    """

    def __init__(self, bytes_max: int = TABLE_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._objects: OrderedDict[str, tuple[int, object]] = OrderedDict()

    def get(self, key: str) -> object | None:
        """The decoded object under a key; None where it is not cached."""
        cached = self._objects.get(key)
        if cached is None:
            return None
        self._objects.move_to_end(key)
        return cached[1]

    def keep(self, key: str, object_bytes: int, decoded: object) -> None:
        """Cache the decoded form of an object with `object_bytes` bytes."""
        self.forget(key)
        self._objects[key] = (object_bytes, decoded)
        self._bytes += object_bytes
        while self._bytes > self._bytes_max:
            self.forget(next(iter(self._objects)))

    def forget(self, key: str) -> None:
        """Remove an object from the cache, if it is there."""
        if (removed := self._objects.pop(key, None)) is not None:
            self._bytes -= removed[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """Reads the metadata of tables below `root`, the URI of the bucket.

    All methods raise `StoreError`: `ObjectMissing` where a commit replaced the metadata and it was deleted,
    `TableUnreadable` where it is damaged.
    """

    root: str
    store: ObjectStore
    cache: TableCache
    run_in_thread: RunInThread

    async def metadata(self, key: str) -> TableMetadata:
        """The table's metadata under a key."""
        try:
            return await self._read(key, partial(decode, key=key))
        except TableUnreadable as error:
            raise TableUnreadable(f"{key}: {error}") from error

    async def manifests(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot."""
        key = key_of_uri(snapshot.manifest_list, self.root)
        return await self._read(key, partial(_checked_list, snapshot=snapshot, key=key, root=self.root))

    async def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """The entries of a manifest, including the files that its snapshot deleted."""
        return await self._read(manifest.key, partial(decode_manifest, manifest=manifest, root=self.root))

    async def live_files(self, metadata: TableMetadata) -> tuple[LiveFile, ...]:
        """All data files of the current snapshot."""
        current = metadata.current()
        if current is None:
            return ()
        manifests = [manifest for manifest in await self.manifests(current) if manifest.live_files]
        return tuple(
            LiveFile(file=entry.file, sequence_number=entry.sequence_number)
            for entries in await gather_bounded([partial(self.entries, manifest) for manifest in manifests])
            for entry in entries
            if entry.is_live
        )

    async def _read(self, key: str, decode_object: Callable[[bytes], T]) -> T:
        cached = self.cache.get(key)
        if cached is not None:
            return cast("T", cached)
        data = await self.store.get(key)
        decoded = await self.run_in_thread(decode_object, data)
        self.cache.keep(key, len(data), decoded)
        return decoded


def _checked_list(data: bytes, *, snapshot: Snapshot, key: str, root: str) -> tuple[ManifestFile, ...]:
    """The manifests of a list. Raises `TableUnreadable`, also where their totals differ from the snapshot's.

    A list from before checksums may have a damaged count, by which a reader would skip files (safety rule S20).
    """
    manifests = decode_manifest_list(data, key=key, root=root, snapshot_id=snapshot.snapshot_id)
    counted = {
        "total-data-files": sum(manifest.live_files for manifest in manifests),
        "total-records": sum(manifest.added_rows + manifest.existing_rows for manifest in manifests),
    }
    for name, count in counted.items():
        summary_count = snapshot.summary.get(name)
        if summary_count is not None and summary_count != str(count):
            raise TableUnreadable(
                f"the manifest list {key!r} has {name} {count}, but its snapshot's summary says {summary_count}"
            )
    return manifests


async def gather_bounded(calls: Sequence[Callable[[], Awaitable[R]]]) -> list[R]:
    """The results of the calls, in the order of `calls`, at most `TABLE_REQUESTS_IN_FLIGHT_MAX` of them at a time.

    After the first `StoreError` no call is begun; it is raised once those in flight have ended.
    """
    results: dict[int, R] = {}
    # Store errors are collected instead of raised in the tasks: before Python 3.13 a TaskGroup whose task fails while
    # the group is cancelled loses the cancellation.
    failures: list[StoreError] = []
    pending = iter(list(enumerate(calls)))

    async def work() -> None:
        for index, call in pending:
            if failures:
                return
            try:
                results[index] = await call()
            except StoreError as error:
                failures.append(error)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(TABLE_REQUESTS_IN_FLIGHT_MAX, len(calls))):
                tasks.create_task(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(calls))]
