"""`penstock produce`: sends lines of stdin as records.

A record is bytes, whatever the locale. An error names the line, and the number of records acknowledged before it.
"""

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from agent.cli.clients.http_client import AgentServer, BootstrapOption, kafka_address
from agent.cli.clients.partitioner import partition_of_key
from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.cli.output import counted
from agent.cli.server_flags import with_server
from agent.runtime.clock import SystemClock
from protocol.limits import KIB

if TYPE_CHECKING:
    from agent.cli.clients.http_client import KafkaAddress
    from agent.cli.clients.kafka_client import KafkaClient

HELP = "Send lines from stdin, or one --value, to a topic. Returns after the records are durable."
LINES_PER_REQUEST = 1_000
LINE_BYTES_PER_REQUEST = 256 * KIB
ANY_PARTITION = -1
QUOTED_BYTES = 200

Pair = tuple[bytes | None, bytes]
Headers = tuple[tuple[str, bytes | None], ...]


@with_server
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    key: Annotated[str | None, typer.Option(help="Key of every record.")] = None,
    value: Annotated[str | None, typer.Option(help="Send this one record instead of reading stdin.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Separator of key and value in each line; \\t is a tab. By default a line is a value."
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Header of every record; repeatable.")
    ] = None,
    partition: Annotated[
        int, typer.Option(min=ANY_PARTITION, help="Partition of all records. -1 chooses by key, or in turn.")
    ] = -1,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
) -> None:
    if key is not None and key_separator is not None:
        raise CommandFailed("--key and --key-separator exclude each other", exit_code=EXIT_USAGE)
    headers = _headers(header or [])
    lines = [os.fsencode(value)] if value is not None else _lines(sys.stdin.buffer)
    key_bytes = None if key is None else os.fsencode(key)
    split = _Split(key=key_bytes, separator=_separator(key_separator))
    source = _LineSource(lines, split, is_one_value=value is not None)
    count = asyncio.run(_produce(kafka_address(server, bootstrap), topic, partition, source, headers))
    sys.stderr.write(f"{counted(count, 'record')} acknowledged\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The rule by which a line becomes key and value: one key for all lines, or a separator in each."""

    key: bytes | None
    separator: bytes | None

    def pair(self, line: bytes) -> Pair:
        """Key and value. Raises `CommandFailed`."""
        if self.separator is None:
            return self.key, line
        own_key, separator, value = line.partition(self.separator)
        if not separator:
            raise CommandFailed(f"{_quoted(line)} does not have the separator {_quoted(self.separator)}")
        return own_key, value


async def _produce(
    address: "KafkaAddress",
    topic: str,
    partition: int,
    source: "_LineSource",
    headers: Headers,
) -> int:
    """Send all lines and return the number of acknowledged records. Raises `CommandFailed`, which has it, too."""
    from agent.cli.clients.kafka_client import KafkaClient

    async with await KafkaClient.connect(address) as client:
        partition_count = await client.partition_count(topic, may_create=True)
        if partition >= partition_count:
            raise CommandFailed(f"{topic} has no partition {partition}: it has {partition_count}", exit_code=EXIT_USAGE)
        count = 0
        # Reading stdin blocks the event loop, which has nothing else to do.
        while True:
            pairs, reason = source.next_pairs()
            by_partition: dict[int, list[Pair]] = {}
            for key, value in pairs:
                chosen = partition if partition != ANY_PARTITION else _choose(key, count, partition_count)
                by_partition.setdefault(chosen, []).append((key, value))
            await _send(client, topic, by_partition, headers, lines_before=None if source.is_one_value else count)
            count += len(pairs)
            if reason:
                raise CommandFailed(f"line {count + 1}: {reason}; {_before(count)}")
            if not pairs:
                return count


class _LineSource:
    """Lines in groups for one request each, of a size that a topic with Kafka's defaults accepts."""

    def __init__(self, lines: Iterable[bytes], split: _Split, *, is_one_value: bool) -> None:
        self.is_one_value = is_one_value
        self._lines = iter(lines)
        self._split = split
        self._next_line: bytes | None = None
        """A line that did not fit into the last group."""

    def next_pairs(self) -> tuple[list[Pair], str]:
        """The pairs of the next request, none at the end; and the fault of the line after them, or ""."""
        pairs: list[Pair] = []
        bytes_left = LINE_BYTES_PER_REQUEST
        while len(pairs) < LINES_PER_REQUEST:
            line = self._next_line if self._next_line is not None else next(self._lines, None)
            self._next_line = None
            if line is None:
                break
            if pairs and len(line) > bytes_left:
                self._next_line = line
                break
            try:
                pairs.append(self._split.pair(line))
            except CommandFailed as error:
                return pairs, str(error)
            bytes_left -= len(line)
        return pairs, ""


async def _send(
    client: "KafkaClient",
    topic: str,
    by_partition: dict[int, list[Pair]],
    headers: Headers,
    *,
    lines_before: int | None,
) -> None:
    """Send one batch to each partition. Raises `CommandFailed`, with the numbers of its lines.

    `lines_before` is the number of lines that were acknowledged before; None where there are no lines.
    """
    from agent.cli.clients.outgoing_batch import OutgoingRecord

    clock, sent = SystemClock(), 0
    for partition, pairs in by_partition.items():
        now_ms = clock.now_ms()
        records = [OutgoingRecord(timestamp_ms=now_ms, key=key, value=value, headers=headers) for key, value in pairs]
        try:
            await client.produce(topic, partition, records)
        except CommandFailed as error:
            if lines_before is None:
                raise
            last = lines_before + sum(len(each) for each in by_partition.values())
            first = lines_before + 1
            where = f"line {last}" if first == last else f"lines {first} to {last}"
            also = f", and {sent} of these" if sent else ""
            if isinstance(error, Unavailable):
                also += "; the others may have been appended or not"
            raise CommandFailed(f"{where}: {error}; {_before(lines_before)}{also}") from error
        sent += len(pairs)


def _before(count: int) -> str:
    """The count of acknowledged records, in words."""
    match count:
        case 0:
            return "no record before it was acknowledged"
        case 1:
            return "the 1 record before it was acknowledged"
        case _:
            return f"the {count} records before it were acknowledged"


def _choose(key: bytes | None, count: int, partition_count: int) -> int:
    """The partition of a key, as Kafka's clients choose it. Without a key each partition in turn gets 1,000 lines."""
    if key is None:
        return count // LINES_PER_REQUEST % partition_count
    return partition_of_key(key, partition_count)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream as they arrive: a terminal or a pipe is not read ahead."""
    return (line.rstrip(b"\r\n") for line in stream)


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise CommandFailed("--key-separator is empty: give the text between key and value", exit_code=EXIT_USAGE)
    return None if text is None else os.fsencode(text.replace("\\t", "\t"))


def _quoted(data: bytes) -> str:
    """The first QUOTED_BYTES of the bytes, quoted for an error message."""
    text = data[:QUOTED_BYTES].decode(errors="backslashreplace")
    return repr(text) + ("..." if len(data) > QUOTED_BYTES else "")


def _headers(texts: list[str]) -> Headers:
    pairs: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, separator, value = os.fsencode(text).partition(b"=")
        if not separator:
            raise CommandFailed(f"--header {text} is not NAME=VALUE", exit_code=EXIT_USAGE)
        try:
            pairs.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise CommandFailed(f"--header {text}: its name is not UTF-8", exit_code=EXIT_USAGE) from error
    return tuple(pairs)
