"""The answer to what a client has produced, and who gets it."""

from typing import NamedTuple, Protocol

from protocol.errors import ErrorCode
from protocol.types import NO_TIMESTAMP

NO_OFFSET = -1


class Acknowledgement(NamedTuple):
    """The answer to one partition of a Produce request. With an error the base offset is -1."""

    error_code: ErrorCode
    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_TIMESTAMP
    log_start: int = NO_OFFSET
    error_message: str | None = None
    rows_rejected: tuple[int, ...] = ()
    """The rejected records, counted from 0 in their batch, where single records are at fault."""


class ProduceTicket(Protocol):
    """The receiver of one group's acknowledgement. `storage.batcher` carries it; `produce_path` settles it once."""

    def settle(self, acknowledgement: Acknowledgement) -> None: ...
