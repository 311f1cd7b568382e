"""The name and version of a client in ApiVersions, in characters that a metric's label may have (KIP-511).

Source: org.apache.kafka.common.requests.ApiVersionsRequest.isValid (Kafka 4.3).
"""

import re
from typing import Final

from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.wire import UNREADABLE, read_string

FIRST_WITH_CLIENT_NAME: Final = 3
"""From this version of ApiVersions on a client names itself."""
_CLIENT_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_client_named(software_name: str, software_version: str) -> bool:
    """Whether a client gave its name and version in the characters that KIP-511 allows."""
    return bool(_CLIENT_NAME.fullmatch(software_name) and _CLIENT_NAME.fullmatch(software_version))


def has_valid_client_name(frame: RequestFrame) -> bool:
    """Whether an ApiVersions request in a served version names its client as its version asks.

    Raises `MalformedRequest`: close the connection.
    """
    if frame.api_version < FIRST_WITH_CLIENT_NAME:
        return True
    try:
        software_name, position = read_string(frame.body, 0, is_flexible=True)
        software_version, _ = read_string(frame.body, position, is_flexible=True)
    except UNREADABLE as error:
        raise MalformedRequest(f"ApiVersions cannot be read: {error}") from error
    return is_client_named(software_name, software_version)
