"""An agent with two kinds of users: one that may do all, and for each set of rights one that may do all but that.

Every user but the super user has ALLOW of ALL on every topic, group and transactional id and on the cluster, and DENY
of the operations that it is without. By SASL its password is its name; over HTTP its token is `token_of` its name.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_RIGHTS
from agent.security.required_rights import Right
from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.scram_credentials import ScramMechanism
from tests.security.guarded_requests import DOOMED, FILTERED, GUARDED, SECONDS, Names
from tests.support.auth.plain_users import plain_user
from tests.support.clients.kafka_requests import Entity
from tests.support.clients.login_client import LoginClient, decode_answer, error_codes
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory

ADMIN: Final = "admin"
EVERYTHING: Final = "everything"
"""The user that may do all by ACLs."""
NOTHING: Final = "nothing"
"""The user that no ACL names."""
INTRUDER: Final = "intruder"
"""A user whom tests give rights, and take them back from."""
GUARDED_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
    ResourceType.USER,
    ResourceType.DELEGATION_TOKEN,
)
TOPIC, GROUP, TRANSACTIONAL_ID = "victims-topic", "victims-group", "victims-transaction"
RETENTION_MS: Final = "604799001"
"""A config of each topic that no other text resembles."""
CONSUMER_GROUP: Final = "victims-consumers"


def user_without(rights: Iterable[Right]) -> str:
    """The user that may do all but these operations."""
    return "without." + ".".join(sorted(f"{right.operation.name}-{right.resource_type.name}" for right in rights))


def token_of(user: str) -> str:
    """The bearer token of a user."""
    return f"token-of-the-user-{user}"


def rights_of_kafka() -> list[frozenset[Right]]:
    """The sets of rights of which a client of some Kafka API needs one."""
    needed = [frozenset(each.rights) for row in GUARDED for each in row.needs]
    needed += [frozenset(row.rights + row.besides) for row in FILTERED]
    return list(dict.fromkeys([*needed, *(frozenset(row.besides) for row in FILTERED if row.besides)]))


def rights_of_http() -> list[frozenset[Right]]:
    """The sets of rights of which a client of some path of the HTTP port needs one."""
    needed: list[frozenset[Right]] = []
    for row in HTTP_RIGHTS.values():
        needed.append(frozenset(Right(operation, ResourceType.CLUSTER) for operation in row.cluster))
        needed += [frozenset({Right(operation, ResourceType.TOPIC)}) for operation in row.topic]
        needed += [frozenset({Right(*right)}) for right in (*row.listed, *row.body)]
    for subject_row in REGISTRY_RIGHTS.values():
        for kind in (ResourceType.TOPIC, ResourceType.CLUSTER):
            needed.append(frozenset(Right(operation, kind) for operation in subject_row.subject))
            needed.append(frozenset(Right(operation, kind) for operation in subject_row.listed))
    return [rights for rights in dict.fromkeys(needed) if rights]


def acl_row(
    user: str,
    right: Right,
    name: str = "*",
    *,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> dict[str, Any]:
    """A row of CreateAcls. The name "*" stands for the cluster's name, too."""
    is_cluster = right.resource_type is ResourceType.CLUSTER
    return {
        "resource_type": int(right.resource_type),
        "resource_name": "kafka-cluster" if is_cluster and name == "*" else name,
        "resource_pattern_type": int(pattern),
        "principal": f"User:{user}",
        "host": host,
        "operation": int(right.operation),
        "permission_type": int(permission),
    }


def grant(admin: LoginClient, rows: list[dict[str, Any]]) -> None:
    """Creates ACLs."""
    answer = admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": rows})
    assert error_codes(answer) == [0] * len(rows), answer


def revoke_all(admin: LoginClient, user: str) -> None:
    """Deletes all ACLs of a user."""
    everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    values = {**everything, "principal_filter": f"User:{user}", "host_filter": None}
    answer = admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [{**values, "operation": 1, "permission_type": 1}]})
    assert set(error_codes(answer)) == {0}, answer


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedAgent:
    """The running agent, and connections to it."""

    broker: Penstock
    names: Names
    admin: LoginClient
    clients: dict[str, LoginClient]

    def client(self, user: str) -> LoginClient:
        """The connection of a user, who has logged in."""
        if user not in self.clients:
            client = LoginClient(self.broker.bootstrap)
            answer = client.log_in(user)
            assert answer.error_code == 0, f"{user}: {answer}"
            self.clients[user] = client
        return self.clients[user]

    def ask(self, user: str, api_key: int, version: int, values: Entity) -> Entity:
        """The answer to a user. Raises `Broken` where the connection is closed instead."""
        return self.ask_all([user], api_key, version, values)[0]

    def ask_all(self, users: list[str], api_key: int, version: int, values: Entity) -> list[Entity]:
        """The answers to different users who ask at the same time: their denials share a barrier."""
        clients = [self.client(user) for user in users]
        for client in clients:
            client.send_request(api_key, version, values)
        frames = [client.receive() for client in clients]  # all of them, so that one that cannot be decoded leaves none
        return [decode_answer(frame, api_key, version) for frame in frames]


