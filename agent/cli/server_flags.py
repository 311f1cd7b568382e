"""Gives a command the flags of a running agent's HTTP port: --server and --token-file."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from agent.cli.clients.http_client import AgentServer

SERVER_DEFAULT: Final = "127.0.0.1:9644"
PARAMETER: Final = "server"
_ServerOption = Annotated[
    str,
    typer.Option("--server", envvar="PENSTOCK_SERVER", metavar="HOST:PORT", help="HTTP address of a running agent."),
]
_TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        envvar="PENSTOCK_TOKEN_FILE",
        metavar="FILE",
        help="File whose first line is a bearer token of the agent's --http-token-file.",
    ),
]
_FLAGS: Final = (
    inspect.Parameter(PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=SERVER_DEFAULT, annotation=_ServerOption),
    inspect.Parameter("token_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_TokenFileOption),
)


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a keyword parameter `server: AgentServer` as a function for Typer, with a parameter per flag."""

    def flagged(*arguments: Any, server: str, token_file: str | None, **values: Any) -> None:  # noqa: ANN401
        command(*arguments, server=AgentServer(address=server, token_file=token_file), **values)

    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command).parameters.values():
        parameters += _FLAGS if own.name == PARAMETER else (own,)
    flagged.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flagged.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    flagged.__doc__, flagged.__name__ = command.__doc__, command.__name__
    return flagged
