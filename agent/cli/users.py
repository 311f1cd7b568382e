"""`penstock users`: list, create, delete as Kafka's `kafka-configs.sh` does, and lines for `--plain-users`.

A password is asked for, or read from a file or from stdin: other users of the machine can read a command line. Only the
salted password leaves this process. The agent turns it into keys that do not contain it.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.clients.http_client import AgentServer, BootstrapOption, JsonOption
from agent.cli.clients.kafka_work import with_client
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.output import print_json, print_table
from agent.cli.server_flags import with_server
from agent.runtime.ids import SystemIds
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN

if TYPE_CHECKING:
    from agent.cli.clients.kafka_client import KafkaClient

app = typer.Typer(no_args_is_help=True)
UserArgument = Annotated[str, typer.Argument(metavar="USER")]
MechanismOption = Annotated[str, typer.Option(metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512.")]
PasswordOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with the password; by default it is asked for, or read from stdin."),
]
_MECHANISM_DEFAULT = ScramMechanism.SCRAM_SHA_512.sasl_name


@app.command("list")
@with_server
def list_users(*, server: AgentServer, bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """List the users of the cluster with the mechanisms that they have a password for."""
    credentials = with_client(server, bootstrap, lambda client: client.users())
    rows = [
        {"user": name, "mechanism": ScramMechanism(code).sasl_name, "iterations": iterations}
        for name, code, iterations in sorted(credentials)
    ]
    if as_json:
        print_json(rows)
        return
    print_table(rows, ("user", "mechanism", "iterations"), empty="There are no users yet.")


@app.command()
@with_server
def create(
    user: UserArgument,
    *,
    mechanism: MechanismOption = _MECHANISM_DEFAULT,
    iterations: Annotated[
        int, typer.Option(min=SCRAM_ITERATIONS_MIN, max=SCRAM_ITERATIONS_MAX, help="Rounds of PBKDF2.")
    ] = SCRAM_ITERATIONS_MIN,
    password_file: PasswordOption = None,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
) -> None:
    """Create a user, or give an existing one a new password."""
    scram = _mechanism(mechanism)
    password = _password(password_file)
    salt = SystemIds().new_uuid()
    with_client(
        server,
        bootstrap,
        lambda client: client.set_password(user, scram, salt=salt, iterations=iterations, password=password),
    )
    sys.stderr.write(f"{user} can log in by {mechanism}\n")


@app.command()
def verifier(
    user: UserArgument, *, mechanism: MechanismOption = _MECHANISM_DEFAULT, password_file: PasswordOption = None
) -> None:
    """Print a user's line for the file of --plain-users. No agent is asked."""
    from agent.security.plain_users import plain_user_line

    scram = _mechanism(mechanism)
    password, salt = _password(password_file), SystemIds().new_uuid()
    salted = salt_password(password, salt=salt, iterations=SCRAM_ITERATIONS_MIN, mechanism=scram)
    credential = credential_of(salted, salt=salt, iterations=SCRAM_ITERATIONS_MIN, mechanism=scram)
    sys.stdout.write(plain_user_line(user, scram, credential) + "\n")


@app.command()
@with_server
def delete(
    user: UserArgument,
    *,
    mechanism: Annotated[
        str | None, typer.Option(metavar="MECHANISM", help="The only mechanism to delete; by default all of them.")
    ] = None,
    server: AgentServer,
    bootstrap: BootstrapOption = None,
) -> None:
    """Delete a user. The connections that it has opened end within a second; its ACLs stay."""
    only = None if mechanism is None else _mechanism(mechanism)

    async def delete_all(client: "KafkaClient") -> None:
        codes = [code for name, code, _ in await client.users() if name == user and only in (None, code)]
        if not codes:
            raise CommandFailed(f"there is no user {user}{'' if mechanism is None else f' with {mechanism}'}")
        for code in codes:  # a request may alter a user once
            await client.delete_password(user, ScramMechanism(code))

    with_client(server, bootstrap, delete_all)
    sys.stderr.write(f"deleted {user}\n")


def _mechanism(text: str) -> ScramMechanism:
    for mechanism in ScramMechanism:
        if mechanism.sasl_name == text.upper():
            return mechanism
    names = " or ".join(mechanism.sasl_name for mechanism in ScramMechanism)
    raise CommandFailed(f"--mechanism {text}: write {names}", exit_code=EXIT_USAGE)


def _password(path: str | None) -> str:
    """The first line of the file or of stdin, or what the terminal is asked for."""
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"--password-file {path} cannot be read: {error}", exit_code=EXIT_USAGE) from error
    elif sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        text = sys.stdin.readline()
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise CommandFailed("the password is empty: give it by --password-file FILE or stdin", exit_code=EXIT_USAGE)
    return password
