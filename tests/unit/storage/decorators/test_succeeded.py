"""A store that another one has succeeded. What all stores do: tests/contract/test_object_store.py."""

import pytest

from storage.decorators.failing import FailingStore
from storage.decorators.succeeded import SucceededStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectExists, ObjectMissing, ObjectsNotDeleted


class Both:
    def __init__(self) -> None:
        self.newer, self.former = MemoryStore(), FailingStore(MemoryStore())
        self.store = SucceededStore(self.newer, self.former, is_newer=lambda key: key in self.newer._objects)

    async def keys(self, prefix: str = "", after: str = "") -> list[str]:
        return [meta.key async for meta in self.store.list(prefix, after=after)]


async def test_what_the_former_store_has_is_read_and_deleted_as_before() -> None:
    both = Both()
    for key in ("a", "c"):
        await both.former.put(key, [b"former"])
    await both.store.put("b", [b"newer"])
    assert await both.keys() == ["a", "b", "c"]
    assert await both.keys(after="a") == ["b", "c"]
    assert (await both.store.get("a"), await both.store.get_range("c", 1, 3)) == (b"former", b"orm")
    assert (await both.store.head("a")).size_bytes == 6
    await both.store.delete(["a", "b", "never there"])
    assert await both.keys() == ["c"]
    with pytest.raises(ObjectMissing):
        await both.former.get("a")


async def test_everything_is_put_into_the_newer_store() -> None:
    both = Both()
    await both.former.put("a", [b"former"])
    await both.store.put("a", [b"newer"])
    assert (await both.store.get("a"), await both.former.get("a")) == (b"newer", b"former")
    assert await both.keys() == ["a"]
    await both.store.delete(["a"])
    assert await both.keys() == []


async def test_a_key_of_either_store_is_taken() -> None:
    both = Both()
    await both.former.put("a", [b"former"])
    await both.newer.put("b", [b"newer"])
    for key in "ab":
        with pytest.raises(ObjectExists):
            await both.store.put(key, [b"x"], if_absent=True)
    await both.store.put("c", [b"x"], if_absent=True)
    assert await both.keys() == ["a", "b", "c"]


async def test_what_the_former_store_does_not_delete_is_reported() -> None:
    both = Both()
    await both.former.put("a", [b"former"])
    await both.newer.put("b", [b"newer"])
    both.former.undeletable.add("a")
    with pytest.raises(ObjectsNotDeleted) as raised:
        await both.store.delete(["a", "b"])
    assert list(raised.value.reasons) == ["a"]
    assert await both.keys() == ["a"]
    await both.store.close()
