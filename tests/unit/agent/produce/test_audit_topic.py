"""The audit log's topic: made once, written by agents alone, one record for each event."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from agent.fetch.sessions import RequestedPartition
from agent.produce.audit_topic import CONFIGS, SCHEMA, SCHEMA_SUBJECT, TopicSink
from agent.request.services import Services
from agent.security.audit.audit_events import AuditRecord
from agent.security.audit.audit_log import AuditSinkFailed
from agent.security.audit.audit_subject import SUBJECT
from coordinator.commands.registry import RegistryMode, SetMode
from coordinator.configs.topic_names import AUDIT_TOPIC
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode
from protocol.limits import MIB
from protocol.types import Milliseconds
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.audit_logs import KeptAuditLog, RequestOfAlice
from tests.support.agent.data_paths import DataPaths, data_paths, services_of
from tests.support.handlers.handler_client import TIMEOUT, ask
from tests.support.records.plain_records import Record, make_batch, read_batches

UNAVAILABLE = InjectedFault(operation=StoreOperation.PUT, kind=FaultKind.AFTER)


def records(*names: str) -> list[AuditRecord]:
    return [
        AuditRecord(time_ms=Milliseconds(1_000 + row), line=json.dumps({"principal": name, "count": 1}).encode())
        for row, name in enumerate(names)
    ]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[DataPaths, Services, TopicSink]]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        context = paths.parts.context(store=paths.store)
        yield paths, services, TopicSink(context, topics=services.topics, produce=services.produce)


async def written(paths: DataPaths) -> list[Record]:
    partition = RequestedPartition(AUDIT_TOPIC, 0, 0, MIB, -1, -1)
    (read,) = await paths.fetch_path.fetch([partition], max_wait_ms=0, bytes_min=1, bytes_max=MIB)
    return list(read_batches(b"".join(bytes(part) for part in read.records or ())).records)


async def principals(paths: DataPaths) -> list[str]:
    return [json.loads((record.value or b"")[5:])["principal"] for record in await written(paths)]


async def test_an_agent_creates_the_topic_and_its_schema_once() -> None:
    async with serving() as (paths, services, sink):
        await sink.write(records("ann", "bob"))
        await sink.write(records("eve"))
        topic = services.topics.known(AUDIT_TOPIC)
        assert topic is not None
        assert len(topic.partitions) == 1
        assert CONFIGS.items() <= topic.configs.items()
        registry = services.state.registry
        assert list(registry.subjects[SCHEMA_SUBJECT].live()) == [1]
        assert await principals(paths) == ["ann", "bob", "eve"]


async def test_a_record_has_the_schema_and_the_time_of_its_event() -> None:
    async with serving() as (paths, services, sink):
        await sink.write(records("ann", "bob"))
        schema_id = services.state.registry.ids_by_digest[SCHEMA.digest]
        found = await written(paths)
        assert [record.timestamp for record in found] == [1_000, 1_001]
        assert found[0].value == b"\x00" + schema_id.to_bytes(4, "big") + b'{"principal": "ann", "count": 1}'
        assert found[0].key is None


async def test_a_topic_and_schema_of_another_agent_are_used() -> None:
    async with serving() as (paths, services, sink):
        await sink.write(records("ann"))
        other = TopicSink(paths.parts.context(store=paths.store), topics=services.topics, produce=services.produce)
        await other.write(records("bob"))
        assert await principals(paths) == ["ann", "bob"]


async def test_a_batch_that_was_not_put_is_given_again_and_there_once() -> None:
    async with serving() as (paths, _, sink):
        await sink.write(records("ann"))
        paths.store.script(UNAVAILABLE)
        with pytest.raises(AuditSinkFailed, match="request_timed_out"):
            await sink.write(records("bob"))
        await sink.write(records("bob"))
        assert await principals(paths) == ["ann", "bob"]


async def test_a_deleted_topic_is_created_again() -> None:
    async with serving() as (paths, services, sink):
        await sink.write(records("ann"))
        await ask(services, ApiKey.DELETE_TOPICS, 1, topic_names=[AUDIT_TOPIC], timeout=TIMEOUT)
        await sink.write(records("bob"))
        assert await principals(paths) == ["bob"]


async def test_a_registry_that_takes_no_schema_is_named() -> None:
    async with serving() as (_, services, sink):
        await services.ledger.propose(SetMode(subject="", mode=RegistryMode.READONLY, is_forced=False))
        with pytest.raises(AuditSinkFailed, match=SCHEMA_SUBJECT):
            await sink.write(records("ann"))


class TestClients:
    async def test_no_client_creates_the_topic(self) -> None:
        async with serving() as (_, services, _):
            topic = {
                "name": AUDIT_TOPIC,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            answer = await ask(services, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=TIMEOUT, validate_only=False)
            assert answer.topics[0].error_code is ErrorCode.topic_authorization_failed
            answer = await ask(
                services,
                ApiKey.METADATA,
                9,
                topics=[{"name": AUDIT_TOPIC}],
                allow_auto_topic_creation=True,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition

    @pytest.mark.parametrize("version", [9, 13])
    async def test_no_client_writes_the_topic(self, version: int) -> None:
        async with serving() as (paths, services, sink):
            await sink.write(records("ann"))
            audit = KeptAuditLog()
            SUBJECT.set(RequestOfAlice())
            services = replace(services, audit_log=audit)
            topic = services.topics.known(AUDIT_TOPIC)
            assert topic is not None
            forged = make_batch([Record(offset=0, timestamp=1, value=b"forged")])
            row: dict[str, Any] = {"partition_data": [{"index": 0, "records": forged}]}
            row |= {"name": AUDIT_TOPIC} if version < 13 else {"topic_id": UUID(bytes=topic.topic_id)}
            answer = await ask(
                services,
                ApiKey.PRODUCE,
                version,
                transactional_id=None,
                acks=-1,
                timeout=TIMEOUT,
                topic_data=[row],
            )
            code = answer.responses[0].partition_responses[0].error_code
            assert code is ErrorCode.topic_authorization_failed
            assert await principals(paths) == ["ann"]
            await audit.flush()
            assert [(line["decision"], line["resource"], line["operation"]) for line in audit.sink.lines] == [
                ("denied", f"Topic:{AUDIT_TOPIC}", "WRITE")
            ]
