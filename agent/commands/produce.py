"""`penstock produce`: lines from stdin become records."""

import asyncio
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from agent.clock import SystemClock
from agent.commands.failure import EXIT_USAGE, CommandFailed
from agent.commands.http_client import SERVER_DEFAULT, BootstrapOption, ServerOption, kafka_address
from agent.commands.partitioner import partition_of_key

if TYPE_CHECKING:
    from agent.addresses import HostPort

HELP = "Send lines from stdin (or one --value) to a topic, acknowledged when they are durable."
LINES_PER_REQUEST = 1_000
ANY_PARTITION = -1


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    key: Annotated[str | None, typer.Option(help="Key of every record.")] = None,
    value: Annotated[str | None, typer.Option(help="Send this one record instead of reading stdin.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Each line is KEY TEXT VALUE; without it a line is a value.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Header of every record; repeatable.")
    ] = None,
    partition: Annotated[int, typer.Option(min=ANY_PARTITION, help="-1: by key, or in turn without one.")] = -1,
    server: ServerOption = SERVER_DEFAULT,
    bootstrap: BootstrapOption = None,
) -> None:
    if key is not None and key_separator is not None:
        raise CommandFailed("--key and --key-separator exclude each other", exit_code=EXIT_USAGE)
    headers = _headers(header or [])
    lines = iter([value]) if value is not None else _lines(sys.stdin)
    pairs = (_pair(line, key, key_separator) for line in lines)
    count = asyncio.run(_produce(kafka_address(server, bootstrap), topic, partition, pairs, headers))
    sys.stderr.write(f"{count} records acknowledged\n")


async def _produce(
    address: "HostPort",
    topic: str,
    partition: int,
    pairs: Iterator[tuple[bytes | None, bytes]],
    headers: tuple[tuple[str, bytes | None], ...],
) -> int:
    from agent.commands.kafka_client import KafkaClient, OutgoingRecord

    count, clock = 0, SystemClock()
    async with await KafkaClient.connect(address) as client:
        partition_count = await client.partition_count(topic, may_create=True)
        if partition >= partition_count:
            raise CommandFailed(f"{topic} has no partition {partition}: it has {partition_count}", exit_code=EXIT_USAGE)
        # Reading stdin blocks the loop, which has nothing else to do.
        while some := list(islice(pairs, LINES_PER_REQUEST)):
            by_partition: dict[int, list[OutgoingRecord]] = {}
            for key, value in some:
                chosen = partition if partition != ANY_PARTITION else _choose(key, count, partition_count)
                record = OutgoingRecord(timestamp_ms=clock.now_ms(), key=key, value=value, headers=headers)
                by_partition.setdefault(chosen, []).append(record)
                count += 1
            for chosen, records in by_partition.items():
                await client.produce(topic, chosen, records)
    return count


def _choose(key: bytes | None, count: int, partition_count: int) -> int:
    """By key as Kafka's clients do; without one a partition for each request in turn."""
    if key is None:
        return count // LINES_PER_REQUEST % partition_count
    return partition_of_key(key, partition_count)


def _lines(stream: TextIO) -> Iterator[str]:
    """Lines as they come: a terminal or a pipe is not read ahead."""
    return (line.rstrip("\r\n") for line in stream)


def _pair(line: str, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None if key is None else key.encode(), line.encode()
    own_key, found, value = line.partition(separator)
    if not found:
        raise CommandFailed(f"the line {line!r} does not hold the separator {separator!r}")
    return own_key.encode(), value.encode()


def _headers(texts: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise CommandFailed(f"--header {text} is not NAME=VALUE", exit_code=EXIT_USAGE)
        pairs.append((name, value.encode()))
    return tuple(pairs)
