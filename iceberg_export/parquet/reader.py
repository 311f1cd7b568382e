"""Reads archived records as Kafka's record batches.

A row group is fetched with one ranged read, and decoded in a thread; of a large one only the pages with the chunk's
rows are (`iceberg_export.parquet.pages`). Footers are cached. Row groups that several
partitions share are cached, too: a consumer of one of them mostly consumes the others. A small file is one request.

The batches cover exactly the chunk's range of offsets. Offset deltas keep the gaps inside a batch, and an empty control
batch covers a gap at the end (safety rule S5).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from iceberg_export.parquet.single_flight import ReadOnce
from iceberg_export.rows.checksums import tail_bytes
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.executor import RunInThread
from iceberg_export.rows.footer import (
    FOOTER_TAIL_BYTES,
    FileUnreadable,
    Footer,
    damage_contained,
    tail_bytes_first,
)
from iceberg_export.rows.kafka_rows import encode_rows
from iceberg_export.rows.schema import TYPED_METADATA_KEY
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.table_reader import gather_bounded
from iceberg_export.typed.columns import TypedColumns, decode
from protocol.limits import (
    ARCHIVE_BATCH_BYTES_TARGET,
    FOOTERS_CACHED_MAX,
    MESSAGE_BYTES_MAX_DEFAULT,
    ROW_GROUPS_CACHED_BYTES_MAX,
    SMALL_FILE_BYTES_MAX,
    SMALL_FILES_CACHED_BYTES_MAX,
)
from protocol.records.compression import Compression
from protocol.records.control_batches import empty_control_batch
from protocol.records.records import kernels_ready
from protocol.types import Offset
from storage.object_store import Buffer, ObjectStore
from storage.read_plan import plan_reads
from storage.refs import ByteRange

if TYPE_CHECKING:
    from iceberg_export.parquet.pages import PageRead

ROW_BYTES_WEIGHED = 128
"""The weight of a record beside its strings: a topic's settings may make a batch of each record, which takes longer
than its bytes do."""
INLINE_BYTES_MAX = 128 * 1024
"""Rows of a shared row group up to this weight are encoded on the event loop, in 0.1 ms. A hop to a thread takes three
times as long."""
INLINE_CHUNKS_PER_ROUND = 4
"""How many such chunks are encoded in one iteration of the event loop: together they take about a millisecond."""


class ArchivedRows(Protocol):
    """The fields of an archived chunk that a read uses.

    `coordinator.state.chunk_index.ChunkRef` and `ArchivedChunk` implement it.
    """

    @property
    def offset_first(self) -> Offset: ...
    @property
    def offset_end(self) -> Offset: ...
    @property
    def byte_first(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    @property
    def row_group(self) -> int: ...
    @property
    def row_first(self) -> int: ...
    @property
    def row_count(self) -> int: ...


class BatchForm(NamedTuple):
    """The form in which records are served: the codec, and the limit of a batch's size.

    A batch that a single record makes larger than the limit and the usual size is compressed with another codec.
    """

    compression: Compression
    bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT


class ParquetReader:
    """Reads archived chunks.

    `bytes_of`: returns an object's size by its key, or None where it is unknown; a known size saves a request.
    `batch_bytes_max_of`: returns the limit of an object's record batches, as they are served: max.message.bytes of its
    topic.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        run_in_thread: RunInThread,
        bytes_of: Callable[[str], int | None] = lambda _: None,
        batch_bytes_max_of: Callable[[str], int] = lambda _: MESSAGE_BYTES_MAX_DEFAULT,
        footers_max: int = FOOTERS_CACHED_MAX,
        small_file_bytes_max: int = SMALL_FILE_BYTES_MAX,
        row_groups_bytes_max: int = ROW_GROUPS_CACHED_BYTES_MAX,
    ) -> None:
        self._store = store
        self._run_in_thread = run_in_thread
        self._bytes_of = bytes_of
        self._batch_bytes_max_of = batch_bytes_max_of
        self._footers = ReadOnce[str, tuple[Footer, int]](weight_max=footers_max, weigh=lambda _: 1)
        self._small_file_bytes_max = small_file_bytes_max
        self._small_files = ReadOnce[str, Buffer](weight_max=SMALL_FILES_CACHED_BYTES_MAX, weigh=len)
        self._inline_permits = asyncio.Semaphore(INLINE_CHUNKS_PER_ROUND)
        """A call that encodes on the event loop has a permit until that iteration of the loop ends. Hundreds of calls
        may wait: they get theirs in later iterations, so the loop is never blocked for long."""
        self._shared = ReadOnce[tuple[str, int], RecordRows](
            weight_max=row_groups_bytes_max, weigh=RecordRows.byte_count
        )

    async def read(self, object_key: str, chunk: ArchivedRows, compression: Compression) -> bytes:
        """The chunk's batches with their real offsets, concatenated. They cover exactly its range of offsets.

        Raises `StoreError`, among them `FileUnreadable` where the object is not the file that the index describes. Its
        message begins with the key.
        """
        if chunk.row_count == 0:
            return empty_control_batch(chunk.offset_first, chunk.offset_end)
        try:
            return await self._read(object_key, chunk, compression)
        except FileUnreadable as error:
            self.forget(object_key)
            if str(error).startswith(object_key):
                raise
            raise FileUnreadable(f"{object_key}: {error}") from error

    def is_checked(self, object_key: str) -> bool:
        """True where the file has checksums, which are compared before a row group is decoded. False also where its
        footer is not cached."""
        cached = self._footers.cached(object_key)
        return cached is not None and cached[0].checksums is not None

    def forget(self, object_key: str) -> None:
        """Remove a damaged file from all caches.

        The file may be restored, or only the transfer was damaged. In a file without checksums, row groups that could
        be decoded may be wrong, too.
        """
        self._small_files.forget(object_key)
        self._footers.forget(object_key)
        self._shared.forget_where(lambda row_group: row_group[0] == object_key)

    async def describe(self, object_key: str) -> DataFile:
        """The file as its table's manifest lists it. Raises `StoreError`."""
        from iceberg_export.parquet.arrow_footer import describe_file  # imports pyarrow

        footer, file_bytes = await self._footers.get(object_key, partial(self._read_footer, object_key))
        return describe_file(object_key, file_bytes, footer)

    async def check_places(self, object_key: str, chunks: Iterable[ArchivedRows]) -> None:
        """Check that the file's row groups are as the index describes them. Raises `FileUnreadable`, `StoreError`."""
        footer, _ = await self._footers.get(object_key, partial(self._read_footer, object_key))
        for chunk in chunks:
            check_place(footer, chunk)

    async def typed_columns(self, object_key: str) -> TypedColumns | None:
        """The typed columns for which a file was made; None where it has none. Raises `StoreError`."""
        footer, _ = await self._footers.get(object_key, partial(self._read_footer, object_key))
        text = footer.metadata.get(TYPED_METADATA_KEY)
        with damage_contained(f"the footer entry {TYPED_METADATA_KEY} of {object_key}"):
            return None if text is None else decode(text)

    async def _read(self, object_key: str, chunk: ArchivedRows, compression: Compression) -> bytes:
        footer, file_bytes = await self._footers.get(object_key, partial(self._read_footer, object_key))
        check_place(footer, chunk)
        form = BatchForm(compression, self._batch_bytes_max_of(object_key))
        pages = pages_of_chunk(footer, chunk)
        if pages is not None:
            held = await self._pages(object_key, file_bytes, pages)
            return await self._run_in_thread(_encode_pages, footer, pages, held, chunk, form)
        if chunk.row_count == footer.row_groups[chunk.row_group].row_count:
            data = await self._row_group(object_key, file_bytes, chunk)
            return await self._run_in_thread(encode_chunk, footer, data, chunk, form)
        rows = await self._shared.get(
            (object_key, chunk.row_group), partial(self._read_row_group, object_key, footer, file_bytes, chunk)
        )
        if compression is Compression.NONE and kernels_ready() and _is_small(rows, chunk):
            await self._inline_permits.acquire()
            asyncio.get_running_loop().call_soon(self._inline_permits.release)
            return encode_part(rows, chunk, form)
        return await self._run_in_thread(encode_part, rows, chunk, form)

    async def _read_row_group(
        self, object_key: str, footer: Footer, file_bytes: int, chunk: ArchivedRows
    ) -> RecordRows:
        data = await self._row_group(object_key, file_bytes, chunk)
        return await self._run_in_thread(decode_row_group, footer, chunk.row_group, data)

    async def _pages(self, object_key: str, file_bytes: int, pages: "PageRead") -> "HeldBytes":
        """The bytes of these pages: mostly three requests, for the columns before the values, these, and headers."""
        if file_bytes <= self._small_file_bytes_max:
            return HeldBytes([(0, await self._small_file(object_key, file_bytes))])
        reads = plan_reads([ByteRange(object_key, first, end - first) for first, end in pages.spans])
        contents = await gather_bounded([partial(self._store.get_range, *planned.read) for planned in reads])
        return HeldBytes([(planned.read.byte_first, data) for planned, data in zip(reads, contents, strict=True)])

    async def _row_group(self, object_key: str, file_bytes: int, chunk: ArchivedRows) -> Buffer:
        """The bytes of the chunk's row group."""
        if file_bytes > self._small_file_bytes_max:
            return await self._store.get_range(object_key, chunk.byte_first, chunk.byte_count)
        whole = await self._small_file(object_key, file_bytes)
        return memoryview(whole)[chunk.byte_first : chunk.byte_first + chunk.byte_count]

    async def _small_file(self, object_key: str, object_bytes: int) -> Buffer:
        return await self._small_files.get(object_key, partial(self._store.get_range, object_key, 0, object_bytes))

    async def _read_footer(self, object_key: str) -> tuple[Footer, int]:
        """The footer, and the size of the file in bytes."""
        object_bytes = self._bytes_of(object_key)
        if object_bytes is None:
            object_bytes = (await self._store.head(object_key)).size_bytes
        if object_bytes < FOOTER_TAIL_BYTES:
            raise FileUnreadable(f"{object_key} has {object_bytes} bytes, too few for a Parquet file")
        count = tail_bytes_first(object_bytes)
        tail: Buffer
        if object_bytes <= self._small_file_bytes_max:
            count = object_bytes
            tail = await self._small_file(object_key, object_bytes)
        else:
            tail = await self._store.get_range(object_key, object_bytes - count, count)
        # Twice at most: the first answer may be the end of the checksum block alone, which has the block's size.
        while (needed := tail_bytes(tail, object_bytes)) > count:
            count = needed
            tail = await self._store.get_range(object_key, object_bytes - count, count)
        footer = await self._run_in_thread(parse_footer, tail, key=object_key, file_bytes=object_bytes)
        return footer, object_bytes


