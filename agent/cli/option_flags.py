"""Gives a command the flags of `agent.config.options`, so that an option stands in one table only."""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import typer

from agent.config.options import OPTIONS, Option, OptionKind

METAVARS = {"http": "HOST:PORT", "data-dir": "DIR", "ledger": "URL", "store": "URL"}
CONFIG_HELP = "TOML file whose keys are the same options."
COMMON = ("config", "values")
"""The options of every command that has such flags."""


def with_option_flags(command: Callable[..., None], *, is_cluster: bool) -> Callable[..., None]:
    """`command(config: str | None, values: dict by option name)` as Typer wants it: a parameter per flag.

    A flag that was not given arrives as None (or empty), so that environment and file have their say.
    """
    shown = [option for option in OPTIONS if is_cluster or not option.is_cluster_only]
    return _flagged(command, shown, is_default_shown=True)


def with_some_option_flags(command: Callable[..., None], names: Collection[str]) -> Callable[..., None]:
    """The same with the flags of `names` alone, and with the further parameters of `command`, which are its own flags.

    Defaults are an agent's, and not told: what is not named to such a command is not looked at, or said by itself.
    """
    return _flagged(command, [option for option in OPTIONS if option.name in names], is_default_shown=False)


def _flagged(command: Callable[..., None], shown: Sequence[Option], *, is_default_shown: bool) -> Callable[..., None]:
    def flagged(**given: Any) -> None:  # noqa: ANN401 - Typer passes each flag's own type
        config = given.pop("config")
        command(config, {option.name: given.pop(option.field) for option in shown}, **given)

    parameters = [_parameter(option, is_default_shown=is_default_shown) for option in shown]
    config_option = typer.Option("--config", help=CONFIG_HELP, envvar="PENSTOCK_CONFIG", metavar="FILE")
    parameters.append(_keyword("config", Annotated[str | None, config_option], None))
    parameters += [own for own in inspect.signature(command).parameters.values() if own.name not in COMMON]
    flagged.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flagged.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flagged


def _parameter(option: Option, *, is_default_shown: bool) -> inspect.Parameter:
    default = f" [default: {option.default}]" if is_default_shown else ""
    text = f"{option.help}{default} [env: {option.variable}]"
    flag = f"--{option.name}"
    match option.kind:
        case OptionKind.LIST:
            return _keyword(option.field, Annotated[list[str] | None, _typer_option(flag, text, "ADDRESS")], None)
        case OptionKind.PAIRS:
            return _keyword(option.field, Annotated[list[str] | None, _typer_option(flag, text, "KEY=VALUE")], None)
        case OptionKind.FLAG:
            both = f"{flag}/--no-{option.name}"
            return _keyword(option.field, Annotated[bool | None, _typer_option(both, text, None)], None)
        case OptionKind.TEXT:
            metavar = "|".join(option.choices) or METAVARS.get(option.name, "TEXT")
            return _keyword(option.field, Annotated[str | None, _typer_option(flag, text, metavar)], None)
        case OptionKind.COUNT:
            return _keyword(option.field, Annotated[str | None, _typer_option(flag, text, "NUMBER")], None)
        case OptionKind.BYTES:
            return _keyword(option.field, Annotated[str | None, _typer_option(flag, text, "BYTES")], None)


def _typer_option(flag: str, text: str, metavar: str | None) -> Any:  # noqa: ANN401 - as Typer declares it
    return typer.Option(flag, help=text, metavar=metavar, show_default=False)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
