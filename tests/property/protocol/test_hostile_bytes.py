"""Whatever a client sends, reading it either works or raises MalformedRequest, and takes memory in proportion."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from protocol.api_versions import API_VERSIONS, ApiRange, range_of
from protocol.connection import RequestFrame, ServerConnection
from protocol.errors import MalformedRequest
from protocol.limits import MIB
from protocol.messages import read_request
from protocol.produce import read_produce_request
from tests.support.records.kio_messages import kio_write
from tests.support.records.mutations import STRANGE_NUMBERS, mutated

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]
MUTATIONS_PER_REQUEST = 50


def header(api_key: int, version: int) -> bytes:
    row = range_of(api_key)
    assert row is not None
    return struct.pack(">hhih", api_key, version, 7, 1) + b"c" + (b"\0" if row.is_flexible(version) else b"")


def read_all(frame: RequestFrame) -> None:
    """As the broker does with every request, and as it does with the hot ones."""
    row = range_of(frame.api_key)
    assert row is not None
    if not row.is_served(frame.api_version):
        return
    try:
        read_request(frame)
    finally:
        if frame.api_key == 0:
            read_produce_request(frame.body, frame.api_version)


def send(data: bytes) -> None:
    try:
        for frame in ServerConnection(receive_buffer_bytes=64).receive_data(data):
            read_all(frame)
    except MalformedRequest:
        pass


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    send(data)
    send(framed(data))


@given(row_version=st.sampled_from(SERVED), body=st.binary(max_size=300))
def test_random_bodies_behind_a_valid_header(row_version: tuple[ApiRange, int], body: bytes) -> None:
    row, version = row_version
    send(framed(header(row.api_key, version) + body))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(row_version=st.sampled_from(SERVED), data=st.data(), seed=st.integers(0, 1 << 32))
def test_mutated_requests(row_version: tuple[ApiRange, int], data: st.DataObject, seed: int) -> None:
    row, version = row_version
    schema = load_request_schema(row.api_key, version)
    request = header(row.api_key, version) + kio_write(data.draw(st.from_type(schema)))
    dice = random.Random(seed)
    for _ in range(MUTATIONS_PER_REQUEST):
        send(framed(mutated(request, dice)))
        send(mutated(framed(request), dice))


@pytest.mark.parametrize(("api_key", "version"), [(row.api_key, version) for row, version in SERVED])
def test_strange_numbers_take_no_memory(api_key: int, version: int) -> None:
    send(framed(header(api_key, version)))  # imports the schema
    tracemalloc.start()
    for before in (b"", b"\0", b"\0\0\0\1\0\1t", b"\2", b"\2" + bytes(16), bytes(12), bytes(25)):
        for number in STRANGE_NUMBERS:
            send(framed(header(api_key, version) + before + number * 3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB
