"""A denial names the request that is being served."""

import asyncio

from agent.security.audit.audit_subject import SUBJECT, record_denials
from protocol.auth.operations import Operation, ResourceType
from tests.support.agent.audit_logs import KeptAuditLog, RequestOfAlice


async def test_each_denied_name_is_an_event_of_the_current_request_if_there_is_one() -> None:
    audit = KeptAuditLog()

    async def serve() -> None:
        SUBJECT.set(RequestOfAlice())
        record_denials(audit, Operation.WRITE, ResourceType.TOPIC, ["a", "b"], rule="no ACL allows it")

    await asyncio.create_task(serve())
    record_denials(audit, Operation.READ, ResourceType.GROUP, ["g"], rule="no ACL allows it")
    await audit.flush()
    assert [(line["principal"], line["api"], line["operation"], line["resource"]) for line in audit.sink.lines] == [
        ("User:alice", "Produce", "WRITE", "Topic:a"),
        ("User:alice", "Produce", "WRITE", "Topic:b"),
    ]
