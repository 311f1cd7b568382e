"""`penstock doctor`: checks whether an agent with these settings can run on this machine.

Each finding that is not fine has a remedy. The checks are in `machine_checks`, `certificate_checks`, `secret_checks`,
`pack_checks`, `journal_checks`, `ledger_checks`, `bucket_checks` and `clock_checks`; where ledger and bucket are fine,
`identity_checks` compares the two. Exit code 1 where a check failed.
"""

import asyncio
import os
import sys
from collections.abc import Mapping

from agent.cli.clients.security import ClientSecurity, client_security
from agent.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed
from agent.cli.option_flags import with_option_flags
from agent.cli.output import counted
from agent.cli.server_flags import CommandConfigOption
from agent.config.option_sources import gather
from agent.config.settings import CliCommand, InvalidSettings, load_settings

HELP = (
    "Check this machine: Python, ports, disk, limits, clock, ledger and bucket. Accepts the options of run and agent. "
    "An agent that runs with these options is asked, too; a protected one needs --command-config."
)


def _doctor(config: str | None, values: Mapping[str, object], *, command_config: CommandConfigOption = None) -> None:
    from agent.cli.doctor.bucket_checks import check_bucket
    from agent.cli.doctor.certificate_checks import check_certificates
    from agent.cli.doctor.clock_checks import check_clock
    from agent.cli.doctor.identity_checks import check_identity
    from agent.cli.doctor.journal_checks import check_journal
    from agent.cli.doctor.ledger_checks import check_ledger
    from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding, check_machine
    from agent.cli.doctor.pack_checks import check_packs
    from agent.cli.doctor.secret_checks import check_secret_files
    from agent.ledger.open_ledger import before_takeover

    try:
        settings = load_settings(_command(config, values), values, config_path=config)
    except InvalidSettings as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error

    settings = before_takeover(settings)
    security = _security(command_config)
    failed = 0

    def show(finding: DoctorFinding) -> None:
        nonlocal failed
        failed += finding.verdict is CheckStatus.FAILED
        sys.stdout.write(f"{finding.verdict.value:<7} {finding.name:<12} {finding.text}\n")
        if finding.remedy:
            sys.stdout.write(f"{'':<20} -> {finding.remedy}\n")

    for finding in (
        *check_machine(settings, security),
        *check_certificates(settings),
        *check_secret_files(settings),
        *check_packs(settings),
        *check_journal(settings),
    ):
        show(finding)

    async def remote() -> None:
        failed_here = failed
        async for finding in check_ledger(settings):
            show(finding)
        async for finding in check_bucket(settings):
            show(finding)
        if failed == failed_here:
            async for finding in check_identity(settings):
                show(finding)
        async for finding in check_clock(settings, security):
            show(finding)

    asyncio.run(remote())
    if failed:
        raise CommandFailed(f"{counted(failed, 'check')} failed", exit_code=EXIT_FAILED)


def _command(config: str | None, values: Mapping[str, object]) -> CliCommand:
    """Whose settings these are: an agent's where any source names a ledger. Raises `InvalidSettings`."""
    return CliCommand.AGENT if "ledger" in gather(values, os.environ, config) else CliCommand.RUN


def _security(command_config: str | None) -> ClientSecurity | None:
    """How a running agent is asked; None without a user. Raises `CommandFailed`, also where no agent runs."""
    if command_config is None:
        return None
    security = client_security(command_config, None)
    security.login()
    return security


doctor = with_option_flags(_doctor, is_cluster=True)
