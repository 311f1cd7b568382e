"""Requests of several resources, some of which are denied: what is answered of them, and what is not shown."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from agent.fetch.partition_read import PartitionRead
from agent.fetch.sessions import RequestedPartition
from agent.request.services import NoAnswerOwed, Services
from agent.security.rights import Rights
from protocol.api_versions import ApiKey
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType, bits
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import create
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity
from tests.support.records.plain_records import Record, make_batch
from tests.support.security.fixed_rights import FixedJudge, no_rights, rights_of

SECOND = timedelta(seconds=1)
DENIED = ErrorCode.topic_authorization_failed
UNKNOWN_ID = uuid.UUID(int=77)


def on_topics(**operations: int) -> Rights:
    """Rights on topics alone, by name."""
    return rights_of({(ResourceType.TOPIC, name): allowed for name, allowed in operations.items()})


DESCRIBE_T = on_topics(t=bits(Operation.DESCRIBE))


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    """An agent with the topics `t` and `u`."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        await paths.parts.ledger.propose(create(name="u", topic_id=TopicId(b"u" * 16)))
        yield services_of(paths, ManualClock(), tasks)


def id_of(services: Services, name: str) -> uuid.UUID:
    return uuid.UUID(bytes=services.state.topic_ids[name])


async def metadata(services: Services, rights: Rights, topics: list[Any] | None, version: int = 12) -> KioEntity:
    fields: dict[str, Any] = {"topics": topics, "allow_auto_topic_creation": True}
    fields["include_topic_authorized_operations"] = True
    return await ask(services, ApiKey.METADATA, version, None, None, None, rights, **fields)


async def test_a_list_of_all_topics_leaves_out_those_that_may_not_be_described() -> None:
    async with serving() as services:
        every = await metadata(services, DESCRIBE_T, None)
        assert [(topic.name, topic.topic_authorized_operations) for topic in every.topics] == [("t", 256)]
        assert (await metadata(services, no_rights(), None)).topics == ()


async def test_a_topic_that_may_not_be_described_is_denied_whether_or_not_it_exists() -> None:
    async with serving() as services:
        names = [{"name": name, "topic_id": None} for name in ("t", "u", "absent")]
        answer = await metadata(services, DESCRIBE_T, names)
        rows = {topic.name: (topic.error_code, topic.topic_id, topic.partitions == ()) for topic in answer.topics}
        assert rows.pop("t")[0] is ErrorCode.none
        assert rows == {"u": (DENIED, None, True), "absent": (DENIED, None, True)}


async def test_a_topic_by_id_has_no_name_where_it_may_not_be_described() -> None:
    async with serving() as services:
        ids = [id_of(services, "u"), UNKNOWN_ID]
        answer = await metadata(services, DESCRIBE_T, [{"name": None, "topic_id": each} for each in ids])
        rows = {topic.topic_id: (topic.name, topic.error_code) for topic in answer.topics}
        assert rows == {ids[0]: (None, DENIED), UNKNOWN_ID: (None, ErrorCode.unknown_topic_id)}


@pytest.mark.parametrize("resource", [(ResourceType.TOPIC, "new"), (ResourceType.CLUSTER, CLUSTER_NAME)])
async def test_a_topic_is_created_for_a_client_that_may_create_it(resource: tuple[ResourceType, str]) -> None:
    async with serving() as services:
        rights = {(ResourceType.TOPIC, "new"): bits(Operation.DESCRIBE)}
        wanted = [{"name": "new", "topic_id": None}]
        (topic,) = (await metadata(services, rights_of(rights), wanted)).topics
        assert (topic.error_code, topic.topic_id) == (DENIED, None)
        allowed = {**rights, resource: bits(Operation.DESCRIBE, Operation.CREATE)}
        (topic,) = (await metadata(services, rights_of(allowed), wanted)).topics
        assert topic.error_code is ErrorCode.none


async def test_all_denied_names_of_a_request_share_one_barrier() -> None:
    async with serving() as services:
        judge = FixedJudge(dict)
        await metadata(services, Rights(judge), [{"name": f"x{number}", "topic_id": None} for number in range(20)])
        assert judge.barriers_count == 1
        assert [len(names) for _, _, names in judge.denials] == [20]


async def created(services: Services, rights: Rights) -> KioEntity:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fields: dict[str, Any] = {"topics": [topic], "timeout": SECOND, "validate_only": True}
    (row,) = (await ask(services, ApiKey.CREATE_TOPICS, 7, None, None, None, rights, **fields)).topics
    return row


async def test_a_new_topic_is_described_to_those_who_may_see_its_configs() -> None:
    async with serving() as services:
        hidden = await created(services, on_topics(new=bits(Operation.CREATE)))
        assert (hidden.error_code, hidden.topic_config_error_code, hidden.num_partitions) == (0, DENIED, -1)
        assert hidden.configs == ()
        both = await created(services, on_topics(new=bits(Operation.CREATE, Operation.DESCRIBE_CONFIGS)))
        assert (both.topic_config_error_code, both.num_partitions) == (0, 1)
        assert both.configs


async def deleted(services: Services, rights: Rights, **topic: object) -> tuple[str | None, ErrorCode]:
    fields: dict[str, Any] = {"topics": [{"name": None, "topic_id": None, **topic}], "timeout": SECOND}
    (row,) = (await ask(services, ApiKey.DELETE_TOPICS, 6, None, None, None, rights, **fields)).responses
    return row.name, row.error_code


