"""`penstock acls`: confirm. ACLs are created, listed and deleted by Kafka's own tool, `kafka-acls.sh`."""

import sys

import typer

from agent.cli.clients.http_client import AgentServer, JsonOption, post
from agent.cli.output import print_json
from agent.cli.server_flags import with_server
from protocol.limits import LEDGER_WAIT_SECONDS_MAX

app = typer.Typer(no_args_is_help=True)


@app.callback()
def acls() -> None:
    """Subcommands for access control lists."""


@app.command()
@with_server
def confirm(*, server: AgentServer, as_json: JsonOption = False) -> None:
    """Confirm the ACLs and SCRAM credentials that a recovery restored, after a check that no revocation is missing."""
    answer = post(server, "/api/acls/confirm", {}, seconds_max=2 * LEDGER_WAIT_SECONDS_MAX)
    if as_json:
        print_json(answer)
        return
    sys.stdout.write(
        f"confirmed: {answer['acls']} ACLs and {answer['scram_credentials']} SCRAM credentials are in force\n"
    )
