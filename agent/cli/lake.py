"""`penstock lake`: topics as tables."""

import datetime
import sys
from typing import Annotated, NoReturn

import typer

from agent.cli.clients.http_client import SERVER_DEFAULT, JsonOption, ServerOption, get, path_part, post
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.output import print_json, print_pairs, print_table
from agent.cli.spark_jobs import run_job, store_of
from protocol.limits import CLIENT_REBUILD_SECONDS

app = typer.Typer(no_args_is_help=True)
StoreOption = Annotated[
    str | None, typer.Option("--store", help="The bucket's URL; by default --server is asked for it.")
]
TokenFileOption = Annotated[
    str | None,
    typer.Option("--http-token-file", envvar="PENSTOCK_HTTP_TOKEN_FILE", metavar="FILE", help="As the agents have it."),
]
COLUMNS = ("topic", "version", "files", "bytes", "older_files", "older_bytes", "waiting_bytes", "behind")

FOLLOWER_COLUMNS = (
    "catalog",
    "type",
    "namespace",
    "tables",
    "tables_refused",
    "commits_behind",
    "lag_s",
    "last_error_s_ago",
    "last_error",
)


@app.callback()
def lake() -> None:
    """Topics as Iceberg tables."""


@app.command()
def rebuild(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = CLIENT_REBUILD_SECONDS,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Write a table's metadata anew from the data files of the topic's log, where it is damaged, or the bucket moved.

    The files stay as they are, and consumers notice nothing. The table's snapshots are gone: no time travel to before,
    and streams that read the table by its snapshots have to begin anew.
    """
    path = f"/api/lake/{path_part(topic)}"
    if not is_sure:
        get(server, f"/api/topics/{path_part(topic)}")  # is it there?
        typer.confirm(
            f"Begin the table of {topic} anew, without its snapshots, tags and properties of yours?",
            abort=True,
            err=True,
        )
    answer = post(server, f"{path}/rebuild", {}, seconds_max=timeout_s)
    if as_json:
        print_json(answer)
    else:
        print_pairs(answer)


@app.command()
def status(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]")] = None,
    *,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Each topic's table: its files, what only older snapshots hold, what waits for the next archive pass, and how far
    it is behind the log.

    Below them catalogs of others that follow. With a topic: its last snapshot too, and what the next pass would take.
    """
    answer = get(server, "/api/lake" if topic is None else f"/api/lake/{path_part(topic)}")
    if as_json:
        print_json(answer if topic is not None else answer["tables"])
    elif topic is None:
        rows = answer["tables"]
        assert isinstance(rows, list)
        print_table(rows, COLUMNS, empty="There are no topics yet.")
        followers = answer["followers"]
        assert isinstance(followers, list)
        if followers:
            sys.stdout.write("\nCatalogs that follow, with the topics of this agent:\n")
            print_table(followers, FOLLOWER_COLUMNS, empty="")
    else:
        last_ms = answer.pop("last_commit_ms", None)
        if isinstance(last_ms, int):
            moment = datetime.datetime.fromtimestamp(last_ms / 1000, datetime.UTC)
            answer["last_commit"] = moment.isoformat(" ", "seconds")
        print_pairs(answer)


@app.command()
def verify(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]")] = None,
    *,
    store: StoreOption = None,
    server: ServerOption = SERVER_DEFAULT,
    is_without_agent: Annotated[
        bool,
        typer.Option("--without-agent", help="Ask none for the log's index: compare with what the bucket alone says."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every archived record of topics, all by default, and compare it with the tables and the log. Needs Spark.

    Exit status 1: something is wrong, and told. 2: it could not be verified.
    """
    if is_without_agent and store is None:
        raise CommandFailed("--without-agent goes with --store: nobody else knows the bucket", exit_code=EXIT_USAGE)
    try:
        url = store or store_of(server)
    except CommandFailed as error:  # whose own status would mean that something was found
        raise CommandFailed(f"not verified: {error}", exit_code=EXIT_USAGE) from error
    agent = [] if is_without_agent else ["--agent", server]
    raise typer.Exit(run_job("verify", [url, *(topics or ()), *agent, *(["--json"] if as_json else [])]))


@app.command()
def rewrite(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    store: StoreOption = None,
    server: ServerOption = SERVER_DEFAULT,
    token_file: TokenFileOption = None,
) -> None:
    """Make a topic's small files as large as `penstock.table.file.bytes` says, all at once. Needs Spark.

    Agents do the same by themselves, little by little. Exit status 1: some files were left as they are. 2: it could not
    be done to its end.
    """
    _rewritten("rewrite", topic, store, server, token_file)


@app.command()
def backfill(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    *,
    store: StoreOption = None,
    server: ServerOption = SERVER_DEFAULT,
    token_file: TokenFileOption = None,
) -> None:
    """Give typed columns to what was archived before `penstock.table.columns` was set. Needs Spark.

    Exit status 1: some files were left as they are. 2: it could not be done to its end.
    """
    _rewritten("backfill", topic, store, server, token_file)


def _rewritten(purpose: str, topic: str, store: str | None, server: str, token_file: str | None) -> NoReturn:
    try:
        url = store or store_of(server)
    except CommandFailed as error:  # whose own status would mean that some files were left
        raise CommandFailed(f"not done: {error}", exit_code=EXIT_USAGE) from error
    tokens = ["--http-token-file", token_file] if token_file else []
    raise typer.Exit(run_job("rewrite", [purpose, url, topic, "--agent", server, *tokens]))
