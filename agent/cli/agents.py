"""`penstock agents`: list, drain. Any agent answers for the whole cluster."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from agent.cli.clients.http_client import AgentServer, Json, JsonOption, get, path_part, post
from agent.cli.output import print_json, print_pairs, print_table
from agent.cli.server_flags import with_server
from protocol.limits import LEDGER_WAIT_SECONDS_MAX, REQUESTED_DRAIN_WAIT_SECONDS

app = typer.Typer(no_args_is_help=True)
COLUMNS = ("name", "zone", "version", "rules_known", "draining", "since", "http")
NOT_DRAINING = "no"
NOT_HELD = "not held"
REQUESTED = "requested"
UNKNOWN_TIME = "yes"


@app.callback()
def agents() -> None:
    """Subcommands for the agents of a cluster."""


@app.command("list")
@with_server
def list_agents(*, server: AgentServer, as_json: JsonOption = False) -> None:
    """List the live agents, and the rules version: in force, known by all agents, and since when it is held."""
    answer = get(server, "/api/agents")
    if as_json:
        print_json(answer)
        return
    rows = answer["agents"]
    assert isinstance(rows, list)
    print_pairs(
        {
            "rules in force": answer["rules_version"],
            "rules known by all": answer["rules_known_by_all"],
            "rules held since": _time_text(answer["rules_held_since_ms"]) or NOT_HELD,
        }
    )
    shown = [{**row, "draining": draining_text(row), "since": _time_text(row["since_ms"])} for row in rows]
    print_table(shown, COLUMNS, empty="There are no live agents.")


@app.command()
@with_server
def drain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a live agent.")],
    *,
    server: AgentServer,
    as_json: JsonOption = False,
) -> None:
    """Send an agent's clients to the other agents. It goes on as a spare, without clients, until it is restarted."""
    seconds_max = LEDGER_WAIT_SECONDS_MAX + REQUESTED_DRAIN_WAIT_SECONDS
    answer = post(server, f"/api/agents/{path_part(name)}/drain", {}, seconds_max=seconds_max)
    if as_json:
        print_json(answer)
    elif answer["is_draining"]:
        sys.stdout.write(f"{name} drains: its clients go to the other agents. A restart of the agent ends the drain\n")
    else:
        sys.stdout.write(f"{name} is asked to drain and has not begun: penstock agents list shows when it does\n")


def draining_text(row: Json) -> str:
    """Since when an agent drains: a time, or what is known of it."""
    if row["is_draining"]:
        return _time_text(row["draining_since_ms"]) or UNKNOWN_TIME
    return REQUESTED if row["is_drain_requested"] else NOT_DRAINING


def _time_text(time_ms: object) -> str | None:
    """A time in ms since 1970 as a text in UTC; None where it is not known."""
    if not isinstance(time_ms, int):
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
