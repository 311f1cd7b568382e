"""The shared parts of `penstock run` and `penstock agent`: settings, logs, the event loop (uvloop), and its end."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.reasons import ENVIRONMENT_ERRORS, reason
from agent.cli.serving.processes import supervise
from agent.cli.serving.startup_report import ready_line, startup_fields, startup_report
from agent.config.bootstrap_users import BootstrapUser
from agent.config.secure_options import ADMIN
from agent.config.settings import CliCommand, InvalidSettings, Settings, load_settings
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.logs import JSON, configure_logs
from agent.security.file_modes import warn_of_open_secrets
from protocol.auth.scram_credentials import ScramMechanism

if TYPE_CHECKING:
    from agent.components import AgentEndpoints

log = logging.getLogger(__name__)


def serve(command: CliCommand, config: str | None, values: Mapping[str, object]) -> None:
    """Run an agent until a signal stops it. Raises `CommandFailed`."""
    try:
        settings = load_settings(command, values, config_path=config)
    except InvalidSettings as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    configure_logs(settings.log_level, settings.log_format)
    try:
        _serve(settings)
    except CommandFailed as error:
        if settings.log_format == JSON:  # all of stderr is JSON lines then
            log.critical("the agent ends with an error", extra={"reason": str(error)})
            error.is_logged = True
        raise


def _serve(settings: Settings) -> None:
    warn_of_open_secrets(settings.secret_files)
    if settings.processes > 1:
        settings = _settings_of_process(settings)
    try:
        _run(_with_secure_files(settings))
    except InvalidSettings as error:  # of certificates, which the agent itself reads
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    except ENVIRONMENT_ERRORS as error:
        raise CommandFailed(reason(error, settings)) from error
    except BaseExceptionGroup as group:
        causes = list(_leaves(group))
        if not all(isinstance(cause, ENVIRONMENT_ERRORS) for cause in causes):
            log.critical("the agent stops because of a bug; no acknowledged record is lost", exc_info=group)
        raise CommandFailed("; ".join(reason(cause, settings) for cause in causes)) from group


def _with_secure_files(settings: Settings) -> Settings:
    """The settings with the user of `--secure`, whose files are there from now on."""
    files = settings.secure_files
    if files is None:
        return settings
    from agent.security.secure_files import create_secure_files  # late: importing cryptography takes 0.1 s

    hosts = [settings.http.host, *(shown.host for shown in (*settings.listeners, *settings.advertised))]
    password = create_secure_files(files, hosts, clock=SystemClock(), ids=SystemIds())
    admin = BootstrapUser(name=ADMIN, mechanism=ScramMechanism.SCRAM_SHA_512, password=password)
    return replace(settings, bootstrap_users=(admin,))


def _settings_of_process(settings: Settings) -> Settings:
    """The settings of one process, in that process. In the parent it ends the program when all processes have ended.

    Raises `CommandFailed`.
    """
    try:
        own = supervise(settings, SystemClock().monotonic_s)
    except InvalidSettings as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
    if isinstance(own, Settings):
        configure_logs(own.log_level, own.log_format, process=own.name)
        return own
    if own:
        raise CommandFailed("one of the processes failed; its own message says why", exit_code=own)
    sys.exit(0)


def _run(settings: Settings) -> None:
    from agent.components import run_agent

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        stopped_s = runner.run(run_agent(settings, partial(_announce, settings)))
    log.info("stopped", extra={"seconds": round(SystemClock().monotonic_s() - stopped_s, 1)})


def _announce(settings: Settings, endpoints: "AgentEndpoints") -> None:
    """Print the agent's addresses: a report on stderr, and the `ready` line for programs on stdout.

    The report is text for people, or one line of the log where that is JSON.
    """
    if settings.log_format == JSON:
        fields = startup_fields(
            settings,
            bound=endpoints.bound,
            advertised=endpoints.advertised,
            http=endpoints.http,
            cluster_id=endpoints.cluster_id,
        )
        # Whatever the log level is, as the text.
        log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, "the agent serves", (), None, extra=fields))
    else:
        report = startup_report(
            settings,
            bound=endpoints.bound,
            advertised=endpoints.advertised,
            http=endpoints.http,
            cluster_id=endpoints.cluster_id,
            program=sys.argv[0],
        )
        sys.stderr.write(report + "\n")
    sys.stdout.write(ready_line(endpoints.bound[0], endpoints.http) + "\n")
    # Stdout is block-buffered where it is a pipe, and a program may be waiting for the line.
    sys.stdout.flush()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
