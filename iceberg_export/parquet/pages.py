"""Pages of a large row group, and some of them as a Parquet file of their own.

A row group of one partition may have many pages. All its columns are cut at the same rows, `page_rows` apart, so page n
has the rows from `n * page_rows` on. A reader of a few rows needs those pages of each column, and its dictionary. It
puts them behind each other, with a footer that names nothing else. pyarrow decodes that: it cannot decode pages alone.

Where a page ends is known from the file's checksums: each page is a stretch of them, and can be checked by itself
(safety rule S20). The writer takes it from the page indexes, which pyarrow does not show.

Specification: Apache Parquet's parquet.thrift: PageHeader, FileMetaData, OffsetIndex.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from iceberg_export.parquet.arrow_footer import column_chunk_bounds
from iceberg_export.parquet.arrow_rows import Arrow
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, MAGIC, FileUnreadable, Footer, footer_bytes
from iceberg_export.rows.thrift import (
    Encoded,
    Struct,
    binary,
    encoded_list,
    int32,
    int64,
    list_of,
    read_struct,
    select,
    structure,
)
from protocol.limits import PARQUET_PAGE_HEADER_BYTES_MAX
from storage.object_store import Buffer

Span: TypeAlias = tuple[int, int]
"""The first byte of a part of a file, and the one after its last."""

_PAGE_HEADER: Final = select(1, 2, 3, structs={5: select(1), 8: select(1)})
_FILE: Final = select(structs={4: select(3, structs={1: select(4, 5)})})
_OFFSET_INDEX: Final = select(structs={1: select(1, 2, 3)})
_DICTIONARY_PAGE: Final = 2
_TYPES: Final = MappingProxyType(
    {
        name: number
        for number, name in enumerate(
            ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
        )
    }
)
_ENCODINGS: Final = MappingProxyType(
    {
        "PLAIN": 0,
        "PLAIN_DICTIONARY": 2,
        "RLE": 3,
        "BIT_PACKED": 4,
        "DELTA_BINARY_PACKED": 5,
        "DELTA_LENGTH_BYTE_ARRAY": 6,
        "DELTA_BYTE_ARRAY": 7,
        "RLE_DICTIONARY": 8,
        "BYTE_STREAM_SPLIT": 9,
    }
)
_CODECS: Final = MappingProxyType({"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "ZSTD": 6})
_FILE_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The parts of a column chunk. A column without a dictionary has an empty one."""

    dictionary: Span
    pages: Sequence[Span]

    def parts(self, pages: range) -> list[Span]:
        """The parts that these pages are decoded from, in the order of the file."""
        data = list(self.pages[pages.start : pages.stop])
        return [self.dictionary, *data] if self.dictionary[0] < self.dictionary[1] else data


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRead:
    """Whole pages of a row group, in the columns that are read."""

    row_group: int
    pages: range
    row_first: int
    """The first page's first row in the row group."""
    row_count: int
    columns: Mapping[int, ColumnPages]
    """By their number in the row group."""

    @property
    def spans(self) -> list[Span]:
        """The parts of the file that are needed."""
        return [span for column in self.columns.values() for span in column.parts(self.pages)]

    def file(self, footer: Footer, read: Callable[[Span], Buffer]) -> bytes:
        """A Parquet file of the pages. `read` returns bytes of the file. Raises `FileUnreadable`."""

        def checked(span: Span) -> Buffer:
            data = read(span)
            assert footer.checksums is not None, "a file without checksums has no pages"
            footer.checksums.check(span[0], data)  # before any byte is decoded (safety rule S20)
            return data

        parsed: Arrow = footer.parsed
        group = parsed.row_group(self.row_group)
        return page_file(group, footer.schema, self.columns, self.pages, self.row_count, checked)


