"""Records the changes that requests make: who asked, what changed, and whether that is certain.

Rule: a handler of an API in `CHANGES` runs in a task of its own, so that a client that closes its connection cannot
prevent the record of what it changed. The request waits first while the audit log is full. Other handlers do not pass
here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agent.config.audit_classes import AuditClass
from agent.request.changes import CHANGES
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.supervisor import begin_in, result_or_error
from agent.security.audit.audit_events import ChangeEvent
from coordinator.ledger.port import LedgerUnavailable

ChangeHandler = Callable[[Services, Request, Any], Awaitable[Values]]


def with_recorded_changes(handle: ChangeHandler) -> ChangeHandler:
    """The handler, with its changes recorded in the audit log. Cancelling its caller does not stop it."""

    async def handle_recorded(services: Services, request: Request, body: Any) -> Values:
        log = services.audit_log
        if not log.takes(AuditClass.CHANGE):
            return await handle(services, request, body)
        await log.until_room()
        recorded = _recorded(handle, services, request, body)
        if services.tasks is None:
            result = await recorded
        else:
            task = begin_in(services.tasks, recorded)
            if task is None:  # the agent is ending: its ledger takes no entry any more
                raise LedgerUnavailable("the agent is stopping")
            result = await asyncio.shield(task)
        if isinstance(result, Exception):
            raise result
        return result

    return handle_recorded


async def _recorded(handle: ChangeHandler, services: Services, request: Request, body: Any) -> Values | Exception:
    """The handler's result, or what it raised, once its changes are recorded.

    A task must not raise: its group would end the agent.
    """
    result = await result_or_error(handle(services, request, body))
    values = None if isinstance(result, Exception) else result
    source, api_name = request.audit_source, request.audit_api
    for change in CHANGES[request.frame.api_key](body, values):
        services.audit_log.record(
            ChangeEvent(
                source=source,
                api=api_name,
                resource=change.resource,
                operation=change.operation,
                change=change.text,
                is_certain=change.is_certain,
            )
        )
    return result
