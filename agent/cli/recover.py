"""`penstock recover`: begins a cluster's next incarnation from its bucket, where the ledger was wiped or restored."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.clients.http_client import Json, JsonOption
from agent.cli.failure import EXIT_UNDECIDED, EXIT_USAGE, CommandFailed
from agent.cli.option_flags import with_some_option_flags
from agent.cli.output import print_json, print_pairs, print_table
from agent.cli.places import PLACE_OPTIONS, opened, place_settings
from agent.config.settings import Settings
from protocol.limits import COMMAND_ROWS_MAX

if TYPE_CHECKING:
    from agent.recovery.preconditions import Permissions

LOSS_NOT_ACCEPTED = (
    "objects are missing or cannot be read, or transactions are undecided (all listed above), so no incarnation was "
    "begun. The ledger is fenced: no agent starts on it. Bring the objects back and run the command again, or add "
    "--accept-loss (recover.acceptLoss=true of the chart) to begin without them. Copy unreadable objects first: agents "
    "delete them after gc-min-age-s"
)
HELP = (
    "Start a cluster's next incarnation from the newest snapshot and all intake objects in the bucket. Use it after "
    "the ledger was wiped, damaged or restored from a backup. Stop all agents first, and keep them stopped. The "
    "command fences the ledger: no agent can use it until a recovery has completed. The command deletes nothing. "
    "Agents would later delete unreadable objects as garbage, so it requires --accept-loss to continue without them. "
    "Exit code 3: it needs --accept-loss, or --force since agents could simply be started."
)


def _recover_flags(
    config: str | None,
    values: Mapping[str, object],
    *,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the recovery would restore, and change nothing.")
    ] = False,
    is_loss_accepted: Annotated[
        bool, typer.Option("--accept-loss", help="Continue without objects that are missing or unreadable.")
    ] = False,
    is_forced: Annotated[
        bool,
        typer.Option("--force", help="Start another incarnation although agents could use the ledger, or may run."),
    ] = False,
    is_time_reset: Annotated[
        bool,
        typer.Option("--time", help="Reset the ledger's time to now, after a wrong clock had moved it ahead."),
    ] = False,
    are_acls_confirmed: Annotated[
        bool,
        typer.Option("--keep-acls", help="Serve by the restored ACLs at once, although later revocations may be lost."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    from agent.recovery.preconditions import Permissions

    settings = place_settings(values, config)
    permissions = Permissions(
        is_dry_run=is_dry_run,
        is_loss_accepted=is_loss_accepted,
        is_forced=is_forced,
        is_time_reset=is_time_reset,
        are_acls_confirmed=are_acls_confirmed,
    )
    report = asyncio.run(_recover(settings, permissions))
    loss = loss_error(report, is_dry_run=is_dry_run)
    if as_json:
        print_json(report)
    else:
        _show(report, is_loss_found=loss is not None)
    if loss is not None:
        raise loss


recover = with_some_option_flags(_recover_flags, PLACE_OPTIONS | {"data-dir", "audit-log"})


def loss_error(report: Json, *, is_dry_run: bool) -> CommandFailed | None:
    """The error of a recovery that found losses and began no incarnation; None for another one."""
    if is_dry_run or report["is_carried_out"]:
        return None
    return CommandFailed(LOSS_NOT_ACCEPTED, exit_code=EXIT_UNDECIDED)


async def _recover(settings: Settings, permissions: "Permissions") -> Json:
    from agent.bucket.conditional_puts import check_conditional_puts
    from agent.bucket.store_damages import StoreDamages
    from agent.ledger.open_ledger import WhereMissing
    from agent.recovery.preconditions import BucketInUse, RecoveryNeedless
    from agent.recovery.recovery import recover as recover_cluster
    from agent.recovery.recovery_event import record_recovery
    from agent.recovery.report import report_rows
    from agent.runtime.clock import SystemClock
    from agent.runtime.ids import SystemIds
    from agent.security.audit.audit_log import AuditSinkFailed
    from coordinator.ledger.port import SessionHeld

    where_missing = WhereMissing.SUBSTITUTED if permissions.is_dry_run else WhereMissing.CREATED
    damages = StoreDamages()
    async with opened(settings, where_missing, damages, is_writer=not permissions.is_dry_run, is_recovery=True) as (
        ledger,
        store,
    ):
        try:
            if not permissions.is_dry_run:  # a conditional put stops the second of two recoveries at the same time
                await check_conditional_puts(store, name=SystemIds().new_cluster_id())
            report = await recover_cluster(
                ledger,
                store,
                SystemClock(),
                permissions,
                store_timeout_s=settings.store_timeout_s,
                unlisted=[(damage.file, damage.detail) for damage in damages.parts if not damage.key],
            )
            if report.is_carried_out:
                await record_recovery(settings.audit, report, permissions, agent=settings.name, clock=SystemClock())
        except AuditSinkFailed as error:
            raise CommandFailed(f"the recovery is done, but the audit log lacks it: {error}") from error
        except RecoveryNeedless as error:
            raise CommandFailed(str(error), exit_code=EXIT_UNDECIDED) from error
        except (SessionHeld, BucketInUse) as error:  # it may succeed later, when agents have ended
            raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    return {
        "is_carried_out": report.is_carried_out,
        **report_rows(report),
        "topics": [asdict(topic) for topic in report.topics],
        "missing": report.missing,
        "damaged": [{"object": key, "reason": reason} for key, reason in report.damaged],
        "number_gaps": [{"objects": gap.text, "count": gap.count} for gap in report.number_gaps],
        "passed_over": [{"entry": key, "reason": reason} for key, reason in report.passed_over],
    }


def _show(report: Json, *, is_loss_found: bool) -> None:
    topics, missing, damaged, gaps, skipped = (
        report.pop(name) for name in ("topics", "missing", "damaged", "number_gaps", "passed_over")
    )
    assert isinstance(topics, list)
    assert isinstance(missing, list)
    assert isinstance(damaged, list)
    assert isinstance(gaps, list)
    assert isinstance(skipped, list)
    is_carried_out = report.pop("is_carried_out")
    print_pairs(report)
    sys.stdout.write("\nrestored from intake objects:\n")
    columns = (
        "topic",
        "records",
        "batches",
        "duplicates",
        "without_sequence",
        "rejected",
        "of_transactions",
        "offsets_lost",
    )
    print_table(topics, columns, empty="Nothing: the snapshot has every intake object, or there are none.")
    for lost, what in (("is_name_lost", "names"), ("are_configs_lost", "configs")):
        names = [topic["topic"] for topic in topics if topic[lost]]
        if names:
            sys.stdout.write(f"\ntopics whose {what} are lost: {', '.join(names)}\n")
    if missing:
        sys.stdout.write("\nmissing objects, whose records are lost:\n")
        print_table([{"object": key} for key in missing[:COMMAND_ROWS_MAX]], ("object",), empty="")
    if damaged:
        sys.stdout.write("\nunreadable objects:\n")
        print_table(damaged[:COMMAND_ROWS_MAX], ("object", "reason"), empty="")
    if gaps:
        sys.stdout.write(
            "\nintake objects that are not there, though later ones are: their puts failed, or a copy of the bucket "
            "lacks acknowledged records\n"
        )
        print_table(gaps[:COMMAND_ROWS_MAX], ("objects", "count"), empty="")
    if skipped:
        sys.stdout.write("\nskipped entries of the bucket, which have no records:\n")
        print_table(skipped[:COMMAND_ROWS_MAX], ("entry", "reason"), empty="")
    if not report["are_acls_confirmed"]:
        sys.stdout.write(
            f"\nACLs and SCRAM credentials are those of {report['security_known_until']}. Later changes are lost, also "
            "revocations. With an authorizer, agents serve super users only, until one of them has checked the ACLs "
            "and run `penstock acls confirm`, or changed an ACL\n"
        )
    if is_carried_out:
        sys.stdout.write(
            f"\nincarnation {report['incarnation']} has begun: start the agents again, and then run `penstock audit`\n"
        )
    elif not is_loss_found:
        sys.stdout.write("\nnothing was changed: this was a dry run\n")
