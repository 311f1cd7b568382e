"""Thrift's compact protocol: what is written is read again, and wrong bytes are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.rows.thrift import (
    ThriftWrong,
    binary,
    encoded_list,
    int32,
    int64,
    list_of,
    raw_field,
    read_struct,
    select,
    structure,
)

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(NUMBERS, st.binary(max_size=300), st.lists(NUMBERS, min_size=1, max_size=40))
def test_what_is_written_is_read_again(number: int, text: bytes, numbers: list[int]) -> None:
    inner = structure({1: int64(number), 5: binary(text)})
    written = structure({2: list_of([int64(each) for each in numbers]), 3: inner, 7: list_of([inner, inner])}).content
    fields = select(2, structs={3: select(1, 5), 7: select(1, 5)})
    nested = {1: number, 5: text}
    assert read_struct(written, 0, fields) == ({2: numbers, 3: nested, 7: [nested, nested]}, len(written))


def test_fields_that_are_not_asked_for_are_passed_over() -> None:
    written = structure({1: int32(-7), 2: binary(b"left out"), 9: int32(3)}).content
    assert read_struct(written + b"rest", 0, select(1, 9)) == ({1: -7, 9: 3}, len(written))


def test_a_field_is_taken_as_it_is() -> None:
    elements = list_of([structure({1: int32(1)}), structure({4: binary(b"two")})])
    written = structure({1: int32(2), 2: elements, 3: int64(5)}).content
    assert raw_field(written, 2) == elements.content
    assert structure({1: int32(2), 2: encoded_list(raw_field(written, 2)), 3: int64(5)}).content == written
    with pytest.raises(ThriftWrong, match="no field 4"):
        raw_field(written, 4)
