"""`penstock consume`: a topic's records on stdout, one line each."""

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.clients.http_client import AgentServer, BootstrapOption, kafka_address
from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.cli.server_flags import with_server
from agent.runtime.clock import SystemClock

if TYPE_CHECKING:
    from agent.cli.clients.http_client import KafkaAddress
    from agent.cli.clients.kafka_client import FetchedPartition, KafkaClient
    from agent.cli.clients.record_reader import ReadRecord

HELP = "Print the values of a topic's committed records, up to the end of the log."
WAIT_MS = 1_000
RECONNECT_SECONDS = 0.5
NO_LIMIT = -1
ALL_PARTITIONS = -1
NULL = b"null"
"""The text that Kafka's console consumer prints for a null."""


JsonLinesOption = Annotated[
    bool,
    typer.Option(
        "--json",
        envvar="PENSTOCK_JSON",
        help='One JSON object per record, with key, value and headers. Bytes that are not UTF-8 are {"base64": "..."}.',
    ),
]


@with_server
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Start: earliest, latest, an offset, or a time such as 2026-01-31T12:00Z. "
            "A time without a zone is UTC.",
        ),
    ] = "earliest",
    partition: Annotated[int, typer.Option(min=ALL_PARTITIONS, help="-1 reads all partitions.")] = ALL_PARTITIONS,
    count: Annotated[
        int, typer.Option("--max", min=NO_LIMIT, help="Stop after this number of records; -1 is no limit.")
    ] = NO_LIMIT,
    is_followed: Annotated[
        bool, typer.Option("--follow", help="Wait for new records at the end, also while the agent restarts.")
    ] = False,
    with_keys: Annotated[
        bool, typer.Option("--keys", help="Print KEY, a tab and VALUE. A null prints as null.")
    ] = False,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    show = _json_line if as_json else (_keyed_line if with_keys else _value_line)
    remaining = count if count != NO_LIMIT else sys.maxsize

    async def copy() -> None:
        nonlocal remaining
        async for record in _records(
            lambda: kafka_address(server, bootstrap), topic, partition, start, is_followed=is_followed
        ):
            if remaining <= 0:
                return
            remaining -= 1
            sys.stdout.buffer.write(show(record) + b"\n")
            if is_followed:
                sys.stdout.buffer.flush()
            if remaining == 0:
                return

    try:
        asyncio.run(copy())
    except KeyboardInterrupt:
        sys.stdout.buffer.flush()


async def _records(
    find_address: "Callable[[], KafkaAddress]", topic: str, partition: int, start: str, *, is_followed: bool
) -> "AsyncIterator[ReadRecord]":
    """The records of the partitions as they are fetched.

    Without `is_followed` they end where the logs ended at the start. With it the command outlives the agent: it
    connects again, and goes on at its offsets.
    """
    from agent.cli.clients.kafka_client import LATEST, KafkaClient, OffsetOutOfRange

    async with await KafkaClient.connect(find_address()) as client:
        partition_count = await client.partition_count(topic)
        if partition >= partition_count:
            raise CommandFailed(f"{topic} has no partition {partition}: it has {partition_count}", exit_code=EXIT_USAGE)
        partitions = range(partition_count) if partition == ALL_PARTITIONS else [partition]
        ends = await client.offsets(topic, partitions, LATEST)
        positions = await _positions(client, topic, partitions, start, ends)
        if all(offset > ends[p] for p, offset in positions.items()):
            # Without a fetch there is no OFFSET_OUT_OF_RANGE: the command would end as if there were no new records.
            raise await _out_of_range(find_address, topic, positions, partitions[0])
        fetch = _Reconnecting(find_address, client).fetch if is_followed else client.fetch
        while True:
            unfinished = {p: offset for p, offset in positions.items() if is_followed or offset < ends[p]}
            if not unfinished:
                return
            try:
                answers = await fetch(topic, unfinished, wait_ms=WAIT_MS)
            except OffsetOutOfRange as error:
                raise await _out_of_range(find_address, topic, positions, error.partition) from error
            for fetched in answers:
                first = positions[fetched.partition]
                end = sys.maxsize if is_followed else ends[fetched.partition]
                for record in _within(fetched, first, end):
                    yield record
                positions[fetched.partition] = _next_offset(fetched, first)


