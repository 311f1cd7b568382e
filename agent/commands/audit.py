"""`penstock audit`: do bucket, ledger and state agree? Exit code 1 if not."""

import asyncio
import sys
from typing import Annotated

import typer

from agent.commands.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed
from agent.commands.http_client import SERVER_DEFAULT, Json, JsonOption, ServerOption, post
from agent.commands.output import counted, print_json, print_pairs, print_table
from agent.commands.places import ConfigOption, LedgerOption, StoreOption, opened, place_settings
from protocol.limits import CLIENT_AUDIT_SECONDS_MAX

HELP = (
    "Compare bucket, ledger and state, through a running agent, or with --ledger and --store without one. Exit code 1 "
    "if they disagree."
)


def audit(
    *,
    server: ServerOption = SERVER_DEFAULT,
    ledger: LedgerOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    is_repairing: Annotated[
        bool, typer.Option("--repair", help="Delete what ended sessions left behind, as the cleaner would.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if (ledger is None) is not (store is None):
        raise CommandFailed("--ledger and --store go together", exit_code=EXIT_USAGE)
    if ledger is None:
        told = post(server, "/api/audit", {"repair": is_repairing}, seconds_max=CLIENT_AUDIT_SECONDS_MAX)
    else:
        told = asyncio.run(_audit(ledger, store, config, is_repairing=is_repairing))
    if as_json:
        print_json(told)
    count = told["disagreements_count"]
    assert isinstance(count, int)
    if not as_json:
        _show(told)
    if count:
        raise CommandFailed(f"{counted(count, 'disagreement')} between bucket, ledger and state", exit_code=EXIT_FAILED)


async def _audit(ledger_url: str, store_url: str | None, config: str | None, *, is_repairing: bool) -> Json:
    from agent.audit import Audit
    from agent.components import WhereMissing

    settings = place_settings(ledger=ledger_url, store=store_url, data_dir=None, config=config)
    async with opened(settings, WhereMissing.REFUSED) as (ledger, store):
        report = await Audit(ledger, store, grace_ms=settings.gc_grace_s * 1000).run(is_repairing=is_repairing)
    return dict(report.told())


def _show(told: Json) -> None:
    disagreements = told.pop("disagreements")
    assert isinstance(disagreements, list)
    print_pairs(told)
    if disagreements:
        sys.stdout.write("\n")
        print_table(disagreements, ("what", "subject", "detail"), empty="")
