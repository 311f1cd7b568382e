"""The comparison itself: each planted fault is found, under its name and with its place, and nothing else."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agreement.compare import Finding, audit, compare
from tests.agreement.log_fixtures import (
    NOON,
    RECORDS,
    Made,
    Row,
    make_log,
    order,
    outcome_of,
    place,
    row_of,
    transaction_of,
    view,
)
from tests.agreement.records import ABORTED, COMMITTED, UNKNOWN, Sent, topic_name


def compared(made: Made, rows: list[Row]) -> list[Finding]:
    return compare(view(made.rows, "kafka"), view(rows))


def audited(made: Made, rows: list[Row]) -> list[Finding]:
    return audit(view(rows), made.transactions())


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    made = make_log()
    shuffled = random.Random(7).sample(made.rows, len(made.rows))
    plain = [{**row, "headers": row["headers"] or []} for row in shuffled]
    assert compared(made, plain) == []
    assert audited(made, plain) == []
    assert compared(Made([], [], []), []) == []
    assert audited(Made([], [], []), []) == []


@given(st.data())
def test_every_gap_is_found_with_its_place(data: st.DataObject) -> None:
    made = make_log()
    gone = data.draw(st.sets(st.integers(0, len(made.rows) - 1), min_size=1, max_size=20))
    rows = [row for number, row in enumerate(made.rows) if number not in gone]
    (finding,) = compared(made, rows)
    assert (finding.what, finding.count) == ("missing (gaps, beside kafka)", len(gone))
    first = min((made.rows[number] for number in gone), key=order)
    assert finding.examples[0].startswith(place(first))


@given(st.data())
def test_every_duplicate_is_found_however_often_it_comes(data: st.DataObject) -> None:
    made = make_log()
    extra = data.draw(st.lists(st.sampled_from(made.rows), min_size=1, max_size=20))
    rows = data.draw(st.permutations([*made.rows, *extra]))
    (finding,) = compared(made, rows)
    assert (finding.what, finding.count) == ("shown more than once", len(extra))
    assert set(finding.examples) <= {place(row) for row in extra}


def header(key: str, value: bytes | None) -> dict[str, object]:
    return {"key": key, "value": value}


CHANGES: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "a byte of the value": ("value", lambda row: row["value"][:-1] + b"!"),
    "a value that is gone": ("value", lambda _: None),
    "a key": ("key", lambda _: b"k0000000"),
    "a key that is gone, or came": ("key", lambda row: None if row["key"] else b"k0000000"),
    "an empty key for none": ("key", lambda row: b"" if row["key"] is None else None),
    "a timestamp": ("timestamp", lambda row: row["timestamp"] + 1),
    "a header more": ("headers", lambda row: [*(row["headers"] or []), header("more", b"")]),
    "a header's key": ("headers", lambda row: [*(row["headers"] or [])[:-1], header("other", b"")]),
    "a header's value": (
        "headers",
        lambda row: [header("trace", b"other"), *(row["headers"] or [])[1:]],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_record_is_found_with_its_place(change: str) -> None:
    made = make_log()
    column, changed = CHANGES[change]
    for number in (0, 4, 17, len(made.rows) - 1):
        row = made.rows[number]
        rows = [*made.rows[:number], {**row, column: changed(row)}, *made.rows[number + 1 :]]
        (finding,) = compared(made, rows)
        assert (finding.what, finding.count) in {(f"with another {column}", 1), (f"with other {column}", 1)}
        assert finding.examples[0].startswith(f"{place(row)} (")


def test_header_without_a_value_is_not_one_with_an_empty_value_nor_are_two_in_another_order_the_same() -> None:
    made = make_log()
    number = next(number for number, row in enumerate(made.rows) if len(row["headers"] or []) > 1)
    row = made.rows[number]
    empty = [{**each, "value": each["value"] or b""} for each in made.rows[0]["headers"]]
    assert made.rows[0]["headers"][0]["value"] is None
    (finding,) = compared(made, [{**made.rows[0], "headers": empty}, *made.rows[1:]])
    assert finding.what == "with other headers"
    turned = {**row, "headers": row["headers"][::-1]}
    (finding,) = compared(made, [*made.rows[:number], turned, *made.rows[number + 1 :]])
    assert finding.what == "with other headers"


@given(st.data())
def test_every_aborted_record_is_found_by_audit_and_by_comparison(data: st.DataObject) -> None:
    made = make_log()
    is_aborted = [row for row in made.aborted if outcome_of(transaction_of(row)) == ABORTED]
    shown = data.draw(st.lists(st.sampled_from(is_aborted), unique_by=order, min_size=1))
    (finding,) = audited(made, [*made.rows, *shown])
    assert (finding.what, finding.count) == ("of aborted transactions", len(shown))
    (finding,) = compared(made, [*made.rows, *shown])
    assert (finding.what, finding.count) == ("that kafka does not show", len(shown))


@given(st.data())
def test_every_acknowledged_record_that_is_missing_is_found(data: st.DataObject) -> None:
    made = make_log()
    acknowledged = [row for row in made.rows if outcome_of(transaction_of(row)) == COMMITTED]
    gone = data.draw(st.lists(st.sampled_from(acknowledged), unique_by=order, min_size=1))
    (finding,) = audited(made, [row for row in made.rows if row not in gone])
    assert (finding.what, finding.count) == ("acknowledged as committed and missing", len(gone))


def test_an_unknown_transaction_is_shown_whole_or_not_at_all() -> None:
    made = make_log()
    unknown = [row for row in made.rows if outcome_of(transaction_of(row)) == UNKNOWN]
    of_first = [row for row in unknown if transaction_of(row) == transaction_of(unknown[0])]
    assert audited(made, [row for row in made.rows if row not in of_first]) == []
    (finding,) = audited(made, [row for row in made.rows if row not in of_first[1:]])
    assert (finding.what, finding.count) == ("shown of transactions that are only partly there", 1)


def test_values_that_are_not_ours_are_found_and_do_no_harm() -> None:
    made = make_log()
    for value in (None, b"", b"short"):
        (finding, missing) = audited(made, [{**made.rows[0], "value": value}, *made.rows[1:]])
        assert (finding.what, finding.count) == ("whose value says nothing", 1)
        assert (missing.what, missing.count) == ("acknowledged as committed and missing", 1)


def test_a_record_that_stands_at_two_offsets_is_found() -> None:
    made = make_log()
    copy = {**made.rows[3], "offset": 10_000}
    (finding,) = audited(made, [*made.rows, copy])
    assert (finding.what, finding.count) == ("of which one record stands at several offsets", 1)


def test_what_nobody_sent_is_found() -> None:
    made = make_log()
    stranger = Sent(producer=9, transaction=0, number=0, topic=0, partition=0, milliseconds=NOON)
    for sent, what in (
        (stranger, "of transactions that nobody noted"),
        (replace(stranger, producer=1, number=RECORDS), "that nobody sent"),
    ):
        (finding,) = audited(made, [*made.rows, row_of(sent, 10_000)])
        assert (finding.what, finding.count) == (what, 1)


def test_what_is_not_where_or_as_it_was_sent_is_found_without_another_view() -> None:
    made = make_log()
    for column, value, what in (
        ("partition", 7, "in another partition than they were sent to"),
        ("timestamp", 5, "with another timestamp than they were sent with"),
        ("key", b"k9999999", "with another key than they were sent with"),
    ):
        (finding,) = audited(made, [{**made.rows[0], column: value}, *made.rows[1:]])
        assert (finding.what, finding.count) == (what, 1)


def test_a_view_is_cut_where_the_archive_ends() -> None:
    made = make_log()
    ends = {(topic_name(0), 0): 4, (topic_name(2), 1): 1_000}
    cut = view(made.rows).below(ends)
    expected = [row for row in made.rows if row["offset"] < ends.get((row["topic"], row["partition"]), 0)]
    assert 0 < len(expected) < len(made.rows)
    assert compare(view(expected, "kafka"), cut) == []
    assert len(view([]).below(ends)) == 0


def test_many_places_that_are_missing_together_are_told_as_one_run() -> None:
    made = make_log()
    rows = [row for row in made.rows if (row["topic"], row["partition"]) != (topic_name(1), 0)]
    count = len(made.rows) - len(rows)
    (finding,) = compared(made, rows)
    (example,) = finding.examples
    assert example.endswith(f"and the {count - 1} behind it")
    assert str(finding) == f"the view: {count} missing (gaps, beside kafka): {example}, ..."
