"""The columns of a partition's chunks."""

from array import array

import pytest

from coordinator.state.chunk_index import (
    COLUMNS_UNCHECKED,
    NO_CHECKSUM,
    NO_ROWS,
    ChunkIndex,
    ChunkRef,
    MarkerRow,
    marker_row,
)
from protocol.types import Milliseconds, ObjectId, Offset, ProducerEpoch, ProducerId


def index_of(*ends: int, timestamps: tuple[int, ...] = ()) -> ChunkIndex:
    """An index whose chunks end at `ends`, each in an object of its own."""
    index = ChunkIndex()
    for row, end in enumerate(ends):
        timestamp = timestamps[row] if timestamps else 1_000 + row
        index.append(end, row + 1, row * 10, 10, timestamp, -1)
    return index


def archived(first: int, end: int) -> ChunkRef:
    return ChunkRef(
        offset_first=Offset(first),
        offset_end=Offset(end),
        object_id=ObjectId(99),
        byte_first=4,
        byte_count=50,
        max_timestamp=Milliseconds(7),
        append_time_ms=Milliseconds(-1),
        row_group=2,
        row_first=30,
        row_count=end - first,
    )


class TestReading:
    def test_a_row_begins_where_the_one_before_it_ends(self) -> None:
        assert index_of(10, 15).row(1) == ChunkRef(
            offset_first=Offset(10),
            offset_end=Offset(15),
            object_id=ObjectId(2),
            byte_first=10,
            byte_count=10,
            max_timestamp=Milliseconds(1_001),
            append_time_ms=Milliseconds(-1),
            row_group=NO_ROWS,
            row_first=NO_ROWS,
            row_count=NO_ROWS,
        )
        assert not index_of(10).row(0).is_archived

    @pytest.mark.parametrize(("offset", "log_bytes"), [(0, 30), (9, 30), (10, 20), (25, 10), (30, 0)])
    def test_log_bytes_are_those_from_the_row_that_covers_an_offset(self, offset: int, log_bytes: int) -> None:
        assert index_of(10, 20, 30).log_bytes_from(Offset(offset)) == log_bytes

    @pytest.mark.parametrize(("offset", "row"), [(-1, None), (0, 0), (9, 0), (10, 1), (14, 1), (15, None)])
    def test_an_offset_is_in_the_row_that_covers_it(self, offset: int, row: int | None) -> None:
        assert index_of(10, 15).locate(offset) == row

    def test_rows_are_reported_by_the_files_that_they_lie_in(self) -> None:
        index = index_of(10, 20, 30, 40)
        assert index.file_runs() == ([], [], [], [])
        index.replace(0, 1, [archived(0, 10)._replace(max_timestamp=Milliseconds(5))])
        index.replace(1, 2, [archived(10, 15), archived(15, 20)])
        assert index.file_runs() == ([99], [0], [3], [7])
        index.replace(3, 4, [archived(20, 30)._replace(object_id=ObjectId(100))])
        assert index.file_runs() == ([99, 100], [0, 3], [3, 4], [7, 7])

    def test_a_copy_of_the_archived_rows_stays_as_it_was(self) -> None:
        index = index_of(10, 20, 30)
        index.replace(0, 2, [archived(0, 20)])
        copy = index.archived()
        index.truncate_before(Offset(20))
        assert [copy.row(row) for row in range(len(copy))] == [archived(0, 20)]
        assert copy.first == 0

    def test_files_are_reported_once_and_only_those_with_rows(self) -> None:
        index = index_of(10, 20, 30, 40)
        assert index.archived_objects() == []
        index.replace(0, 1, [archived(0, 10)])
        index.replace(1, 2, [archived(10, 20)])
        index.replace(2, 3, [archived(20, 30)._replace(object_id=ObjectId(7), row_count=0)])
        assert index.archived_objects() == [99]

    def test_the_rows_of_an_object_are_found_by_its_id(self) -> None:
        index = index_of(10, 20, 30, 40)
        index.replace(1, 3, [archived(10, 20), archived(20, 30)])
        assert index.rows_of_object(99) == [1, 2]
        assert index.rows_of_object(99, 2) == [2]
        assert index.rows_of_object(98) == []

    def test_an_empty_index_covers_nothing(self) -> None:
        index = ChunkIndex(Offset(5))
        assert (len(index), index.end, index.locate(5), index.stored_bytes) == (0, 5, None, 0)
        assert list(index.rows_from(0)) == []

    def test_archived_offsets_without_rows_are_reported_together(self) -> None:
        index = index_of(10, 20, 30, 40, 50)
        assert index.archived_without_rows() == []
        for first in (0, 10, 20, 30):
            index.replace(first // 10, first // 10 + 1, [archived(first, first + 10)])
        assert index.archived_without_rows() == []
        for first in (0, 20, 30):
            index.replace(first // 10, first // 10 + 1, [archived(first, first + 10)._replace(row_count=0)])
        assert index.archived_without_rows() == [(0, 10), (20, 40)]
        index.truncate_before(Offset(30))
        assert index.archived_without_rows() == [(30, 40)]

    def test_what_is_not_archived_begins_behind_what_is(self) -> None:
        index = index_of(10, 15, 20)
        assert (index.intake_row, index.intake_bytes) == (0, 30)
        index.replace(0, 2, [archived(0, 15)])
        assert (index.intake_row, index.intake_bytes) == (1, 10)
        index.replace(1, 2, [archived(15, 20)])
        assert (index.intake_row, index.intake_bytes) == (2, 0)

    def test_places_are_columns_of_rows_that_outlive_a_change(self) -> None:
        index = index_of(10, 15, 20)
        places = index.places(1, 3)
        rows = [index.row(1), index.row(2)]
        index.append(25, 1, 0, 10, 7, -1)
        for name in places._fields:
            assert getattr(places, name).tolist() == [getattr(row, name) for row in rows]
        assert [len(column) for column in index.places(2, 2)] == [0] * 6

    def test_rows_from_an_offset_begin_with_the_one_that_covers_it(self) -> None:
        index = index_of(10, 15, 20)
        assert [chunk.offset_first for chunk in index.rows_from(12)] == [10, 15]
        assert [chunk.offset_first for chunk in index.rows_from(-5)] == [0, 10, 15]
        assert index.stored_bytes == 30


class TestTimestamps:
    @pytest.mark.parametrize(("timestamp", "row"), [(0, 0), (50, 0), (51, 2), (70, 2), (71, None)])
    def test_the_first_row_that_reaches_a_timestamp_is_found(self, timestamp: int, row: int | None) -> None:
        assert index_of(1, 2, 3, timestamps=(50, 40, 70)).find_timestamp(timestamp) == row

    def test_the_greatest_timestamp_is_found_in_its_first_row(self) -> None:
        assert index_of(1, 2, 3, timestamps=(40, 70, 70)).max_timestamp_row() == 1

    def test_an_empty_index_has_no_timestamps(self) -> None:
        assert ChunkIndex().find_timestamp(0) is None
        assert ChunkIndex().max_timestamp_row() is None

    def test_records_without_a_timestamp_have_no_greatest(self) -> None:
        assert index_of(1, timestamps=(-1,)).max_timestamp_row() is None

    def test_looking_for_timestamps_leaves_the_index_free_to_grow(self) -> None:
        index = index_of(1)
        index.find_timestamp(0)
        index.max_timestamp_row()
        index.append(2, 1, 0, 1, 1, -1)
        assert len(index) == 2

    def test_rows_before_the_one_that_is_named_are_passed_over(self) -> None:
        index = index_of(1, 2, 3, timestamps=(70, 40, 50))
        assert (index.find_timestamp(45, 1), index.max_timestamp_row(1)) == (2, 2)
        assert (index.find_timestamp(60, 1), index.max_timestamp_row(3)) == (None, None)


class TestRetention:
    @pytest.mark.parametrize(
        ("offset", "timestamp", "end"),
        [
            (0, 50, 0),  # a record is not older than itself
            (0, 51, 10),
            (0, 60, 10),  # the second row is as young: what follows it stays, whatever its age
            (0, 61, 30),
            (4, 51, 10),
            (10, 61, 30),
            (30, 99, 40),
            (40, 99, 40),
        ],
    )
    def test_rows_older_than_a_time_end_before_the_first_that_is_not(
        self, offset: int, timestamp: int, end: int
    ) -> None:
        index = index_of(10, 20, 30, 40, timestamps=(50, 60, 55, 70))
        assert index.end_of_older(Offset(offset), timestamp) == end

    @pytest.mark.parametrize(("timestamp", "end"), [(50, 0), (51, 20), (61, 20)])
    def test_a_row_without_timestamps_is_as_old_as_the_next_one_that_has_one(self, timestamp: int, end: int) -> None:
        assert index_of(10, 20, 30, timestamps=(-1, 50, -1)).end_of_older(Offset(0), timestamp) == end

    def test_rows_without_any_timestamp_grow_no_older(self) -> None:
        assert index_of(10, 20, timestamps=(-1, -7)).end_of_older(Offset(0), 1 << 62) == 0

    @pytest.mark.parametrize(
        ("offset", "bytes_max", "end"),
        [
            (0, 40, 0),
            (0, 31, 0),
            (0, 30, 10),
            (0, 29, 10),
            (0, 20, 20),
            (0, 0, 40),
            (5, 30, 10),
            (10, 30, 10),
            (10, 20, 20),
        ],
    )
    def test_rows_go_while_no_less_stays_than_is_kept(self, offset: int, bytes_max: int, end: int) -> None:
        assert index_of(10, 20, 30, 40).end_of_surplus(Offset(offset), bytes_max) == end

    def test_an_empty_index_has_nothing_too_old_or_too_much(self) -> None:
        index = ChunkIndex(Offset(5))
        assert (index.end_of_older(Offset(5), 1), index.end_of_surplus(Offset(5), 0)) == (5, 5)

    def test_archiving_changes_nothing_about_what_is_too_much(self) -> None:
        index = index_of(10, 20, 30, 40)
        index.replace(0, 3, [archived(0, 7), archived(7, 30)])
        ends = [index.end_of_surplus(Offset(0), bytes_max) for bytes_max in (33, 32, 10, 9)]
        assert ends == [7, 7, 30, 30]


class TestChanging:
    def test_archived_chunks_take_the_place_of_others(self) -> None:
        index = index_of(10, 15, 20)
        index.replace(0, 2, [archived(0, 15)])
        assert index.row(0) == archived(0, 15)
        assert index.row(0).is_archived
        assert index.row(1).offset_first == 15
        assert index.object_ids() == [99, 3]

    def test_one_chunk_can_become_several(self) -> None:
        index = index_of(10, 15)
        index.replace(0, 1, [archived(0, 4), archived(4, 10)])
        assert [chunk.offset_end for chunk in index.rows_from(0)] == [4, 10, 15]

    def test_truncation_drops_whole_rows_and_returns_their_objects(self) -> None:
        index = index_of(10, 15, 20)
        assert index.truncate_before(Offset(16)) == [1, 2]
        assert (index.first, index.end, len(index)) == (15, 20, 1)
        assert index.locate(14) is None

    def test_truncation_inside_the_first_row_drops_nothing(self) -> None:
        index = index_of(10)
        assert index.truncate_before(Offset(9)) == []
        assert index.first == 0

    def test_truncation_to_the_end_leaves_the_end(self) -> None:
        index = index_of(10, 15)
        index.truncate_before(Offset(15))
        assert (index.first, index.end, len(index)) == (15, 15, 0)


class TestColumns:
    def test_an_index_is_its_columns(self) -> None:
        index = index_of(10, 15)
        index.replace(0, 1, [archived(0, 10)])
        copy = ChunkIndex.from_columns(index.first, index.columns())
        assert list(copy.rows_from(0)) == list(index.rows_from(0))

    def test_columns_are_little_endian(self) -> None:
        assert index_of(258).columns()[0] == bytes([2, 1, 0, 0, 0, 0, 0, 0])

    def test_a_column_that_is_missing_is_noticed(self) -> None:
        with pytest.raises(ValueError, match="11 columns, not 8"):
            ChunkIndex.from_columns(Offset(0), index_of(1).columns()[:-3])

    def test_an_index_without_log_bytes_counts_what_its_chunks_take(self) -> None:
        index = index_of(10, 20)
        assert ChunkIndex.from_columns(Offset(0), index.columns()[:-2]).columns() == index.columns()

    def test_an_index_without_checksums_knows_none(self) -> None:
        index = index_of(10)
        index.append(12, 5, 40, 20, 7, -1, 0xFFFFFFFF)
        index.append_marker(marker_row(MarkerRow(ProducerId(7), ProducerEpoch(3), True, Milliseconds(5))))
        assert [row.checksum for row in index.rows_from(0)] == [NO_CHECKSUM, 0xFFFFFFFF, NO_CHECKSUM]
        assert index.places(0, 3).checksum.tolist() == [0, 0xFFFFFFFF, 0]
        copy = ChunkIndex.from_columns(Offset(0), index.columns())
        assert list(copy.rows_from(0)) == list(index.rows_from(0))
        older = ChunkIndex.from_columns(Offset(0), index.columns()[:COLUMNS_UNCHECKED])
        assert list(older.rows_from(0)) == [row._replace(checksum=NO_CHECKSUM) for row in index.rows_from(0)]

    def test_what_stands_in_the_place_of_chunks_has_its_own_checksum(self) -> None:
        index = ChunkIndex()
        for end in (10, 20):
            index.append(end, 1, 0, 10, 7, -1, end)
        index.replace(1, 2, [archived(10, 15), archived(15, 20)._replace(checksum=6)])
        assert [row.checksum for row in index.rows_from(0)] == [10, NO_CHECKSUM, 6]

    def test_a_column_that_is_too_short_is_noticed(self) -> None:
        with pytest.raises(ValueError, match="differ in length"):
            ChunkIndex.from_columns(Offset(0), [*index_of(1).columns()[:-1], b""])

    @pytest.mark.parametrize("ends", [(0,), (-3,), (5, 5), (5, 4)])
    def test_offsets_that_do_not_rise_are_noticed(self, ends: tuple[int, ...]) -> None:
        columns = [array("q", ends).tobytes(), *index_of(*range(1, len(ends) + 1)).columns()[1:]]
        with pytest.raises(ValueError, match="do not rise"):
            ChunkIndex.from_columns(Offset(0), columns)

    def test_a_chunk_costs_less_than_250_bytes(self) -> None:
        index = index_of(*range(1, 1_001))
        assert index._rows.__sizeof__() + index._offset_end.__sizeof__() < 250 * 1_000

    def test_a_marker_is_a_row_without_an_object(self) -> None:
        index = index_of(10)
        marker = MarkerRow(ProducerId(7), ProducerEpoch(3), False, Milliseconds(5))
        assert index.append_marker(marker_row(marker)) == 10
        rows = list(index.rows_from(0))
        assert [(row.is_marker, row.marker) for row in rows] == [(False, None), (True, marker)]
        assert (rows[1].offset_first, rows[1].offset_end, index.end) == (10, 11, 11)
