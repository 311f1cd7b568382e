"""`penstock audit`: compares bucket, ledger and state. Exit code 1 where they disagree."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from agent.cli.clients.http_client import AgentServer, Json, JsonOption, post
from agent.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed
from agent.cli.option_flags import with_some_option_flags
from agent.cli.output import counted, print_json, print_pairs, print_table
from agent.cli.places import PLACE_OPTIONS, is_cluster_named, opened, place_settings
from agent.cli.server_flags import with_server
from agent.config.settings import Settings
from protocol.limits import CLIENT_AUDIT_SECONDS_MAX, CLIENT_DEEP_AUDIT_SECONDS_MAX

HELP = (
    "Compare bucket, ledger and state. By default a running agent does it. --ledger and --store, or the --data-dir of "
    "a stopped penstock run, work without an agent. Exit code 1: they disagree."
)


@with_server
def _audit_flags(
    config: str | None,
    values: Mapping[str, object],
    *,
    server: AgentServer,
    is_repairing: Annotated[
        bool,
        typer.Option(
            "--repair", help="Delete objects that ended sessions left behind, as the garbage collector would."
        ),
    ] = False,
    is_deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every stored byte, and list damaged objects."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if is_cluster_named(values):
        report = asyncio.run(_audit(place_settings(values, config), is_repairing=is_repairing, is_deep=is_deep))
    elif any(value is not None for value in values.values()):
        message = "--store and the options of a ledger need --ledger or --data-dir"
        raise CommandFailed(message, exit_code=EXIT_USAGE)
    else:
        seconds_max = CLIENT_DEEP_AUDIT_SECONDS_MAX if is_deep else CLIENT_AUDIT_SECONDS_MAX
        report = post(server, "/api/audit", {"repair": is_repairing, "deep": is_deep}, seconds_max=seconds_max)
    if as_json:
        print_json(report)
    count = report["disagreements_count"]
    assert isinstance(count, int)
    if not as_json:
        _show(report)
    if count:
        raise CommandFailed(f"{counted(count, 'disagreement')} between bucket, ledger and state", exit_code=EXIT_FAILED)


audit = with_some_option_flags(_audit_flags, PLACE_OPTIONS | {"data-dir", "gc-min-age-s"})


async def _audit(settings: Settings, *, is_repairing: bool, is_deep: bool) -> Json:
    from agent.bucket.store_damages import StoreDamages
    from agent.ledger.open_ledger import WhereMissing
    from agent.recovery.audit import Audit
    from coordinator.ledger.port import SessionHeld

    try:
        damages = StoreDamages()
        async with opened(settings, WhereMissing.REJECTED, damages, is_writer=is_repairing) as (ledger, store):
            audit = Audit(ledger, store, grace_ms=settings.gc_min_age_s * 1000, damages=damages)
            report = await audit.run(is_repairing=is_repairing, is_deep=is_deep, progress=_print_progress)
    except CommandFailed as error:
        if isinstance(error.__cause__, SessionHeld):
            raise CommandFailed(
                f"a running broker has {settings.data_dir} open: stop it, or let it do the audit (--server instead of "
                "--data-dir)"
            ) from error
        raise
    return dict(report.to_dict())


def _print_progress(objects: int, objects_total: int, byte_count: int) -> None:
    sys.stderr.write(f"read {objects:,} of {objects_total:,} objects, {byte_count:,} bytes\n")
    sys.stderr.flush()


def _show(report: Json) -> None:
    disagreements = report.pop("disagreements")
    assert isinstance(disagreements, list)
    print_pairs(report)
    if disagreements:
        sys.stdout.write("\n")
        print_table(disagreements, ("what", "subject", "detail"), empty="")