@contextmanager
def guarded_agent(folder: Path) -> Iterator[GuardedAgent]:
    """Starts the agent, with a topic, a group and a transaction of the super user."""
    provided(PENSTOCK)
    without = {user_without(rights): rights for rights in [*rights_of_kafka(), *rights_of_http()]}
    users = [ADMIN, EVERYTHING, NOTHING, INTRUDER, *without]
    # Few iterations, for the agent checks a hundred passwords. SHA-256 takes less of its time than SHA-512.
    lines = [plain_user(user, user, ScramMechanism.SCRAM_SHA_256) for user in users]
    (folder / "users").write_text("\n".join(lines) + "\n")
    (folder / "tokens").write_text("".join(f"User:{user} {token_of(user)}\n" for user in users))
    (folder / "key").write_bytes(bytes(range(32)))
    with ExitStack() as stack:
        broker = PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={
                "plain-users": str(folder / "users"),
                "http-token-file": str(folder / "tokens"),
                "audit-log": str(folder / "audit"),
                "log-level": "warning",
            },
            settings={
                "sasl.enabled.mechanisms": "PLAIN",
                "super.users": f"User:{ADMIN}",
                "penstock.secret.key.file": str(folder / "key"),
            },
        )
        admin = stack.enter_context(LoginClient(broker.bootstrap))
        assert admin.log_in(ADMIN).error_code == 0
        rows = []
        for user, rights in {EVERYTHING: frozenset[Right](), **without}.items():
            rows += [acl_row(user, Right(Operation.ALL, kind)) for kind in GUARDED_TYPES]
            rows += [acl_row(user, right, permission=Permission.DENY) for right in rights]
        grant(admin, rows)
        agent = GuardedAgent(broker=broker, names=_prepare(admin), admin=admin, clients={})
        yield agent
        for client in agent.clients.values():
            client.close()


def create_topic(admin: LoginClient, name: str) -> uuid.UUID:
    """Creates a topic with two partitions, and returns its id."""
    topic: dict[str, Any] = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": []}
    topic["configs"] = [{"name": "retention.ms", "value": RETENTION_MS}]
    answer = admin.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": SECONDS, "validate_only": False})
    assert set(error_codes(answer)) == {0}, answer
    topic_id = answer.topics[0].topic_id
    assert isinstance(topic_id, uuid.UUID)
    return topic_id


def create_own_token(client: LoginClient) -> None:
    """Creates a delegation token of the client's own user."""
    owner = {"owner_principal_type": None, "owner_principal_name": None}
    values: dict[str, object] = {**owner, "renewers": [], "max_lifetime": SECONDS * 100}
    assert client.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, values).error_code == 0


def _prepare(admin: LoginClient) -> Names:
    """A topic, a group with an offset, and a transaction under way, all of the super user."""
    topic_id = create_topic(admin, TOPIC)
    create_topic(admin, DOOMED)
    committed = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    group = {"group_id": GROUP, "member_id": "", "topics": [{"name": TOPIC, "partitions": [committed]}]}
    assert set(error_codes(admin.ask(ApiKey.OFFSET_COMMIT, 8, group))) == {0}
    values = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": SECONDS * 100}
    producer = admin.ask(ApiKey.INIT_PRODUCER_ID, 4, values)
    assert producer.error_code == 0
    added = {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [1]}],
    }
    assert set(error_codes(admin.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added))) == {0}
    heartbeat = {"group_id": CONSUMER_GROUP, "member_id": "V" * 22, "rebalance_timeout": SECONDS * 100}
    joined = {**heartbeat, "member_epoch": 0, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    assert set(error_codes(admin.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joined))) == {0}
    create_own_token(admin)
    cluster = admin.ask(ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False})
    node_id = int(cluster.brokers[0].broker_id)
    return Names(
        topic=TOPIC,
        topic_id=topic_id,
        group=GROUP,
        transactional_id=TRANSACTIONAL_ID,
        consumer_group=CONSUMER_GROUP,
        user=ADMIN,
        node_id=node_id,
    )
