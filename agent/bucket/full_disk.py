"""A full disk under the embedded store: failed writes are reported, and new records are rejected.

The reserve (`agent.bucket.disk_reserve`) is for the ledger and its snapshots. Intake objects and files of tables would
use it up, so their puts are rejected while the disk is full.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from agent.bucket.disk_reserve import FULL_CODES, REMEDY
from protocol.limits import DISK_CHECK_INTERVAL_S
from storage.decorators.wrapped_store import WrappedStore
from storage.embedded.local_files import Files
from storage.object_store import Buffer, ObjectStore, StoreFull, StoreUnavailable
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX


class WatchedFiles(Files):
    """Calls `find_full` when an operation fails for want of space, and raises its error all the same."""

    def __init__(self, find_full: Callable[[], None]) -> None:
        self._find_full = find_full

    def create(self, path: str) -> int:
        with self._watched():
            return super().create(path)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        with self._watched():
            super().write(descriptor, parts)

    def write_at(self, descriptor: int, parts: Sequence[Buffer], position: int) -> None:
        with self._watched():
            super().write_at(descriptor, parts, position)

    def allocate(self, descriptor: int, first: int, end: int) -> None:
        with self._watched():
            super().allocate(descriptor, first, end)

    def sync_file(self, descriptor: int) -> None:
        with self._watched():
            super().sync_file(descriptor)

    def sync_data(self, descriptor: int) -> None:
        with self._watched():
            super().sync_data(descriptor)

    def rename(self, source: str, target: str) -> None:
        with self._watched():
            super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        with self._watched():
            super().link(source, target)

    def make_directory(self, path: str) -> None:
        with self._watched():
            super().make_directory(path)

    @contextmanager
    def _watched(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in FULL_CODES:
                self._find_full()
            raise


class FullDiskStore(WrappedStore):
    """An `ObjectStore` over `inner` that takes no records while `is_full` returns true. Reads and deletions go on.

    A put of an intake object raises `StoreFull`, which is not repeated: intakes that waited in memory would use up the
    first free space. It takes a second, so that producers do not repeat as fast as they get answers. A put of a table's
    file raises `StoreUnavailable`, which is repeated.
    """

    def __init__(
        self, inner: ObjectStore, is_full: Callable[[], bool], *, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        super().__init__(inner)
        self._is_full = is_full
        self._sleep = sleep

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """While the disk is full an intake object raises `StoreFull`, and a table's file `StoreUnavailable`."""
        if key.startswith(INTAKE_PREFIX):
            await check_room(key, self._is_full, self._sleep)
        if self._is_full() and key.startswith(LAKE_PREFIX):
            raise StoreUnavailable(f"{key}: the disk is full: {REMEDY}")
        await self._inner.put(key, parts, if_absent=if_absent)


async def check_room(key: str, is_full: Callable[[], bool], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Raise `StoreFull` for an intake object while the disk is full, after a second."""
    if is_full():
        await sleep(DISK_CHECK_INTERVAL_S)
        if is_full():
            raise StoreFull(f"{key}: the disk is full: {REMEDY}")
