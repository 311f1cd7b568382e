"""A topic's table in a bucket, and the ledger's part in it in the fewest words: who is referred to, and by whom last.

Rule: commits are the real ones; what the ledger would refuse fails the test.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import ParamSpec, TypeVar

from iceberg_export.rows.schema import FieldId
from iceberg_export.tables.avro_files import CHECKSUM
from iceberg_export.tables.column_counts import ColumnCount, ColumnCounts
from iceberg_export.tables.commit import Change, PreparedCommit, TableBefore, commit, expire_snapshots
from iceberg_export.tables.data_file import DataFile, RowBounds
from iceberg_export.tables.edits import SetProperties, TableEdit
from iceberg_export.tables.metadata import CHECKSUM_PROPERTY
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.types import Milliseconds, ObjectNumber, SessionId, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from storage.refs import parquet_key, topic_folder

P = ParamSpec("P")
T = TypeVar("T")

NAME, TOPIC, SESSION = "flights", TopicId(bytes(range(16))), SessionId(7)
ROOT = "s3://bucket/some"
CREATED_MS = 1_700_000_000_000
ROWS = 10


async def run_here(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def data_file(number: int, *, key: str | None = None) -> DataFile:
    """The n-th file: `ROWS` rows of partition `number % 4`, at offsets that no other has."""
    return DataFile(
        key=parquet_key(NAME, TOPIC, SESSION, ObjectNumber(number)) if key is None else key,
        object_bytes=1_000 + number,
        record_count=ROWS,
        bounds=RowBounds(
            partition_min=number % 4,
            partition_max=number % 4,
            offset_min=number * ROWS,
            offset_max=number * ROWS + ROWS - 1,
            timestamp_us_min=-1_000,
            timestamp_us_max=number * 1_000,
        ),
        counts=ColumnCounts.of(
            [
                *(ColumnCount(each, ROWS, 0) for each in (1, 2, 3, 4, 7)),
                ColumnCount(FieldId.KEY, ROWS, 3),
                ColumnCount(FieldId.VALUE, ROWS, number % 2),
            ]
        ),
        split_offsets=(4, 500),
    )


def setting(properties: dict[str, str]) -> TableEdit:
    """An edit that sets properties."""
    return TableEdit(updates=(SetProperties(updates=properties),))


def as_before(data: bytes) -> bytes:
    """Metadata, a manifest or a manifest list as programs wrote it that knew no checksums."""
    assert CHECKSUM_PROPERTY == CHECKSUM
    assert CHECKSUM.encode() in data
    return data.replace(CHECKSUM.encode(), b"penstock.before")


class MadeTable:
    """Commits to one table, each in its turn, unless `prepare` is used."""

    def __init__(self, *, store: ObjectStore | None = None, root: str = ROOT, cache: TableCache | None = None) -> None:
        self.store = MemoryStore() if store is None else store
        self.root = root
        self.cache = TableCache() if cache is None else cache
        self.metadata_key = ""
        self.objects: set[str] = set()
        """What the table refers to, as the ledger has it."""
        self.released: set[str] = set()
        """What it referred to before."""
        self.now_ms = CREATED_MS
        self._serial = count(1)

    @property
    def reader(self) -> TableReader:
        """Reads the table without what was kept in memory."""
        return TableReader(root=self.root, store=self.store, cache=TableCache(), run_in_thread=run_here)

    def next_key(self, suffix: str) -> str:
        return f"{topic_folder(NAME, TOPIC)}metadata/{SESSION:016x}-{next(self._serial):016x}{suffix}"

    @property
    def _before(self) -> TableBefore:
        return TableBefore(
            name=NAME,
            topic_id=TOPIC,
            created_ms=Milliseconds(CREATED_MS),
            metadata_key=self.metadata_key,
            root=self.root,
        )

    async def prepare(self, change: Change) -> PreparedCommit:
        return await commit(
            self._before,
            change,
            store=self.store,
            next_key=self.next_key,
            now_ms=self.now_ms,
            cache=self.cache,
            run_in_thread=run_here,
        )

    async def expire_snapshots(self, unneeded: Iterable[str], *, expires_before_ms: int = 0) -> Change | None:
        return await expire_snapshots(
            self._before,
            unneeded,
            expires_before_ms=expires_before_ms,
            now_ms=self.now_ms,
            store=self.store,
            cache=self.cache,
            run_in_thread=run_here,
        )

    def apply(self, prepared: PreparedCommit) -> None:
        """The ledger takes the commit."""
        table = prepared.table
        assert table.replaces == self.metadata_key
        new = [table.metadata.key, *(made.key for made in table.added), *table.data_files]
        assert len(set(new)) == len(new)
        assert not set(new) & (self.objects | self.released)
        assert len(set(table.released)) == len(table.released)
        assert set(table.released) <= self.objects
        self.objects = (self.objects | set(new)) - set(table.released)
        self.released |= set(table.released)
        self.metadata_key = table.metadata.key

    async def commit(
        self,
        *added: DataFile,
        dropped: Iterable[str] = (),
        offsets: Mapping[int, tuple[int, int]] | None = None,
        edit: TableEdit | None = None,
        expires_before_ms: int | None = None,
    ) -> PreparedCommit:
        self.now_ms += 1_000
        prepared = await self.prepare(
            Change(
                added=added,
                dropped=frozenset(dropped),
                offsets=offsets,
                edit=edit,
                expires_before_ms=expires_before_ms,
            )
        )
        self.apply(prepared)
        return prepared

    async def live_keys(self) -> list[str]:
        """Keys of the files in the table, as they are in the bucket."""
        reader = self.reader
        return [live.file.key for live in await reader.live_files(await reader.metadata(self.metadata_key))]
