"""Rights of real clients: denied without an ACL, allowed with one, and which agents do not start."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.auth.plain_users import plain_user
from tests.support.processes import ProcessFailed, provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

ADMIN, ALICE = "admin", "alice"
TOPIC, GROUP = "orders", "billing"
SECONDS_MAX = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A broker with a super user, and a user that no ACL names."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("rights")
    users = folder / "users"
    users.write_text("\n".join(plain_user(name, name) for name in (ADMIN, ALICE)))
    with ExitStack() as stack:
        broker = PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"plain-users": str(users)},
            settings={"sasl.enabled.mechanisms": "PLAIN", "super.users": f"User:{ADMIN}"},
        )
        admin = _admin(broker, ADMIN)
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(SECONDS_MAX)
        yield broker


def _config(broker: Penstock, user: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
    }


def _admin(broker: Penstock, user: str) -> AdminClient:
    return AdminClient(_config(broker, user))


def _acl(operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        resource_type, name, ResourcePatternType.LITERAL, f"User:{ALICE}", "*", operation, AclPermissionType.ALLOW
    )


def _produced(broker: Penstock, user: str) -> KafkaError | None:
    """The error of one record; None where it was written."""
    errors: list[KafkaError | None] = []
    producer = Producer({**_config(broker, user), "message.timeout.ms": SECONDS_MAX * 1000})
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(SECONDS_MAX)
    return errors[0]


def _consumed(broker: Penstock, user: str) -> bytes | KafkaError:
    """The first record, or the error."""
    consumer = Consumer({**_config(broker, user), "group.id": GROUP, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        return message.error() or message.value() or b""
    finally:
        consumer.close()


def test_a_client_may_do_what_an_acl_allows_as_soon_as_it_is_created(broker: Penstock) -> None:
    admin = _admin(broker, ADMIN)
    error = _produced(broker, ALICE)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    write, read = AclOperation.WRITE, AclOperation.READ
    for future in admin.create_acls([_acl(write, ResourceType.TOPIC, TOPIC)]).values():
        future.result(SECONDS_MAX)
    assert _produced(broker, ALICE) is None
    denied = _consumed(broker, ALICE)
    assert isinstance(denied, KafkaError)
    assert denied.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    acls = [_acl(read, ResourceType.TOPIC, TOPIC), _acl(read, ResourceType.GROUP, GROUP)]
    for future in admin.create_acls(acls).values():
        future.result(SECONDS_MAX)
    assert _consumed(broker, ALICE) == b"v"


def test_a_client_without_rights_may_not_give_itself_any(broker: Penstock) -> None:
    admin = _admin(broker, ALICE)
    (future,) = admin.create_acls([_acl(AclOperation.ALTER, ResourceType.TOPIC, TOPIC)]).values()
    with pytest.raises(KafkaException) as denied:
        future.result(SECONDS_MAX)
    assert denied.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_an_agent_that_no_principal_could_administer_does_not_start(penstock: PenstockFactory) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with pytest.raises(ProcessFailed, match=r"no principal may administer the cluster.*--set super\.users=User:NAME"):
        penstock(settings={"authorizer.class.name": authorizer})
