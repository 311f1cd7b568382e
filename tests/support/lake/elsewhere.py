"""Stands in for the workers of an agent: calls go through messages, as between processes, and are made here."""

from collections.abc import Callable
from typing import TypeVar, cast

from agent.lake.worker.messages import read_message, write_message
from iceberg_export.rows.executor import LeftToCaller

T = TypeVar("T")
BYTES_MAX = 1 << 28


class ByMessages:
    """A `RunElsewhere` that counts the calls of each role. What a call raises is `LeftToCaller`."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        """The role and the bytes of each call that was made."""
        self.left: list[str] = []
        """What the others raised."""

    async def __call__(self, role: str, byte_count: int, work: Callable[[], T], /) -> T:
        sent = cast("Callable[[], T]", read_message(write_message(work, bytes_max=BYTES_MAX)))
        try:
            result = sent()
        except Exception as error:
            self.left.append(str(error))
            raise LeftToCaller(str(error)) from error
        self.done.append((role, byte_count))
        return cast("T", read_message(write_message(result, bytes_max=BYTES_MAX)))