async def _out_of_range(
    find_address: "Callable[[], KafkaAddress]", topic: str, positions: Mapping[int, int], partition: int
) -> CommandFailed:
    """The error with the offsets of the partition, by a new connection: the other may be in use, or gone."""
    from agent.cli.clients.kafka_client import EARLIEST, LATEST, KafkaClient

    async with await KafkaClient.connect(find_address()) as client:
        first = (await client.offsets(topic, [partition], EARLIEST))[partition]
        end = (await client.offsets(topic, [partition], LATEST))[partition]
    return CommandFailed(
        f"offset {positions[partition]} is out of range: {topic}-{partition} begins at {first} and ends at {end}; "
        f"--from takes an offset from {first} to {end}, or earliest, latest, a time"
    )


class _Reconnecting:
    """Fetches, and connects again after an outage; it reports the outage's beginning and end on stderr."""

    def __init__(self, find_address: "Callable[[], KafkaAddress]", client: "KafkaClient") -> None:
        self._find_address = find_address
        self._client: KafkaClient | None = client
        self._clock = SystemClock()

    async def fetch(self, topic: str, positions: Mapping[int, int], *, wait_ms: int) -> "list[FetchedPartition]":
        from agent.cli.clients.kafka_client import KafkaClient

        is_away = False
        while True:
            try:
                if self._client is None:
                    self._client = await KafkaClient.connect(self._find_address())
                fetched = await self._client.fetch(topic, positions, wait_ms=wait_ms)
            except Unavailable as error:
                if self._client is not None:
                    self._client.close()
                    self._client = None
                if not is_away:
                    sys.stderr.write(f"penstock: {error}; trying again\n")
                is_away = True
                await self._clock.sleep(RECONNECT_SECONDS)
                continue
            if is_away:
                sys.stderr.write("penstock: connected again, going on at the next offset\n")
            return fetched


def _within(fetched: "FetchedPartition", first: int, end: int) -> "Iterator[ReadRecord]":
    """The records of the batches from `first` up to `end`: the first batch may begin earlier."""
    from agent.cli.clients.record_reader import read_records
    from protocol.errors import InvalidBatch

    try:
        yield from (record for record in read_records(fetched) if first <= record.offset < end)
    except InvalidBatch as error:
        raise CommandFailed(f"partition {fetched.partition} from offset {first}: {error}") from error


def _next_offset(fetched: "FetchedPartition", position: int) -> int:
    from agent.cli.clients.kafka_client import next_offset

    return next_offset(fetched, position)


async def _positions(
    client: "KafkaClient", topic: str, partitions: Sequence[int], start: str, ends: Mapping[int, int]
) -> dict[int, int]:
    from agent.cli.clients.kafka_client import EARLIEST

    if start == "latest":
        return dict(ends)
    if start == "earliest":
        return await client.offsets(topic, partitions, EARLIEST)
    if start.isascii() and start.isdigit():
        return dict.fromkeys(partitions, int(start))
    offsets = await client.offsets(topic, partitions, _timestamp_ms(start))
    # -1: no record is so late, so begin at the end.
    return {p: offset if offset >= 0 else ends[p] for p, offset in offsets.items()}


def _timestamp_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandFailed(
            f"--from {text} is neither earliest, latest, an offset nor a time such as 2026-01-31T12:00Z",
            exit_code=EXIT_USAGE,
        ) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _value_line(record: "ReadRecord") -> bytes:
    return record.value or b""


def _keyed_line(record: "ReadRecord") -> bytes:
    return b"\t".join(NULL if part is None else part for part in (record.key, record.value))


def _json_line(record: "ReadRecord") -> bytes:
    return json.dumps(
        {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _json_value(record.key),
            "value": _json_value(record.value),
            "headers": [[name, _json_value(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    ).encode()


def _json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text; bytes that are not UTF-8 as an object, so that no text can be taken for them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
