"""What is asked again, when, and for how long. Time stands still but for the pauses."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.memory_store import MemoryStore
from storage.object_store import (
    ObjectExists,
    ObjectMissing,
    ObjectsNotDeleted,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)


class World:
    def __init__(self, *, deadline_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []
        self.retries_count = 0
        self.told: list[tuple[str, ...]] = []
        self.under_way_now: list[tuple[str, str]] = []
        self.failing = FailingStore(MemoryStore())
        self.store = RetryingStore(
            self.failing,
            policy=RetryPolicy(deadline_s=deadline_s, pause_first_s=0.25, pause_s_max=0.5),
            ports=RetryPorts(
                monotonic_s=lambda: self.now_s, sleep=self.sleep, chance=lambda: 0.5, count_retry=self.count_retry
            ),
            observer=self,
        )

    @contextmanager
    def under_way(self, operation: str, key: str) -> Iterator[None]:
        self.under_way_now.append((operation, key))
        try:
            yield
        finally:
            self.under_way_now.remove((operation, key))

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        self.told.append(("failed", operation, key, str(error)))

    def answered(self, operation: str) -> None:
        self.told.append(("answered", operation))

    def count_retry(self) -> None:
        self.retries_count += 1

    async def sleep(self, seconds: float) -> None:
        assert not self.under_way_now, "between two tries nothing is under way"
        self.pauses.append(seconds)
        self.now_s += seconds

    def fail(self, operation: StoreOperation, *kinds: FaultKind) -> None:
        self.failing.script(*(InjectedFault(kind=kind, operation=operation) for kind in kinds))


async def test_pauses_double_up_to_their_bound() -> None:
    world = World()
    world.fail(StoreOperation.PUT, *[FaultKind.BEFORE] * 3)
    await world.store.put("a", [b"x"])
    assert world.pauses == [0.125, 0.25, 0.25]
    assert world.retries_count == 3
    assert await world.store.get("a") == b"x"


async def test_after_the_deadline_the_last_error_is_raised() -> None:
    world = World(deadline_s=0.4)
    world.fail(StoreOperation.GET, *[FaultKind.BEFORE] * 5)
    with pytest.raises(StoreUnavailable):
        await world.store.get("a")
    assert world.pauses == [0.125, 0.25]


async def test_an_answer_is_not_asked_again() -> None:
    world = World()
    with pytest.raises(ObjectMissing):
        await world.store.get("a")
    assert world.pauses == []


async def test_a_conditional_put_of_unknown_outcome_knows_its_own_bytes() -> None:
    world = World()
    world.fail(StoreOperation.PUT, FaultKind.AFTER)
    await world.store.put("a", [b"mi", b"ne"], if_absent=True)
    assert await world.store.get("a") == b"mine"


@pytest.mark.parametrize("other", [b"else", b"longer"])
async def test_a_conditional_put_of_unknown_outcome_yields_to_another(other: bytes) -> None:
    world = World()
    await world.failing.put("a", [other])
    world.fail(StoreOperation.PUT, FaultKind.BEFORE)
    with pytest.raises(ObjectExists):
        await world.store.put("a", [b"mine"], if_absent=True)


async def test_a_list_that_breaks_off_gives_nothing_twice() -> None:
    world = World()
    for key in ("a/1", "a/2", "a/3"):
        await world.store.put(key, [b"x"])
    world.fail(StoreOperation.LIST, FaultKind.CUT, FaultKind.BEFORE)
    assert [meta.key async for meta in world.store.list("a/")] == ["a/1", "a/2", "a/3"]


async def test_a_late_put_and_its_repeat_are_one_object() -> None:
    world = World()
    world.fail(StoreOperation.PUT, FaultKind.LATE)
    await world.store.put("a", [b"x"])
    await world.failing.land_late_puts()
    assert await world.store.get("a") == b"x"


async def test_each_try_is_told() -> None:
    world = World()
    for operation in (StoreOperation.PUT, StoreOperation.LIST, StoreOperation.DELETE, StoreOperation.TIME):
        world.fail(operation, FaultKind.BEFORE)
    await world.store.put("a", [b"x"])
    assert [meta.key async for meta in world.store.list("")] == ["a"]
    await world.store.delete(["a", "b"])
    with pytest.raises(StoreUnavailable):
        await world.store.server_time_ms()
    await world.store.server_time_ms()
    assert world.told == [
        ("failed", "put", "a", "put a: refused"),
        ("answered", "put"),
        ("failed", "list", "", "list : refused"),
        ("answered", "list"),
        ("failed", "delete", "a", "delete a: refused"),
        ("answered", "delete"),
        ("failed", "time", "", "time : refused"),
        ("answered", "time"),
    ]


async def test_an_answer_that_is_an_error_is_told_as_an_answer() -> None:
    world = World()
    with pytest.raises(ObjectMissing):
        await world.store.head("a")
    with pytest.raises(ObjectMissing):
        await world.store.get_range("a", 0, 1)
    assert world.told == [("answered", "head"), ("answered", "get")]


async def test_a_refusal_for_good_is_reported_and_not_asked_again() -> None:
    world = World()
    with pytest.raises(StoreMisconfigured):
        await world.store.get("/a")
    assert [words[:3] for words in world.told] == [("failed", "get", "/a")]
    assert world.pauses == []


async def test_nobody_need_be_told() -> None:
    failing = FailingStore(MemoryStore())
    failing.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
    world = World()
    ports = RetryPorts(monotonic_s=lambda: 0.0, sleep=world.sleep, chance=lambda: 0.5)
    store = RetryingStore(failing, policy=RetryPolicy(), ports=ports)
    await store.put("a", [b"x"])
    assert await store.get("a") == b"x"


async def test_who_observes_knows_what_has_no_answer_until_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    asked = asyncio.Event()

    async def hang(key: str) -> bytes:
        asked.set()
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never

    monkeypatch.setattr(world.failing, "get", hang)
    reading = asyncio.ensure_future(world.store.get("a"))
    await asked.wait()
    assert world.under_way_now == [("get", "a")]
    reading.cancel()
    await asyncio.wait([reading])
    assert world.under_way_now == []


class Scripted(MemoryStore):
    """Its deletes remove nothing and answer what the test says, one after the other."""

    def __init__(self, *answers: StoreError | None) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    async def delete(self, keys: Sequence[str]) -> None:
        self.asked.append(list(keys))
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


BUSY, DENIED = StoreUnavailable("busy"), StoreDenied("denied")


@pytest.mark.parametrize(
    ("answers", "asked", "reasons"),
    [
        ([ObjectsNotDeleted({"b": DENIED}), None], ["abc"], {"b": DENIED}),
        ([ObjectsNotDeleted({"b": BUSY}), None], ["abc", "b"], {}),
        ([ObjectsNotDeleted({"b": BUSY, "c": DENIED}), None], ["abc", "b"], {"c": DENIED}),
        ([BUSY, ObjectsNotDeleted({"a": DENIED})], ["abc", "abc"], {"a": DENIED}),
        ([ObjectsNotDeleted({"b": BUSY}), ObjectsNotDeleted({"b": DENIED})], ["abc", "b"], {"b": DENIED}),
        ([ObjectsNotDeleted({"b": BUSY}), BUSY, None], ["abc", "b", "b"], {}),
    ],
)
async def test_only_keys_whose_reason_may_pass_are_asked_again(
    answers: list[StoreError | None], asked: list[str], reasons: dict[str, StoreError]
) -> None:
    world = World()
    inner = Scripted(*answers)
    world.store._inner = inner
    if reasons:
        with pytest.raises(ObjectsNotDeleted) as raised:
            await world.store.delete(["a", "b", "c"])
        assert raised.value.reasons == reasons
    else:
        await world.store.delete(["a", "b", "c"])
    assert ["".join(keys) for keys in inner.asked] == asked


@pytest.mark.parametrize("last", [BUSY, ObjectsNotDeleted({"b": BUSY})])
async def test_a_key_that_stays_away_until_the_deadline_keeps_its_reason(last: StoreError) -> None:
    world = World(deadline_s=0.0)
    inner = Scripted(ObjectsNotDeleted({"b": BUSY}), last)
    world.store._inner = inner
    with pytest.raises(ObjectsNotDeleted) as raised:
        await world.store.delete(["a", "b"])
    assert raised.value.reasons == {"b": BUSY}


async def test_where_nothing_is_known_of_any_key_the_store_s_own_error_is_raised() -> None:
    world = World(deadline_s=0.0)
    world.fail(StoreOperation.DELETE, FaultKind.BEFORE)
    with pytest.raises(StoreUnavailable):
        await world.store.delete(["a", "b"])


async def test_a_store_that_refuses_single_keys_is_not_away() -> None:
    world = World()
    world.failing.undeletable.add("a")
    with pytest.raises(ObjectsNotDeleted):
        await world.store.delete(["a", "b"])
    assert world.told == [("answered", "delete")]
