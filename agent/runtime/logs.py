"""Log lines on stderr: one line per message, as key=value text or as a JSON object.

Rule: modules log through `logging.getLogger(__name__)`, a constant sentence with the values in `extra`; the format is
chosen here. Only the `ready` line goes to stdout (`agent.cli.serving.startup_report`). With JSON every line of an
agent's stderr is an object, also that of its start (`agent.cli.serving.serve`). Where several processes write to one
stderr (`agent.cli.serving.processes`) each line ends with its process.
"""

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from agent.runtime.clock import Clock, SystemClock
from protocol.limits import LOG_LINES_OF_ONE_PLACE_MAX, LOG_LINES_PERIOD_SECONDS

JSON = "json"
"""The format of one object a line."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_QUIET = ("uvicorn.error", "uvicorn.access", "asyncio", "numba", "botocore")
"""Libraries whose lines below the level warning are of no use to an operator."""


def configure_logs(level: str, log_format: str, stream: TextIO | None = None, *, process: str | None = None) -> None:
    """Log everything from `level` (debug, info, warning, error) on to stderr, as `text` or `json`.

    `process` is the name of this process where several processes write to one stderr, else None.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if log_format == JSON else TextFormatter(process))
    handler.addFilter(LineLimit(SystemClock()))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


class LineLimit(logging.Filter):
    """Leaves out lines of one place in the code that come too often: strangers with many connections could fill a disk.

    The last line that is written says so (`left_out_for_s`); the first one afterwards has their number (`left_out`).
    Lines of the level debug are never left out: who asks for them wants all.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._places: dict[tuple[str, int], _Lines] = {}
        """By file and line. There are only as many as the code has, whatever clients send."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        now_s = self._clock.monotonic_s()
        place = (record.pathname, record.lineno)
        lines = self._places.get(place)
        if lines is None or now_s >= lines.until_s:
            if lines is not None and lines.count > LOG_LINES_OF_ONE_PLACE_MAX:
                record.left_out = lines.count - LOG_LINES_OF_ONE_PLACE_MAX
            lines = self._places[place] = _Lines(now_s + LOG_LINES_PERIOD_SECONDS)
        lines.count += 1
        if lines.count == LOG_LINES_OF_ONE_PLACE_MAX:
            record.left_out_for_s = round(lines.until_s - now_s, 1)
        return lines.count <= LOG_LINES_OF_ONE_PLACE_MAX


@dataclass(slots=True)
class _Lines:
    """How many lines of one place came in the period that ends at `until_s` of the monotonic clock."""

    until_s: float
    count: int = 0


class TextFormatter(logging.Formatter):
    """`2026-11-21T05:20:11.123Z WARNING agent.ledger.ledger_writer: the sentence key=value key="two words"`."""

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {key}={_text_value(value)}" for key, value in _extras(record, self._process))
        line = f"{_time_text(record)} {record.levelname} {record.name}: {_one_line(record.getMessage())}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the extras, and exception where there is one."""

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update(_extras(record, self._process))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def _extras(record: logging.LogRecord, process: str | None) -> Iterator[tuple[str, object]]:
    yield from ((key, value) for key, value in vars(record).items() if key not in _STANDARD)
    if process is not None:
        yield "process", process


def _time_text(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text_value(value: object) -> str:
    """A value that cannot be confused with its neighbours: quoted unless it is one plain word."""
    text = str(value)
    if text and all(char.isprintable() and char not in ' "=' for char in text):
        return text
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    """The text without line breaks: text of a client must not forge a log line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
