"""The command line: `penstock COMMAND`. Each command is a module of `agent.commands`.

Rule: this file imports nothing slow, for `penstock run` has a second and a half to be ready. Exit codes: 0 done, 1 it
did not work, 2 it was asked for wrongly. Results go to stdout, everything else to stderr.
"""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from agent.cli import agent, archive, audit, consume, inspect, lake, produce, recover, run, topics
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
app.command("archive", help=archive.HELP)(archive.archive)
app.add_typer(lake.app, name="lake", help="Show, verify and rewrite topics as Iceberg tables.")
app.add_typer(inspect.app, name="inspect", help="Show ledger entries, state, chunks, transactions and objects as text.")
app.command("doctor", help=doctor.HELP)(doctor.doctor)
app.command("audit", help=audit.HELP)(audit.audit)
app.command("recover", help=recover.HELP)(recover.recover)


def show_version(is_wanted: bool) -> None:  # noqa: FBT001 - Typer calls it with the flag
    if is_wanted:
        sys.stdout.write(f"penstock {VERSION}\n")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=show_version)
]


@app.callback()
def common(*, version: VersionOption = False) -> None:
    """Options of `penstock` itself; the callback of --version does all there is."""


def main() -> None:
    """The entry point of `.venv/bin/penstock`.

    It ends the process without taking the interpreter down: threads of the object store's client may still be letting
    go of Python objects then, which aborts the process, whatever the command's result was.
    """
    exit_code: object
    # kio imports hypothesis wherever it is installed, and makes strategies of its types: 0.25 s of each start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    if isinstance(sys.stdout, TextIOWrapper):
        # What a locale cannot show is no reason to fail; records and JSON are written as bytes anyway.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
        exit_code = 0
    except CommandFailed as error:
        sys.stderr.write(f"penstock: {error}\n")
        exit_code = error.exit_code
    except SystemExit as leaving:
        exit_code = leaving.code or 0
        if not isinstance(exit_code, int):
            sys.stderr.write(f"{exit_code}\n")
            exit_code = 1
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    main()
