"""Gives a command the flags of options in `agent.config.options`, the only table of options."""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import typer

from agent.config.options import OPTIONS, Option, OptionKind

METAVARS = {"http": "HOST:PORT", "data-dir": "DIR", "ledger": "URL", "store": "URL"}
CONFIG_HELP = "TOML file whose keys are the same options."
COMMON = ("config", "values")
"""The parameters of a command that are no flags of its own."""


def with_option_flags(command: Callable[..., None], *, is_cluster: bool) -> Callable[..., None]:
    """`command(config: str | None, values: dict by option name)` as a function for Typer, with a parameter per flag.

    An absent flag has the value None (or empty), so that environment and file decide.
    """
    options = [option for option in OPTIONS if is_cluster or not option.is_cluster_only]
    return _flagged(command, options, is_default_shown=True)


def with_some_option_flags(command: Callable[..., None], names: Collection[str]) -> Callable[..., None]:
    """The same with the flags of `names` alone, and with the further parameters of `command`, which are its own flags.

    Defaults are not shown: they are an agent's, and such a command ignores an absent option or explains it itself.
    """
    return _flagged(command, [option for option in OPTIONS if option.name in names], is_default_shown=False)


def _flagged(command: Callable[..., None], options: Sequence[Option], *, is_default_shown: bool) -> Callable[..., None]:
    def flagged(**values: Any) -> None:  # noqa: ANN401 - Typer passes each flag's own type
        config = values.pop("config")
        command(config, {option.name: values.pop(option.field) for option in options}, **values)

    parameters = [_parameter(option, is_default_shown=is_default_shown) for option in options]
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
            metavar = "|".join((*option.choices, "BYTES"))
            return _keyword(option.field, Annotated[str | None, _typer_option(flag, text, metavar)], None)


def _typer_option(flag: str, text: str, metavar: str | None) -> Any:  # noqa: ANN401 - as Typer declares it
    return typer.Option(flag, help=text, metavar=metavar, show_default=False)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
