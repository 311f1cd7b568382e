"""python -m tests.compat.protocol_diff.single_rights FOLDER: records what Kafka answers to clients with one right each.

One client has no right, and each of the others has one, on resources whose names begin with its own prefix. Every
client sends all requests of `single_right_questions`. Of each answer its error codes count, its authorized operations,
and whether lists contain the client's own resource. Clients of rights on the cluster ask last: until then no ACL names
the cluster, which matters where `allow.everyone.if.no.acl.found` is true.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.compat.kafka_target import kafka_target
from tests.compat.protocol_diff.connection import Connection
from tests.compat.protocol_diff.logins import DENIED, Login, kafka_settings
from tests.compat.protocol_diff.messages import Definitions, kafka_definitions
from tests.compat.protocol_diff.single_right_questions import RIGHTS, Question, Resources, questions
from tools.jars import jar_folder

RECORDED: Final = Path(__file__).parent / "kafka-4.3.1-single-rights.json"
MODES: Final = {"default": "false", "allow.everyone": "true"}
"""Values of `allow.everyone.if.no.acl.found`."""
NONE: Final = "none"
CLUSTER: Final = "CLUSTER"
RESOURCE_TYPES: Final = {"TOPIC": 2, "GROUP": 3, CLUSTER: 4, "TRANSACTIONAL_ID": 5}
OPERATIONS: Final = {
    "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7, "DESCRIBE": 8, "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11, "IDEMPOTENT_WRITE": 12,
}  # fmt: skip
LITERAL, PREFIXED, ALLOW = 3, 4, 3
WAIT_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.2
Answers = dict[str, dict[str, str]]
"""What each client was answered: by its right, then by the name of the question."""


def client_names() -> list[str]:
    """The name of each client is that of its right."""
    return [NONE, *(f"{resource_type}-{operation}" for resource_type, operation in RIGHTS)]


LOGINS: Final = [Login(name, "password") for name in client_names()]


def ask_all(bootstrap: str, definitions: Definitions) -> Answers:
    """Creates what the clients ask about, and sends all requests of all clients."""
    admin = Connection(bootstrap, definitions, ANSWER_SECONDS, login=DENIED.administrator)
    owned = _created(admin)
    answers: Answers = {}
    for is_of_cluster in (False, True):
        rights = [each for each in RIGHTS if (each[0] == CLUSTER) is is_of_cluster]
        _allow(admin, [_acl(resource_type, operation) for resource_type, operation in rights])
        names = [f"{resource_type}-{operation}" for resource_type, operation in rights]
        with ThreadPoolExecutor(len(RIGHTS) + 1) as threads:
            asked = names if is_of_cluster else [NONE, *names]
            clients = threads.map(lambda name: _RightHolder(bootstrap, definitions, name, owned[name]).answers(), asked)
            answers |= dict(zip(asked, clients, strict=True))
    admin.close()
    return answers


def _prefix(name: str) -> str:
    return f"of-{name.lower().replace('_', '-')}-"


def _acl(resource_type: str, operation: str) -> dict[str, Any]:
    name = f"{resource_type}-{operation}"
    return {
        "ResourceType": RESOURCE_TYPES[resource_type],
        "ResourceName": "kafka-cluster" if resource_type == CLUSTER else _prefix(name),
        "ResourcePatternType": LITERAL if resource_type == CLUSTER else PREFIXED,
        "Principal": f"User:{name}",
        "Host": "*",
        "Operation": OPERATIONS[operation],
        "PermissionType": ALLOW,
    }


def _allow(admin: Connection, acls: Sequence[Mapping[str, Any]]) -> None:
    results = admin.call("CreateAcls", 3, {"Creations": acls})["Results"]
    assert all(result["ErrorCode"] == 0 for result in results), results
    time.sleep(1)  # Kafka answers before its brokers know


def _created(admin: Connection) -> dict[str, Resources]:
    """The resources of each client: a topic, a group with an offset, and a transactional id."""
    names = client_names()
    topics = [{"Name": _prefix(name) + "topic", "NumPartitions": 1, "ReplicationFactor": 1} for name in names]
    results = admin.call("CreateTopics", 7, {"Topics": topics, "timeoutMs": 15_000})["Topics"]
    assert all(result["ErrorCode"] == 0 for result in results), results
    ids = {row["Name"]: row["TopicId"] for row in results}
    owned: dict[str, Resources] = {}
    for name in names:
        own = Resources(prefix=_prefix(name), topic_id=ids[_prefix(name) + "topic"], producer_id=-1, producer_epoch=-1)
        for kind, key in ((0, own.group), (1, own.transactional_id)):
            body: dict[str, Any] = {"KeyType": kind, "CoordinatorKeys": [key]}
            _until_answered(admin, "FindCoordinator", 4, body, "Coordinators.ErrorCode")
        producer = {"TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1}
        body = {"TransactionalId": own.transactional_id, **producer}
        begun = _until_answered(admin, "InitProducerId", 4, body, "ErrorCode")
        offset = {"PartitionIndex": 0, "CommittedOffset": 0}
        body = {
            "GroupId": own.group, "GenerationIdOrMemberEpoch": -1, "MemberId": "",
            "Topics": [{"Name": own.topic, "Partitions": [offset]}],
        }  # fmt: skip
        _until_answered(admin, "OffsetCommit", 8, body, "Topics.Partitions.ErrorCode")
        owned[name] = Resources(
            prefix=own.prefix,
            topic_id=own.topic_id,
            producer_id=begun["ProducerId"],
            producer_epoch=begun["ProducerEpoch"],
        )
    return owned


def _until_answered(admin: Connection, api: str, version: int, body: dict[str, Any], path: str) -> dict[str, Any]:
    """The answer without an error at `path`. Raises `TimeoutError`."""
    deadline_s = time.monotonic() + WAIT_SECONDS
    while True:
        answer = admin.call(api, version, body)
        found: Any = answer
        for part in path.split("."):
            found = found[0][part] if isinstance(found, list) else found[part]
        if found == 0:
            return answer
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{api}: {answer}")
        time.sleep(POLL_SECONDS)


class _RightHolder:
    """A client with one right."""

    def __init__(self, bootstrap: str, definitions: Definitions, name: str, own: Resources) -> None:
        self._bootstrap = bootstrap
        self._definitions = definitions
        self._login = Login(name, "password")
        self._own = own
        self._connection = self._connect()

    def answers(self) -> dict[str, str]:
        told = {question.name: self._answer(question) for question in questions(self._own)}
        self._connection.close()
        return told

    def _connect(self) -> Connection:
        return Connection(self._bootstrap, self._definitions, ANSWER_SECONDS, login=self._login)

    def _answer(self, question: Question) -> str:
        try:
            return summary(self._connection.call(question.api, question.version, question.body), self._own)
        except ConnectionError:
            self._connection = self._connect()
            return "connection closed"


def summary(answer: Mapping[str, Any], own: Resources) -> str:
    """What of an answer depends on rights, as "error 29" or "TopicConfigErrorCode 29; operations 256"."""
    codes = {value for key, value in _fields(answer) if key == "ErrorCode"} - {0}
    others = {f"{key} {value}" for key, value in _fields(answer) if key.endswith("ErrorCode") and key != "ErrorCode"}
    operations = {value for key, value in _fields(answer) if key.endswith("AuthorizedOperations")}
    names = {value for key, value in _fields(answer) if key in {"Name", "GroupId", "TransactionalId"}}
    parts = [f"error {', '.join(map(str, sorted(codes)))}" if codes else "no error"]
    parts += sorted(each for each in others if not each.endswith(" 0"))
    if operations:
        parts.append(f"operations {', '.join(map(str, sorted(operations)))}")
    if names & {own.topic, own.group, own.transactional_id}:
        parts.append("names its own")
    return "; ".join(parts)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict | list):
                yield from _fields(each)
            else:
                yield key, each
    elif isinstance(value, list):
        for each in value:
            yield from _fields(each)


def read_recorded() -> dict[str, Answers]:
    """Kafka's answers by mode."""
    recorded: dict[str, Answers] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recorded


def differences(kafka: Answers, penstock: Answers) -> dict[tuple[str, str, str], list[str]]:
    """Clients by (question, Kafka's answer, Penstock's)."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for client, answers in kafka.items():
        for question, answer in answers.items():
            other = penstock[client][question]
            if other != answer:
                found.setdefault((question, answer, other), []).append(client)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    folder = parser.parse_args().folder
    recorded: dict[str, Answers] = {}
    for mode, value in MODES.items():
        settings = kafka_settings(LOGINS) | {"allow.everyone.if.no.acl.found": value}
        with kafka_target(folder / mode, 1, settings) as target:
            recorded[mode] = ask_all(target.bootstrap, kafka_definitions(jar_folder("kafka")))
    rows = (
        f"{json.dumps(mode)}: {{\n"
        + ",\n".join(f"{json.dumps(client)}: {json.dumps(each)}" for client, each in answers.items())
        + "\n}"
        for mode, answers in recorded.items()
    )
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
