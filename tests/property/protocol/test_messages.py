"""Every request of every served version is read as kio reads it, and every response of kio's gets its header."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from protocol.api_versions import API_VERSIONS, ApiRange
from protocol.connection import RequestFrame
from protocol.messages import read_request
from tests.support.records.kio_messages import kio_read, kio_write

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]

A_QUARTER = settings(max_examples=settings().max_examples // 4)
"""Of the examples that others have: versions of one API differ in few fields, and each has a test of its own."""


def frame_of(api_key: int, api_version: int, body: bytes) -> RequestFrame:
    return RequestFrame(
        number=0,
        api_key=api_key,
        api_version=api_version,
        correlation_id=7,
        client_id="",
        header_bytes=0,
        body=memoryview(bytearray(body)),
    )


@pytest.mark.parametrize(("row", "version"), SERVED, ids=[f"{row.name}-{version}" for row, version in SERVED])
@A_QUARTER
@given(data=st.data())
def test_a_request_is_read_as_kio_reads_it(row: ApiRange, version: int, data: st.DataObject) -> None:
    schema = load_request_schema(row.api_key, version)
    body = kio_write(data.draw(st.from_type(schema)))
    assert read_request(frame_of(row.api_key, version, body)) == kio_read(schema, body)
