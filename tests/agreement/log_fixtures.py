"""A small log as it should be, for tests of what compares views: rows of what was committed, and notes of producers.

Rule: nothing is drawn; the same log each time, with every outcome of a transaction in it.
"""

from typing import Any, NamedTuple

import pyarrow as pa

from tests.agreement.compare import View
from tests.agreement.records import ABORTED, COMMITTED, HEAD, TRANSACTIONS, UNKNOWN, VIEW, Sent, topic_name

Row = dict[str, Any]
TOPICS, PARTITIONS, TRANSACTION_COUNT, RECORDS = 3, 2, 12, 9
NOON = 1_700_049_600_000


class Made(NamedTuple):
    """`aborted` could be shown by mistake; transactions whose outcome is unknown are in both, each in one."""

    rows: list[Row]
    aborted: list[Row]
    notes: list[Row]

    def transactions(self) -> pa.Table:
        return pa.Table.from_pylist(self.notes, schema=TRANSACTIONS)


def outcome_of(transaction: int) -> int:
    return (COMMITTED, COMMITTED, ABORTED, COMMITTED, UNKNOWN, UNKNOWN)[transaction % 6]


def is_shown(transaction: int) -> bool:
    """Of those whose outcome is unknown every other one was committed."""
    return outcome_of(transaction) == COMMITTED or transaction % 6 == 4


def make_log() -> Made:
    made = Made([], [], [])
    ends: dict[tuple[int, int], int] = {}
    for transaction in range(TRANSACTION_COUNT):
        for number in range(RECORDS):
            topic, partition = number % TOPICS, (number + transaction) % PARTITIONS
            offset = ends.get((topic, partition), 0)
            ends[topic, partition] = offset + 1
            sent = Sent(
                producer=1 + transaction % 2,
                transaction=transaction,
                number=number,
                topic=topic,
                partition=partition,
                milliseconds=NOON + transaction,
            )
            (made.rows if is_shown(transaction) else made.aborted).append(row_of(sent, offset))
        note = {"producer": 1 + transaction % 2, "transaction": transaction, "count": RECORDS, "began_ms": NOON}
        made.notes.append({**note, "outcome": outcome_of(transaction), "ended_ms": NOON + transaction + 10})
        for log in ends:
            ends[log] += 1  # of a marker
    return made


def row_of(sent: Sent, offset: int) -> Row:
    headers = sent.headers()
    return {
        "topic": topic_name(sent.topic),
        "partition": sent.partition,
        "offset": offset,
        "timestamp": sent.milliseconds,
        "key": sent.key(),
        "value": sent.value(),
        "headers": headers and [{"key": key, "value": value} for key, value in headers],
    }


def transaction_of(row: Row) -> int:
    """Which transaction sent the record."""
    return int(HEAD.unpack_from(row["value"])[1])


def order(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def place(row: Row) -> str:
    """As findings name it."""
    return f"topic {int(row['topic'][-3:])} partition {row['partition']} offset {row['offset']}"


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=VIEW)


def view(rows: list[Row], name: str = "the view") -> View:
    return View.of(name, table(rows))
