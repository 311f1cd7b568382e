"""The torture run's judge finds every anomaly, and none where there is none; its plan of faults can be repeated."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.torture.checker import check
from tests.torture.history import (
    UNKNOWN_OFFSET,
    Consumed,
    GrowingLog,
    Produced,
    Read,
    Value,
    add_consumed,
    add_produced,
)
from tests.torture.monitor import Monitor
from tests.torture.schedule import all_faults, chosen, schedule

LAST = 5


def value(counter: int, producer: str = "p") -> Value:
    return Value(producer, 0, counter)


def good_log() -> list[Read]:
    return [Read(0, offset, value(offset)) for offset in range(LAST)]


def good_producer() -> Produced:
    produced = Produced()
    for offset in range(LAST):
        produced.sent[value(offset)] = offset
        produced.acknowledged[value(offset)] = offset
    return produced


def kinds(
    *,
    produced: Produced | None = None,
    final: list[Read] | None = None,
    other: list[Read] | None = None,
    seen: list[Read] | None = None,
    errors: Counter[str] | None = None,
) -> set[str]:
    """The kinds of anomalies in a run that is good but for what is given; `other` is the log through a second agent."""
    finals = {"a": good_log() if final is None else final, "b": good_log() if other is None else other}
    reader = Consumed(reads=good_log() if seen is None else seen, errors=errors or Counter())
    return {anomaly.kind for anomaly in check(produced or good_producer(), finals, {"r": reader})}


def test_a_good_run_has_no_anomaly() -> None:
    assert kinds() == set()


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    produced = good_producer()
    del produced.acknowledged[value(1)]
    assert kinds(produced=produced) == set()
    produced.sent[value(LAST)] = 0
    assert kinds(produced=produced) == set()


def test_lost_is_acknowledged_and_nowhere() -> None:
    log = good_log()[:-1]
    assert kinds(final=log, other=log, seen=log) == {"lost", "hidden"}


def test_hidden_is_readable_through_some_agents_alone() -> None:
    assert kinds(other=good_log()[:-1]) == {"hidden"}
    assert kinds(seen=good_log()[:-1]) == {"hidden"}


def test_a_filtered_record_is_hidden_and_the_reader_skipped() -> None:
    log = [read for read in good_log() if read.offset != 2]
    assert kinds(seen=log) == {"hidden", "skipped"}
    assert kinds(other=log) == {"hidden", "skipped"}


def test_duplicated_is_at_two_offsets() -> None:
    log = [*good_log(), Read(0, LAST, value(LAST - 1))]
    assert kinds(final=log, other=log, seen=log) == {"duplicated"}


def test_reordered_is_against_the_order_of_one_producer() -> None:
    log = [Read(0, offset, value(counter)) for offset, counter in enumerate((0, 2, 1, 3, 4))]
    produced = good_producer()
    produced.acknowledged |= {value(1): 2, value(2): 1}
    assert kinds(produced=produced, final=log, other=log, seen=log) == {"reordered"}


def test_producers_have_no_order_among_each_other() -> None:
    log = [Read(0, offset, value(counter, name)) for offset, (name, counter) in enumerate([("q", 1), ("p", 0)])]
    produced = Produced()
    for read in log:
        produced.sent[read.value] = 0
        produced.acknowledged[read.value] = read.offset
    assert kinds(produced=produced, final=log, other=log, seen=log) == set()


def test_an_acknowledgement_at_offset_0_that_is_not_there_is_spurious() -> None:
    produced = good_producer()
    produced.acknowledged[value(3)] = 0
    assert kinds(produced=produced) == {"spurious offset 0"}


def test_an_acknowledgement_may_not_know_the_offset_but_the_record_must_be_there() -> None:
    produced = good_producer()
    produced.acknowledged[value(3)] = UNKNOWN_OFFSET
    assert kinds(produced=produced) == set()
    log = [read for read in good_log() if read.value != value(3)]
    assert "lost" in kinds(produced=produced, final=log, other=log, seen=log)


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_acknowledgement_with_another_offset_is_inconsistent(offset: int) -> None:
    produced = good_producer()
    produced.acknowledged[value(3)] = offset
    assert kinds(produced=produced) == {"inconsistent offset"}


def test_two_readers_with_two_values_at_one_offset_are_inconsistent() -> None:
    produced = good_producer()
    produced.sent[value(LAST)] = 0
    seen = [*good_log()[:-1], Read(0, LAST - 1, value(LAST))]
    assert kinds(produced=produced, seen=seen) == {"inconsistent offset", "hidden"}


def test_a_phantom_was_sent_by_nobody() -> None:
    log = [*good_log(), Read(0, LAST, value(77))]
    assert kinds(final=log, other=log, seen=log) == {"phantom"}


def test_a_reader_that_goes_back_reads_again() -> None:
    assert kinds(seen=[*good_log(), *good_log()[3:]]) == {"read again"}


@pytest.mark.parametrize(
    "error", ["confluent OFFSET_OUT_OF_RANGE", "go OFFSET_OUT_OF_RANGE", "java OffsetOutOfRangeException"]
)
def test_a_reader_must_not_be_told_that_its_offset_is_out_of_range(error: str) -> None:
    assert kinds(errors=Counter({error: 1})) == {"out of range"}
    assert kinds(errors=Counter({"confluent _TRANSPORT": 9})) == set()


def test_no_record_may_be_given_up() -> None:
    produced = good_producer()
    produced.sent[value(9)] = 0
    produced.given_up[value(9)] = "_MSG_TIMED_OUT"
    assert kinds(produced=produced) == {"given up"}


def test_logs_are_read_as_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("S 1 0 7\nA 2 0 40 7\nE 3 0 8 _MSG_TIMED_OUT\nX 4 _TRANSPORT\nA 5 0 4", encoding="ascii")
    log, produced = GrowingLog(path), Produced()
    assert [event.moment_ms for event in add_produced(produced, "p", log.new_lines())] == [2]
    assert (produced.sent, produced.acknowledged) == ({value(7): 1}, {value(7): 40})
    assert produced.given_up == {value(8): "_MSG_TIMED_OUT"}
    assert produced.errors == {"p _MSG_TIMED_OUT": 1, "p _TRANSPORT": 1}
    with path.open("a", encoding="ascii") as file:
        file.write("1 8\n")
    assert [event.value for event in add_produced(produced, "p", log.new_lines())] == [value(8)]
    consumed = Consumed()
    add_consumed(consumed, "r", ["R 9 0 40 p:0:7", "X 9 OFFSET_OUT_OF_RANGE 0"])
    assert consumed.reads == [Read(0, 40, value(7))]
    assert consumed.errors == {"r OFFSET_OUT_OF_RANGE": 1}


def test_service_is_back_with_what_was_sent_after_the_fault(tmp_path: Path) -> None:
    written, read = tmp_path / "w", tmp_path / "r"
    written.write_text("S 10 0 0\nS 90 0 1\n", encoding="ascii")
    read.touch()
    monitor = Monitor({"p": written}, {"p": read}, 1)
    recovery = monitor.await_service(50)
    for path, line, seconds in (
        (written, "A 60 0 0 0", None),  # was under way before the fault ended
        (written, "A 100 0 1 1", None),
        (read, "R 101 0 0 p:0:0", None),
        (read, "R 150 0 1 p:0:1", 0.1),
    ):
        with path.open("a", encoding="ascii") as file:
            file.write(line + "\n")
        monitor.follow()
        assert recovery.seconds == seconds


def test_a_seed_gives_the_same_faults_again_and_another_one_others() -> None:
    first = list(islice(schedule(3), 60))
    assert list(islice(schedule(3), 60)) == first
    assert list(islice(schedule(4), 60)) != first


def test_every_kind_of_fault_comes_before_any_comes_again() -> None:
    wanted = Counter(fault.what for fault in all_faults(random.Random(0)))
    slots = islice(schedule(5, has_pairs=False), wanted.total())
    assert Counter(fault.what for slot in slots for fault in slot.faults) == wanted
    assert wanted["kill -9"] == wanted["SIGSTOP"] + 1 == 5
    assert wanted["black hole"] == 3


def test_two_faults_of_one_slot_are_on_different_parts() -> None:
    for slot in islice(schedule(6), 200):
        parts = [
            fault.part.split()[0] if fault.act and "agent" not in fault.part else fault.part for fault in slot.faults
        ]
        assert len(set(parts)) == len(parts)


def test_faults_are_chosen_by_name() -> None:
    (slot,) = chosen([("SIGSTOP", "agent b")])
    assert [fault.part for fault in slot.faults] == ["agent b"]
