"""Kafka's error codes, and the one exception of this package.

A Kafka error is data: it travels in responses and outcomes. Only malformed bytes raise.
Source of the codes: org.apache.kafka.common.protocol.Errors, by way of kio.
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "InvalidBatch", "MalformedRequest", "NotOneBatch"]


class MalformedRequest(Exception):
    """The bytes are not a request: the connection cannot go on and should be closed."""


class InvalidBatch(Exception):
    """A record batch that must be rejected.

    `error_code` is the producer's answer; the message says which value was wrong, and `rows` which records, counted
    from 0 in their batch, where it is some of them (KIP-467): at most `RECORD_ERRORS_LISTED_MAX`.
    """

    def __init__(self, error_code: ErrorCode, message: str, rows: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.rows = rows


class DoesNotUnpack(InvalidBatch):
    """The records are damaged, or unpack to more bytes than the caller allows: which of both is not known."""


class NotOneBatch(InvalidBatch):
    """The bytes are not one whole batch of format v2: Kafka rejects them before it looks at the partition's log."""
