"""Every object store deletes what it can, and says of each other key why it is still there.

A backend joins by a function in `BACKENDS`: it makes a store that protects `PROTECTED`, and says how to lift that.
"""

import asyncio
import errno
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from storage.decorators.failing import FailingStore
from storage.decorators.hedging import HedgingStore
from storage.decorators.metered import MeteredStore
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.decorators.routed import RoutedStore
from storage.embedded.local_files import Files
from storage.embedded.local_store import LocalStore
from storage.embedded.pack_store import PackStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing, ObjectsNotDeleted, ObjectStore, StoreDenied, StoreError
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.local_services import Minio
from tests.support.services.minio_credentials import limited_keys
from tests.support.stores.contract_stores import NoObserver, journal_store

PROTECTED = "intake/kept/1"
OTHERS = ("intake/a/1", "intake/z/1", "lake/a", "lake/z")
"""Keys on both sides of the protected one, and of both halves of a routed store."""
Lift = Callable[[], ObjectStore]
"""Ends the protection, and returns the store to use from then on."""
bucket_numbers = itertools.count()


class ProtectedFiles(Files):
    """Files of which some can be neither unlinked nor written, as on a disk that fails there."""

    def __init__(self) -> None:
        self.protected: set[str] = set()

    def unlink(self, path: str) -> None:
        if path in self.protected:
            raise PermissionError(errno.EPERM, "the file is immutable", path)
        super().unlink(path)

    def open_existing(self, path: str, *, is_writing: bool = False) -> int:
        if is_writing and path in self.protected:
            raise OSError(errno.EIO, "the disk fails here", path)
        return super().open_existing(path, is_writing=is_writing)


async def in_memory(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
    store = FailingStore(MemoryStore())
    store.undeletable.add(PROTECTED)

    def lift() -> ObjectStore:
        store.undeletable.clear()
        return store

    return store, lift


def wrapped(wrap: Callable[[ObjectStore], ObjectStore]) -> "Maker":
    async def make(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
        store, lift = await in_memory(folder, request)
        wrapping = wrap(store)

        def lift_below() -> ObjectStore:
            lift()
            return wrapping

        return wrapping, lift_below

    return make


async def local(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
    files = ProtectedFiles()
    files.protected.add(f"{folder}/{PROTECTED}")

    store = LocalStore(folder, files=files)

    def lift() -> ObjectStore:
        files.protected.clear()
        return store

    return store, lift


async def packs(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
    """The protected object is alone in a pack that cannot be written any more."""
    files = ProtectedFiles()
    store = PackStore(
        folder,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_nonce=lambda: bytes(4) + os.urandom(12),
        files=files,
        pack_bytes_target=1,
    )
    files.protected.add(f"{folder}/{0:016x}.pack")  # the one that the first object comes into

    def lift() -> ObjectStore:
        files.protected.clear()
        return store

    return store, lift


async def journal(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
    """The protected object is alone in a file that cannot be written any more."""
    files = ProtectedFiles()
    store = await journal_store(folder / "journal", files=files, file_bytes_target=1)
    files.protected.add(f"{folder}/journal/{0:016x}.journal")  # the one that the first object comes into

    def lift() -> ObjectStore:
        files.protected.clear()
        return store

    return store, lift


def routed(*, is_protected_below: bool) -> "Maker":
    async def make(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
        protecting, lift = await in_memory(folder, request)
        store = (
            RoutedStore("intake/", protecting, MemoryStore())
            if is_protected_below
            else RoutedStore("lake/", MemoryStore(), protecting)
        )

        def lift_below() -> ObjectStore:
            lift()
            return store

        return store, lift_below

    return make


async def s3(folder: Path, request: pytest.FixtureRequest) -> tuple[ObjectStore, Lift]:
    """The protected object lies below a prefix of which a policy denies deletes."""
    minio = request.getfixturevalue("minio")
    assert isinstance(minio, Minio)
    bucket = minio.make_bucket(f"undeletable-{next(bucket_numbers)}")
    keys = limited_keys(minio, bucket, ["s3:*"], undeletable=f"p/{PROTECTED}")

    def lift() -> ObjectStore:
        return S3Store(S3Settings.from_environment(f"s3://{bucket}/p", minio.settings))

    return S3Store(S3Settings.from_environment(f"s3://{bucket}/p", {**minio.settings, **keys})), lift


def retrying(inner: ObjectStore) -> ObjectStore:
    ports = RetryPorts(monotonic_s=time.monotonic, sleep=asyncio.sleep, chance=lambda: 0.5)
    return RetryingStore(inner, policy=RetryPolicy(deadline_s=0.0), ports=ports)


Maker = Callable[[Path, pytest.FixtureRequest], Awaitable[tuple[ObjectStore, Lift]]]
BACKENDS: dict[str, Maker] = {
    "memory failing": in_memory,
    "local": local,
    "packs": packs,
    "journal": journal,
    "routed, protected below": routed(is_protected_below=True),
    "routed, protected among the others": routed(is_protected_below=False),
    "retrying": wrapped(retrying),
    "metered": wrapped(
        lambda inner: MeteredStore(inner, observer_of=lambda _: NoObserver(), monotonic_s=time.monotonic)
    ),
    "hedging": wrapped(lambda inner: HedgingStore(inner, hedge_s=0.0, sleep=asyncio.sleep)),
    "s3": s3,
}


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, Lift]]:
    (tmp_path / "store").mkdir()
    store, lift = await BACKENDS[request.param](tmp_path / "store", request)
    yield store, lift
    await store.close()


async def test_what_can_be_deleted_is_and_each_other_key_has_its_reason(backend: tuple[ObjectStore, Lift]) -> None:
    store, lift = backend

    for key in (PROTECTED, *OTHERS):
        await store.put(key, [b"kept"])
    with pytest.raises(ObjectsNotDeleted) as raised:
        await store.delete([OTHERS[0], PROTECTED, *OTHERS[1:], "intake/never/there"])
    assert list(raised.value.reasons) == [PROTECTED]
    assert isinstance(raised.value.reasons[PROTECTED], StoreError)
    assert PROTECTED in str(raised.value)
    assert [meta.key async for meta in store.list("")] == [PROTECTED]
    assert await store.get(PROTECTED) == b"kept"
    free = lift()
    await free.delete([PROTECTED])
    with pytest.raises(ObjectMissing):
        await store.get(PROTECTED)


async def test_a_single_key_that_is_refused_is_reported_like_many(backend: tuple[ObjectStore, Lift]) -> None:
    store, _ = backend
    await store.put(PROTECTED, [b"kept"])
    with pytest.raises(ObjectsNotDeleted) as raised:
        await store.delete([PROTECTED])
    assert list(raised.value.reasons) == [PROTECTED]


async def test_s3_names_the_permission_that_a_delete_lacks(minio: Minio) -> None:
    bucket = minio.make_bucket(f"undeletable-{next(bucket_numbers)}")
    keys = limited_keys(minio, bucket, ["s3:*"], undeletable="kept/")
    store = S3Store(S3Settings.from_environment(f"s3://{bucket}", {**minio.settings, **keys}))
    names = [f"{folder}/{number:03}" for folder in ("kept", "gone") for number in range(40)]
    for name in names:
        await store.put(name, [b"x"])
    with pytest.raises(ObjectsNotDeleted) as raised:
        await store.delete(names)
    assert list(raised.value.reasons) == names[:40]
    assert all(isinstance(reason, StoreDenied) for reason in raised.value.reasons.values())
    assert all("s3:DeleteObject" in str(reason) for reason in raised.value.reasons.values())
    assert [meta.key async for meta in store.list("")] == names[:40]