class HeldBytes:
    """Parts of a file: the first byte and the content of each, ascending."""

    def __init__(self, parts: Sequence[tuple[int, Buffer]]) -> None:
        self._firsts = [first for first, _ in parts]
        self._contents = [memoryview(content) for _, content in parts]

    def read(self, span: tuple[int, int]) -> memoryview:
        """The bytes of a span, which lies in one of the parts."""
        part = bisect_right(self._firsts, span[0]) - 1
        first = self._firsts[part]
        return self._contents[part][span[0] - first : span[1] - first]


def pages_of_chunk(footer: Footer, chunk: ArchivedRows) -> "PageRead | None":
    """The pages with a chunk's rows; None where its row group has to be read whole. Raises `FileUnreadable`."""
    if not footer.page_rows:
        return None
    from iceberg_export.parquet.arrow_reader import pages_for  # pyarrow, which has parsed the footer

    with damage_contained(f"the pages of row group {chunk.row_group}"):
        return pages_for(footer, chunk.row_group, chunk.row_first, chunk.row_count)


def decode_pages(footer: Footer, pages: "PageRead", held: HeldBytes) -> RecordRows:
    """The rows of some pages. CPU work for a thread. Raises `FileUnreadable`."""
    from iceberg_export.parquet.arrow_reader import read_pages

    return read_pages(footer, pages, held.read)


