"""`penstock recover`: a cluster's next incarnation out of its bucket, where the ledger was wiped or restored."""

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from agent.commands.failure import EXIT_USAGE, CommandFailed
from agent.commands.http_client import Json, JsonOption
from agent.commands.output import print_json, print_pairs, print_table
from agent.commands.places import ConfigOption, DataDirOption, LedgerOption, StoreOption, opened, place_settings
from agent.settings import Settings
from protocol.limits import COMMAND_ROWS_MAX

HELP = (
    "Begin a cluster's next incarnation from its newest snapshot and all intake objects in the bucket, where its "
    "ledger was wiped, restored from a backup or damaged. All agents must be stopped. Deletes nothing."
)


def recover(
    *,
    ledger: LedgerOption = None,
    store: StoreOption = None,
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would come back; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    settings = place_settings(ledger=ledger, store=store, data_dir=data_dir, config=config)
    told = asyncio.run(_recover(settings, is_dry_run=is_dry_run))
    if as_json:
        print_json(told)
    else:
        _show(told)


async def _recover(settings: Settings, *, is_dry_run: bool) -> Json:
    from agent.recovery import recover, report_rows
    from coordinator.log import SessionHeld

    async with opened(settings) as (ledger, store):
        try:
            report = await recover(ledger, store, is_dry_run=is_dry_run)
        except SessionHeld as error:
            raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    return {
        "is_carried_out": report.is_carried_out,
        **report_rows(report),
        "topics": [asdict(topic) for topic in report.topics],
        "missing": report.missing,
        "damaged": [{"object": key, "reason": reason} for key, reason in report.damaged],
    }


def _show(told: Json) -> None:
    topics, missing, damaged = (told.pop(name) for name in ("topics", "missing", "damaged"))
    assert isinstance(topics, list)
    assert isinstance(missing, list)
    assert isinstance(damaged, list)
    is_carried_out = told.pop("is_carried_out")
    print_pairs(told)
    sys.stdout.write("\nwhat came back from the intake:\n")
    columns = ("topic", "records", "batches", "duplicates", "without_sequence", "refused")
    print_table(topics, columns, empty="Nothing: the snapshot knew every intake object.")
    renamed = [topic["topic"] for topic in topics if topic["is_name_lost"]]
    if renamed:
        sys.stdout.write(f"\nnames and configs are lost of: {', '.join(renamed)}\n")
    if missing:
        sys.stdout.write("\nwhat is lost, because its objects are not in the bucket:\n")
        print_table([{"object": key} for key in missing[:COMMAND_ROWS_MAX]], ("object",), empty="")
    if damaged:
        sys.stdout.write("\nwhat could not be read:\n")
        print_table(damaged[:COMMAND_ROWS_MAX], ("object", "reason"), empty="")
    if is_carried_out:
        sys.stdout.write(f"\nincarnation {told['incarnation']} has begun: start the agents again\n")
    else:
        sys.stdout.write("\nnothing was changed: this was a dry run\n")
