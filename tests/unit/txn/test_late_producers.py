"""Safety rule S11: what producers are answered that timed out, were fenced, or come late. One test for each row of the
table in docs/compatibility.md, which the last test holds against these rows.
"""

from pathlib import Path

import pytest

from tests.support.transactions.conversations import (
    Coordinator,
)
from tests.support.transactions.late_producers import HISTORIES, ROWS, Row, as_written

DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.history}: {row.request}" for row in ROWS])
def test_s11_a_late_producer_is_answered_as_the_table_says(row: Row) -> None:
    for step in row.steps:
        coordinator = Coordinator()
        for before in HISTORIES[row.history]:
            coordinator.answer(before)
        assert as_written(coordinator.answer(step)) == row.penstock, step


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.history}: {row.request}" for row in ROWS])
def test_s11_a_difference_has_a_reason(row: Row) -> None:
    assert (row.kafka != row.penstock) == bool(row.why)


def test_s11_the_table_is_in_the_documents() -> None:
    lines = [f"| {row.history} | {row.request} | {row.kafka} | {row.penstock} | {row.why} |" for row in ROWS]
    text = "\n".join(line.replace("|  |", "| |") for line in lines)
    assert text in DOCUMENT.read_text(encoding="utf-8"), f"docs/compatibility.md should say:\n{text}"
