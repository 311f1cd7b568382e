"""Two stores that look like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.decorators.routed import RoutedStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectExists, ObjectMissing, ObjectsNotDeleted

PREFIX = "m/"
AROUND = ("a", "a/b", "m", "m-", "m.x", "m0", "mm/a", "n", "z/m/a")
"""Keys of the others, some of which sort right before and right after the prefix."""
BELOW = ("m/a", "m/b/c", "m/z")


class Closing(MemoryStore):
    """Says whether it was closed; fails at it if told to."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        if self.error is not None:
            raise self.error


class Dated(MemoryStore):
    async def server_time_ms(self) -> int | None:
        return 17


async def keys_of(store: RoutedStore | MemoryStore, prefix: str = "") -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


async def filled(*keys: str) -> tuple[RoutedStore, MemoryStore, MemoryStore]:
    below, others = MemoryStore(), MemoryStore()
    store = RoutedStore(PREFIX, below, others)
    for key in keys:
        await store.put(key, [key.encode()])
    return store, below, others


async def test_where_an_object_lies_follows_from_its_key() -> None:
    store, below, others = await filled(*AROUND, *BELOW)
    assert await keys_of(below) == sorted(BELOW)
    assert await keys_of(others) == sorted(AROUND)
    for key in (*AROUND, *BELOW):
        assert await store.get(key) == key.encode()
        assert await store.get_range(key, 0, 1) == key[:1].encode()
        assert (await store.head(key)).size_bytes == len(key)
        with pytest.raises(ObjectExists):
            await store.put(key, [b"another"], if_absent=True)


async def test_a_store_that_is_away_holds_up_no_delete_of_the_other() -> None:
    below, others = FailingStore(MemoryStore()), MemoryStore()
    store = RoutedStore(PREFIX, below, others)
    for key in (*AROUND, *BELOW):
        await store.put(key, [key.encode()])
    below.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.DELETE))
    with pytest.raises(ObjectsNotDeleted) as raised:
        await store.delete([*AROUND, *BELOW])
    assert list(raised.value.reasons) == list(BELOW)
    assert await keys_of(store) == sorted(BELOW)


async def test_objects_go_from_where_they_lie() -> None:
    store, below, others = await filled(*AROUND, *BELOW)
    await store.delete(["m/a", "m", "never there", "m/never there", "z/m/a"])
    assert await keys_of(below) == ["m/b/c", "m/z"]
    assert await keys_of(others) == sorted(set(AROUND) - {"m", "z/m/a"})
    for key in ("m/a", "m"):
        with pytest.raises(ObjectMissing):
            await store.get(key)
    await store.delete([])


@pytest.mark.parametrize("prefix", ["", "m/", "m/b/", "a/", "mm/", "z/", "z/m/", "nothing/"])
@given(keys=st.sets(st.sampled_from((*AROUND, *BELOW))))
async def test_a_list_is_in_order_and_has_every_object_once(prefix: str, keys: set[str]) -> None:
    store, _, _ = await filled(*keys)
    assert await keys_of(store, prefix) == sorted(key for key in keys if key.startswith(prefix))


async def test_a_prefix_of_several_folders_is_found_from_above() -> None:
    store = RoutedStore("a/m/", MemoryStore(), MemoryStore())
    for key in ("a/l", "a/m/x", "a/n", "b"):
        await store.put(key, [b""])
    assert await keys_of(store, "a/") == ["a/l", "a/m/x", "a/n"]
    assert await keys_of(store) == ["a/l", "a/m/x", "a/n", "b"]


async def test_the_clock_is_that_of_the_others() -> None:
    assert await RoutedStore(PREFIX, MemoryStore(), Dated()).server_time_ms() == 17


@pytest.mark.parametrize("error", [None, RuntimeError("it did not end well")])
async def test_both_are_closed_even_if_the_first_fails_at_it(error: Exception | None) -> None:
    below, others = Closing(error), Closing()
    store = RoutedStore(PREFIX, below, others)
    if error is None:
        await store.close()
    else:
        with pytest.raises(RuntimeError, match="did not end well"):
            await store.close()
    assert (below.is_closed, others.is_closed) == (True, True)
