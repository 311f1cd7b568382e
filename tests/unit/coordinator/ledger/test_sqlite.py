"""The file of the SQLite ledger: created, opened again, damaged, foreign, full.

What it shares with the other backends: tests/contract/test_ledger.py.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.ledger.port import (
    Fenced,
    LedgerCorrupt,
    LedgerEntry,
    LedgerError,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    Trimmed,
)
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.threaded import RecentRevisions
from protocol.limits import LEDGER_WAL_BYTES_KEPT
from protocol.types import Position, SessionId

if TYPE_CHECKING:
    from sqlite3 import _Parameters

FILE = "ledger.sqlite"


async def open_ledger(
    folder: Path, *, cluster: str = "c", connection_type: type[sqlite3.Connection] = sqlite3.Connection
) -> SqliteLedger:
    return await SqliteLedger.open(folder / FILE, new_cluster_id=cluster, connection_type=connection_type)


def entry(number: int, payload: bytes = b"x") -> list[LedgerEntry]:
    return [LedgerEntry(number=number, payload=payload)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def read_once(ledger: SqliteLedger) -> Sequence[LedgerRecord]:
    async with aclosing(ledger.tail(Position(0))) as tail:
        return await anext(tail)


class TestReopening:
    async def test_everything_but_the_sessions_is_there_again(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        one = await ledger.append(session, entry(0))
        two = await ledger.append(session, entry(1, b"\x00\xff"))
        pointer = SnapshotPointer(position=one, object_key="k", appends_count=1, digest=b"\x00d")
        assert await ledger.set_snapshot(None, pointer)
        await ledger.trim(one)
        before = await ledger.load()
        await ledger.close()

        again = await open_ledger(tmp_path, cluster="another")
        assert await again.identity() == LedgerIdentity(cluster_id="c", incarnation=1)
        assert await again.load() == before
        assert before.records == [LedgerRecord(position=two, session=session, number=1, payload=b"\x00\xff")]
        with pytest.raises(Fenced):
            await again.append(session, entry(2))
        assert await again.is_session_ended("a", session)
        with pytest.raises(Trimmed):
            await anext(again.tail(Position(0)))
        assert await again.open_session("a") > two
        await again.close()

    async def test_a_session_never_comes_twice_even_if_it_appended_nothing(self, tmp_path: Path) -> None:
        sessions: list[SessionId] = []
        for _ in range(3):
            ledger = await open_ledger(tmp_path)
            sessions.append(await ledger.open_session("a"))
            await ledger.close()
        assert len(set(sessions)) == 3

    async def test_a_clean_close_leaves_one_file_and_the_lock(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        await ledger.append(await ledger.open_session("a"), entry(0))
        assert names(tmp_path) == {FILE, f"{FILE}-wal", f"{FILE}.lock"}
        await ledger.close()
        assert names(tmp_path) == {FILE, f"{FILE}.lock"}

    async def test_a_creation_that_was_cut_short_is_made_again(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        ledger = await open_ledger(tmp_path)
        assert (await ledger.identity()).cluster_id == "c"
        await ledger.close()


class TestRefusing:
    async def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_bytes(b"not a database, but long enough to be looked at" * 40)
        with pytest.raises(LedgerCorrupt, match=r"ledger\.sqlite is damaged .* move the file away"):
            await open_ledger(tmp_path)

    async def test_a_database_of_something_else_is_left_as_it_is(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()
        before = (tmp_path / FILE).read_bytes()
        with pytest.raises(LedgerCorrupt, match="is not a Penstock ledger"):
            await open_ledger(tmp_path)
        assert (tmp_path / FILE).read_bytes() == before

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("UPDATE meta SET format_version = 3", "has format 3, this program knows 2: use the version that wrote it"),
            ("DELETE FROM meta", "names 0 clusters"),
            ("INSERT INTO meta SELECT * FROM meta", "names 2 clusters"),
            ("DELETE FROM head", "has 0 heads"),
        ],
    )
    async def test_a_ledger_that_this_program_cannot_read(self, tmp_path: Path, statement: str, message: str) -> None:
        await (await open_ledger(tmp_path)).close()
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(LedgerCorrupt, match=message):
            await open_ledger(tmp_path)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE meta SET cluster_id = CAST(x'61ff' AS TEXT)",
            "UPDATE meta SET incarnation = 'one'",
            "UPDATE head SET position = x'00'",
            "UPDATE entries SET payload = 'text'",
            "INSERT INTO snapshot VALUES (1, 'key', 'many', x'00')",
        ],
    )
    async def test_a_value_of_another_type(self, tmp_path: Path, statement: str) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        await ledger.append(session, entry(0))
        await ledger.close()
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(LedgerCorrupt, match=r"ledger\.sqlite is damaged .* move the file away"):
            await (await open_ledger(tmp_path)).load()

    async def test_a_damaged_page(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        for number in range(100):
            await ledger.append(session, entry(number, b"x" * 1_000))
        await ledger.close()
        contents = bytearray((tmp_path / FILE).read_bytes())
        contents[4096 * 2 :] = b"\xff" * (len(contents) - 4096 * 2)
        (tmp_path / FILE).write_bytes(contents)
        with pytest.raises(LedgerCorrupt, match="damaged"):
            await (await open_ledger(tmp_path)).load()

    async def test_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerUnavailable, match="check that its folder exists"):
            await open_ledger(tmp_path / "missing")

    async def test_a_file_that_is_missing_and_is_not_to_be_created(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "missing"):
            with pytest.raises(LedgerMissing, match="does not exist"):
                await SqliteLedger.open(folder / FILE, new_cluster_id=None)
        assert not names(tmp_path)
        await (await open_ledger(tmp_path)).close()
        ledger = await SqliteLedger.open(tmp_path / FILE, new_cluster_id=None)
        assert (await ledger.identity()).cluster_id == "c"
        await ledger.close()

    async def test_a_fence_outlives_the_process(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        await ledger.fence()
        await ledger.close()
        again = await open_ledger(tmp_path)
        with pytest.raises(LedgerCorrupt, match="being recovered"):
            await again.open_session("a")
        await again.close()

    async def test_a_file_that_another_program_has_open(self, tmp_path: Path) -> None:
        await (await open_ledger(tmp_path)).close()
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SessionHeld, match="another program"):
            await open_ledger(tmp_path)
        other.close()


class TestFailing:
    async def test_a_full_disk_is_unavailable_and_passes(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        await ledger.append(session, entry(0))
        await ledger._call(lambda: ledger._file._connection.execute("PRAGMA max_page_count = 10"))
        big = entry(1, b"x" * 200_000)
        for _ in range(2):
            with pytest.raises(LedgerUnavailable, match="full"):
                await ledger.append(session, big)
        assert (await ledger.head()).appends_count == 1
        await ledger._call(lambda: ledger._file._connection.execute("PRAGMA max_page_count = 1000000"))
        await ledger.append(session, big)
        assert [row.number for row in (await ledger.load()).records] == [0, 1]
        await ledger.close()

    async def test_a_disk_that_is_away_for_a_while_is_read_again_before_anything_else(self, tmp_path: Path) -> None:
        failing: list[str] = []

        class FailingConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: "_Parameters" = (), /) -> sqlite3.Cursor:
                if any(sql.startswith(start) for start in failing):
                    raise sqlite3.OperationalError("disk I/O error")
                return super().execute(sql, parameters)

        ledger = await open_ledger(tmp_path, connection_type=FailingConnection)
        session = await ledger.open_session("a")
        failing += ["INSERT", "SELECT"]
        with pytest.raises(LedgerUnavailable, match="disk I/O error"):
            await ledger.append(session, entry(0))
        for call in (ledger.head, ledger.load):
            with pytest.raises(LedgerUnavailable, match="disk I/O error"):
                await call()
        failing.clear()
        assert (await ledger.head()).appends_count == 0
        await ledger.append(session, entry(0))
        assert (await ledger.head()).appends_count == 1
        await ledger.close()

    async def test_an_opening_whose_answer_was_lost_does_not_hold_the_name(self, tmp_path: Path) -> None:
        failing: list[str] = []

        class FailingConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: "_Parameters" = (), /) -> sqlite3.Cursor:
                cursor = super().execute(sql, parameters)
                if sql in failing:
                    raise sqlite3.OperationalError("disk I/O error")
                return cursor

        ledger = await open_ledger(tmp_path, connection_type=FailingConnection)
        failing.append("COMMIT")
        with pytest.raises(LedgerUnavailable):
            await ledger.open_session("a")
        failing.clear()
        assert await ledger.open_session("a") == 2
        await ledger.close()


class TestBounds:
    async def test_the_write_ahead_log_stays_bounded(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        longest = 0
        for number in range(100):
            await ledger.append(session, entry(number, b"x" * 400_000))
            longest = max(longest, (tmp_path / f"{FILE}-wal").stat().st_size)
        assert longest < LEDGER_WAL_BYTES_KEPT * 2
        await ledger.close()

    async def test_a_tail_that_is_behind_reads_the_file_and_catches_up(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        ledger._recent = RecentRevisions(bytes_max=3)
        session = await ledger.open_session("a")
        async with aclosing(ledger.tail(Position(0))) as tail:
            for number in range(10):
                await ledger.append(session, entry(number))
            assert [row.number for row in await anext(tail)] == list(range(10))
            await ledger.append(session, entry(10))
            assert [row.number for row in await anext(tail)] == [10]
        await ledger.close()

    async def test_an_append_that_nobody_waits_for_wakes_the_tails(self, tmp_path: Path) -> None:
        ledger = await open_ledger(tmp_path)
        session = await ledger.open_session("a")
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            reading = group.create_task(read_once(ledger))
            appending = group.create_task(ledger.append(session, entry(0)))
            await asyncio.sleep(0)
            appending.cancel()
        assert [row.number for row in reading.result()] == [0]
        await ledger.close()


class TestChecksums:
    """Safety rule S20: a bit of an entry that changed is no other command."""

    async def three_entries(self, folder: Path) -> bytes:
        ledger = await open_ledger(folder)
        session = await ledger.open_session("a")
        for number in range(3):
            await ledger.append(session, entry(number, b"payload %d" % number))
        await ledger.close()
        return (folder / FILE).read_bytes()

    @pytest.mark.parametrize("bit", range(8))
    async def test_no_bit_of_a_payload_can_change_unseen(self, tmp_path: Path, bit: int) -> None:
        content = bytearray(await self.three_entries(tmp_path))
        for byte in range(len(b"payload 1")):
            changed = bytearray(content)
            changed[content.index(b"payload 1") + byte] ^= 1 << bit
            (tmp_path / FILE).write_bytes(changed)
            ledger = await open_ledger(tmp_path)
            with pytest.raises(LedgerCorrupt, match=r"the checksum of entry 1 at \d+\): move the file away"):
                await ledger.load()
            await ledger.close()

    async def test_no_bit_of_the_file_makes_another_ledger(self, tmp_path: Path) -> None:
        """Pages without a row are the same whatever is in them."""
        content = await self.three_entries(tmp_path)
        before = await self.records(tmp_path)
        outcomes: set[str] = set()
        for byte in range(0, len(content), 37):
            changed = bytearray(content)
            changed[byte] ^= 1 << byte % 8
            (tmp_path / FILE).write_bytes(changed)
            try:
                assert await self.records(tmp_path) == before, byte
            except LedgerError as error:
                outcomes.add(type(error).__name__)
        assert "LedgerCorrupt" in outcomes

    @staticmethod
    async def records(folder: Path) -> list[tuple[int, int, bytes]]:
        for left in (f"{FILE}-wal", f"{FILE}-shm"):
            (folder / left).unlink(missing_ok=True)
        ledger = await SqliteLedger.open(folder / FILE, new_cluster_id=None, is_durable=False)
        try:
            return [(record.session, record.number, record.payload) for record in (await ledger.load()).records]
        finally:
            await ledger.close()

    async def test_a_file_of_before_is_read_and_what_is_added_has_them(self, tmp_path: Path) -> None:
        await self.three_entries(tmp_path)
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute("ALTER TABLE entries DROP COLUMN checksum")
            connection.execute("UPDATE meta SET format_version = 1")
        connection.close()
        ledger = await open_ledger(tmp_path)
        assert [record.number for record in await ledger.untrimmed_entries()] == [0, 1, 2]
        session = await ledger.open_session("b")
        await ledger.append(session, entry(0, b"newer"))
        await ledger.close()
        changed = (tmp_path / FILE).read_bytes().replace(b"newer", b"Newer")
        (tmp_path / FILE).write_bytes(changed.replace(b"payload 2", b"Payload 2"))
        with pytest.raises(LedgerCorrupt, match="the checksum of entry 0"):
            await open_ledger(tmp_path)  # the newest write is read at the start

    async def test_who_only_reads_leaves_a_file_of_before_to_older_programs(self, tmp_path: Path) -> None:
        await self.three_entries(tmp_path)
        with sqlite3.connect(tmp_path / FILE) as connection:
            connection.execute("ALTER TABLE entries DROP COLUMN checksum")
            connection.execute("UPDATE meta SET format_version = 1")
        connection.close()
        before = (tmp_path / FILE).read_bytes()
        ledger = await SqliteLedger.open(tmp_path / FILE, new_cluster_id=None)
        assert [record.number for record in await ledger.untrimmed_entries()] == [0, 1, 2]
        assert [record.payload for record in (await ledger.load()).records] == [
            b"payload 0",
            b"payload 1",
            b"payload 2",
        ]
        with pytest.raises(LedgerUnavailable, match="readonly"):
            await ledger.claim_bucket("b")
        await ledger.close()
        assert (tmp_path / FILE).read_bytes() == before

    async def test_who_only_reads_checks_the_checksums_and_writes_nothing(self, tmp_path: Path) -> None:
        await self.three_entries(tmp_path)
        ledger = await SqliteLedger.open(tmp_path / FILE, new_cluster_id=None)
        assert [record.number for record in await ledger.untrimmed_entries()] == [0, 1, 2]
        with pytest.raises(LedgerUnavailable, match="readonly"):
            await ledger.fence()
        await ledger.close()
        changed = (tmp_path / FILE).read_bytes().replace(b"payload 1", b"Payload 1")
        (tmp_path / FILE).write_bytes(changed)
        ledger = await SqliteLedger.open(tmp_path / FILE, new_cluster_id=None)
        with pytest.raises(LedgerCorrupt, match="the checksum of entry 1"):
            await ledger.untrimmed_entries()
        await ledger.close()

    async def test_a_head_that_is_not_that_of_the_entries_is_damaged(self, tmp_path: Path) -> None:
        await self.three_entries(tmp_path)
        for statement in (
            "UPDATE head SET position = position - 1",
            "UPDATE head SET position_last = position - 1",
            "UPDATE head SET trimmed = position + 1",
        ):
            content = (tmp_path / FILE).read_bytes()
            with sqlite3.connect(tmp_path / FILE) as connection:
                connection.execute(statement)
            connection.close()
            with pytest.raises(LedgerCorrupt, match="its head is"):
                await open_ledger(tmp_path)
            (tmp_path / FILE).write_bytes(content)
