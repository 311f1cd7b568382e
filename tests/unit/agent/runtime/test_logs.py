"""How a log line looks."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from agent.runtime.logs import JsonFormatter, LineLimit, TextFormatter, configure_logs
from protocol.limits import LOG_LINES_OF_ONE_PLACE_MAX, LOG_LINES_PERIOD_SECONDS
from tests.support.agent.ledger_parts import ManualClock


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("agent.x", logging.WARNING, "x.py", 1, message, None, None)
    made.created = 0.123
    vars(made).update(extra)
    return made


def test_text_has_time_level_module_sentence_and_values() -> None:
    line = TextFormatter().format(record("the ledger is away", reason="timed out", attempt=2))
    assert line == '1970-01-01T00:00:00.123Z WARNING agent.x: the ledger is away reason="timed out" attempt=2'


def test_of_several_processes_each_line_names_its_own() -> None:
    line = TextFormatter("penstock-1").format(record("the ledger is away", reason="timed out"))
    assert line.endswith(' the ledger is away reason="timed out" process=penstock-1')
    assert json.loads(JsonFormatter("penstock-1").format(record("the ledger is away")))["process"] == "penstock-1"
    assert "process" not in json.loads(JsonFormatter().format(record("the ledger is away")))


def test_a_line_cannot_be_forged_by_what_a_client_sent() -> None:
    line = TextFormatter().format(record("client a\nINFO forged", client="b\nERROR forged", empty=""))
    assert "\n" not in line
    assert r'client="b\nERROR forged" empty=""' in line


def test_json_has_the_same_as_one_object() -> None:
    fields = json.loads(JsonFormatter().format(record("the ledger is away", attempt=2, key=b"\x00")))
    assert fields == {
        "time": "1970-01-01T00:00:00.123Z",
        "level": "warning",
        "logger": "agent.x",
        "message": "the ledger is away",
        "attempt": 2,
        "key": "b'\\x00'",
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_is_shown_with_its_traceback(log_format: str) -> None:
    stream = io.StringIO()
    configure_logs("info", log_format, stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("agent.x").exception("a task failed")
    assert "ValueError: odd" in stream.getvalue()


def test_what_is_below_the_level_and_the_chatter_of_libraries_is_not_shown() -> None:
    stream = io.StringIO()
    configure_logs("info", "text", stream)
    logging.getLogger("agent.x").debug("too fine")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("agent.x").info("seen")
    assert stream.getvalue().count("\n") == 1


def test_lines_of_one_place_that_come_too_often_are_left_out_and_counted() -> None:
    clock = ManualClock()
    limit = LineLimit(clock)
    first = [record("rejected a connection", peer=number) for number in range(LOG_LINES_OF_ONE_PLACE_MAX + 7)]
    written = [each for each in first if limit.filter(each)]
    assert written == first[:LOG_LINES_OF_ONE_PLACE_MAX]
    assert "left_out_for_s" not in vars(written[-2])
    assert vars(written[-1])["left_out_for_s"] == LOG_LINES_PERIOD_SECONDS
    clock.seconds += LOG_LINES_PERIOD_SECONDS
    later = [record("rejected a connection"), record("rejected a connection")]
    assert all(limit.filter(each) for each in later)
    assert [vars(each).get("left_out") for each in later] == [7, None]


def test_lines_of_other_places_and_of_the_level_debug_are_not_left_out() -> None:
    limit = LineLimit(ManualClock())
    for number in range(3 * LOG_LINES_OF_ONE_PLACE_MAX):
        limit.filter(record("rejected a connection"))
        other, fine = record("the ledger is away"), record("looked at")
        other.lineno, fine.levelno = 1000 + number, logging.DEBUG
        assert limit.filter(other)
        assert limit.filter(fine)


def test_a_flood_of_connections_writes_a_bounded_log() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream)
    for number in range(10 * LOG_LINES_OF_ONE_PLACE_MAX):
        logging.getLogger("agent.x").info("rejected a connection", extra={"peer": number})
    lines = stream.getvalue().splitlines()
    assert len(lines) == LOG_LINES_OF_ONE_PLACE_MAX
    assert json.loads(lines[-1])["left_out_for_s"] <= LOG_LINES_PERIOD_SECONDS
