"""Files that are partly in memory, with the file interface that pyarrow reads from."""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import pyarrow as pa

from storage.object_store import Buffer

Arrow: TypeAlias = Any
"""An object of pyarrow's."""


class BytesInMemory(ABC):
    """A file that is partly in memory. Reads of other bytes raise `OSError`."""

    closed = False

    def __init__(self) -> None:
        self._position = 0

    @abstractmethod
    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset. Returns the new position."""

    @abstractmethod
    def read_buffer(self, size: int) -> Arrow:
        """The next `size` bytes, without a copy."""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:  # noqa: B027 - pyarrow calls it, and no kind of file here has anything to close
        """The bytes belong to the caller."""


class FileWindow(BytesInMemory):
    """A file of which only the bytes `[byte_first, byte_first + len(data))` are in memory.

    `byte_end`: where the file appears to end.
    """

    def __init__(self, data: Buffer, byte_first: int, byte_end: int) -> None:
        super().__init__()
        self._data = pa.py_buffer(data)
        self._byte_first = byte_first
        self._byte_end = byte_end

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset if whence == 0 else self._byte_end + offset
        return self._position

    def read_buffer(self, size: int) -> Arrow:
        start = self._position - self._byte_first
        if start < 0 or start + size > len(self._data):
            raise OSError(f"bytes {self._position}+{size} were not fetched")
        self._position += size
        return self._data.slice(start, size)
