"""Catalogs of others follow the ledger: a real SQL catalog in SQLite, troubled as catalogs are."""

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.external_catalog_settings import ExternalCatalogSettings
from coordinator.commands.commands import DeleteTopic, ReportTime
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.rendezvous import owner_of
from iceberg_export.external_catalogs.entries import Entries
from protocol.limits import EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX, EXTERNAL_CATALOG_RECHECK_INTERVAL_S
from protocol.types import TopicId
from tests.support.agent.external_catalog import Place
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import TOPIC, create, start
from tests.support.commands.table_commits import metadata_key

OTHER = TopicId(bytes(range(16, 32)))


@pytest.fixture(params=["sql", "general"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(tmp_path, request.param)
    yield place
    place.close()


def figure(parts: Parts, name: str) -> float:
    found = parts.metrics.registry.get_sample_value(f"penstock_external_catalog_{name}", {"catalog": "others"})
    assert found is not None
    return found


async def later(parts: Parts, seconds: float) -> None:
    """So long later the session is confirmed again."""
    parts.clock.seconds += seconds
    await parts.ledger.propose(ReportTime())


async def test_an_entry_follows_each_commit(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await sync.sync()
        assert place.entry() is None  # there is no metadata yet
        for _ in range(3):
            location = await place.commit(parts)
            await sync.sync()
            assert place.entry() == location
        assert figure(parts, "updates_total") == 3
        assert (figure(parts, "lag_seconds"), figure(parts, "commit_lag")) == (0, 0)
        asked = len(place.trouble.asked)
        await sync.sync()
        assert len(place.trouble.asked) == asked


async def test_topics_follow_whose_whole_names_match(place: Place) -> None:
    place.settings = replace(place.settings, topics=re.compile("t"))
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await parts.ledger.propose(create("t2", topic_id=OTHER))
        location = await place.commit(parts)
        await place.commit(parts, name="t2", topic_id=OTHER)
        sync = place.sync(parts)
        await sync.sync()
        assert (place.entry(), place.entry("t2")) == (location, None)
        assert sync.view()["commit_lag"] == 0
        await parts.ledger.propose(DeleteTopic(topic_id=OTHER))
        await sync.sync()
        assert place.entry() == location


async def test_it_says_how_far_it_is_and_what_failed_last(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await place.commit(parts)
        sync = place.sync(parts)
        await sync.sync()
        assert sync.view() == {
            "catalog": "others",
            "type": "sql",
            "namespace": "lake",
            "tables": 1,
            "conflicts": 0,
            "commit_lag": 0,
            "lag_s": 0.0,
            "last_error": None,
            "last_error_s_ago": None,
        }
        place.trouble.is_away = True
        await place.commit(parts)
        await sync.sync()
        await later(parts, 5)
        view = sync.view()
        assert (view["commit_lag"], view["lag_s"], view["last_error_s_ago"]) == (1, 5.0, 5.0)
        assert view["last_error"] == "t: ConnectionRefusedError: nobody is there"


async def test_where_the_catalog_compares_a_commit_costs_one_call(tmp_path: Path) -> None:
    place = Place(tmp_path, "sql")
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await place.commit(parts)
        sync = place.sync(parts)
        await sync.sync()
        place.trouble.asked.clear()
        await place.commit(parts)
        await sync.sync()
        assert place.trouble.asked == ["move"]
    place.close()


@pytest.mark.parametrize("lost", ["create", "move", "find", "names"])
async def test_after_an_answer_was_lost_it_looks_and_sees(place: Place, lost: str) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await sync.sync()
        if lost == "move":
            await place.commit(parts)
            await sync.sync()
        place.trouble.loses = {lost}
        sync._sweep_s = None
        location = await place.commit(parts)
        await sync.sync()
        assert not place.trouble.loses
        changes = place.trouble.asked.count("create"), place.trouble.asked.count("move")
        for _ in range(3):
            await later(parts, 2)
            await sync.sync()
        assert place.entry() == location
        assert figure(parts, "lag_seconds") == 0
        if lost in {"create", "move"}:
            assert (place.trouble.asked.count("create"), place.trouble.asked.count("move")) == changes
        assert figure(parts, "errors_total") == 1


async def test_a_catalog_that_was_away_goes_straight_to_the_newest_tables(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    topics = {f"t{number}": TopicId(bytes([number]) * 16) for number in range(1, 6)}
    async with running_parts() as parts:
        for name, topic_id in topics.items():
            await parts.ledger.propose(create(name, topic_id=topic_id))
            await place.commit(parts, name=name, topic_id=topic_id)
        sync = place.sync(parts)
        await sync.sync()
        place.trouble.is_away = True
        place.trouble.asked.clear()
        for second in range(0, 3_600, 5):
            if second % 600 == 0:
                for name, topic_id in topics.items():
                    await place.commit(parts, name=name, topic_id=topic_id)
            await sync.sync()
            await later(parts, 5)
        assert figure(parts, "lag_seconds") > 3_500
        assert figure(parts, "commit_lag") >= 5
        assert len(place.trouble.asked) < 100  # it is asked once a minute
        told = [record.message for record in caplog.records if "is not updated" in record.message]
        assert 50 < len(told) <= 62
        place.trouble.is_away = False
        place.trouble.asked.clear()
        tables = [topic.table for topic in parts.ledger.state.topics.values()]
        current = {table.metadata_key for table in tables if table is not None}
        for path in place.bucket.rglob("*.metadata.json"):  # what entries name is long gone
            if str(path.relative_to(place.bucket)) not in current:
                path.unlink()
        await later(parts, EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX)
        await sync.sync()
        for name, topic_id in topics.items():
            table = parts.ledger.state.topics[topic_id].table
            assert table is not None
            assert place.entry(name) == f"{place.root}/{table.metadata_key}"
        assert place.trouble.asked.count("move") == len(topics)
        assert (figure(parts, "lag_seconds"), figure(parts, "commit_lag")) == (0, 0)


@pytest.mark.parametrize(
    "theirs",
    [
        "elsewhere/t/metadata/00001-5f8a.metadata.json",
        # What an engine leaves that committed to the table through the catalog.
        metadata_key(1).replace(metadata_key(1).rpartition("/")[2], "00001-5f8a.metadata.json"),
    ],
)
async def test_an_entry_of_somebody_else_is_never_touched(
    place: Place, theirs: str, caplog: pytest.LogCaptureFixture
) -> None:
    location = place.write_metadata(theirs)
    place.reader.create_namespace("lake")
    place.reader.register_table(("lake", "t"), location)
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        newest = await place.commit(parts)
        for _ in range(5):
            await sync.sync()
            await later(parts, EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX)
        assert place.entry() == location
        assert not {"create", "move", "drop"} & set(place.trouble.asked)
        (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert location in told.message
        assert "without purging" in told.message
        assert figure(parts, "conflicts") == 1
        assert figure(parts, "lag_seconds") > 0
        place.reader.drop_table(("lake", "t"))
        await later(parts, EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX)
        await sync.sync()
        assert place.entry() == newest
        assert figure(parts, "conflicts") == 0


async def test_the_entry_of_a_deleted_topic_goes_and_its_files_stay(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await place.commit(parts)
        await sync.sync()
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await sync.sync()
        assert place.entry() is None
        assert len(list(place.bucket.rglob("*.metadata.json"))) == 1


async def test_who_starts_again_finds_entries_of_topics_that_were_deleted_meanwhile(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await place.commit(parts)
        await place.sync(parts).sync()
        theirs = place.write_metadata("elsewhere/u/metadata/00001-5f8a.metadata.json", name="u")
        place.reader.register_table(("lake", "u"), theirs)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await place.sync(parts).sync()
        assert place.entry() is None
        assert place.entry("u") == theirs


async def test_a_broken_table_of_others_keeps_no_entry_of_a_deleted_topic(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await place.commit(parts)
        await sync.sync()
        theirs = place.write_metadata("elsewhere/a/metadata/00001-5f8a.metadata.json", name="a")
        place.reader.register_table(("lake", "a"), theirs)
        place.trouble.refuses = {"a"}
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await parts.ledger.propose(create("b", topic_id=OTHER))
        location = await place.commit(parts, name="b", topic_id=OTHER)
        await sync.sync()
        assert place.entry() is None
        assert place.entry("a") == theirs
        assert place.entry("b") == location
        place.trouble.asked.clear()
        location = await place.commit(parts, name="b", topic_id=OTHER)
        await sync.sync()
        assert place.entry("b") == location
        assert "names" not in place.trouble.asked


async def test_a_topic_that_was_created_again_gets_the_entry_of_its_name(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await place.commit(parts)
        await sync.sync()
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await parts.ledger.propose(create(topic_id=OTHER))
        location = await place.commit(parts, topic_id=OTHER)
        await sync.sync()
        assert place.entry() == location
        assert place.reader.load_table(("lake", "t")).metadata.table_uuid.bytes == OTHER
        await later(parts, EXTERNAL_CATALOG_RECHECK_INTERVAL_S)
        await sync.sync()
        assert place.entry() == location


async def test_a_topic_that_was_created_again_without_a_commit_has_no_entry(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        await place.commit(parts)
        await sync.sync()
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await parts.ledger.propose(create(topic_id=OTHER))
        await sync.sync()
        assert place.entry() is None


async def test_who_was_overtaken_moves_nothing_back(tmp_path: Path) -> None:
    place = Place(tmp_path, "sql")
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        first = await place.commit(parts)
        await sync.sync()
        await place.commit(parts)
        newer = place.write_metadata(metadata_key(9))

        def overtake() -> None:
            assert place.troubles[0].entries.move("t", first, newer)

        place.trouble.before_move = overtake
        await sync.sync()
        assert place.entry() == newer
        assert figure(parts, "updates_total") == 1
        assert figure(parts, "commit_lag") == 1
    place.close()


async def test_who_lags_behind_the_ledger_moves_nothing_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await place.commit(parts)
        newer = place.write_metadata(metadata_key(2, session=parts.ledger.session))
        place.reader.create_namespace("lake")
        place.reader.register_table(("lake", "t"), newer)

        async def catch_up() -> None:
            if not place.trouble.asked.count("find") > 1:
                assert await place.commit(parts) == newer

        monkeypatch.setattr(parts.ledger, "barrier", catch_up)
        await place.sync(parts).sync()
        assert place.entry() == newer
        assert place.trouble.asked == ["find", "names"]


async def test_what_others_did_to_an_entry_is_put_right_at_the_next_look(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        sync = place.sync(parts)
        location = await place.commit(parts)
        await sync.sync()
        place.reader.drop_table(("lake", "t"))
        await sync.sync()
        assert place.entry() is None
        await later(parts, EXTERNAL_CATALOG_RECHECK_INTERVAL_S)
        await sync.sync()
        assert place.entry() == location


async def test_tables_that_a_catalog_does_not_take_hold_up_no_other(place: Place) -> None:
    bad = {f"a{number}": TopicId(bytes([number]) * 16) for number in range(1, 6)}
    async with running_parts() as parts:
        sync = place.sync(parts)
        await sync.sync()
        place.trouble.refuses = set(bad)
        for name, topic_id in {**bad, "t": TOPIC}.items():
            await parts.ledger.propose(create(name, topic_id=topic_id))
            await place.commit(parts, name=name, topic_id=topic_id)
        for _ in range(4):
            await sync.sync()
            await later(parts, 1)
        assert place.entry() is not None
        await later(parts, 100)
        location = await place.commit(parts)
        await sync.sync()
        assert place.entry() == location


async def test_an_agent_whose_session_is_not_confirmed_changes_nothing(place: Place) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await place.commit(parts)
        parts.clock.seconds += 3_600
        await place.sync(parts).sync()
        assert not {"create", "move", "drop"} & set(place.trouble.asked)


async def test_the_topics_owner_alone_follows(tmp_path: Path) -> None:
    core, place = MemoryLedgerCore(), Place(tmp_path, "sql")
    async with (
        running_parts(MemoryLedger(core)) as one,
        running_parts(MemoryLedger(core), start("b", node=2)) as other,
    ):
        await one.ledger.propose(create())
        location = await place.commit(one)
        await other.ledger.barrier()
        owner = owner_of(TOPIC, one.ledger.state.sessions)
        for parts in sorted((one, other), key=lambda each: each.ledger.session == owner):
            assert place.reader.namespace_exists("lake") is (parts.ledger.session == owner)
            await place.sync(parts).sync()
            assert place.entry() == (location if parts.ledger.session == owner else None)
            assert figure(parts, "commit_lag") == 0
    place.close()


async def test_who_becomes_the_owner_goes_on(tmp_path: Path) -> None:
    core, place = MemoryLedgerCore(), Place(tmp_path, "sql")
    async with running_parts(MemoryLedger(core)) as one, running_parts(MemoryLedger(core), start("b", node=2)) as other:
        await one.ledger.propose(create())
        await place.commit(one)
        await other.ledger.barrier()
        owner = owner_of(TOPIC, one.ledger.state.sessions)
        first, second = sorted((one, other), key=lambda each: each.ledger.session != owner)
        syncs = [place.sync(first), place.sync(second)]
        for sync in syncs:
            await sync.sync()
        await first.ledger.start_drain()
        location = await place.commit(first)
        await second.ledger.barrier()
        await syncs[0].sync()
        assert place.entry() != location
        await syncs[1].sync()
        assert place.entry() == location
    place.close()


class Hasty(ManualClock):
    """Waits for a tenth of a second where it is to wait for a minute."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(None if seconds is None else 0.1)


async def test_a_call_that_does_not_return_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place, is_over = Place(tmp_path, "sql"), threading.Event()

    def never(settings: ExternalCatalogSettings, root: str) -> Entries:
        is_over.wait()
        raise AssertionError(f"{settings} {root}")

    async with running_parts() as parts:
        parts.clock = Hasty()
        sync = place.sync(parts, never)
        await sync.sync()
        assert figure(parts, "errors_total") == 1
        (told,) = [record for record in caplog.records if "is not updated" in record.message]
        assert "no answer within 60 s" in str(told.__dict__["reason"])
        is_over.set()
    place.close()
