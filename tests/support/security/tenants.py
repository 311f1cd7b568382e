"""A broker with an authorizer, an administrator, and tenants that log in over HTTP with tokens."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

ADMIN, ALICE, BOB = ("0123456789abcdef" + name for name in ("admin", "alice", "bob"))
"""The tokens of the administrator and of the tenants."""
TOKENS: Final = f"User:admin {ADMIN}\nUser:alice {ALICE}\nUser:bob {BOB}\n"
USERS: Final = """
[[users]]
name = "admin"
password = "of the admin"
mechanism = "SCRAM-SHA-256"
"""
LOGIN: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "admin",
    "sasl.password": "of the admin",
}
"""What a Kafka client of the administrator needs besides the address."""
SECONDS_MAX: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBroker:
    """The broker, with what an administrator does to it."""

    broker: Penstock

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap, **LOGIN})

    def producer(self, **configs: Any) -> Producer:  # noqa: ANN401 - values of librdkafka's configs
        return Producer({"bootstrap.servers": self.broker.bootstrap, **LOGIN, **configs})

    def create(self, *names: str, partitions: int = 1) -> None:
        topics = [NewTopic(name, num_partitions=partitions) for name in names]
        admin = self.admin  # the futures end with it
        for future in admin.create_topics(topics).values():
            future.result(SECONDS_MAX)

    def allow(self, *acls: AclBinding) -> None:
        admin = self.admin
        for future in admin.create_acls(list(acls)).values():
            future.result(SECONDS_MAX)

    def revoke(self, topic: str, user: str) -> None:
        """Delete all ACLs of the user on the topic."""
        pattern = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            None,  # type: ignore[arg-type]  # any host, as its documentation has it
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin
        for future in admin.delete_acls([pattern]).values():
            future.result(SECONDS_MAX)

    def produce(self, topic: str, values: Iterable[str], partition: int = 0) -> None:
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(SECONDS_MAX) == 0

    def archive(self, *topics: str) -> None:
        for topic in topics:
            archive_by_http(self.broker, topic, ADMIN)


def acl(topic: str, user: str, operation: AclOperation = AclOperation.READ) -> AclBinding:
    """The user may do that to the topic."""
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


@contextmanager
def tenant_broker(
    folder: Path, *, store: str | None = None, env: Mapping[str, str] | None = None, **options: str
) -> Iterator[TenantBroker]:
    """A broker without topics. `options`: with underscores for hyphens."""
    provided(PENSTOCK)
    (folder / "tokens").write_text(TOKENS)
    (folder / "users.toml").write_text(USERS)
    files = {"http-token-file": str(folder / "tokens"), "bootstrap-users": str(folder / "users.toml")}
    named = {name.replace("_", "-"): value for name, value in options.items()}
    with ExitStack() as stack:
        yield TenantBroker(
            broker=PenstockFactory(folder=folder, stack=stack)(
                listen="SASL_PLAINTEXT://127.0.0.1:0",
                options={**AT_ONCE, **files, **named},
                settings={"super.users": "User:admin"},
                store=store,
                env=env,
            )
        )
