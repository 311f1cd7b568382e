"""A store that ignores the condition of a put is found out before anything relies on it (safety rule S9)."""

from collections.abc import Sequence

import pytest

from agent.bucket.conditional_puts import SECOND, check_before_claim, check_conditional_puts
from agent.bucket.permissions import CHECKS_PREFIX, check_access
from coordinator.ledger.memory import MemoryLedger
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreDenied,
    StoreMisconfigured,
    StoreUnavailable,
)
from tests.support.agent.ledger_parts import running_parts

KEY = f"{CHECKS_PREFIX}conditional-name"


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for meta in store.list("")]


class Answering(MemoryStore):
    """A store whose conditional puts all end with one error, the second of them after it overwrote the object."""

    def __init__(self, *errors: Exception | None) -> None:
        super().__init__()
        self.errors = list(errors)

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        error = self.errors.pop(0)
        await super().put(key, parts)
        if error is not None:
            raise error


async def test_s9_a_store_that_refuses_the_second_put_passes_and_keeps_nothing() -> None:
    store = MemoryStore()
    await check_conditional_puts(store, name="name")
    assert await keys(store) == []


async def test_s9_a_store_that_ignores_the_condition_is_refused_with_what_to_do() -> None:
    store = FailingStore(MemoryStore())
    store.is_conditional = False
    with pytest.raises(StoreMisconfigured, match=r"ignores If-None-Match.*with 412.*docs/operations/bucket") as raised:
        await check_conditional_puts(store, name="name")
    assert KEY in str(raised.value)
    assert await keys(store) == []


async def test_s9_a_store_that_refuses_and_overwrites_is_refused() -> None:
    with pytest.raises(StoreMisconfigured, match="overwrote the object all the same"):
        await check_conditional_puts(Answering(None, ObjectExists("it exists")), name="name")


class Disturbed(MemoryStore):
    """What the answers to gets are, one after the other, where they are not right."""

    def __init__(self, *answers: bytes | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    async def get(self, key: str) -> bytes:
        if not self.answers:
            return await super().get(key)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


DISTURBANCES = [b"firsu", SECOND, ObjectDamaged("its checksum is wrong"), ObjectMissing("it does not exist")]


@pytest.mark.parametrize("answer", DISTURBANCES)
async def test_s20_one_answer_that_is_damaged_accuses_no_store(answer: bytes | Exception) -> None:
    await check_conditional_puts(Disturbed(answer), name="name")
    if not isinstance(answer, Exception):
        await check_access(Disturbed(answer))


@pytest.mark.parametrize("answer", [each for each in DISTURBANCES if each != SECOND])
async def test_s20_an_object_that_cannot_be_read_was_not_overwritten(answer: bytes | Exception) -> None:
    """The check is made again, as while the store is away."""
    with pytest.raises(
        StoreUnavailable, match=f"did not return the bytes.*{KEY if isinstance(answer, bytes) else answer}"
    ):
        await check_conditional_puts(Disturbed(answer, answer), name="name")


async def test_s20_a_store_that_gives_back_other_bytes_each_time_is_not_used() -> None:
    with pytest.raises(StoreMisconfigured, match="does not have the bytes that were written"):
        await check_access(Disturbed(b"other", b"other"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreMisconfigured("put: NotImplemented: a header that is not implemented"), "has no conditional puts"),
        (StoreMisconfigured("NoSuchBucket"), "^NoSuchBucket$"),
        (StoreDenied("AccessDenied"), "^AccessDenied$"),
    ],
)
async def test_a_store_that_takes_no_conditional_put_at_all_says_why(error: StoreMisconfigured, words: str) -> None:
    with pytest.raises(type(error), match=words):
        await check_conditional_puts(Answering(error), name="name")


async def test_a_store_that_is_away_is_asked_again_by_the_caller() -> None:
    store = FailingStore(MemoryStore())
    store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
    with pytest.raises(StoreUnavailable):
        await check_conditional_puts(store, name="name")
    await check_conditional_puts(store, name="name")
    assert await keys(store) == []


async def test_an_object_that_may_not_be_deleted_does_not_hide_the_verdict() -> None:
    store = FailingStore(MemoryStore())
    store.undeletable.add(KEY)
    await check_conditional_puts(store, name="name")
    assert await keys(store) == [KEY]


async def test_s9_a_shared_store_is_tried_at_every_start_and_another_one_at_the_first() -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    store.is_conditional = False
    for is_shared in (False, True):
        with pytest.raises(StoreMisconfigured):
            await check_before_claim(store, ledger, name="name", is_shared=is_shared)
    async with running_parts(ledger):
        pass
    await check_before_claim(store, ledger, name="name", is_shared=False)
    with pytest.raises(StoreMisconfigured):
        await check_before_claim(store, ledger, name="name", is_shared=True)
