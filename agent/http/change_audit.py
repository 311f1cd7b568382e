"""The changes that HTTP requests make, for the audit log: who asked, what changed, and whether that is certain.

Rule: a handler announces a change before it makes it, and the route records it once the handler has ended: as certain
after a success, as unknown where the ledger or the bucket did not answer or the agent stops, not at all after any other
error. A request that may change something waits first while changes alone fill the audit log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.requests import Request

from agent.security.audit.audit_events import AuditedResource, ChangeEvent
from agent.security.http_identity import HttpIdentity
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType
from storage.object_store import StoreError

T = TypeVar("T")

CHANGES_KEY: Final = "penstock_changes"
"""The changes of a request, in its state."""
READING_METHODS: Final = frozenset({"GET", "HEAD"})
CLUSTER: Final = AuditedResource(kind=ResourceType.CLUSTER, name=CLUSTER_NAME)


@dataclass(slots=True, kw_only=True)
class AnnouncedChange:
    """A change that a handler makes. It may complete the text until it ends."""

    resource: AuditedResource
    operation: Operation
    text: str


def topic_resource(name: str) -> AuditedResource:
    """The topic of this name."""
    return AuditedResource(kind=ResourceType.TOPIC, name=name)


def announce_change(request: Request, resource: AuditedResource, operation: Operation, text: str) -> AnnouncedChange:
    """Announce that the handler is about to change a resource. `text` says how, without secrets."""
    change = AnnouncedChange(resource=resource, operation=operation, text=text)
    request.scope["state"].setdefault(CHANGES_KEY, []).append(change)
    return change


async def with_recorded_changes(request: Request, identity: HttpIdentity, handle: Callable[[], Awaitable[T]]) -> T:
    """The result of a request's handler, or what it raises, once the changes that it announced are recorded."""
    if request.method in READING_METHODS:
        return await handle()
    await identity.until_room()
    try:
        result = await handle()
    except BaseException as error:
        if _is_unknown(error):
            _record(request, identity, is_certain=False)
        raise
    _record(request, identity, is_certain=True)
    return result


def _record(request: Request, identity: HttpIdentity, *, is_certain: bool) -> None:
    changes: list[AnnouncedChange] = request.scope["state"].get(CHANGES_KEY, [])
    for change in changes:
        identity.record(
            ChangeEvent(
                source=identity.audit_source,
                api=identity.api,
                resource=change.resource,
                operation=change.operation,
                change=change.text,
                is_certain=is_certain,
            )
        )


def _is_unknown(error: BaseException | None) -> bool:
    """Whether a change may have been made although its handler ended with this error."""
    while error is not None:
        if isinstance(error, OutcomeUnknown | LedgerError | StoreError | TimeoutError | asyncio.CancelledError):
            return True
        error = error.__cause__
    return False
