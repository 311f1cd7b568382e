"""Ages: from each record's own time to the moment when it could be seen, as the run's poller and stream tell it."""

import numpy as np
import pytest

from tests.agreement.freshness import NEVER_MS, Seen, ages, of_topics, stream_times, table_times
from tests.agreement.log_fixtures import NOON, Row, make_log, table, transaction_of, view
from tests.agreement.records import topic_name
from tests.agreement.report import verdict
from tests.agreement.world import noted

MADE = make_log()
VIEW = view(MADE.rows, "kafka")
SPAN = (NOON, NOON + 1_000)


def seen(row: Row, end: int, seen_ms: int) -> Seen:
    return Seen(topic=row["topic"], partition=row["partition"], first=row["offset"], end=end, seen_ms=seen_ms)


def test_a_record_is_visible_in_its_table_when_the_snapshot_with_its_offset_is_seen() -> None:
    spans = [
        Seen(topic=topic_name(topic), partition=partition, first=first, end=first + 20, seen_ms=NOON + 100 + first)
        for topic in range(3)
        for partition in range(2)
        for first in (0, 20)
    ]
    times = table_times(VIEW, spans)
    offsets = VIEW.table["offset"].to_numpy()
    assert times.tolist() == np.where(offsets < 20, NOON + 100, np.where(offsets < 40, NOON + 120, NEVER_MS)).tolist()
    assert set(table_times(VIEW, []).tolist()) == {NEVER_MS}


def test_a_record_is_visible_in_the_stream_with_the_first_batch_that_has_it() -> None:
    rows = sorted(MADE.rows, key=lambda row: row["offset"])
    batches = [(NOON + 50, table(rows[:30])), (NOON + 70, table(rows[20:60])), (NOON + 90, table(MADE.aborted))]
    times = dict(zip(VIEW.places.tolist(), stream_times(VIEW, batches).tolist(), strict=True))
    assert list(times.values()).count(NOON + 50) == 30
    assert list(times.values()).count(NOON + 70) == 30
    assert list(times.values()).count(NEVER_MS) == len(rows) - 60


def test_ages_count_from_the_record_and_from_the_end_of_its_transaction() -> None:
    times = np.full(len(VIEW), NOON + 500, dtype=np.int64)
    found = ages(VIEW, times, MADE.transactions(), SPAN)
    produced = sorted(500 - transaction_of(row) for row in MADE.rows)
    assert (found.count, found.unseen) == (len(MADE.rows), 0)
    assert found.p99_ms == produced[-1]
    assert found.p50_ms in produced
    assert found.p99_ended_ms == 490
    assert verdict(found, 501) == "met"
    assert verdict(found, 500) == "missed"

    late = ages(VIEW, times, MADE.transactions(), (NOON + 4, NOON + 5))
    assert (late.count, late.p50_ms, late.p99_ended_ms) == (9, 496, 486)
    assert verdict(ages(VIEW, times, MADE.transactions(), (0, 1)), 500) == "not measured"


def test_what_was_never_seen_is_infinitely_old() -> None:
    times = np.full(len(VIEW), NOON + 500, dtype=np.int64)
    times[:3] = NEVER_MS
    found = ages(VIEW, times, MADE.transactions(), SPAN)
    assert found.unseen == 3
    assert found.p99_ms == np.inf
    assert verdict(found, 60_000) == "missed"


def test_only_tables_that_were_polled_are_asked_about() -> None:
    part = of_topics(VIEW, [topic_name(1)])
    assert set(part.table["topic"].to_pylist()) == {topic_name(1)}
    assert len(part) == sum(row["topic"] == topic_name(1) for row in MADE.rows)


@pytest.mark.parametrize("has_end", [True, False])
def test_what_producers_say_is_noted_and_what_has_no_end_is_unknown(has_end: bool) -> None:
    begin = '{"what": "begin", "producer": 3, "transaction": 4, "count": 5, "began_ms": 60}'
    end = '{"what": "end", "producer": 3, "transaction": 4, "outcome": 0, "ended_ms": 70}'
    (row,) = noted([begin, end] if has_end else [begin]).to_pylist()
    outcome, ended_ms = (0, 70) if has_end else (-1, 60)
    assert row == {
        "producer": 3,
        "transaction": 4,
        "count": 5,
        "outcome": outcome,
        "began_ms": 60,
        "ended_ms": ended_ms,
    }
