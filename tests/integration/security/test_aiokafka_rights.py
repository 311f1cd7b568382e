"""What aiokafka says where its user lacks a right: the errors that Apache Kafka answers, each to its call."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

USERS = """
[[users]]
name = "alice"
password = "wonderland"
mechanism = "SCRAM-SHA-256"
[[users]]
name = "bob"
password = "builder"
mechanism = "SCRAM-SHA-256"
"""
SECONDS_MAX = 30
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
Client = TypeVar("Client", AIOKafkaProducer, AIOKafkaConsumer)
Right = tuple[ResourceType, AclOperation]
ALL: tuple[Right, ...] = ((TOPIC, READ), (TOPIC, WRITE), (GROUP, READ), (TRANSACTION, WRITE))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A broker with a super user alice, and bob, who has what ACLs say."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("aiokafka")
    (folder / "users.toml").write_text(USERS)
    (folder / "key").write_bytes(os.urandom(32))
    with ExitStack() as stack:
        yield PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"bootstrap-users": str(folder / "users.toml")},
            settings={
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "super.users": "User:alice",
                "penstock.secret.key.file": str(folder / "key"),
            },
        )


@pytest.fixture
def allow(broker: Penstock, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a topic, and allows bob these rights on all that has its name, which it returns."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)

    def grant(*rights: Right, denied: Right | None = None) -> str:
        admin = AdminClient({**login("alice", "wonderland"), "bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS_MAX)
        rows = [acl(name, right, AclPermissionType.ALLOW) for right in rights]
        rows += [acl(name, denied, AclPermissionType.DENY)] if denied else []
        rows += [acl("bobs-own", (TOPIC, WRITE), AclPermissionType.ALLOW)]  # a producer id needs a right to any topic
        for future in admin.create_acls(rows).values():
            future.result(SECONDS_MAX)
        return name

    return grant


def login(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def acl(name: str, right: Right, permission: AclPermissionType) -> AclBinding:
    kind, operation = right
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:bob", "*", operation, permission)


def as_bob(broker: Penstock) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "builder",
    }


@asynccontextmanager
async def started(client: Client) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.stop)
        await client.start()
        yield client


async def send(broker: Penstock, name: str, **options: object) -> None:
    async with started(AIOKafkaProducer(**as_bob(broker), **options)) as producer:
        await producer.send_and_wait(name, b"x")


async def receive(broker: Penstock, name: str, group: str | None) -> None:
    topics = (name,) if group else ()
    consumer = AIOKafkaConsumer(*topics, **as_bob(broker), group_id=group, auto_offset_reset="earliest")
    async with started(consumer):
        if group is None:
            consumer.assign([TopicPartition(name, 0)])
        assert (await consumer.getone()).value == b"x"


async def send_in_transaction(broker: Penstock, name: str) -> None:
    async with started(AIOKafkaProducer(**as_bob(broker), transactional_id=name)) as producer, producer.transaction():
        await producer.send_and_wait(name, b"x")


async def commit_in_transaction(broker: Penstock, name: str) -> None:
    async with started(AIOKafkaProducer(**as_bob(broker), transactional_id=name)) as producer, producer.transaction():
        await producer.send_offsets_to_transaction({TopicPartition(name, 0): 1}, name)


def test_with_all_rights_all_of_it_works(broker: Penstock, allow: Callable[..., str]) -> None:
    name = allow(*ALL)

    async def all_of_it() -> None:
        await send(broker, name)
        await receive(broker, name, group=None)
        await receive(broker, name, group=name)
        await send_in_transaction(broker, name)
        await commit_in_transaction(broker, name)

    run(all_of_it())


@pytest.mark.parametrize("denied", [(TOPIC, WRITE), (TOPIC, DESCRIBE)], ids=["write", "describe"])
@pytest.mark.parametrize("options", [{}, {"enable_idempotence": True}], ids=["plain", "idempotent"])
def test_sending_needs_its_rights(
    broker: Penstock, allow: Callable[..., str], denied: Right, options: dict[str, object]
) -> None:
    name = allow(*ALL, denied=denied)
    with pytest.raises(TopicAuthorizationFailedError):
        run(send(broker, name, **options))


@pytest.mark.parametrize("denied", [(TOPIC, READ), (TOPIC, DESCRIBE)], ids=["read", "describe"])
def test_reading_needs_its_rights(broker: Penstock, allow: Callable[..., str], denied: Right) -> None:
    name = allow(*ALL, denied=denied)
    with pytest.raises(TopicAuthorizationFailedError):
        run(receive(broker, name, group=name))


@pytest.mark.parametrize("denied", [(GROUP, READ), (GROUP, DESCRIBE)], ids=["read", "describe"])
def test_a_group_needs_its_rights(broker: Penstock, allow: Callable[..., str], denied: Right) -> None:
    name = allow(*ALL, denied=denied)
    with pytest.raises(GroupAuthorizationFailedError):
        run(receive(broker, name, group=name))


@pytest.mark.parametrize("denied", [(TRANSACTION, WRITE), (TRANSACTION, DESCRIBE)], ids=["write", "describe"])
def test_a_transaction_needs_its_rights(broker: Penstock, allow: Callable[..., str], denied: Right) -> None:
    name = allow(*ALL, denied=denied)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        run(send_in_transaction(broker, name))


def test_a_transaction_needs_the_right_to_its_topic(broker: Penstock, allow: Callable[..., str]) -> None:
    name = allow(*ALL, denied=(TOPIC, WRITE))
    with pytest.raises(TopicAuthorizationFailedError):
        run(send_in_transaction(broker, name))


def test_offsets_in_a_transaction_need_the_right_to_the_group(broker: Penstock, allow: Callable[..., str]) -> None:
    name = allow(*ALL, denied=(GROUP, READ))
    with pytest.raises(GroupAuthorizationFailedError):
        run(commit_in_transaction(broker, name))


def run(coroutine: Awaitable[None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await coroutine

    asyncio.run(in_time())
