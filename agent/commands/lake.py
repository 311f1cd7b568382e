"""`penstock lake`: topics as tables."""

import datetime
from typing import Annotated

import typer

from agent.commands.http_client import SERVER_DEFAULT, JsonOption, ServerOption, get, path_part
from agent.commands.output import print_json, print_pairs, print_table

app = typer.Typer(no_args_is_help=True)
COLUMNS = ("topic", "version", "files", "bytes", "leaving", "waiting_bytes", "behind")


@app.callback()
def lake() -> None:
    """Topics as Iceberg tables."""


@app.command()
def status(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]")] = None,
    *,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Each topic's table: its files, what waits for the next archive pass, and how far it is behind the log.

    With a topic: its last snapshot too, and what the next pass would take.
    """
    answer = get(server, "/api/lake" if topic is None else f"/api/lake/{path_part(topic)}")
    if as_json:
        print_json(answer if topic is not None else answer["tables"])
    elif topic is None:
        rows = answer["tables"]
        assert isinstance(rows, list)
        print_table(rows, COLUMNS, empty="There are no topics yet.")
    else:
        last_ms = answer.pop("last_commit_ms", None)
        if isinstance(last_ms, int):
            moment = datetime.datetime.fromtimestamp(last_ms / 1000, datetime.UTC)
            answer["last_commit"] = moment.isoformat(" ", "seconds")
        print_pairs(answer)
