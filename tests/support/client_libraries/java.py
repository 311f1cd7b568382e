"""Apache Kafka's own client, through `KafkaDriver.java`."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.client_libraries.interface import SECONDS_MAX, Place, Row, Rows, Send, Waiting
from tests.support.processes import Process
from tests.support.services.java import JavaProgram

NULL = "-"
EMPTY = "."


class JavaClient:
    def __init__(self, driver: JavaProgram) -> None:
        self._driver = driver

    def can_send(self, row: Row) -> bool:
        return row.timestamp_ms >= 0

    def produce(self, bootstrap: str, sends: Sequence[Send]) -> None:
        self._run("produce", bootstrap, [_send_words(send) for send in sends])

    def consume(
        self,
        bootstrap: str,
        ranges: Mapping[Place, tuple[int, int]],
        *,
        assigned: Callable[[], None] = lambda: None,
        wait_ms: int = 500,
    ) -> Rows:
        waiting, deadline = Waiting(ranges), time.monotonic() + SECONDS_MAX
        with tempfile.TemporaryDirectory() as folder:
            file = _write(Path(folder), [[*place, first, end] for place, (first, end) in ranges.items()])
            command = self._driver.command("consume", bootstrap, str(file), str(wait_ms))
            with Process(command, Path(folder), name="consumer") as process:
                assert process.read_line() == "assigned"
                assigned()
                while waiting:
                    left_s = deadline - time.monotonic()
                    process.wait_until(process.has_line, "the next record", seconds_max=left_s)
                    for line in process.read_lines():
                        topic, partition, offset, *words = line.split(" ")
                        waiting.add((topic, int(partition)), int(offset), _row(words))
        return waiting.rows

    def offsets_at(self, bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
        lines = self._run("times", bootstrap, [[*place, time_ms] for place, time_ms in times.items()])
        found = [line.split(" ") for line in lines]
        return {(topic, int(partition)): None if offset == NULL else int(offset) for topic, partition, offset in found}

    def ends(self, bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        found = [line.split(" ") for line in self._run("ends", bootstrap, [list(place) for place in places])]
        return {(topic, int(partition)): (int(first), int(end)) for topic, partition, first, end in found}

    def _run(self, what: str, bootstrap: str, lines: Sequence[Sequence[str | int]]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return self._driver.run(what, bootstrap, str(_write(Path(folder), lines))).splitlines()


def _write(folder: Path, lines: Sequence[Sequence[str | int]]) -> Path:
    file = folder / "lines"
    file.write_text("".join(" ".join(map(str, words)) + "\n" for words in lines))
    return file


def _send_words(send: Send) -> list[str | int]:
    row = send.row
    headers = ",".join(f"{_word(name.encode())}:{_word(value)}" for name, value in row.headers) or EMPTY
    return [send.codec, *send.place, row.timestamp_ms, _word(row.key), _word(row.value), headers]


def _row(words: Sequence[str]) -> Row:
    timestamp_ms, kind, key, value, headers = words
    pairs = [] if headers == EMPTY else [pair.split(":") for pair in headers.split(",")]
    return Row(
        key=_bytes(key),
        value=value.encode() if value.startswith("#") else _bytes(value),
        headers=tuple(((_bytes(name) or b"").decode(), _bytes(content)) for name, content in pairs),
        timestamp_ms=int(timestamp_ms),
        is_append_time=kind == "LogAppendTime",
    )


def _word(content: bytes | None) -> str:
    return NULL if content is None else content.hex() or EMPTY


def _bytes(word: str) -> bytes | None:
    return None if word == NULL else b"" if word == EMPTY else bytes.fromhex(word)
