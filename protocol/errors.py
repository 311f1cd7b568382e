"""Kafka's error codes, and the one exception of this package.

A Kafka error is data: it travels in responses and outcomes. Only malformed bytes raise.
Source of the codes: org.apache.kafka.common.protocol.Errors, by way of kio.
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "InvalidBatch", "MalformedRequest"]


class MalformedRequest(Exception):
    """The bytes are not a request: the connection cannot go on and should be closed."""


class InvalidBatch(Exception):
    """A record batch that must be refused.

    `error_code` is what the producer is told; the message says which value was wrong.
    """

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
