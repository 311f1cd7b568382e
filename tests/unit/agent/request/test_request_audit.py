"""A change is recorded although its client is gone, and waits while the audit log is full."""

import asyncio
from dataclasses import replace

import pytest

from agent.config.audit_classes import AuditClass
from agent.request.messages import Values
from agent.request.request_audit import with_recorded_changes
from agent.request.services import Request, Services
from agent.security.audit.audit_log import no_audit_log
from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable, OutcomeUnknown
from protocol.api_versions import ApiKey
from protocol.auth.principals import Principal
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.limits import AUDIT_LOG_EVENTS_MAX
from tests.support.agent.audit_logs import KeptAuditLog, topic_change
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock


class GroupDeletion:
    """A handler of DeleteGroups that ends when a test says so."""

    groups_names = ("g",)

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.is_begun = False
        self.is_ended = False
        self.error: Exception | None = None

    async def handle(self, services: Services, request: Request, body: object) -> Values:
        self.is_begun = True
        await self.may_end.wait()
        self.is_ended = True
        if self.error is not None:
            raise self.error
        return {"results": [{"group_id": "g", "error_code": ErrorCode.none}]}


def request() -> Request:
    frame = RequestFrame(
        number=0,
        api_key=ApiKey.DELETE_GROUPS,
        api_version=2,
        correlation_id=7,
        client_id="me",
        header_bytes=10,
        body=memoryview(b""),
    )
    return Request(
        frame=frame,
        listener="SASL_SSL",
        peer="127.0.0.1:50000",
        principal=Principal("User", "ann"),
        groups=[Principal("Group", "staff")],
        mechanism="PLAIN",
    )


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_source_of_a_request_has_no_port() -> None:
    source = request().audit_source
    assert (str(source.principal), source.groups, source.mechanism) == ("User:ann", ("staff",), "PLAIN")
    assert (source.host, source.listener, source.client_id) == ("127.0.0.1", "SASL_SSL", "me")
    assert request().audit_api == "DeleteGroups"


async def test_a_client_that_is_gone_cannot_prevent_the_record() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        audit, deletion = KeptAuditLog(), GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=audit, tasks=tasks)
        asked = asyncio.ensure_future(with_recorded_changes(deletion.handle)(services, request(), deletion))
        await turns()
        asked.cancel()
        await turns()
        assert asked.cancelled()
        assert not deletion.is_ended
        deletion.may_end.set()
        await turns()
        await audit.flush()
        assert [line["resource"] for line in audit.sink.lines] == ["Group:g"]


async def test_a_change_waits_while_the_audit_log_is_full() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        audit, deletion = KeptAuditLog(), GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=audit, tasks=tasks)
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(topic_change(f"t{number}"))
        deletion.may_end.set()
        asked = asyncio.ensure_future(with_recorded_changes(deletion.handle)(services, request(), deletion))
        await turns()
        assert not deletion.is_begun
        await audit.write_due()
        assert (await asked)["results"]
        assert audit.dropped(AuditClass.CHANGE) == 0


@pytest.mark.parametrize("is_detached", [True, False])
async def test_what_a_handler_raises_reaches_the_connection_and_the_record(*, is_detached: bool) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        audit, deletion = KeptAuditLog(), GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=audit)
        services = replace(services, tasks=tasks if is_detached else None)
        deletion.error = OutcomeUnknown("the session ended")
        deletion.may_end.set()
        with pytest.raises(OutcomeUnknown):
            await with_recorded_changes(deletion.handle)(services, request(), deletion)
        await audit.flush()
        assert [line["decision"] for line in audit.sink.lines] == ["unknown"]


async def test_a_corrupt_ledger_still_ends_the_agent() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        deletion = GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=KeptAuditLog())
        deletion.error = LedgerCorrupt("two heads")
        deletion.may_end.set()
        with pytest.raises(LedgerCorrupt):
            await with_recorded_changes(deletion.handle)(services, request(), deletion)


async def test_an_agent_that_is_ending_begins_no_change() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        async with asyncio.TaskGroup() as ended:
            pass
        deletion = GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=KeptAuditLog(), tasks=ended)
        with pytest.raises(LedgerUnavailable, match="stopping"):
            await with_recorded_changes(deletion.handle)(services, request(), deletion)
        assert not deletion.is_begun


async def test_without_an_audit_log_the_handler_is_called_as_it_is() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        deletion = GroupDeletion()
        services = replace(services_of(paths, ManualClock(), tasks), audit_log=no_audit_log(), tasks=tasks)
        deletion.may_end.set()
        assert (await with_recorded_changes(deletion.handle)(services, request(), deletion))["results"]
