"""Every request and response of every served version, between the generated codec and kio: the same values, the same
bytes. On bytes that are cut off or changed the reader and a plain walk of the schema give the same, or both reject."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from protocol.api_versions import API_VERSIONS, ApiRange
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.messages import read_request, response_type, write_response
from protocol.wire import INT32
from tests.support.records.kio_messages import kio_read, kio_write
from tests.support.records.message_values import plain_fields, values_of
from tests.support.records.mutations import mutated
from tests.support.records.schema_reader import read_by_schema

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]
CORRELATION_ID = 7
MUTATIONS_PER_REQUEST = 10

every_version = pytest.mark.parametrize(
    ("row", "version"),
    [
        pytest.param(
            *(row, version),
            id=f"{row.name}-{version}",
            marks=() if version in (row.version_served_min, row.flexible_first, row.version_max) else pytest.mark.slow,
        )
        for row, version in SERVED
    ],
)
A_QUARTER = settings(max_examples=settings().max_examples // 4)
"""Of the examples that others have: versions of one API differ in few fields. Of some only the slow tests have one."""


def frame_of(api_key: int, api_version: int, body: bytes) -> RequestFrame:
    return RequestFrame(
        number=0,
        api_key=api_key,
        api_version=api_version,
        correlation_id=CORRELATION_ID,
        client_id="",
        header_bytes=0,
        body=memoryview(bytearray(body)),
    )


def read_or_rejected(row: ApiRange, version: int, body: bytes) -> object:
    """The fields of a request; None where it is rejected."""
    try:
        return plain_fields(read_request(frame_of(row.api_key, version, body)))
    except MalformedRequest:
        return None


def walked_or_rejected(row: ApiRange, version: int, body: bytes) -> object:
    """The same by a walk of the schema."""
    try:
        return plain_fields(read_by_schema(load_request_schema(row.api_key, version), body))
    except MalformedRequest:
        return None


@every_version
@A_QUARTER
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_a_request_is_read_as_kio_reads_it(row: ApiRange, version: int, data: st.DataObject, seed: int) -> None:
    schema, dice = load_request_schema(row.api_key, version), random.Random(seed)
    body = kio_write(data.draw(st.from_type(schema)))
    fields = plain_fields(kio_read(schema, body))
    assert read_or_rejected(row, version, body) == fields
    assert read_or_rejected(row, version, body + b"more") == fields
    assert walked_or_rejected(row, version, body) == fields
    if body:
        assert read_or_rejected(row, version, body[: dice.randrange(len(body))]) is None
    for _ in range(MUTATIONS_PER_REQUEST):
        changed = mutated(body, dice)
        # As texts: a number that is none does not equal itself.
        assert repr(read_or_rejected(row, version, changed)) == repr(walked_or_rejected(row, version, changed)), changed


@every_version
@A_QUARTER
@given(data=st.data())
def test_a_response_is_written_as_kio_writes_it(row: ApiRange, version: int, data: st.DataObject) -> None:
    entity_type = response_type(row.api_key, version)
    entity = data.draw(st.from_type(entity_type))
    body = kio_write(entity)
    header = INT32.pack(CORRELATION_ID) + bytes(row.response_header_version(version))
    frame = frame_of(row.api_key, version, b"")
    assert b"".join(write_response(frame, {**values_of(entity), "a_field_of_other_versions": 5})) == header + body
    assert b"".join(write_response(frame, values_of(entity, has_defaults=False))) == header + body
