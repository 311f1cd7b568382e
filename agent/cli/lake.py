"""`penstock lake`: topics as Iceberg tables."""

import datetime
import sys
from typing import Annotated, NoReturn

import typer

from agent.cli.clients.http_client import AgentServer, JsonOption, get, path_part, post
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.output import print_json, print_pairs, print_table
from agent.cli.server_flags import with_server
from agent.cli.spark_jobs import run_job, store_of
from protocol.limits import CLIENT_REBUILD_SECONDS

app = typer.Typer(no_args_is_help=True)
StoreOption = Annotated[str | None, typer.Option("--store", help="URL of the bucket; by default the agent's.")]
COLUMNS = ("topic", "version", "files", "bytes", "older_files", "older_bytes", "waiting_bytes", "behind")

CATALOG_COLUMNS = (
    "catalog",
    "type",
    "namespace",
    "tables",
    "conflicts",
    "commit_lag",
    "lag_s",
    "last_error_s_ago",
    "last_error",
)


@app.callback()
def lake() -> None:
    """Topics as Iceberg tables."""


@app.command()
@with_server
def rebuild(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Time-out in seconds.")
    ] = CLIENT_REBUILD_SECONDS,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Rebuild the metadata of a topic's table from its data files, after damage or a move of the bucket.

    Data files and consumers are not affected. The table loses its snapshots: there is no earlier time travel, and
    streams that read the table's snapshots must restart.
    """
    path = f"/api/lake/{path_part(topic)}"
    if not is_sure:
        get(server, f"/api/topics/{path_part(topic)}")  # an unknown topic is an error before the question
        typer.confirm(
            f"Rebuild the table of {topic}, and lose its snapshots, its tags and the properties that you have set?",
            abort=True,
            err=True,
        )
    answer = post(server, f"{path}/rebuild", {}, seconds_max=timeout_s)
    if as_json:
        print_json(answer)
    else:
        print_pairs(answer)


@app.command()
@with_server
def status(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]")] = None,
    *,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Show each topic's table: files, files of older snapshots only, unarchived bytes, and lag behind the log.

    External catalogs follow below. With a topic: also its last snapshot, and the contents of the next archive pass.
    """
    answer = get(server, "/api/lake" if topic is None else f"/api/lake/{path_part(topic)}")
    if as_json:
        print_json(answer if topic is not None else answer["tables"])
    elif topic is None:
        rows = answer["tables"]
        assert isinstance(rows, list)
        print_table(rows, COLUMNS, empty="There are no topics yet.")
        catalogs = answer["external_catalogs"]
        assert isinstance(catalogs, list)
        if catalogs:
            sys.stdout.write("\nExternal catalogs, with the topics of this agent:\n")
            print_table(catalogs, CATALOG_COLUMNS, empty="")
    else:
        last_ms = answer.pop("last_commit_ms", None)
        if isinstance(last_ms, int):
            moment = datetime.datetime.fromtimestamp(last_ms / 1000, datetime.UTC)
            answer["last_commit"] = moment.isoformat(" ", "seconds")
        print_pairs(answer)


@app.command()
@with_server
def verify(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]")] = None,
    *,
    store: StoreOption = None,
    server: AgentServer,
    is_without_agent: Annotated[
        bool,
        typer.Option("--without-agent", help="Compare with the bucket alone, without the log's index."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare every archived record of topics with the tables and the log. The default is all topics. Needs Spark.

    Exit code 1: a difference was found and reported. 2: the comparison failed.
    """
    if is_without_agent and store is None:
        raise CommandFailed("--without-agent needs --store, the URL of the bucket", exit_code=EXIT_USAGE)
    try:
        url = store or store_of(server)
    except CommandFailed as error:  # its own exit code means that a difference was found
        raise CommandFailed(f"not verified: {error}", exit_code=EXIT_USAGE) from error
    agent = [] if is_without_agent else server.job_arguments
    environment = {} if is_without_agent else server.job_environment
    arguments = [url, *(topics or ()), *agent, *(["--json"] if as_json else [])]
    raise typer.Exit(run_job("verify", arguments, environment))


@app.command()
@with_server
def rewrite(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    store: StoreOption = None,
    server: AgentServer,
) -> None:
    """Compact all small files of a topic to `penstock.table.file.bytes` at once. Needs Spark.

    Agents compact files in the background, step by step. Exit code 1: some files were not rewritten. 2: the job failed.
    """
    _run_rewrite("rewrite", topic, store, server)


@app.command()
@with_server
def backfill(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    store: StoreOption = None,
    server: AgentServer,
) -> None:
    """Add typed columns to files that were archived before `penstock.table.columns` was set. Needs Spark.

    Exit code 1: some files were not rewritten. 2: the job failed.
    """
    _run_rewrite("backfill", topic, store, server)


def _run_rewrite(purpose: str, topic: str, store: str | None, server: AgentServer) -> NoReturn:
    try:
        url = store or store_of(server)
    except CommandFailed as error:  # its own exit code means that some files were not rewritten
        raise CommandFailed(f"not done: {error}", exit_code=EXIT_USAGE) from error
    raise typer.Exit(run_job("rewrite", [purpose, url, topic, *server.job_arguments], server.job_environment))
