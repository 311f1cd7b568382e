"""Copies of a table's metadata, by whose hint readers without a catalog find the newest whole version."""

from collections.abc import Sequence

import pytest

from coordinator.commands.commands import DeleteTopic, Done
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.rendezvous import owner_of
from protocol.limits import TABLE_COPIES_KEPT
from storage.decorators.failing import FailingStore
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectStore
from storage.refs import metadata_copy_key, table_metadata_folder, version_hint_key
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import TOPIC, create, start
from tests.support.commands.table_commits import commit_table, metadata_key, table_commit
from tests.support.lake.hadoop_copies import copies_of

FOLDER = table_metadata_folder("t", TOPIC)
HINT = version_hint_key("t", TOPIC)


async def next_version(parts: Parts, store: ObjectStore) -> int:
    """Commit the next version of the table, whose metadata says its number; returns that."""
    table = parts.ledger.state.topics[TOPIC].table
    version = 1 if table is None else table.version + 1
    session = parts.ledger.session
    key = metadata_key(version, session=session)
    await store.put(key, (b"version %d" % version,))
    before = "" if table is None else table.metadata_key
    commit = table_commit(version, replaces=before, released=(before,) if before else (), session=session)
    assert await parts.ledger.propose(commit_table(commit, session=session)) == Done()
    return version


async def found(store: ObjectStore) -> dict[str, bytes]:
    """The copies and the hint, by the ends of their names."""
    after = f"{FOLDER}v"
    keys = [meta.key async for meta in store.list(FOLDER, after=after)]
    return {key.removeprefix(FOLDER): await store.get(key) for key in keys}


async def test_the_hint_names_a_copy_of_the_newest_metadata_and_few_older_ones_stay() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        copies = copies_of(parts, store)
        await copies.copy(TOPIC)
        assert await found(store) == {}
        for version in range(1, 6):
            await next_version(parts, store)
            await copies.copy(TOPIC)
            kept = range(max(1, version - TABLE_COPIES_KEPT + 1), version + 1)
            assert await found(store) == {
                "version-hint.text": b"%d" % version,
                **{f"v{one}.metadata.json": b"version %d" % one for one in kept},
            }


async def test_a_copy_that_cannot_be_deleted_holds_up_no_newer_one_and_goes_later() -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        copies = copies_of(parts, store)
        store.undeletable.add(metadata_copy_key("t", TOPIC, 1))
        for _ in range(TABLE_COPIES_KEPT + 2):
            version = await next_version(parts, store)
            await copies.copy(TOPIC)
            assert (await found(store))["version-hint.text"] == b"%d" % version
        assert "v1.metadata.json" in await found(store)
        assert "v2.metadata.json" not in await found(store)
        store.undeletable.clear()
        await next_version(parts, store)
        await copies.copy(TOPIC)
        assert len(await found(store)) == TABLE_COPIES_KEPT + 1


async def test_who_comes_after_another_goes_on_where_that_one_was() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        for _ in range(4):
            await next_version(parts, store)
            await copies_of(parts, store).copy(TOPIC)
        before = await found(store)
        later = copies_of(parts, store)
        await later.copy(TOPIC)
        assert await found(store) == before
        await next_version(parts, store)
        await later.copy(TOPIC)
        assert sorted(await found(store)) == [
            "v3.metadata.json",
            "v4.metadata.json",
            "v5.metadata.json",
            "version-hint.text",
        ]


async def test_after_a_recovery_no_newer_version_is_left_to_lead_readers_on() -> None:
    store = MemoryStore()
    for version in (7, 8, 9):
        await store.put(metadata_copy_key("t", TOPIC, version), (b"of the ledger that was lost",))
    await store.put(HINT, (b"9",))
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        await copies_of(parts, store).copy(TOPIC)
        assert await found(store) == {"version-hint.text": b"1", "v1.metadata.json": b"version 1"}


@pytest.mark.parametrize("copy", [b"version 2 of the ledger that was lost", None])
async def test_after_a_recovery_a_version_of_the_same_number_is_not_taken_for_the_new_one(copy: bytes | None) -> None:
    store = MemoryStore()
    if copy is not None:
        await store.put(metadata_copy_key("t", TOPIC, 1), (copy,))
    await store.put(HINT, (b"1",))
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        await copies_of(parts, store).copy(TOPIC)
        assert await found(store) == {"version-hint.text": b"1", "v1.metadata.json": b"version 1"}


class Delaying(MemoryStore):
    """A copy, or the hint, takes so long to put that the session may be over."""

    parts: Parts | None = None
    slow = "/v1.metadata.json"

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await super().put(key, parts, if_absent=if_absent)
        if self.parts is not None and key.endswith(self.slow):
            self.parts.clock.seconds += 3_600


async def test_who_loses_the_topic_while_it_is_copied_does_not_lead_readers_to_the_copy() -> None:
    store = Delaying()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        store.parts = parts
        await copies_of(parts, store).copy(TOPIC)
        assert await found(store) == {"v1.metadata.json": b"version 1"}


async def test_who_loses_the_topic_when_the_hint_is_written_deletes_no_copies() -> None:
    """A recovery may have begun at an older version, and its copies have the numbers of those that would go."""
    store = Delaying()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        copies = copies_of(parts, store)
        for _ in range(TABLE_COPIES_KEPT):
            await next_version(parts, store)
            await copies.copy(TOPIC)
        await next_version(parts, store)
        store.parts, store.slow = parts, "/version-hint.text"
        await copies.copy(TOPIC)
        assert "v1.metadata.json" in await found(store)


async def test_a_hint_that_is_no_number_is_written_again() -> None:
    store = MemoryStore()
    await store.put(HINT, (b"first",))
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        await copies_of(parts, store).copy(TOPIC)
        assert (await found(store))["version-hint.text"] == b"1"


async def test_of_a_topic_that_is_deleted_nothing_is_copied() -> None:
    store = DeletingStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        store.parts = parts
        copies = copies_of(parts, store)
        await copies.copy(TOPIC)
        assert TOPIC not in parts.ledger.state.topics
        await copies.copy(TOPIC)
        assert await found(store) == {}


class DeletingStore(MemoryStore):
    """Deletes the topic as soon as somebody reads its metadata."""

    parts: Parts | None = None

    async def get(self, key: str) -> bytes:
        content = await super().get(key)
        if self.parts is not None and key.endswith(".metadata.json"):
            parts, self.parts = self.parts, None
            await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        return content


async def test_an_agent_whose_session_is_not_confirmed_writes_nothing() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await next_version(parts, store)
        parts.clock.seconds += 3_600
        await copies_of(parts, store).copy(TOPIC)
        assert await found(store) == {}


async def test_the_topics_owner_copies_and_nobody_else_does() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as one,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as other,
    ):
        await one.ledger.propose(create())
        await next_version(one, store)
        await other.ledger.barrier()
        owner = owner_of(TOPIC, one.ledger.state.sessions)
        for parts in sorted((one, other), key=lambda each: each.ledger.session == owner):
            copies = copies_of(parts, store)
            topic = parts.ledger.state.topics[TOPIC]
            assert copies._needs_copy(topic) is (parts.ledger.session == owner)
