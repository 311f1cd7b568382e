"""The event of a recovery in the audit log: `penstock recover` writes it where no agent runs.

In: where the audit log goes, and the report. Out: one record in the file or on stderr. It is on stderr for the topic,
too, which agents alone write.
"""

import getpass
import socket

from agent.config.audit_classes import AuditClass
from agent.config.audit_options import AuditSettings, AuditTarget
from agent.recovery.preconditions import Permissions
from agent.recovery.report import RecoveryReport
from agent.runtime.clock import Clock
from agent.security.audit.audit_events import AuditedResource, AuditSource, ChangeEvent, written
from agent.security.audit.audit_files import StderrSink, file_sink
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType
from protocol.auth.principals import USER, Principal

API = "penstock recover"
MECHANISM = "command"
"""Who runs the command is known by the operating system alone."""


async def record_recovery(
    settings: AuditSettings, report: RecoveryReport, permissions: Permissions, *, agent: str, clock: Clock
) -> None:
    """Record a recovery that was carried out. Raises `AuditSinkFailed` where that cannot be written."""
    if AuditClass.CHANGE not in settings.classes or settings.target is AuditTarget.NONE:
        return
    sink = StderrSink() if settings.path is None else file_sink(settings.path, settings.file_bytes_max)
    record = written(
        event_of(report, permissions),
        time_ms=clock.now_ms(),
        count=1,
        cluster_id=report.cluster_id,
        agent=agent,
    )
    await sink.write([record])


def event_of(report: RecoveryReport, permissions: Permissions) -> ChangeEvent:
    """The event of a recovery, by the user of the operating system."""
    flags = {
        "--accept-loss": permissions.is_loss_accepted,
        "--force": permissions.is_forced,
        "--time": permissions.is_time_reset,
        "--keep-acls": permissions.are_acls_confirmed,
    }
    options = " ".join(flag for flag, is_given in flags.items() if is_given) or "none"
    losses = f"{len(report.missing)} objects missing, {len(report.damaged)} unreadable"
    return ChangeEvent(
        source=AuditSource(principal=Principal(USER, _user()), mechanism=MECHANISM, host=socket.gethostname()),
        api=API,
        resource=AuditedResource(kind=ResourceType.CLUSTER, name=CLUSTER_NAME),
        operation=Operation.ALTER,
        change=f"incarnation {report.incarnation} begun from position {report.position}; {losses}; options: {options}",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        return "unknown"
