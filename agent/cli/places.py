"""Opens ledger and bucket for the commands that need no agent: recover and audit.

Their options are those of `penstock agent` and `penstock run`, by the same names, variables and keys of a TOML file.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.reasons import ENVIRONMENT_ERRORS, reason
from agent.config.option_sources import InvalidSettings, gather
from agent.config.options import OPTIONS, OPTIONS_BY_NAME
from agent.config.settings import CliCommand, Settings, load_settings
from agent.runtime.logs import configure_logs
from protocol.limits import COMMAND_OPEN_SECONDS_MAX

if TYPE_CHECKING:
    from agent.bucket.store_damages import StoreDamages
    from agent.ledger.open_ledger import WhereMissing
    from coordinator.ledger.port import Ledger
    from storage.object_store import ObjectStore

LEDGER_VARIABLE = OPTIONS_BY_NAME["ledger"].variable
PLACE_OPTIONS = frozenset(
    {"store", "store-timeout-s", "etcd-compaction"}
    | {option.name for option in OPTIONS if option.name.split("-")[0] == "ledger"}
)
"""The options that locate ledger and bucket, and give access to them."""


def is_cluster_named(values: Mapping[str, object]) -> bool:
    """Whether a flag names the cluster, or the environment its ledger. `values` has the flags by option name."""
    # A data folder in the environment alone does not count: the running broker has it open, and does the work.
    return values["ledger"] is not None or values["data-dir"] is not None or LEDGER_VARIABLE in os.environ


def place_settings(values: Mapping[str, object], config: str | None) -> Settings:
    """The settings of an agent with the ledger and bucket of flags, environment and file. Raises `CommandFailed`.

    A data folder of `penstock run` has both.
    """
    try:
        all_values = gather(values, os.environ, config)
        if values.get("data-dir") is not None and "ledger" in all_values:
            raise CommandFailed("--ledger and --data-dir name two clusters: give one of them", exit_code=EXIT_USAGE)
        if "ledger" in all_values:
            return load_settings(CliCommand.AGENT, values, config_path=config)
        if "data-dir" in all_values:
            return load_settings(CliCommand.RUN, values, config_path=config)
    except InvalidSettings as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    raise CommandFailed("name the cluster: --ledger and --store, or --data-dir", exit_code=EXIT_USAGE)


@asynccontextmanager
async def opened(
    settings: Settings,
    where_missing: "WhereMissing",
    damages: "StoreDamages",
    *,
    is_writer: bool,
    is_recovery: bool = False,
) -> "AsyncIterator[tuple[Ledger, ObjectStore]]":
    """Ledger and bucket, open for the block. Errors of the environment in the block are raised as `CommandFailed`.

    `damages` gets the damages that an embedded store finds in its files. With `is_writer=False` these are not changed.
    `is_recovery`: see `open_ledger`.
    """
    from agent.bucket.open_journal import open_journal
    from agent.bucket.open_store import open_store
    from agent.ledger.open_ledger import before_takeover, held_ledger, open_ledger
    from agent.runtime.clock import SystemClock
    from agent.runtime.ids import SystemIds
    from agent.runtime.metrics import Metrics

    configure_logs("warning", settings.log_format)
    clock, ids = SystemClock(), SystemIds()
    try:
        settings = before_takeover(settings)
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(COMMAND_OPEN_SECONDS_MAX):
                await stack.enter_async_context(held_ledger(settings, is_writer=is_writer))
                journal = await stack.enter_async_context(
                    open_journal(settings, ids, damages=damages, is_writer=is_writer)
                )
                ledger = await stack.enter_async_context(
                    open_ledger(settings, clock, ids, where_missing, journal=journal, is_recovery=is_recovery)
                )
                store = await stack.enter_async_context(
                    open_store(settings, clock, ids, Metrics(), damages=damages, is_writer=is_writer, journal=journal)
                )
            yield ledger, store
    except TimeoutError as error:
        raise CommandFailed(
            f"{settings.ledger_url} did not answer within {COMMAND_OPEN_SECONDS_MAX:.0f} s: is it running?"
        ) from error
    except ENVIRONMENT_ERRORS as error:
        raise CommandFailed(reason(error, settings)) from error
