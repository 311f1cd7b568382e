"""Values whose form in Python is not that on the wire, and lengths that are rejected."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from protocol.codecs.values import (
    NumberPackers,
    datetime_ms,
    long_time,
    reject_array,
    reject_elements,
    reject_text,
    time_ms,
    uuid_bytes,
    uuid_of,
)
from protocol.errors import MalformedRequest


def test_the_zero_id_is_none() -> None:
    assert (uuid_of(bytes(16)), uuid_bytes(None)) == (None, bytes(16))
    assert uuid_bytes(uuid_of(bytes(range(16)))) == bytes(range(16))
    assert uuid_of(bytes(15) + b"\1") == UUID(int=1)


def test_times_are_whole_milliseconds() -> None:
    assert (time_ms(timedelta(days=-1)), time_ms(timedelta(microseconds=1_600))) == (-86_400_000, 2)
    assert datetime_ms(datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    assert datetime_ms(None) == -1


def test_a_time_beyond_all_times_is_the_last_one() -> None:
    assert (long_time(5), long_time(-(1 << 63))) == (timedelta(milliseconds=5), timedelta.min)
    assert long_time((1 << 63) - 1) > timedelta.max - timedelta(milliseconds=1)


def test_packers_of_few_numbers_are_kept() -> None:
    packers = NumberPackers("B", "i")
    assert packers[2](3, 1, -1) == b"\3\0\0\0\1\xff\xff\xff\xff"
    assert packers[127](128, *range(127))[:5] == b"\x80\0\0\0\0"
    assert packers[128](129, *range(128))[-4:] == b"\0\0\0\x7f"
    assert set(packers) == {2, 127}


def test_each_rejection_says_why() -> None:
    with pytest.raises(MalformedRequest, match="null"):
        reject_text(-1, 7)
    with pytest.raises(MalformedRequest, match="9 bytes, but 7 remain"):
        reject_text(9, 7)
    with pytest.raises(MalformedRequest, match="null"):
        reject_array(-1, 7)
    with pytest.raises(MalformedRequest, match="9 elements, but 7 bytes remain"):
        reject_array(9, 7)
    with pytest.raises(MalformedRequest, match="1000000 elements"):
        reject_elements()
