"""`penstock topics`: list, describe, create, alter, delete."""

import sys
from typing import Annotated

import typer

from agent.cli.clients.http_client import (
    AgentServer,
    BootstrapOption,
    JsonOption,
    get,
    path_part,
)
from agent.cli.clients.kafka_work import with_client
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.output import print_json, print_pairs, print_table
from agent.cli.server_flags import with_server

app = typer.Typer(no_args_is_help=True)
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A topic config; repeatable.")
]
DEFAULT_SOURCE = "DEFAULT"
"""The source of a config that is set nowhere."""


@app.command("list")
@with_server
def list_topics(*, server: AgentServer, as_json: JsonOption = False) -> None:
    """List all topics with their sizes."""
    answer = get(server, "/api/topics")
    if as_json:
        print_json(answer["topics"])
        return
    rows = answer["topics"]
    assert isinstance(rows, list)
    print_table(rows, ("name", "partitions", "records", "chunks", "bytes"), empty="There are no topics yet.")


@app.command()
@with_server
def describe(
    topic: TopicArgument,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Also show configs with Kafka's default values.")] = False,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Describe a topic: its configs and their sources, and each partition's log start, log end and archived offset."""
    answer = get(server, f"/api/topics/{path_part(topic)}")
    if as_json:
        print_json(answer)
        return
    configs, rows = answer.pop("config_list"), answer["partition_list"]
    assert isinstance(configs, list)
    assert isinstance(rows, list)
    print_pairs({name: value for name, value in answer.items() if name != "configs"})
    shown = [row for row in configs if is_all or row["source"] != DEFAULT_SOURCE]
    if shown:
        print_table(shown, ("config", "value", "source"), empty="")
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
@with_server
def create(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int, typer.Option(min=-1, help="Number of partitions; -1 is the cluster's num.partitions.")
    ] = -1,
    config: ConfigOption = None,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
) -> None:
    """Create a topic."""
    configs = _pairs(config or [])
    with_client(server, bootstrap, lambda client: client.create_topic(topic, partitions, configs))
    sys.stderr.write(f"created {topic}\n")


@app.command()
@with_server
def alter(
    topic: TopicArgument,
    *,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A topic config to reset to its default; repeatable.")
    ] = None,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
) -> None:
    """Set or reset configs of a topic, all or none. Other configs stay."""
    configs: dict[str, str | None] = {**_pairs(config or [])}
    for name in (each.strip() for each in delete_config or []):
        if configs.get(name) is not None:
            raise CommandFailed(
                f"{name} is in --config and in --delete-config: remove one of them", exit_code=EXIT_USAGE
            )
        configs[name] = None
    if not configs:
        raise CommandFailed("nothing to alter: give --config KEY=VALUE or --delete-config KEY", exit_code=EXIT_USAGE)
    with_client(server, bootstrap, lambda client: client.alter_topic(topic, configs))
    sys.stderr.write(f"altered {topic}\n")


@app.command()
@with_server
def delete(
    topic: TopicArgument,
    *,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic with its records, in the log and in the table."""
    if not is_sure:
        with_client(server, bootstrap, lambda client: client.partition_count(topic))
        typer.confirm(f"Delete {topic} and all of its records?", abort=True, err=True)
    with_client(server, bootstrap, lambda client: client.delete_topic(topic))
    sys.stderr.write(f"deleted {topic}\n")


def _pairs(texts: list[str]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for pair in texts:
        name, separator, value = pair.partition("=")
        if not separator:
            raise CommandFailed(f"--config {pair} is not KEY=VALUE", exit_code=EXIT_USAGE)
        configs[name.strip()] = value.strip()
    return configs