def _encode_pages(footer: Footer, pages: "PageRead", held: HeldBytes, chunk: ArchivedRows, form: BatchForm) -> bytes:
    return encode_part(decode_pages(footer, pages, held), chunk, form, row_first=pages.row_first)


def parse_footer(tail: Buffer, *, key: str | None = None, file_bytes: int | None = None) -> Footer:
    """The footer at the end of a file; see `arrow_footer.read_footer`. Runs in a thread: it may import pyarrow."""
    from iceberg_export.parquet.arrow_footer import read_footer

    return read_footer(tail, key=key, file_bytes=file_bytes)


def check_place(footer: Footer, chunk: ArchivedRows) -> None:
    """Check that a row group is as the index describes it. Raises `FileUnreadable`."""
    if chunk.row_group >= len(footer.row_groups):
        raise FileUnreadable(
            f"the file has {len(footer.row_groups)} row groups, the index names number {chunk.row_group}"
        )
    location = footer.row_groups[chunk.row_group]
    if (location.byte_first, location.byte_count) != (chunk.byte_first, chunk.byte_count):
        raise FileUnreadable(
            f"row group {chunk.row_group} is at bytes {location.byte_first}+{location.byte_count}, "
            f"the index says {chunk.byte_first}+{chunk.byte_count}"
        )
    row_end = chunk.row_first + chunk.row_count
    if row_end > location.row_count:
        raise FileUnreadable(
            f"row group {chunk.row_group} has {location.row_count} rows, the index names rows up to {row_end}"
        )


