"""What every object store promises: `storage.object_store.ObjectStore`, one set of tests for all adapters and wrappers.

A backend joins by a function in `BACKENDS`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from storage.decorators.failing import FailingStore
from storage.decorators.hedging import HedgingStore
from storage.decorators.metered import MeteredStore
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.embedded.local_store import LocalStore
from storage.memory_store import MemoryStore
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreMisconfigured,
    StoreUnavailable,
)
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.local_services import Minio
from tests.support.stores.contract_stores import (
    NoObserver,
    bucket_numbers,
    journal_store,
    journal_with_packs,
    packs,
    with_packs,
)

MIB = 1024 * 1024
ODD_KEYS = (
    "odd/space and + plus",
    "odd/%2F percent %",
    "odd/question?&=#hash",
    "odd/Grüße-漢字-🐟",
    "odd/quotes'\"`",
    "odd/brackets[]{}()<>|^",
    "odd/back\\slash",
    "odd/dots...and.tilde~",
    "odd/.hidden",
    "odd/-dash",
    "odd/*star:;,!@$",
)
NO_KEYS = ("", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", ".", "..", "a\0b", "a\nb", "\ud800", "x" * 1025)


async def is_misconfigured(request: Awaitable[object]) -> bool:
    """Whether a request ends with `StoreMisconfigured`."""
    try:
        await request
    except StoreMisconfigured:
        return True
    return False


def retrying(inner: ObjectStore) -> ObjectStore:
    """Gives up after the first try: what cannot be had stays unavailable."""
    ports = RetryPorts(monotonic_s=time.monotonic, sleep=asyncio.sleep, chance=lambda: 0.5)
    return RetryingStore(inner, policy=RetryPolicy(deadline_s=0.0), ports=ports)


def hedging(inner: ObjectStore) -> ObjectStore:
    """Puts everything twice that is not put at once."""
    return HedgingStore(inner, hedge_s=0.0, sleep=asyncio.sleep)


def metered(inner: ObjectStore) -> ObjectStore:
    return MeteredStore(inner, observer_of=lambda _: NoObserver(), monotonic_s=time.monotonic)


def on_s3(folder: Path, request: pytest.FixtureRequest) -> ObjectStore:
    minio = request.getfixturevalue("minio")
    assert isinstance(minio, Minio)
    bucket = minio.make_bucket(f"contract-{next(bucket_numbers)}")
    return S3Store(S3Settings.from_environment(f"s3://{bucket}/some/prefix", minio.settings))


BACKENDS: dict[str, Callable[[Path, pytest.FixtureRequest], ObjectStore | Awaitable[ObjectStore]]] = {
    "memory": lambda folder, request: MemoryStore(),
    "local": lambda folder, request: LocalStore(folder / "store"),
    "local unsynced": lambda folder, request: LocalStore(folder / "store", is_durable=False),
    "packs": lambda folder, request: packs(folder / "packs"),
    "packs unsynced": lambda folder, request: packs(folder / "packs", is_durable=False),
    "journal": lambda folder, request: journal_store(folder / "journal"),
    "journal unsynced": lambda folder, request: journal_store(folder / "journal", is_durable=False),
    "journal with packs": lambda folder, request: journal_with_packs(folder),
    "local with packs": lambda folder, request: with_packs(folder / "store"),
    "s3": on_s3,
    "memory retrying": lambda folder, request: retrying(MemoryStore()),
    "memory metered": lambda folder, request: metered(MemoryStore()),
    "memory hedging": lambda folder, request: hedging(MemoryStore()),
    "memory failing": lambda folder, request: FailingStore(MemoryStore()),
    "local wrapped": lambda folder, request: retrying(metered(LocalStore(folder / "store"))),
    "s3 wrapped": lambda folder, request: retrying(hedging(metered(on_s3(folder, request)))),
}


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    made = BACKENDS[request.param](tmp_path, request)
    made = await made if isinstance(made, Awaitable) else made
    yield made
    await made.close()


async def keys_of(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


class TestPut:
    async def test_what_was_put_is_what_is_got(self, store: ObjectStore) -> None:
        await store.put("a/b", [b"hello"])
        assert await store.get("a/b") == b"hello"

    async def test_parts_are_stored_back_to_back(self, store: ObjectStore) -> None:
        parts: list[Buffer] = [b"one", bytearray(b"two"), b"", memoryview(b"-three-")[1:6]]
        await store.put("a/b", parts)
        assert await store.get("a/b") == b"onetwothree"

    async def test_thousands_of_parts_are_stored(self, store: ObjectStore) -> None:
        parts = [index.to_bytes(4, "big") for index in range(5_000)]
        await store.put("many", parts)
        assert await store.get("many") == b"".join(parts)

    @pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
    async def test_an_object_may_be_empty(self, store: ObjectStore, parts: Sequence[bytes]) -> None:
        await store.put("empty", parts)
        assert await store.get("empty") == b""
        assert (await store.head("empty")).size_bytes == 0

    async def test_an_object_may_have_64_mebibytes(self, store: ObjectStore) -> None:
        block = bytes(range(256)) * 4096
        await store.put("large", [block] * 64)
        assert (await store.head("large")).size_bytes == 64 * MIB
        assert await store.get_range("large", 40 * MIB - 3, 7) == block[-3:] + block[:4]
        assert await store.get("large") == block * 64

    async def test_putting_the_same_again_is_no_error(self, store: ObjectStore) -> None:
        await store.put("a", [b"same"])
        await store.put("a", [b"same"])
        assert await store.get("a") == b"same"

    async def test_what_is_put_over_another_object_takes_its_place(self, store: ObjectStore) -> None:
        for content in (b"first", b"second, and longer", b"third"):
            await store.put("ledger/tail/current", [content])
            assert await store.get("ledger/tail/current") == content
            assert (await store.head("ledger/tail/current")).size_bytes == len(content)
        assert await keys_of(store, "") == ["ledger/tail/current"]

    async def test_puts_at_the_same_time_all_arrive(self, store: ObjectStore) -> None:
        payloads = {f"intake/{index % 3}/{index:04}": bytes([index]) * index for index in range(48)}
        await asyncio.gather(*(store.put(key, [payload]) for key, payload in payloads.items()))
        assert {key: await store.get(key) for key in payloads} == payloads
        assert await keys_of(store, "intake/") == sorted(payloads)

    async def test_a_cancelled_put_leaves_the_whole_object_or_nothing(self, store: ObjectStore) -> None:
        payload = bytes(8 * MIB)
        task = asyncio.create_task(store.put("cancelled", [payload]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            assert await store.get("cancelled") == payload
        except ObjectMissing:
            assert await keys_of(store, "") in ([], ["cancelled"])
        await store.put("cancelled", [payload])
        assert await store.get("cancelled") == payload


class TestConditionalPut:
    async def test_an_absent_key_is_taken(self, store: ObjectStore) -> None:
        await store.put("cluster.json", [b"{", b"}"], if_absent=True)
        assert await store.get("cluster.json") == b"{}"

    async def test_a_taken_key_stays_as_it_is(self, store: ObjectStore) -> None:
        await store.put("cluster.json", [b"first"])
        with pytest.raises(ObjectExists):
            await store.put("cluster.json", [b"second"], if_absent=True)
        assert await store.get("cluster.json") == b"first"
        assert await keys_of(store, "") == ["cluster.json"]

    async def test_of_several_at_once_one_wins(self, store: ObjectStore) -> None:
        contenders = [f"contender {index}".encode() for index in range(8)]
        outcomes = await asyncio.gather(
            *(store.put("cluster.json", [contender], if_absent=True) for contender in contenders),
            return_exceptions=True,
        )
        winners = [contender for contender, outcome in zip(contenders, outcomes, strict=True) if outcome is None]
        assert [await store.get("cluster.json")] == winners
        assert all(isinstance(outcome, ObjectExists | StoreUnavailable) for outcome in outcomes if outcome is not None)


class TestRead:
    async def test_a_range_is_exactly_what_was_asked(self, store: ObjectStore) -> None:
        await store.put("a", [b"0123456789"])
        assert await store.get_range("a", 0, 10) == b"0123456789"
        assert await store.get_range("a", 3, 4) == b"3456"
        assert await store.get_range("a", 9, 1) == b"9"
        assert await store.get_range("a", 5, 0) == b""

    @pytest.mark.parametrize(("byte_first", "byte_count"), [(8, 3), (10, 1), (100, 5)])
    async def test_a_range_beyond_the_end_is_damage_and_no_outage(
        self, store: ObjectStore, byte_first: int, byte_count: int
    ) -> None:
        await store.put("a", [b"0123456789"])
        with pytest.raises(ObjectDamaged, match="it was cut"):
            await store.get_range("a", byte_first, byte_count)

    async def test_what_does_not_exist_is_missing(self, store: ObjectStore) -> None:
        await store.put("a/b", [b"x"])
        for key in ("nothing", "a", "a/c", "a/b/c"):
            with pytest.raises(ObjectMissing):
                await store.get(key)
            with pytest.raises(ObjectMissing):
                await store.get_range(key, 0, 1)
            with pytest.raises(ObjectMissing):
                await store.get_range(key, 0, 0)
            with pytest.raises(ObjectMissing):
                await store.head(key)

    async def test_head_says_size_and_time(self, store: ObjectStore) -> None:
        await store.put("a/b", [b"123"])
        meta = await store.head("a/b")
        assert (meta.key, meta.size_bytes) == ("a/b", 3)
        assert meta.modified_ms == 0 or abs(meta.modified_ms - time.time() * 1000) < 60_000

    async def test_the_clock_is_right_where_there_is_one(self, store: ObjectStore) -> None:
        server_time_ms = await store.server_time_ms()
        assert server_time_ms is None or abs(server_time_ms - time.time() * 1000) < 10_000


class TestList:
    async def test_keys_come_in_order_of_their_bytes(self, store: ObjectStore) -> None:
        keys = ["a", "b/1", "b/10", "b/2", "b.c", "b0", "c/d/e", "c/d.e", "c/d0", "é", "z"]
        for key in keys:
            await store.put(key, [b"x"])
        assert await keys_of(store, "") == sorted(keys, key=str.encode)

    async def test_a_prefix_is_a_folder(self, store: ObjectStore) -> None:
        for key in ("intake/0001/0", "intake/0001/1", "intake/00012/0", "intake/0001", "other/0001/0"):
            if key != "intake/0001":  # a key and a folder of one name do not go together on a disk
                await store.put(key, [b"x"])
        assert await keys_of(store, "intake/0001/") == ["intake/0001/0", "intake/0001/1"]
        assert await keys_of(store, "intake/") == ["intake/0001/0", "intake/0001/1", "intake/00012/0"]
        assert await keys_of(store, "nothing/") == []
        assert await keys_of(store, "intake/0001/0/") == []

    async def test_listed_objects_carry_their_size(self, store: ObjectStore) -> None:
        await store.put("a/b", [b"123"])
        assert [(meta.key, meta.size_bytes) async for meta in store.list("")] == [("a/b", 3)]

    async def test_a_list_begins_behind_a_key(self, store: ObjectStore) -> None:
        keys = ["a/1", "intake/0001/1", "intake/0001/3", "intake/00012/0", "intake/0002/0", "other/1"]
        for key in keys:
            await store.put(key, [b"x"])
        for after in ("", "intake/0001", "intake/0001/1", "intake/0001/2", "intake/00012/", "intake/1", "other/1"):
            for prefix in ("", "intake/", "intake/0001/"):
                found = [meta.key async for meta in store.list(prefix, after=after)]
                assert found == [key for key in keys if key.startswith(prefix) and key > after], (prefix, after)

    async def test_more_than_a_page_is_listed(self, store: ObjectStore) -> None:
        keys = [f"p/{index:05}" for index in range(1_100)]
        for first in range(0, len(keys), 50):
            await asyncio.gather(*(store.put(key, [b""]) for key in keys[first : first + 50]))
        assert await keys_of(store, "p/") == keys
        await store.delete(keys)
        assert await keys_of(store, "p/") == []

    async def test_a_list_may_be_left_early(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2"):
            await store.put(key, [b"x"])
        listed = store.list("a/")
        assert (await anext(listed)).key == "a/1"
        assert await keys_of(store, "a/") == ["a/1", "a/2"]


class TestDelete:
    async def test_deleted_objects_are_missing(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "a/3"):
            await store.put(key, [b"x"])
            await store.get(key)
        await store.delete(["a/1", "a/3"])
        assert await keys_of(store, "") == ["a/2"]
        with pytest.raises(ObjectMissing):
            await store.get("a/1")

    async def test_a_missing_key_is_no_error(self, store: ObjectStore) -> None:
        await store.put("a/1", [b"x"])
        await store.delete(["a/1", "a/1", "b", "a/1/2"])
        await store.delete(["a/1"])
        await store.delete([])
        assert await keys_of(store, "") == []


class TestKeys:
    async def test_odd_but_legal_characters_are_kept(self, store: ObjectStore) -> None:
        for key in ODD_KEYS:
            await store.put(key, [key.encode()])
        assert await keys_of(store, "odd/") == sorted(ODD_KEYS, key=str.encode)
        for key in ODD_KEYS:
            assert await store.get(key) == key.encode()
            assert (await store.head(key)).key == key
        await store.delete(ODD_KEYS)
        assert await keys_of(store, "") == []

    async def test_what_is_no_key_is_refused(self, store: ObjectStore) -> None:
        for key in NO_KEYS:
            requests = {
                "put": store.put(key, [b"x"]),
                "get": store.get(key),
                "get_range": store.get_range(key, 0, 1),
                "head": store.head(key),
                "delete": store.delete([key]),
            }
            for name, request in requests.items():
                assert await is_misconfigured(request), f"{name} of {key!r}"

    async def test_what_is_no_prefix_is_refused(self, store: ObjectStore) -> None:
        for prefix in ("a", "/", "../", "a//", "a/../"):
            assert await is_misconfigured(keys_of(store, prefix)), repr(prefix)
