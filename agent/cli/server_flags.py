"""Gives a command the flags of a running agent: --server, --token-file, --command-config and --ca."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from agent.cli.clients.http_client import AgentServer
from agent.cli.clients.security import ClientSecurity, client_security

SERVER_DEFAULT: Final = "127.0.0.1:9644"
PARAMETER: Final = "server"
_ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="PENSTOCK_SERVER",
        metavar="ADDRESS",
        help="HTTP address of a running agent, HOST:PORT. Without http:// or https:// it encrypts if "
        "--command-config or --ca says so.",
    ),
]
_TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        envvar="PENSTOCK_TOKEN_FILE",
        metavar="FILE",
        help="File whose first line is a bearer token: one of --http-token-file, or of an issuer.",
    ),
]
CommandConfigOption = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        envvar="PENSTOCK_COMMAND_CONFIG",
        metavar="FILE",
        help="Properties file of Kafka client configs: security.protocol, sasl.jaas.config and others.",
    ),
]
_CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        envvar="PENSTOCK_CA",
        metavar="FILE",
        help="PEM file of the authorities of the agent's certificate. Default: those of the system.",
    ),
]
_FLAGS: Final = (
    inspect.Parameter(PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=SERVER_DEFAULT, annotation=_ServerOption),
    inspect.Parameter("token_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_TokenFileOption),
    inspect.Parameter("command_config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CommandConfigOption),
    inspect.Parameter("ca", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_CaOption),
)


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a keyword parameter `server: AgentServer` as a function for Typer, with a parameter per flag."""

    def flagged(  # Typer passes each flag's own type
        *arguments: Any,  # noqa: ANN401
        server: str,
        token_file: str | None,
        command_config: str | None,
        ca: str | None,
        **values: Any,  # noqa: ANN401
    ) -> None:
        security = client_security(command_config, ca)
        address = with_scheme(server, security)
        command(*arguments, server=AgentServer(address=address, token_file=token_file, security=security), **values)

    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command).parameters.values():
        parameters += _FLAGS if own.name == PARAMETER else (own,)
    flagged.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flagged.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    flagged.__doc__, flagged.__name__ = command.__doc__, command.__name__
    return flagged


def with_scheme(address: str, security: ClientSecurity) -> str:
    """The agent's address, as https where it names no scheme and the options are those of an agent that encrypts.

    So a login never leaves without encryption, and `--command-config admin.properties` is enough for `run --secure`.
    """
    return f"https://{address}" if "://" not in address and security.is_encrypted else address