def decode_row_group(footer: Footer, row_group: int, data: Buffer) -> RecordRows:
    """All rows of a row group, decoded from its bytes. CPU work for a thread. Raises `FileUnreadable`."""
    from iceberg_export.parquet.arrow_reader import read_rows

    return read_rows(footer, row_group, data)


def encode_chunk(footer: Footer, data: Buffer, chunk: ArchivedRows, form: BatchForm) -> bytes:
    """The chunk's rows as record batches, decoded from its row group's bytes. CPU work for a thread.

    Raises `FileUnreadable`, also where the rows are not those of the index.
    """
    return encode_part(decode_row_group(footer, chunk.row_group, data), chunk, form)


def encode_part(rows_held: RecordRows, chunk: ArchivedRows, form: BatchForm, *, row_first: int = 0) -> bytes:
    """The chunk's rows as record batches. CPU work for a thread. For the arguments: `check_rows`.

    Raises `FileUnreadable` where the rows are not those of the index.
    """
    with damage_contained(f"rows {chunk.row_first} to {chunk.row_first + chunk.row_count}"):
        rows = check_rows(rows_held, chunk, row_first=row_first)
        bytes_target = min(ARCHIVE_BATCH_BYTES_TARGET, form.bytes_max)
        batches = encode_rows(rows, form.compression, bytes_target, max(ARCHIVE_BATCH_BYTES_TARGET, form.bytes_max))
        return batches + empty_control_batch(int(rows.offset[-1]) + 1, chunk.offset_end)


def check_rows(rows_held: RecordRows, chunk: ArchivedRows, *, row_first: int = 0) -> RecordRows:
    """The chunk's rows, taken from decoded rows of its row group, of which the first one is number `row_first`.

    Raises `FileUnreadable` where they are not those of the index.
    """
    row_end = chunk.row_first + chunk.row_count
    rows = rows_held.part(chunk.row_first - row_first, row_end - row_first)
    first, last = int(rows.offset[0]), int(rows.offset[-1])
    # Rows of another partition or range would be served as this log's records (safety rule S20).
    if first < chunk.offset_first or last >= chunk.offset_end or bool((rows.partition != rows.partition[0]).any()):
        raise FileUnreadable(
            f"rows {chunk.row_first} to {row_end} are not offsets {chunk.offset_first} to {chunk.offset_end}"
        )
    return rows


def _is_small(row_group: RecordRows, chunk: ArchivedRows) -> bool:
    """True where the chunk's rows are so few that they are encoded on the event loop."""
    first, end = chunk.row_first, chunk.row_first + chunk.row_count
    header_first, header_end = int(row_group.header_ends[first]), int(row_group.header_ends[end])
    weight = (
        ROW_BYTES_WEIGHED * chunk.row_count
        + sum(int(column.ends[end] - column.ends[first]) for column in (row_group.key, row_group.value))
        + sum(
            int(column.ends[header_end] - column.ends[header_first])
            for column in (row_group.header_key, row_group.header_value)
        )
    )
    return weight <= INLINE_BYTES_MAX
