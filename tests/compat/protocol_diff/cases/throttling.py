"""Clients above their quotas: which of their requests are answered how.

Every request has a connection of its own, because that of a throttled one is not read for a long time.
"""

from dataclasses import replace

from tests.compat.protocol_diff.cases.pieces import fetch, produce, quota, records, topic
from tests.compat.protocol_diff.steps import Cases, G, Step, T

CASES = Cases()
HELD = {"client-id": G("held")}
TIMEOUT_MS = 10_000


def limited(name: str, value: float, *steps: Step) -> list[Step]:
    """The steps, asked by a client that has this quota, each on a connection of its own."""
    return [
        quota(HELD, {name: value}, conn="admin"),
        *(
            replace(step, conn=f"c{number}", client=HELD["client-id"], pause=0.0 if number else 1.0)
            for number, step in enumerate(steps)
        ),
        quota(HELD, {name: None}, conn="admin"),
    ]


def create(name: str, version: int) -> Step:
    row = {"Name": T(name), "NumPartitions": 1, "ReplicationFactor": 1}
    return Step("CreateTopics", version, {"Topics": [row], "timeoutMs": TIMEOUT_MS}, raw=True, mask=("Configs",))


def delete(name: str, version: int) -> Step:
    body = {"TopicNames": [T(name)]} if version < 6 else {"Topics": [{"Name": T(name), "TopicId": None}]}
    return Step("DeleteTopics", version, {**body, "TimeoutMs": TIMEOUT_MS}, raw=True)


def grow(name: str, count: int, version: int) -> Step:
    row = {"Name": T(name), "Count": count, "Assignments": None}
    body = {"Topics": [row], "TimeoutMs": TIMEOUT_MS, "ValidateOnly": False}
    return Step("CreatePartitions", version, body, raw=True)


CASES.add(
    "throttle.create",
    limited("controller_mutation_rate", 0.01, create("a", 7), create("b", 7), create("b", 6), create("b", 5)),
)
CASES.add(
    "throttle.delete",
    topic("a"),
    topic("b"),
    limited("controller_mutation_rate", 0.01, delete("a", 6), delete("b", 6), delete("b", 5), delete("b", 4)),
)
CASES.add(
    "throttle.grow",
    topic("a"),
    limited("controller_mutation_rate", 0.01, grow("a", 2, 3), grow("a", 3, 3), grow("a", 3, 2)),
)
CASES.add(
    "throttle.produce",
    topic(),
    limited("producer_byte_rate", 20, produce(records()), produce(records()), produce(records(), 3)),
)
CASES.add(
    "throttle.fetch",
    topic(),
    produce(records(), quiet=True),
    limited("consumer_byte_rate", 20, fetch(), fetch(), fetch(0, 4), fetch(session=0, epoch=0)),
)