async def test_a_deletion_that_is_denied_shows_no_more_than_may_be_described() -> None:
    async with serving() as services:
        by_id = id_of(services, "u")
        describing = on_topics(u=bits(Operation.DESCRIBE), absent=bits(Operation.DESCRIBE))
        assert await deleted(services, no_rights(), topic_id=by_id) == (None, DENIED)
        assert await deleted(services, describing, topic_id=by_id) == ("u", DENIED)
        assert await deleted(services, no_rights(), name="u") == ("u", DENIED)
        assert await deleted(services, no_rights(), name="absent") == ("absent", DENIED)
        assert await deleted(services, describing, name="absent") == ("absent", ErrorCode.unknown_topic_or_partition)
        assert await deleted(services, no_rights(), topic_id=UNKNOWN_ID) == (None, ErrorCode.unknown_topic_id)


async def test_who_may_delete_on_the_cluster_deletes_any_topic() -> None:
    async with serving() as services:
        rights = rights_of({(ResourceType.CLUSTER, CLUSTER_NAME): bits(Operation.DELETE)})
        assert await deleted(services, rights, name="u") == ("u", ErrorCode.none)


async def produced(services: Services, rights: Rights, acks: int = -1) -> Mapping[str, ErrorCode]:
    records = [{"index": 0, "records": make_batch([Record(offset=0, timestamp=1, value=b"v")])}]
    topics = [{"name": name, "partition_data": records} for name in ("t", "u", "absent")]
    fields: dict[str, Any] = {"transactional_id": None, "acks": acks, "timeout": timedelta(milliseconds=1)}
    answer = await ask(services, ApiKey.PRODUCE, 9, None, None, None, rights, **fields, topic_data=topics)
    return {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}


async def test_records_of_denied_topics_are_not_written_and_the_others_are() -> None:
    async with serving() as services:
        codes = await produced(services, on_topics(t=bits(Operation.WRITE)))
        assert {name: code for name, code in codes.items() if name != "t"} == {"u": DENIED, "absent": DENIED}
        assert codes["t"] is not DENIED


async def test_denied_records_without_an_acknowledgement_close_the_connection() -> None:
    async with serving() as services:
        with pytest.raises(NoAnswerOwed, match="topic_authorization_failed for records with acks=0"):
            await produced(services, on_topics(t=bits(Operation.WRITE)), acks=0)


def fetch_of(*names: str, session_id: int = 0, epoch: int = -1) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "replica_id": -1,
        "max_wait": timedelta(),
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_id": session_id,
        "session_epoch": epoch,
        "forgotten_topics_data": [],
        "topics": [{"topic": name, "partitions": [partition]} for name in names],
    }


def codes_by_topic(answer: KioEntity) -> dict[str, ErrorCode]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


async def test_a_session_is_judged_at_each_fetch() -> None:
    async with serving() as services:
        read = bits(Operation.READ)
        table = {(ResourceType.TOPIC, "t"): read, (ResourceType.TOPIC, "u"): read}
        rights = Rights(FixedJudge(lambda: dict(table)))
        first = await ask(services, ApiKey.FETCH, 12, None, None, None, rights, **fetch_of("t", "u", epoch=0))
        assert codes_by_topic(first) == {"t": 0, "u": 0}
        del table[ResourceType.TOPIC, "u"]
        rights.refresh()
        again = fetch_of(session_id=first.session_id, epoch=1)
        assert codes_by_topic(await ask(services, ApiKey.FETCH, 12, None, None, None, rights, **again)) == {"u": DENIED}


async def test_a_fetch_that_waited_is_judged_again_before_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as services:
        table = {(ResourceType.TOPIC, "t"): bits(Operation.READ)}
        rights = Rights(FixedJudge(lambda: dict(table)))
        fetch = services.fetch.fetch

        async def waited(partitions: Sequence[RequestedPartition], **more: object) -> list[PartitionRead]:
            reads = await fetch(partitions, **more)  # type: ignore[arg-type]  # as given
            table.clear()
            return reads

        monkeypatch.setattr(services.fetch, "fetch", waited)
        answer = await ask(services, ApiKey.FETCH, 12, None, None, None, rights, **fetch_of("t"))
        assert codes_by_topic(answer) == {"t": DENIED}


async def test_groups_that_may_not_be_described_are_not_listed() -> None:
    async with serving() as services:
        for group_id in ("g1", "g2"):
            offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
            fields: dict[str, Any] = {"group_id": group_id, "member_id": ""}
            topics = [{"name": "t", "partitions": [offset]}]
            await ask(services, ApiKey.OFFSET_COMMIT, 8, **fields, topics=topics)

        async def listed(rights: Rights) -> set[str]:
            answer = await ask(services, ApiKey.LIST_GROUPS, 4, None, None, None, rights, states_filter=[])
            return {group.group_id for group in answer.groups}

        assert await listed(no_rights()) == set()
        assert await listed(rights_of({(ResourceType.GROUP, "g1"): bits(Operation.DESCRIBE)})) == {"g1"}
        cluster = {(ResourceType.CLUSTER, CLUSTER_NAME): bits(Operation.DESCRIBE)}
        assert await listed(rights_of(cluster)) == {"g1", "g2"}


async def test_offsets_of_all_topics_are_those_of_topics_that_may_be_described() -> None:
    async with serving() as services:
        offset = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        topics = [{"name": name, "partitions": [offset]} for name in ("t", "u")]
        await ask(services, ApiKey.OFFSET_COMMIT, 8, group_id="g", member_id="", topics=topics)
        rights = rights_of(
            {(ResourceType.GROUP, "g"): bits(Operation.DESCRIBE), (ResourceType.TOPIC, "u"): bits(Operation.DESCRIBE)}
        )
        fields: dict[str, Any] = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
        (group,) = (await ask(services, ApiKey.OFFSET_FETCH, 8, None, None, None, rights, **fields)).groups
        assert [topic.name for topic in group.topics] == ["u"]
