"""The port to the bucket: what Penstock needs of an object store, and no more.

Rule: an object is written whole or not at all, under a key that is never written twice, but for the few that
`storage.refs` and `agent.bucket.cluster_identity` name: of those a reader gets one whole object or another. A put that
returned is durable: it survives the loss of power. A put that timed out is *unknown*: it may appear at any later time.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class StoreError(Exception):
    """The store did not do what was asked. Subclasses say what the caller should do."""


class StoreUnavailable(StoreError):
    """Ask again later: the store is away, slow, or asked us to slow down. For a put the outcome is unknown."""


class StoreThrottled(StoreUnavailable):
    """The store asked for fewer requests."""


class StoreTimedOut(StoreUnavailable):
    """The store did not answer in time."""


class StoreFull(StoreError):
    """There is no room, and nothing was put. Not to be repeated at once: what waits for room would use it up again."""


class ObjectMissing(StoreError):
    """The key does not exist: plan the read again from a barrier; never answer as if it were empty."""


class ObjectDamaged(StoreError):
    """The object is there and does not hold what the ledger says: nothing is served from it, and people must look."""


class ObjectUnreadable(ObjectDamaged):
    """The disk does not give back stored bytes. Another read may get them, or the disk is to be replaced."""


def cut_short(key: str, actual_bytes: int, byte_first: int, byte_count: int) -> ObjectDamaged:
    """The error for a range that is not all in its object. Keys are written once, so it will never be."""
    return ObjectDamaged(f"{key} has {actual_bytes} of the {byte_count} bytes from byte {byte_first}: it was cut")


class ObjectExists(StoreError):
    """A conditional put found the key taken."""


class StoreMisconfigured(StoreError):
    """Asking again cannot help: the bucket is missing, access is denied, an address is wrong. It says which."""


class ObjectRejected(StoreMisconfigured):
    """This object alone cannot be had: its name is no key, or its file may not be read. Others may be."""


class BucketMissing(StoreMisconfigured):
    """There is no such bucket: a definite answer of a store that works."""


class StoreDenied(StoreMisconfigured):
    """The credentials are good, and one kind of request is not allowed to them; others may be."""


class ObjectsNotDeleted(StoreError):
    """The store removed some objects and not others: the result of each key.

    An exception, because a caller that overlooks it would count objects as gone that are there.
    """

    def __init__(self, reasons: Mapping[str, StoreError]) -> None:
        """`reasons`: why each of these keys may still be there. All other keys of the call are gone."""
        first = next(iter(reasons))
        super().__init__(f"{len(reasons)} objects were not deleted, the first is {first}: {reasons[first]}")
        self.reasons = dict(reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectToPut:
    """An object to be put: the concatenation of `parts`, which do not change any more."""

    key: str
    parts: Sequence[Buffer]
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """An object, or another thing that a listing found."""

    key: str
    """Escaped where it is no key; that of a folder which could not be listed ends with `/`."""
    size_bytes: int
    modified_ms: int
    fault: str = ""
    """Why nothing but the name is known; size and time are 0 then. It may be an object for all that."""

    @property
    def hides_others(self) -> bool:
        """Whether it is a folder that could not be listed: what is below it is not known to be missing."""
        return bool(self.fault) and self.key.endswith("/")


class ObjectStore(Protocol):
    """Keys are relative, `/`-separated and UTF-8. All methods raise `StoreError` and nothing else of the library's."""

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """Store the concatenation of `parts` durably under `key`.

        With `if_absent` an existing key raises `ObjectExists` and stays as it is. A cancelled put is unknown.
        """
        ...

    async def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectMissing`; `ObjectDamaged` where the store knows that its bytes are wrong."""
        ...

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes from `byte_first`. Raises `ObjectDamaged` where the object ends before them."""
        ...

    async def head(self, key: str) -> ObjectMeta:
        """Size and time of an object. Raises `ObjectMissing`."""
        ...

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Every object below `prefix` whose key is above `after`, in order of keys.

        What cannot be looked at, and what is no object, comes with its `fault` and holds up no other. Names are
        anybody's: a caller passes over those that it does not know.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove each of the objects, whatever becomes of the others; a key that does not exist is no error.

        Raises `ObjectsNotDeleted` where some are not removed, and any other `StoreError` where nothing is known of any.
        """
        ...

    async def server_time_ms(self) -> int | None:
        """The store's own clock (safety rule S2), or None where the store has none but this machine's."""
        ...

    async def close(self) -> None: ...
