"""`penstock topics`: list, describe, create, delete."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.failure import EXIT_USAGE, CommandFailed
from agent.commands.http_client import (
    SERVER_DEFAULT,
    BootstrapOption,
    JsonOption,
    ServerOption,
    get,
    kafka_address,
    path_part,
)
from agent.commands.output import print_json, print_pairs, print_table

if TYPE_CHECKING:
    from agent.commands.kafka_client import KafkaClient

app = typer.Typer(no_args_is_help=True)
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command("list")
def list_topics(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """All topics with their size."""
    answer = get(server, "/api/topics")
    if as_json:
        print_json(answer["topics"])
        return
    rows = answer["topics"]
    assert isinstance(rows, list)
    print_table(rows, ("name", "partitions", "records", "chunks", "bytes"), empty="There are no topics yet.")


@app.command()
def describe(topic: TopicArgument, *, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """One topic: its configs, and where each partition's log begins, ends, and how far it is archived."""
    answer = get(server, f"/api/topics/{path_part(topic)}")
    if as_json:
        print_json(answer)
        return
    print_pairs(answer)
    rows = answer["partition_list"]
    assert isinstance(rows, list)
    columns = (
        "partition",
        "log_start",
        "last_stable",
        "log_end",
        "archived_end",
        "chunks",
        "bytes",
        "producers",
        "open_transactions",
    )
    print_table(rows, columns, empty="It has no partitions.")


@app.command()
def create(
    topic: TopicArgument,
    *,
    partitions: Annotated[int, typer.Option(min=-1, help="-1 takes the cluster's num.partitions.")] = -1,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A topic config; repeatable.")] = None,
    server: ServerOption = SERVER_DEFAULT,
    bootstrap: BootstrapOption = None,
) -> None:
    """Create a topic."""
    configs: dict[str, str] = {}
    for pair in config or []:
        name, separator, value = pair.partition("=")
        if not separator:
            raise CommandFailed(f"--config {pair} is not KEY=VALUE", exit_code=EXIT_USAGE)
        configs[name.strip()] = value.strip()
    _with_client(server, bootstrap, lambda client: client.create_topic(topic, partitions, configs))
    sys.stderr.write(f"created {topic}\n")


@app.command()
def delete(
    topic: TopicArgument,
    *,
    server: ServerOption = SERVER_DEFAULT,
    bootstrap: BootstrapOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and its records, in the log and in the table."""
    if not is_sure:
        _with_client(server, bootstrap, lambda client: client.partition_count(topic))
        typer.confirm(f"Delete {topic} and all of its records?", abort=True, err=True)
    _with_client(server, bootstrap, lambda client: client.delete_topic(topic))
    sys.stderr.write(f"deleted {topic}\n")


def _with_client(server: str, bootstrap: str | None, work: "Callable[[KafkaClient], Awaitable[object]]") -> None:
    from agent.commands.kafka_client import KafkaClient

    address = kafka_address(server, bootstrap)

    async def connected() -> None:
        async with await KafkaClient.connect(address) as client:
            await work(client)

    asyncio.run(connected())
