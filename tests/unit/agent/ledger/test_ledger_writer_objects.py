"""Commands whose objects are put by the write that appends their entries."""

import asyncio

import pytest

from agent.ledger import ledger_writer
from agent.ledger.ledger_outages import OutageLoggingLedger, with_outages_logged
from agent.ledger.ledger_writer import RejectedForRoom
from coordinator.commands.commands import AllocateProducerIds, Done, ProducerIdsAllocated
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import JointLedger, LedgerEntry, LedgerFull, LedgerUnavailable
from protocol.errors import ErrorCode
from storage.memory_store import MemoryStore
from storage.object_store import ObjectToPut
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import create, start
from tests.support.ledger.joint_ledger import JointMemoryLedger


def stored(key: str, payload: bytes = b"payload") -> ObjectToPut:
    return ObjectToPut(key=key, parts=[payload], modified_ms=1)


async def test_a_ledger_that_takes_no_objects_says_so() -> None:
    async with running_parts() as parts:
        assert not parts.ledger.takes_objects
        with pytest.raises(AssertionError, match="takes no objects"):
            parts.ledger.propose(create(), stored("a"))


async def test_an_object_is_put_with_its_command_and_others_go_with_them() -> None:
    store = MemoryStore()
    ledger = JointMemoryLedger(store)
    async with running_parts(ledger) as parts:
        assert parts.ledger.takes_objects
        one = parts.ledger.propose(create(), stored("a"))
        others = [parts.ledger.propose(AllocateProducerIds(count=5), each) for each in (None, stored("b"))]
        assert await one == Done()
        assert all(isinstance(outcome, ProducerIdsAllocated) for outcome in await asyncio.gather(*others))
        ((numbers, keys),) = ledger.writes
        assert (numbers[1:], keys) == ([numbers[0] + 1, numbers[0] + 2], ["a", "b"])
        assert await store.get("a") == b"payload"


async def test_where_there_is_no_room_commands_without_objects_are_appended_all_the_same() -> None:
    ledger = JointMemoryLedger(MemoryStore())
    ledger.room_bytes = 10
    async with running_parts(ledger) as parts:
        ledger.may_write.clear()
        large = parts.ledger.propose(create(), stored("a", b"x" * 100))
        behind = [parts.ledger.propose(AllocateProducerIds(count=1)) for _ in range(3)]
        ledger.may_write.set()
        rejected = await large
        assert isinstance(rejected, RejectedForRoom)
        assert (rejected.error_code, rejected.reason) == (ErrorCode.request_timed_out, "there is no room")
        assert all(isinstance(outcome, ProducerIdsAllocated) for outcome in await asyncio.gather(*behind))
        assert ledger.writes == []
        assert await parts.ledger.propose(create(), stored("b", b"y")) == Done()
        session = parts.ledger.state.sessions[parts.ledger.session]
        entries = [row for row in (await ledger.load()).records if row.session == parts.ledger.session]
        assert [row.number for row in entries] == list(range(session.entry_next)), "numbers were used again"


@pytest.mark.parametrize("limit", ["LEDGER_GROUP_BYTES_MAX", "JOURNAL_GROUP_BYTES_MAX"])
async def test_s10_what_follows_a_part_that_found_no_room_is_encoded_with_its_own_number(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry has its number in its checksum: applied under another one, it is damage."""
    ledger = JointMemoryLedger(MemoryStore())
    ledger.room_bytes = 10
    async with running_parts(ledger, start(rules=RULES_NEWEST)) as parts:
        ledger.may_write.clear()
        first = parts.ledger.propose(AllocateProducerIds(count=1), stored("a", b"1"))
        await asyncio.wait([asyncio.ensure_future(parts.ledger.barrier())])
        monkeypatch.setattr(ledger_writer, limit, 1)
        large = [parts.ledger.propose(create(), stored(f"b{row}", b"x" * 100)) for row in range(2)]
        behind = [parts.ledger.propose(AllocateProducerIds(count=1), each) for each in (stored("c", b"y"), None)]
        ledger.may_write.set()
        outcomes = await asyncio.gather(first, *large, *behind)
        assert [type(outcome) for outcome in outcomes] == [
            ProducerIdsAllocated,
            RejectedForRoom,
            RejectedForRoom,
            ProducerIdsAllocated,
            ProducerIdsAllocated,
        ]
        assert [keys for _, keys in ledger.writes] == [["a"], ["c"]]


async def test_one_append_has_objects_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals of the session, and what the ledger is asked, wait for the append before them."""
    ledger = JointMemoryLedger(MemoryStore())
    monkeypatch.setattr(ledger_writer, "JOURNAL_GROUP_BYTES_MAX", 200)
    async with running_parts(ledger) as parts:
        proposed = [
            parts.ledger.propose(AllocateProducerIds(count=1), stored(f"{row}", b"x" * 100)) for row in range(5)
        ]
        await asyncio.gather(*proposed)
        assert [keys for _, keys in ledger.writes] == [["0", "1"], ["2", "3"], ["4"]]


async def test_a_caller_that_gave_up_is_not_answered() -> None:
    ledger = JointMemoryLedger(MemoryStore())
    ledger.room_bytes = 0
    async with running_parts(ledger) as parts:
        ledger.may_write.clear()
        proposed = parts.ledger.propose(create(), stored("a"))
        await asyncio.wait([asyncio.ensure_future(parts.ledger.barrier())])
        proposed.cancel()
        ledger.may_write.set()
        assert await parts.ledger.propose(create()) == Done()


class TestOutages:
    async def test_a_joint_ledger_stays_one_and_a_full_disk_is_no_outage(self) -> None:
        inner = JointMemoryLedger(MemoryStore())
        ledger = with_outages_logged(inner, monotonic_s=lambda: 1.0)
        assert isinstance(ledger, JointLedger)
        session = await ledger.open_session("a")
        inner.room_bytes = 0
        group = [LedgerEntry(number=0, payload=b"x")]
        with pytest.raises(LedgerFull):
            await ledger.append_with(session, group, [stored("a")])
        assert ledger.outage_seconds == 0
        inner.is_reachable = False
        inner.room_bytes = 100
        with pytest.raises(LedgerUnavailable):
            await ledger.append_with(session, group, [])

    async def test_another_one_does_not_become_one(self) -> None:
        async with running_parts() as parts:
            ledger = with_outages_logged(parts.backend, monotonic_s=lambda: 1.0)
            assert type(ledger) is OutageLoggingLedger
            assert not isinstance(ledger, JointLedger)
