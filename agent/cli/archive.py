"""`penstock archive`: starts an archive pass now."""

import sys
from typing import Annotated

import typer

from agent.cli.clients.http_client import AgentServer, Json, JsonOption, NoAnswerInTime, post
from agent.cli.failure import CommandFailed
from agent.cli.output import print_json, print_table
from agent.cli.server_flags import with_server

HELP = "Archive the topics' records as Parquet now, before the next interval."


@with_server
def archive(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    *,
    is_awaited: Annotated[bool, typer.Option("--wait", help="Return after the archive pass has committed.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Time-out of --wait in seconds.")] = 60,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    body: Json = {"topics": topics, "wait": is_awaited}
    try:
        answer = post(server, "/api/archive", body, seconds_max=timeout_s)
    except NoAnswerInTime as error:
        raise CommandFailed(
            f"{', '.join(topics)}: not archived within {timeout_s:g} s. The agent goes on with it: repeat the command "
            "later, or wait longer with --timeout. The agent's log says whether its ledger or store is away",
        ) from error
    if as_json:
        print_json(answer)
    elif is_awaited:
        rows = answer["passes"]
        assert isinstance(rows, list)
        columns = ("topic", "records", "bytes", "objects")
        print_table(rows, columns, empty="There was nothing to archive.")
    else:
        sys.stderr.write(f"started for {', '.join(topics)}; add --wait to see the result\n")
