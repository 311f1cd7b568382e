"""Damage is remembered while readers meet it, logged once meanwhile, and forgotten once no reader does."""

import pytest

from agent.fetch import damaged_objects
from agent.fetch.damaged_objects import DamagedObjects
from protocol.limits import DAMAGED_CHUNK_REMEMBERED_S, DAMAGED_CHUNK_REREAD_INTERVAL_S
from storage.object_store import ObjectDamaged
from tests.support.agent.ledger_parts import ManualClock

ERROR = ObjectDamaged("a: bytes are wrong")


def test_a_chunk_that_no_reader_meets_again_is_forgotten_and_so_is_its_object() -> None:
    clock = ManualClock()
    damaged = DamagedObjects(clock=clock)
    damaged.add("a", 1, ERROR)
    clock.seconds += DAMAGED_CHUNK_REREAD_INTERVAL_S
    damaged.add("b", 2, ERROR)
    assert damaged.count({"a", "b", "c"}) == 2
    clock.seconds += DAMAGED_CHUNK_REMEMBERED_S - DAMAGED_CHUNK_REREAD_INTERVAL_S
    assert damaged.count({"a", "b", "c"}) == 1
    assert not damaged.is_known("a")


def test_nothing_is_known_of_chunk_or_object_after_that_time() -> None:
    clock = ManualClock()
    damaged = DamagedObjects(clock=clock)
    damaged.add("a", 1, ERROR)
    assert (damaged.is_known("a"), damaged.is_chunk_known(1), damaged.is_chunk_known(2)) == (True, True, False)
    clock.seconds += DAMAGED_CHUNK_REMEMBERED_S
    assert not damaged.is_chunk_known(1)
    damaged.add("a", 1, ERROR)
    clock.seconds += DAMAGED_CHUNK_REMEMBERED_S
    assert not damaged.is_known("a")


def test_damage_that_readers_go_on_meeting_stays_known() -> None:
    clock = ManualClock()
    damaged = DamagedObjects(clock=clock)
    for _ in range(5):
        damaged.add("a", 1, ERROR)
        clock.seconds += DAMAGED_CHUNK_REMEMBERED_S - 1
        assert damaged.count({"a"}) == 1
    clock.seconds += 1
    assert damaged.count({"a"}) == 0


def test_no_more_chunks_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_objects, "DAMAGED_CHUNKS_REMEMBERED_MAX", 3)
    damaged = DamagedObjects(clock=ManualClock())
    for chunk in range(4):
        damaged.add(f"o{chunk}", chunk, ERROR)
    assert (damaged.is_known("o0"), damaged.is_known("o1")) == (False, True)


def test_damage_that_was_forgotten_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    damaged = DamagedObjects(clock=clock)
    for expected in (1, 1, 2):
        if expected == 2:
            clock.seconds += DAMAGED_CHUNK_REMEMBERED_S
        damaged.add("a", 1, ERROR)
        damaged.report("a", ERROR, topic="t")
        assert len(caplog.records) == expected


def test_a_report_of_what_is_not_known_hides_no_later_damage(caplog: pytest.LogCaptureFixture) -> None:
    """A chunk may be read intact between the damaged read and its report."""
    damaged = DamagedObjects(clock=ManualClock())
    damaged.add("a", 1, ERROR)
    damaged.was_read(1)
    damaged.report("a", ERROR)
    damaged.add("a", 1, ERROR)
    damaged.report("a", ERROR)
    damaged.report("a", ERROR)
    assert [record.__dict__["key"] for record in caplog.records] == ["a", "a"]
