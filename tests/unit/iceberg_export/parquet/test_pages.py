"""Pages of a row group that are decoded without the others."""

import io
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.parquet.arrow_footer import column_chunk_bounds
from iceberg_export.parquet.pages import ColumnPages, Span, column_pages, page_cuts, page_file
from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, footer_bytes
from iceberg_export.rows.thrift import raw_field

PAGE_ROWS = 1_000
ROWS = 3 * PAGE_ROWS + 123
PAGES = 4


def table(*, key_count: int) -> pa.Table:
    """Columns of the kinds that files have: with a dictionary or without, null, nested, deltas."""
    headers = [[{"key": f"h{row % 3}", "value": b"%d" % row}] * (row % 4) for row in range(ROWS)]
    return pa.table(
        {
            "offset": pa.array(range(ROWS), pa.int64()),
            "key": pa.array([None if row % 7 == 0 else b"k%d" % (row % key_count) for row in range(ROWS)], pa.binary()),
            "value": pa.array([b"%d" % row * 40 for row in range(ROWS)], pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def written(rows: pa.Table, page_rows: int = PAGE_ROWS) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression="zstd",
        use_dictionary=["key", "headers.list.element.key"],
        column_encoding={"offset": "DELTA_BINARY_PACKED"},
        data_page_size=1 << 30,
        dictionary_pagesize_limit=2_000,
        max_rows_per_page=page_rows,
        write_page_checksum=True,
        write_page_index=True,
    ) as writer:
        writer.write_table(rows, row_group_size=len(rows))
    return sink.getvalue()


def opened(data: bytes) -> tuple[Any, bytes, list[int]]:
    """The row group's metadata, the encoded schema, and the ends of the pages as a file's checksums have them."""
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    ends = {0, *page_cuts(data, PAGE_ROWS)}
    for number in range(group.num_columns):
        ends.update(column_chunk_bounds(group.column(number)))
    return group, raw_field(data[-footer_bytes(data) : -FOOTER_TAIL_BYTES], 2), sorted(ends)


def bytes_of(data: bytes, span: Span) -> bytes:
    return data[span[0] : span[1]]


@pytest.mark.parametrize("key_count", [5, ROWS], ids=["a dictionary for all pages", "one that overflows"])
@pytest.mark.parametrize(("first", "end"), [*pairwise(range(PAGES + 1)), (0, PAGES), (1, 3)])
def test_pages_give_their_rows(first: int, end: int, key_count: int) -> None:
    rows = table(key_count=key_count)
    data = written(rows)
    group, schema, ends = opened(data)
    columns = dict(enumerate(column_pages(group, ends, PAGE_ROWS)))
    expected = rows.slice(first * PAGE_ROWS, (end - first) * PAGE_ROWS)
    made = page_file(group, schema, columns, range(first, end), len(expected), partial(bytes_of, data))
    assert pq.ParquetFile(io.BytesIO(made)).read(use_threads=False).equals(expected)


def test_a_column_that_is_not_read_needs_no_bytes() -> None:
    rows = table(key_count=5)
    data = written(rows)
    group, schema, ends = opened(data)
    columns = {number: pages for number, pages in enumerate(column_pages(group, ends, PAGE_ROWS)) if number != 2}
    made = page_file(group, schema, columns, range(1, 2), PAGE_ROWS, partial(bytes_of, data))
    read = pq.ParquetFile(io.BytesIO(made)).read(["offset", "key", "headers"], use_threads=False)
    assert read.equals(rows.drop_columns(["value"]).slice(PAGE_ROWS, PAGE_ROWS))


def test_stretches_that_are_no_pages_are_rejected() -> None:
    group, _, ends = opened(written(table(key_count=5)))
    for wrong in (ends[:3] + ends[4:], [*ends, ends[-1] - 1]):
        with pytest.raises(FileUnreadable, match="other stretches"):
            column_pages(group, sorted(wrong), PAGE_ROWS)
    with pytest.raises(FileUnreadable, match="other stretches"):
        column_pages(group, ends, PAGE_ROWS + 100)


def test_a_row_group_whose_columns_are_cut_at_other_rows_has_no_pages() -> None:
    """The dictionary overflows after 1,024 rows, and the page ends there."""
    data = written(table(key_count=ROWS), page_rows=1_500)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    assert list(page_cuts(data, 1_500)) == []
    whole = sorted({end for number in range(group.num_columns) for end in column_chunk_bounds(group.column(number))})
    assert column_pages(group, whole, 1_500) == []


def test_a_page_of_another_size_is_rejected() -> None:
    data = written(table(key_count=5))
    group, schema, ends = opened(data)
    found = column_pages(group, ends, PAGE_ROWS)
    first, second = found[2].pages[:2]
    columns = {2: ColumnPages(found[2].dictionary, [(first[0], second[1]), *found[2].pages[2:]])}
    with pytest.raises(FileUnreadable, match="not its own size"):
        page_file(group, schema, columns, range(1), PAGE_ROWS, partial(bytes_of, data))
