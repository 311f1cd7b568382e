"""A throttle time is written into every response that has the field, and changes nothing else of any."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from protocol.api_versions import API_VERSIONS, ApiKey, ApiRange
from protocol.limits import THROTTLE_MS_MAX
from protocol.throttle_time import with_throttle_time
from protocol.wire import INT32
from tests.support.records.kio_messages import KioEntity, kio_read, kio_write, response_module

SERVED = [
    (row, version)
    for row in API_VERSIONS
    for version in range(max(row.version_min, row.version_served_min), row.version_max + 1)
]
FEW = settings(max_examples=settings().max_examples // 10)
HEADER = INT32.pack(7)


def response_type(api_key: int, version: int) -> type[KioEntity]:
    (found,) = (
        each
        for each in vars(response_module(api_key, version)).values()
        if isinstance(each, type) and getattr(each, "__type__", None) is EntityType.response
    )
    return found


@pytest.mark.parametrize(
    ("row", "version"),
    [
        pytest.param(
            *(row, version),
            id=f"{row.name}-{version}",
            marks=() if version in (row.version_served_min, row.version_max) else pytest.mark.slow,
        )
        for row, version in SERVED
    ],
)
@FEW
@given(data=st.data(), throttle_ms=st.integers(0, THROTTLE_MS_MAX))
def test_it_stands_where_the_schema_has_it(row: ApiRange, version: int, data: st.DataObject, throttle_ms: int) -> None:
    schema = response_type(row.api_key, version)
    response = data.draw(st.from_type(schema))
    if hasattr(response, "node_endpoints"):
        response = replace(response, node_endpoints=())  # this broker names none
    header = HEADER + b"\0" * row.response_header_version(version)
    patched = with_throttle_time(row.api_key, version, [header + kio_write(response)], throttle_ms)
    expected = response
    if hasattr(response, "throttle_time"):
        longest = max(response.throttle_time, timedelta(milliseconds=throttle_ms))  # a relayed one may have its own
        expected = replace(response, throttle_time=i32Timedelta.parse(longest))
    sent = b"".join(bytes(part) for part in patched)
    assert sent == header + kio_write(expected)
    assert kio_read(schema, sent[len(header) :]) == expected


def test_records_behind_it_are_passed_on_uncopied() -> None:
    records = memoryview(b"records")
    *_, last = with_throttle_time(ApiKey.FETCH, 4, [bytes(12), records], 5)
    assert last is records


def test_parts_before_it_are_passed_on_uncopied() -> None:
    first = memoryview(b"first")
    assert with_throttle_time(ApiKey.PRODUCE, 3, [first, bytes(4)], 5)[0] is first


def test_an_answer_to_a_version_that_is_not_served_is_as_it_was() -> None:
    assert with_throttle_time(ApiKey.API_VERSIONS, 99, [b"answer"], 5) == [b"answer"]


def test_an_answer_that_is_too_short_to_have_one_is_as_it_was() -> None:
    assert with_throttle_time(ApiKey.HEARTBEAT, 1, [b"answer"], 5) == [b"answer"]
