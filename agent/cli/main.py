"""The command line: `penstock COMMAND`. Each command is a module of `agent.cli`.

Exit codes: 0 for success, 1 for a failure, 2 for wrong arguments. Results go to stdout, everything else to stderr.
Nothing slow is imported here: `penstock run` has to be ready in a second and a half.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from agent.cli import acls, agent, agents, archive, audit, consume, inspect, lake, produce, recover, run, topics, users
from agent.cli.doctor import doctor
from agent.cli.failure import CommandFailed
from agent.runtime.version import VERSION

app = typer.Typer(
    name="penstock",
    help="A Kafka-compatible broker that keeps its data in an object store, once, as Parquet.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run", help=run.HELP)(run.run)
app.command("agent", help=agent.HELP)(agent.agent)
app.add_typer(topics.app, name="topics", help="List, describe, create, alter and delete topics.")
app.command("produce", help=produce.HELP)(produce.produce)
app.command("consume", help=consume.HELP)(consume.consume)
app.add_typer(users.app, name="users", help="List, create and delete users that log in by SCRAM or PLAIN.")
app.add_typer(agents.app, name="agents", help="List the agents of a cluster, and drain one.")
app.add_typer(acls.app, name="acls", help="Confirm the access control lists that a recovery restored.")
app.command("archive", help=archive.HELP)(archive.archive)
app.add_typer(lake.app, name="lake", help="Show, verify and rewrite topics as Iceberg tables.")
app.add_typer(inspect.app, name="inspect", help="Show ledger entries, state, chunks, transactions and objects as text.")
app.command("doctor", help=doctor.HELP)(doctor.doctor)
app.command("audit", help=audit.HELP)(audit.audit)
app.command("recover", help=recover.HELP)(recover.recover)


def show_version(is_flag_set: bool) -> None:  # noqa: FBT001 - Typer calls it with the flag
    """Print the version and exit, where the flag is set."""
    if is_flag_set:
        sys.stdout.write(f"penstock {VERSION}\n")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=show_version)
]


@app.callback()
def common(*, version: VersionOption = False) -> None:
    """Options of `penstock` itself. --version is handled by its callback."""


def main() -> None:
    """The entry point of `.venv/bin/penstock`."""
    exit_code: object
    # kio imports hypothesis wherever it is installed, and makes strategies of its types: 0.25 s of each start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    if isinstance(sys.stdout, TextIOWrapper):
        # A character that the locale lacks must not fail a command. Records and JSON are written as bytes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
        exit_code = 0
    except CommandFailed as error:
        if not error.is_logged:
            sys.stderr.write(f"penstock: {error}\n")
        exit_code = error.exit_code
    except SystemExit as error:
        exit_code = error.code or 0
        if not isinstance(exit_code, int):
            sys.stderr.write(f"{exit_code}\n")
            exit_code = 1
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's shutdown: threads of the object store's client may release Python objects during it,
    # which aborts the process whatever the command's result was.
    os._exit(exit_code)


if __name__ == "__main__":
    main()
