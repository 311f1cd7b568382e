"""Which schema values were written with."""

import numpy as np
import pytest

from iceberg_export.typed.framing import NO_FRAME, NULL, NoIndexes, column_schema_ids, message_indexes
from tests.support.lake.typed_records import binary_column, framed


def test_ids_are_those_of_the_frames() -> None:
    values = [framed(7, b"x"), None, b"", b"\0\0\0\1", framed(2**32 - 1, b""), b"\1\0\0\0\7x", framed(7, b"")]
    ids = column_schema_ids(binary_column(values))
    assert ids.tolist() == [7, NULL, NO_FRAME, NO_FRAME, 2**32 - 1, NO_FRAME, 7]


def test_ids_of_a_part_of_a_column_are_those_of_its_rows() -> None:
    column = binary_column([framed(1, b"x"), framed(2, b"yy"), None, framed(3, b"")])
    assert column_schema_ids(column.part(1, 4)).tolist() == [2, NULL, 3]
    assert column_schema_ids(column.part(4, 4)).dtype == np.int64


@pytest.mark.parametrize(
    ("data", "indexes", "position"),
    [
        (b"\0rest", (0,), 1),
        (b"\x02\x00rest", (0,), 2),
        (b"\x04\x02\x06rest", (1, 3), 3),
        (b"\x02\x80\x02rest", (128,), 3),
        (b"\x02\x01rest", (-1,), 2),
    ],
)
def test_indexes_stand_behind_the_frame(data: bytes, indexes: tuple[int, ...], position: int) -> None:
    assert message_indexes(framed(1, data)) == (indexes, 5 + position)


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x80", b"\x01", b"\xff" * 9, b"\x82\x01\x00", b"\x02\xff\xff\xff\xff\xff\x01"]
)
def test_bytes_that_are_no_indexes_are_refused(data: bytes) -> None:
    with pytest.raises(NoIndexes):
        message_indexes(framed(1, data))
