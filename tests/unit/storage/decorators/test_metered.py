"""What a metered store counts: requests, bytes, time, and why one failed."""

import asyncio
from collections.abc import Sequence

import pytest

from storage.decorators.metered import MeteredStore, failure_reason
from storage.memory_store import MemoryStore
from storage.object_store import (
    BucketMissing,
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectRejected,
    ObjectsNotDeleted,
    StoreDenied,
    StoreFull,
    StoreMisconfigured,
    StoreThrottled,
    StoreTimedOut,
    StoreUnavailable,
)

Counted = tuple[int, float, str | None]


class Observed:
    """The requests of one operation."""

    def __init__(self) -> None:
        self.requests: list[Counted] = []

    def observe(self, object_bytes: int, seconds: float, *, failure: str | None) -> None:
        self.requests.append((object_bytes, seconds, failure))


class FailingPuts(MemoryStore):
    """Every put raises `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        raise self.error


async def test_requests_are_counted_with_their_bytes_and_time() -> None:
    operations: dict[str, Observed] = {}
    moments_s = iter([1.0, 1.5, 2.0, 2.25])
    store = MeteredStore(
        MemoryStore(),
        observer_of=lambda name: operations.setdefault(name, Observed()),
        monotonic_s=lambda: next(moments_s),
    )
    await store.put("a", [b"12", b"345"])
    assert await store.get_range("a", 1, 2) == b"23"
    assert operations["put"].requests == [(5, 0.5, None)]
    assert operations["get"].requests == [(2, 0.25, None)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreThrottled(), "throttled"),
        (StoreTimedOut(), "timeout"),
        (StoreUnavailable(), "other"),
        (StoreDenied(), "denied"),
        (BucketMissing(), "missing"),
        (StoreMisconfigured(), "rejected"),
        (ObjectRejected(), "rejected"),
        (StoreFull(), "full"),
        (ObjectDamaged(), "other"),
        (ObjectsNotDeleted({"a": StoreDenied()}), "other"),
        (asyncio.CancelledError(), "cancelled"),
        (ObjectMissing(), None),
        (ObjectExists(), None),
        (GeneratorExit(), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_a_reason_and_answers_have_none(error: BaseException, reason: str | None) -> None:
    assert failure_reason(error) == reason


async def test_a_failed_request_is_counted_once_and_raised() -> None:
    observed = Observed()
    store = MeteredStore(
        FailingPuts(StoreThrottled("slow down")), observer_of=lambda _: observed, monotonic_s=lambda: 0.0
    )
    with pytest.raises(StoreThrottled):
        await store.put("a", [b"1"])
    assert observed.requests == [(1, 0.0, "throttled")]
