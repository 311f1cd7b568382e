"""Where ledger and bucket are, for the commands that open them themselves: recover and audit.

Rule: the options are those of `penstock agent` and `penstock run`, by their names, variables and keys in a TOML file.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.failure import EXIT_USAGE, CommandFailed
from agent.commands.reasons import ENVIRONMENT_ERRORS, reason
from agent.logs import configure_logs
from agent.option_sources import InvalidSettings
from agent.settings import Command, Settings, load_settings
from protocol.limits import COMMAND_OPEN_SECONDS_MAX

if TYPE_CHECKING:
    from agent.components import WhereMissing
    from coordinator.log import Ledger
    from storage.object_store import ObjectStore

LedgerOption = Annotated[
    str | None, typer.Option("--ledger", envvar="PENSTOCK_LEDGER", metavar="URL", help="The cluster's ledger.")
]
StoreOption = Annotated[
    str | None, typer.Option("--store", envvar="PENSTOCK_STORE", metavar="URL", help="The cluster's bucket.")
]
DataDirOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        envvar="PENSTOCK_DATA_DIR",
        metavar="DIR",
        help="Folder of penstock run, in the place of --ledger and --store.",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", envvar="PENSTOCK_CONFIG", metavar="FILE", help="TOML file with the agent's options as keys."
    ),
]


def place_settings(*, ledger: str | None, store: str | None, data_dir: str | None, config: str | None) -> Settings:
    """The settings of an agent that has ledger and bucket there. Raises `CommandFailed`."""
    if data_dir is None and config is None and (ledger is None or store is None):
        raise CommandFailed("name the cluster: --ledger and --store, or --data-dir", exit_code=EXIT_USAGE)
    if data_dir is not None and ledger is not None:
        raise CommandFailed("--ledger and --data-dir name two clusters: give one of them", exit_code=EXIT_USAGE)
    command = Command.RUN if data_dir is not None else Command.AGENT
    values = {"ledger": ledger, "store": store, "data-dir": data_dir}
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return load_settings(command, given, config_path=config)
    except InvalidSettings as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error


@asynccontextmanager
async def opened(settings: Settings, where_missing: "WhereMissing") -> "AsyncIterator[tuple[Ledger, ObjectStore]]":
    """Ledger and bucket, open. What the environment does to the block is a `CommandFailed`."""
    from agent.clock import SystemClock
    from agent.components import open_ledger, open_store
    from agent.ids import SystemIds
    from agent.metrics import Metrics

    configure_logs("warning", settings.log_format)
    clock, ids = SystemClock(), SystemIds()
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(COMMAND_OPEN_SECONDS_MAX):
                ledger = await stack.enter_async_context(open_ledger(settings, clock, ids, where_missing))
                store = await stack.enter_async_context(open_store(settings, clock, ids, Metrics()))
            yield ledger, store
    except TimeoutError as error:
        raise CommandFailed(
            f"{settings.ledger_url} did not answer within {COMMAND_OPEN_SECONDS_MAX:.0f} s: is it running?"
        ) from error
    except ENVIRONMENT_ERRORS as error:
        raise CommandFailed(reason(error, settings)) from error