def pages_of(footer: Footer, row_group: int, row_first: int, row_count: int, names: Container[str]) -> PageRead | None:
    """The pages that are exactly these rows of a row group, in the columns `names`.

    None where the rows are the whole row group, or no pages, or the row group can only be read whole. Raises
    `FileUnreadable`.
    """
    page_rows, group_rows = footer.page_rows, footer.row_groups[row_group].row_count
    row_end = row_first + row_count
    if not page_rows or footer.checksums is None or row_count == group_rows:
        return None
    if row_first % page_rows or (row_end % page_rows and row_end != group_rows):
        return None
    parsed: Arrow = footer.parsed
    group = parsed.row_group(row_group)
    columns = {
        number: column
        for number, column in enumerate(column_pages(group, footer.checksums.ends, page_rows))
        if group.column(number).path_in_schema.partition(".")[0] in names
    }
    if not columns:
        return None
    return PageRead(
        row_group=row_group,
        pages=range(row_first // page_rows, -(-row_end // page_rows)),
        row_first=row_first,
        row_count=row_count,
        columns=columns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
    """A page's header. `value_count`: of a data page, with nulls; 0 for a dictionary."""

    header_bytes: int
    content_bytes: int
    unpacked_bytes: int
    value_count: int


def read_page_header(data: Buffer) -> PageHeader:
    """The header of the page that begins `data`. Raises `ThriftWrong`, `KeyError` or `IndexError`."""
    fields, end = read_struct(bytes(memoryview(data)[:PARQUET_PAGE_HEADER_BYTES_MAX]), 0, _PAGE_HEADER)
    data_header = cast("Struct", fields.get(5) or fields.get(8) or {})
    is_dictionary = fields[1] == _DICTIONARY_PAGE
    return PageHeader(
        header_bytes=end,
        content_bytes=cast("int", fields[3]),
        unpacked_bytes=cast("int", fields[2]),
        value_count=0 if is_dictionary else cast("int", data_header[1]),
    )


def page_cuts(data: Buffer, page_rows: int) -> Iterator[int]:
    """Where pages begin and end, in a whole file that was just written.

    Of row groups all of whose columns are cut at each `page_rows` rows. A dictionary that overflows ends a page
    between: such a row group can only be read as a whole, and gives no cuts. Errors: see `raw_field`.
    """
    view = memoryview(data)
    footer = bytes(view[-footer_bytes(view) : -FOOTER_TAIL_BYTES])
    file, _ = read_struct(footer, 0, _FILE)
    for group in cast("Sequence[Struct]", file[4]):
        indexes = [_page_index(view, column) for column in cast("Sequence[Struct]", group[1])]
        firsts = list(range(0, cast("int", group[3]), page_rows))
        if all([row for *_, row in index] == firsts for index in indexes):
            for index in indexes:
                yield from (first for first, _, _ in index)
                yield from (first + byte_count for first, byte_count, _ in index)


def _page_index(data: memoryview, column: Struct) -> list[tuple[int, int, int]]:
    """The first byte, the bytes with the header and the first row of each data page of a column."""
    first, byte_count = cast("int", column[4]), cast("int", column[5])
    index, _ = read_struct(bytes(data[first : first + byte_count]), 0, _OFFSET_INDEX)
    pages = cast("Sequence[Mapping[int, int]]", index[1])
    return [(page[1], page[2], page[3]) for page in pages]


def column_pages(row_group: Arrow, ends: Sequence[int], page_rows: int) -> list[ColumnPages]:
    """The parts of each column chunk of a row group, in the order of the file.

    Empty where its column chunks are one stretch each, so that its pages are not known. `ends`: those of the file's
    stretches, ascending. Raises `FileUnreadable` where the stretches are neither.
    """
    columns: list[ColumnPages] = []
    page_count = -(-row_group.num_rows // page_rows)
    whole_count = 0
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        first, end = column_chunk_bounds(column)
        bounds = ends[bisect_left(ends, first) : bisect_right(ends, end)]
        spans = list(pairwise(bounds))
        has_dictionary = column.dictionary_page_offset is not None
        is_paged = len(spans) == page_count + has_dictionary
        if not bounds or (bounds[0], bounds[-1]) != (first, end) or not (is_paged or len(spans) == 1):
            raise FileUnreadable(f"{column.path_in_schema} has other stretches than its {page_count} pages")
        whole_count += not is_paged
        columns.append(ColumnPages(spans[0] if has_dictionary else (first, first), spans[has_dictionary:]))
    return [] if whole_count else columns


def page_file(
    row_group: Arrow,
    schema: bytes,
    columns: Mapping[int, ColumnPages],
    pages: range,
    row_count: int,
    read: Callable[[Span], Buffer],
) -> bytes:
    """A Parquet file of these pages of a row group.

    Args:
        row_group: the metadata of the row group.
        schema: the list of the schema's elements, as it is encoded in the footer.
        columns: the columns that will be read, by their number in the row group. The others are named, and are empty.
        pages: which ones.
        row_count: the rows that these have.
        read: returns checked bytes of the file.
    """
    parts: list[Buffer] = [MAGIC]
    position = len(MAGIC)
    described: list[Encoded] = []
    for number in range(row_group.num_columns):
        column, first = row_group.column(number), position
        held = columns.get(number)
        unpacked_bytes = value_count = 0
        data_first = first
        if held is not None:
            for span in held.parts(pages):
                content = read(span)
                header = read_page_header(content)
                if header.header_bytes + header.content_bytes != len(content):
                    raise FileUnreadable(
                        f"a page of {column.path_in_schema} has {len(content)} bytes, not its own size"
                    )
                unpacked_bytes += header.header_bytes + header.unpacked_bytes
                value_count += header.value_count
                parts.append(content)
                position += len(content)
                if span == held.dictionary:
                    data_first = position
        described.append(_column(column, first, data_first, position, value_count, unpacked_bytes))
    group = structure({1: list_of(described), 2: int64(position - len(MAGIC)), 3: int64(row_count)})
    footer = structure(
        {1: int32(_FILE_VERSION), 2: encoded_list(schema), 3: int64(row_count), 4: list_of([group])}
    ).content
    return b"".join((*parts, footer, len(footer).to_bytes(FOOTER_TAIL_BYTES - len(MAGIC), "little"), MAGIC))


def _column(column: Arrow, first: int, data_first: int, end: int, value_count: int, unpacked_bytes: int) -> Encoded:
    """The ColumnChunk of a column whose bytes are there from `first` to `end`."""
    metadata = {
        1: int32(_TYPES[column.physical_type]),
        2: list_of([int32(_ENCODINGS[name]) for name in column.encodings]),
        3: list_of([binary(name.encode()) for name in column.path_in_schema.split(".")]),
        4: int32(_CODECS[column.compression]),
        5: int64(value_count),
        6: int64(unpacked_bytes),
        7: int64(end - first),
        9: int64(data_first),
    }
    if data_first > first:
        metadata[11] = int64(first)
    return structure({2: int64(0), 3: structure(metadata)})
