"""SaslHandshake and SaslAuthenticate, byte by byte, and beside kio's own reader and writer."""

import struct
from datetime import timedelta

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from protocol.auth.sasl_messages import read_authenticate, read_handshake, write_authenticate, write_handshake
from protocol.connection import RequestFrame, read_request_frame
from protocol.errors import ErrorCode, MalformedRequest
from protocol.messages import read_request
from tests.support.auth.sasl_frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, authenticate, handshake, header


def frame_of(view: memoryview) -> RequestFrame:
    return read_request_frame(0, view)


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_names_its_mechanism(version: int) -> None:
    frame = frame_of(handshake("SCRAM-SHA-256", version))
    assert read_handshake(frame) == "SCRAM-SHA-256"
    assert getattr(read_request(frame), "mechanism", None) == "SCRAM-SHA-256"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_authentication_has_a_token(version: int) -> None:
    frame = frame_of(authenticate(b"\0token", version))
    assert read_authenticate(frame) == b"\0token"
    assert getattr(read_request(frame), "auth_bytes", None) == b"\0token"


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\5abc", b"\xff\xff", b"\0\1\xff"])
def test_a_handshake_that_is_cut_off_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_handshake(frame_of(memoryview(header(SASL_HANDSHAKE, 1) + body)))


@pytest.mark.parametrize(
    ("version", "body"), [(0, b""), (1, b"\0\0\0\5abc"), (1, b"\xff\xff\xff\xff"), (2, b"\0\0"), (2, b"\2a")]
)
def test_an_authentication_that_is_cut_off_is_malformed(version: int, body: bytes) -> None:
    is_flexible = version >= 2
    with pytest.raises(MalformedRequest):
        read_authenticate(frame_of(memoryview(header(SASL_AUTHENTICATE, version, is_flexible=is_flexible) + body)))


@pytest.mark.parametrize("version", [0, 1])
def test_kio_reads_the_answer_to_a_handshake(version: int) -> None:
    answer = write_handshake(frame_of(handshake("PLAIN", version)), ErrorCode.none, ["PLAIN", "SCRAM-SHA-512"])
    assert answer[:4] == struct.pack(">i", 7)
    entity = entity_reader(load_response_schema(SASL_HANDSHAKE, version))(memoryview(answer), 4)[0]
    assert getattr(entity, "mechanisms", None) == ("PLAIN", "SCRAM-SHA-512")
    assert getattr(entity, "error_code", None) is ErrorCode.none


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kio_reads_the_answer_to_an_authentication(version: int) -> None:
    answer = write_authenticate(
        frame_of(authenticate(b"", version)),
        ErrorCode.sasl_authentication_failed,
        message="no",
        token=b"v=1",
        lifetime_ms=60_000,
    )
    entity = entity_reader(load_response_schema(SASL_AUTHENTICATE, version))(
        memoryview(answer), 5 if version > 1 else 4
    )[0]
    assert getattr(entity, "error_message", None) == "no"
    assert getattr(entity, "auth_bytes", None) == b"v=1"
    if version:
        assert getattr(entity, "session_lifetime", None) == timedelta(minutes=1)
