"""What every ledger backend promises: `coordinator.ledger.port.Ledger`, one test class for all of them.

A backend joins by a `Backend` of its own in `ledger_backends.BACKENDS`.
"""

import asyncio
from contextlib import suppress

import pytest

from coordinator.ledger.port import (
    Fenced,
    Head,
    Ledger,
    LedgerCorrupt,
    LedgerEntry,
    LedgerRecord,
    LedgerUnavailable,
    SessionHeld,
    Trimmed,
)
from protocol.limits import (
    LEDGER_ENTRY_BYTES_MAX,
    LEDGER_GROUP_ENTRIES_MAX,
    LEDGER_TAIL_RECORDS_MAX,
    LEDGER_TRIM_RECORDS_STEP,
)
from protocol.types import Position, SessionId
from tests.support.ledger.backends import CLUSTER_ID, Backend, Loss
from tests.support.ledger.operations import START, append_singly, entries, numbers, pointer_at, revisions, tailing, take


class TestAppending:
    async def test_a_new_ledger_belongs_to_its_cluster_and_is_empty(self, ledger: Ledger) -> None:
        identity = await ledger.identity()
        assert (identity.cluster_id, identity.incarnation) == (CLUSTER_ID, 1)
        assert await ledger.head() == Head(position=START, appends_count=0)
        start = await ledger.load()
        assert (start.pointer, start.head, list(start.records)) == (None, Head(position=START, appends_count=0), [])

    async def test_a_group_is_one_revision_in_the_order_of_its_numbers(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        position = await ledger.append(session, entries(b"zero", b"", b"two\x00"))
        assert (await ledger.load()).records == [
            LedgerRecord(position=position, session=session, number=0, payload=b"zero"),
            LedgerRecord(position=position, session=session, number=1, payload=b""),
            LedgerRecord(position=position, session=session, number=2, payload=b"two\x00"),
        ]

    async def test_positions_rise_and_never_equal_a_session(self, ledger: Ledger) -> None:
        first = await ledger.open_session("a")
        one = await ledger.append(first, entries(b"x"))
        second = await ledger.open_session("b")
        two = await ledger.append(second, entries(b"x"))
        three = await ledger.append(first, entries(b"y", first=1))
        assert START < first < one < second < two < three

    async def test_the_head_is_the_newest_append_and_counts_appends(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        await ledger.append(session, entries(b"x", b"y"))
        position = await ledger.append(session, entries(b"z", first=2))
        await ledger.open_session("b")
        assert await ledger.head() == Head(position=position, appends_count=2)

    async def test_the_largest_group_fits(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        await ledger.append(session, entries(*[b"x"] * LEDGER_GROUP_ENTRIES_MAX))
        largest = entries(*[b"\xff" * LEDGER_ENTRY_BYTES_MAX] * 2, first=LEDGER_GROUP_ENTRIES_MAX)
        await ledger.append(session, largest)
        assert [row.payload for row in (await ledger.load()).records[-2:]] == [entry.payload for entry in largest]

    @pytest.mark.parametrize(
        "group",
        [
            [],
            entries(*[b"x"] * (LEDGER_GROUP_ENTRIES_MAX + 1)),
            entries(b"x" * (LEDGER_ENTRY_BYTES_MAX + 1)),
            entries(*[b"x" * LEDGER_ENTRY_BYTES_MAX] * 3),
            [LedgerEntry(number=0, payload=b""), LedgerEntry(number=2, payload=b"")],
            entries(b"x", first=-1),
        ],
        ids=["empty", "too many entries", "too large an entry", "too large a group", "a gap", "a negative number"],
    )
    async def test_what_can_be_no_group_is_a_bug(self, ledger: Ledger, group: list[LedgerEntry]) -> None:
        session = await ledger.open_session("a")
        with pytest.raises(AssertionError):
            await ledger.append(session, group)
        assert (await ledger.head()).appends_count == 0

    async def test_concurrent_appends_of_two_sessions_each_keep_their_order(self, ledger: Ledger) -> None:
        sessions = [await ledger.open_session(name) for name in "ab"]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(append_singly(ledger, session, 20))
        start = await ledger.load()
        assert start.head.appends_count == 40
        for session in sessions:
            assert [row.number for row in start.records if row.session == session] == list(range(20))


class TestBucket:
    """S9: a ledger has one bucket, whoever asks for another."""

    async def test_s9_the_first_bucket_that_is_claimed_stays(self, backend: Backend) -> None:
        one, two = await backend.another(), await backend.another()
        assert (await one.identity()).bucket_id == ""
        claimed = await one.claim_bucket("first")
        assert (claimed.cluster_id, claimed.incarnation, claimed.bucket_id) == (CLUSTER_ID, 1, "first")
        assert await two.claim_bucket("second") == claimed
        assert await one.claim_bucket("third") == claimed
        for held in (one, two, await backend.another()):
            assert await held.identity() == claimed

    async def test_whoever_opened_the_ledger_before_goes_on(self, backend: Backend) -> None:
        one, two = await backend.another(), await backend.another()
        session = await one.open_session("a")
        await one.append(session, entries(b"x"))
        claimed = await two.claim_bucket("first")
        await append_singly(one, session, 2, first=1)
        assert await one.identity() == claimed
        assert numbers(await take(two, START, 3)) == [0, 1, 2]


class TestWhoLives:
    async def test_names_are_told_while_their_sessions_live(self, ledger: Ledger) -> None:
        assert await ledger.live_names() == []
        later = await ledger.open_session("b")
        await ledger.open_session("a")
        assert await ledger.live_names() == ["a", "b"]
        await ledger.close_session(later)
        assert await ledger.live_names() == ["a"]


class TestRepeating:
    @pytest.mark.parametrize("losses", [[Loss.BEFORE], [Loss.AFTER], [Loss.BEFORE, Loss.BEFORE, Loss.AFTER]])
    async def test_an_unknown_outcome_is_settled_by_repeating(self, backend: Backend, losses: list[Loss]) -> None:
        ledger = backend.ledger
        session = await ledger.open_session("a")
        await ledger.append(session, entries(b"before"))
        group = entries(b"x", b"y", first=1)
        for loss in losses:
            backend.lose_next(loss)
        for _ in losses:
            with pytest.raises(LedgerUnavailable):
                await ledger.append(session, group)
        position = await ledger.append(session, group)
        after = await ledger.append(session, entries(b"after", first=3))
        records = (await ledger.load()).records
        assert [(row.number, row.payload) for row in records] == [(0, b"before"), (1, b"x"), (2, b"y"), (3, b"after")]
        assert [row.position for row in records[1:]] == [position, position, after]
        assert await ledger.head() == Head(position=after, appends_count=3)

    async def test_a_tail_sees_an_append_whose_answer_was_lost(self, backend: Backend) -> None:
        ledger = backend.ledger
        session = await ledger.open_session("a")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(take(ledger, START, 3))
            await ledger.append(session, entries(b"0"))
            backend.lose_next(Loss.AFTER)
            with pytest.raises(LedgerUnavailable):
                await ledger.append(session, entries(b"1", first=1))
            await ledger.append(session, entries(b"2", first=2))
        assert numbers(reading.result()) == [0, 1, 2]

    async def test_a_tail_sees_a_lost_answer_even_if_nobody_repeats(self, backend: Backend) -> None:
        ledger = backend.ledger
        session = await ledger.open_session("a")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(take(ledger, START, 1))
            backend.lose_next(Loss.AFTER)
            with pytest.raises(LedgerUnavailable):
                await ledger.append(session, entries(b"0"))
        assert numbers(reading.result()) == [0]

    async def test_an_older_group_repeated_has_the_position_of_its_first_copy(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        older = await ledger.append(session, entries(b"x", b"y"))
        await ledger.append(session, entries(b"z", first=2))
        assert await ledger.append(session, entries(b"x", b"y")) == older
        assert (await ledger.head()).appends_count == 2

    async def test_a_repeat_is_recognised_after_trimming(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        first = await ledger.append(session, entries(b"x"))
        assert await ledger.set_snapshot(None, pointer_at(first, appends_count=1))
        await ledger.trim(first)
        assert await ledger.append(session, entries(b"x")) == first
        assert (await ledger.load()).records == []
        await ledger.append(session, entries(b"y", first=1))
        assert numbers((await ledger.load()).records) == [1]

    @pytest.mark.parametrize(
        "other", [entries(b"other"), entries(b"x", b"y"), entries(b"z", first=2)], ids=["bytes", "longer", "a gap"]
    )
    async def test_neither_next_nor_a_repeat_is_corruption(self, ledger: Ledger, other: list[LedgerEntry]) -> None:
        session = await ledger.open_session("a")
        await ledger.append(session, entries(b"x"))
        with pytest.raises(LedgerCorrupt, match="byte for byte"):
            await ledger.append(session, other)
        assert (await ledger.head()).appends_count == 1

    async def test_a_cancelled_append_is_settled_by_repeating(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        async with asyncio.TaskGroup() as group:
            appending = group.create_task(ledger.append(session, entries(b"x")))
            group.create_task(ledger.head())
            await asyncio.sleep(0)
            appending.cancel()
        await ledger.append(session, entries(b"x"))
        assert numbers(await take(ledger, START, 1)) == [0]
        assert (await ledger.head()).appends_count == 1


class TestSessions:
    async def test_a_name_is_held_by_one_session(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        with pytest.raises(SessionHeld, match="'a'"):
            await ledger.open_session("a")
        await ledger.append(session, entries(b"x"))
        assert not await ledger.is_session_ended("a", session)

    async def test_a_closed_session_can_append_nothing(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        await ledger.append(session, entries(b"x"))
        await ledger.close_session(session)
        with pytest.raises(Fenced):
            await ledger.append(session, entries(b"y", first=1))
        assert await ledger.is_session_ended("a", session)
        assert (await ledger.head()).appends_count == 1

    async def test_an_ended_session_is_fenced_and_its_name_is_free(self, backend: Backend) -> None:
        ledger = backend.ledger
        session = await ledger.open_session("a")
        await backend.end(session)
        successor = await ledger.open_session("a")
        with pytest.raises(Fenced):
            await ledger.append(session, entries(b"x"))
        assert successor > session
        with pytest.raises(Fenced):
            await ledger.keep_session(session)
        await ledger.keep_session(successor)
        assert await ledger.is_session_ended("a", session)
        assert not await ledger.is_session_ended("a", successor)
        await ledger.append(successor, entries(b"x"))

    async def test_a_revoked_session_is_fenced_and_its_name_is_free(self, backend: Backend) -> None:
        ledger, other = backend.ledger, await backend.another()
        session = await ledger.open_session("a")
        await ledger.append(session, entries(b"x"))
        with pytest.raises(SessionHeld) as held:
            await other.open_session("a")
        assert held.value.session == session
        await other.revoke_session("a", session)
        assert await ledger.is_session_ended("a", session)
        with pytest.raises(Fenced):
            await ledger.append(session, entries(b"y", first=1))
        successor = await other.open_session("a")
        with pytest.raises(Fenced):
            await ledger.append(session, entries(b"y", first=1))
        with pytest.raises(Fenced):
            await ledger.keep_session(session)
        await other.append(successor, entries(b"z"))
        assert (await ledger.head()).appends_count == 2

    async def test_to_revoke_a_session_late_ends_no_other_one(self, backend: Backend) -> None:
        ledger = backend.ledger
        first, neighbour = await ledger.open_session("a"), await ledger.open_session("b")
        await ledger.revoke_session("a", first)
        second = await ledger.open_session("a")
        for name, session in (("a", first), ("b", first), ("b", second), ("c", second)):
            await ledger.revoke_session(name, session)
        await ledger.keep_session(second)
        await ledger.append(second, entries(b"x"))
        await ledger.append(neighbour, entries(b"x"))

    async def test_a_session_that_never_was_is_fenced_and_ended(self, ledger: Ledger) -> None:
        with pytest.raises(Fenced):
            await ledger.append(SessionId(99), entries(b"x"))
        assert await ledger.is_session_ended("a", SessionId(99))
        await ledger.close_session(SessionId(99))

    async def test_fenced_does_not_say_that_the_append_did_not_happen(self, backend: Backend) -> None:
        ledger = backend.ledger
        session = await ledger.open_session("a")
        backend.lose_next(Loss.AFTER)
        with pytest.raises(LedgerUnavailable):
            await ledger.append(session, entries(b"x"))
        await backend.end(session)
        with pytest.raises(Fenced):
            await ledger.append(session, entries(b"x"))
        assert numbers((await ledger.load()).records) == [0]


class TestReading:
    async def test_a_tail_begins_at_any_position(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 5)
        await ledger.open_session("b")
        for row, position in enumerate(positions[:-1]):
            assert numbers(await take(ledger, position, 4 - row)) == list(range(row + 1, 5))
        assert numbers(await take(ledger, Position(session), 5)) == [0, 1, 2, 3, 4]

    async def test_tails_have_neither_gaps_nor_doubles_while_appends_go_on(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        async with asyncio.TaskGroup() as group:
            tails = [group.create_task(take(ledger, START, 300))]
            appended = await append_singly(ledger, session, 100)
            tails.append(group.create_task(take(ledger, START, 300)))
            tails.append(group.create_task(take(ledger, appended[49], 250)))
            for first in range(100, 300, 4):
                await ledger.append(session, entries(b"a", b"b", b"c", b"d", first=first))
        assert [numbers(tail.result()) for tail in tails] == [[*range(300)], [*range(300)], [*range(50, 300)]]

    async def test_a_reader_far_behind_gets_whole_revisions(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        count = LEDGER_TAIL_RECORDS_MAX * 2
        for first in range(0, count, 70):
            await ledger.append(session, entries(*[b"x"] * 70, first=first))
        records = await take(ledger, START, count)
        assert numbers(records) == list(range(len(records)))

    async def test_a_tail_waits_for_what_comes(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        position = await ledger.append(session, entries(b"x"))
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(take(ledger, position, 1))
            await ledger.head()
            assert not reading.done()
            await ledger.append(session, entries(b"y", first=1))
        assert numbers(reading.result()) == [1]

    async def test_load_is_pinned_to_one_revision_while_appends_go_on(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")

        async def load_until(count: int) -> None:
            seen = 0
            while seen < count:
                start = await ledger.load()
                seen = start.head.appends_count
                assert len(start.records) == seen
                assert seen == 0 or start.records[-1].position == start.head.position
                await asyncio.sleep(0)

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(load_until(50))
            group.create_task(append_singly(ledger, session, 50))

    async def test_an_almost_empty_ledger_has_room(self, ledger: Ledger) -> None:
        await append_singly(ledger, await ledger.open_session("a"), 3)
        size = await ledger.size()
        assert size.used_bytes > 0
        assert 0 <= size.pressure < 0.1

    async def test_a_closed_ledger_says_so_and_ends_its_tails(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")

        async def wait_for_the_end() -> None:
            with pytest.raises(LedgerUnavailable, match="closed"):
                await take(ledger, START, 1)

        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_the_end())
            await ledger.head()
            await ledger.close()
        with pytest.raises(LedgerUnavailable, match="closed"):
            await ledger.append(session, entries(b"x"))
        await ledger.close()


class TestSnapshots:
    async def test_the_pointer_is_compared_and_set(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        one, two = [
            pointer_at(position, appends_count=count)
            for count, position in enumerate(await append_singly(ledger, session, 2), 1)
        ]
        assert not await ledger.set_snapshot(one, two)
        assert await ledger.pointer() is None
        assert await ledger.set_snapshot(None, one)
        assert not await ledger.set_snapshot(None, two)
        assert await ledger.pointer() == one
        assert (await ledger.load()).pointer == one
        assert await ledger.set_snapshot(one, two)
        assert (await ledger.load()).pointer == two
        assert await ledger.pointer() == two

    async def test_load_begins_above_the_snapshot_whether_or_not_it_is_trimmed(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 5)
        pointer = pointer_at(positions[2], appends_count=3)
        assert await ledger.set_snapshot(None, pointer)
        untrimmed = await ledger.load()
        await ledger.trim(positions[2])
        trimmed = await ledger.load()
        assert untrimmed == trimmed
        assert trimmed.pointer == pointer
        assert revisions(trimmed.records) == [(positions[3], [3]), (positions[4], [4])]
        assert trimmed.head == Head(position=positions[4], appends_count=5)

    async def test_a_tail_from_below_what_is_kept_is_told(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 4)
        assert await ledger.set_snapshot(None, pointer_at(positions[1], appends_count=2))
        await ledger.trim(positions[1])
        for after in (START, positions[0]):
            with pytest.raises(Trimmed):
                await take(ledger, after, 1)
        assert numbers(await take(ledger, positions[1], 2)) == [2, 3]

    async def test_a_tail_that_was_overtaken_by_a_trim_is_told_or_misses_nothing(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 3)
        async with tailing(ledger, START) as tail:
            assert len(await anext(tail)) == 3
            positions += await append_singly(ledger, session, 3, first=3)
            assert await ledger.set_snapshot(None, pointer_at(positions[4], appends_count=5))
            await ledger.trim(positions[4])
            read: list[int] = []
            with suppress(Trimmed):  # etcd has handed over already what it has not yet seen trimmed
                while len(read) < 3:
                    read += numbers(await anext(tail))
            assert read in ([], [3, 4, 5])

    async def test_a_tail_that_has_read_all_is_not_disturbed_by_a_trim(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 2)
        async with tailing(ledger, START) as tail:
            assert numbers(await anext(tail)) == [0, 1]
            assert await ledger.set_snapshot(None, pointer_at(positions[1], appends_count=2))
            await ledger.trim(positions[1])
            await ledger.append(session, entries(b"x", first=2))
            assert numbers(await anext(tail)) == [2]

    async def test_what_was_not_trimmed_can_be_looked_at_although_a_snapshot_covers_it(self, ledger: Ledger) -> None:
        assert list(await ledger.untrimmed_entries()) == []
        positions = await append_singly(ledger, await ledger.open_session("a"), 4)
        assert numbers(await ledger.untrimmed_entries()) == [0, 1, 2, 3]
        assert await ledger.set_snapshot(None, pointer_at(positions[3], appends_count=4))
        assert list((await ledger.load()).records) == []
        assert numbers(await ledger.untrimmed_entries()) == [0, 1, 2, 3]
        await ledger.trim(positions[1])
        assert revisions(await ledger.untrimmed_entries()) == [(positions[2], [2]), (positions[3], [3])]

    async def test_what_no_snapshot_covers_is_not_trimmed(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, 3)
        with pytest.raises(LedgerCorrupt, match="snapshot"):
            await ledger.trim(positions[0])
        assert await ledger.set_snapshot(None, pointer_at(positions[0], appends_count=1))
        with pytest.raises(LedgerCorrupt, match="snapshot"):
            await ledger.trim(positions[1])
        assert len(await take(ledger, START, 3)) == 3

    async def test_a_long_log_is_trimmed_while_appends_go_on(self, ledger: Ledger) -> None:
        session = await ledger.open_session("a")
        count = LEDGER_TRIM_RECORDS_STEP * 2 + 100
        last = START
        for first in range(0, count, 100):
            last = await ledger.append(session, entries(*[b"x"] * 100, first=first))
        assert await ledger.set_snapshot(None, pointer_at(last, appends_count=count // 100))
        async with asyncio.TaskGroup() as group:
            group.create_task(ledger.trim(last))
            group.create_task(append_singly(ledger, session, 10, first=count))
        start = await ledger.load()
        assert numbers(start.records) == list(range(count, count + 10))
        assert start.head.appends_count == count // 100 + 10
