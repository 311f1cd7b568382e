"""A client names itself as KIP-511 allows."""

import struct

import pytest

from protocol.client_names import has_valid_client_name, is_client_named
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "librdkafka", "0.x", "a--b..c9"])
def test_letters_digits_dots_and_dashes_are_a_name(name: str) -> None:
    assert is_client_named(name, "4.3.1")
    assert is_client_named("client", name)


@pytest.mark.parametrize("name", ["", "-", "a-", ".a", "a b", "caf\u00e9", "a\n", "a_b"])
def test_nothing_else_is(name: str) -> None:
    assert not is_client_named(name, "1")
    assert not is_client_named("client", name)


def api_versions(version: int, body: bytes) -> RequestFrame:
    return RequestFrame(
        number=0,
        api_key=18,
        api_version=version,
        correlation_id=7,
        client_id="c",
        header_bytes=11,
        body=memoryview(body),
    )


def compact(*texts: str) -> bytes:
    return b"".join(struct.pack("B", len(text) + 1) + text.encode() for text in texts)


def test_before_version_3_no_client_names_itself() -> None:
    assert has_valid_client_name(api_versions(2, b""))


def test_from_version_3_on_the_request_has_the_name() -> None:
    assert has_valid_client_name(api_versions(3, compact("librdkafka", "2.11.0") + b"\0"))
    assert not has_valid_client_name(api_versions(4, compact("my client", "2") + b"\0"))


def test_a_request_without_the_name_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        has_valid_client_name(api_versions(3, b""))
