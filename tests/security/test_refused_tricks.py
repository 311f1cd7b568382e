"""Ways around a right that lead nowhere: an id, an old session, an expression, a prefix, the transaction of another."""

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from kio.static.primitive import Records

from agent.security.required_rights import (
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    Right,
)
from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.records.batch import TRANSACTIONAL_BIT
from tests.security.guarded_agent import (
    INTRUDER,
    TOPIC,
    GuardedAgent,
    acl_row,
    create_topic,
    grant,
    revoke_all,
)
from tests.security.guarded_requests import GROUP_DENIED, TOPIC_DENIED, TRANSACTION_DENIED
from tests.support.clients.kafka_requests import Entity
from tests.support.clients.login_client import LoginClient, error_codes
from tests.support.cluster.conditions import wait_until
from tests.support.records.plain_records import Record, make_batch
from tests.support.records.record_batches import RECORD_A, hand_made

OWN = "intruders"
"""The name of the intruder's own topic, group and transactional id."""
ATTACKED = "attacked-transaction"
"""Not the transaction that other files ask about, which stays open."""
ALL_ON_TOPICS = Right(Operation.ALL, ResourceType.TOPIC)
pytestmark = pytest.mark.xdist_group("guarded agent")
Intrude = Callable[[], LoginClient]


@pytest.fixture(scope="module", autouse=True)
def own_topic(guarded: GuardedAgent) -> None:
    create_topic(guarded.admin, OWN)


@pytest.fixture
def intruder(guarded: GuardedAgent) -> Iterator[LoginClient]:
    """A client without any right, who is given some by a test."""
    with LoginClient(guarded.broker.bootstrap) as client:
        assert client.log_in(INTRUDER).error_code == 0
        yield client
    revoke_all(guarded.admin, INTRUDER)


def fetch_values(
    guarded: GuardedAgent, *, session: tuple[int, int] = (0, -1), wait_s: float = 0.0, is_named: bool = True
) -> dict[str, object]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
    topics = [{"topic": TOPIC, "topic_id": guarded.names.topic_id, "partitions": [partition]}]
    return {
        "max_wait": timedelta(seconds=wait_s),
        "min_bytes": 1_000_000 if wait_s else 0,
        "max_bytes": 1_000_000,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics if is_named else [],
        "forgotten_topics_data": [],
    }


def records_of(answer: Entity) -> bytes:
    return b"".join(bytes(part.records or b"") for topic in answer.responses for part in topic.partitions)


@pytest.fixture
def secret(guarded: GuardedAgent) -> bytes:
    """A record in the victim's topic."""
    value = b"a secret of the victim"
    partition = {"index": 0, "records": Records(make_batch([Record(offset=0, timestamp=1, value=value)]))}
    topics = [{"name": TOPIC, "partition_data": [partition]}]
    values = {"acks": -1, "timeout": timedelta(seconds=10), "topic_data": topics}
    assert set(error_codes(guarded.admin.ask(ApiKey.PRODUCE, 9, values))) == {0}
    return value


@pytest.mark.parametrize("version", [12, 17])
def test_a_fetch_session_that_named_the_topic_while_it_was_allowed(
    guarded: GuardedAgent, intruder: LoginClient, secret: bytes, version: int
) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, READ_TOPIC, TOPIC)])
    opened = intruder.ask(ApiKey.FETCH, version, fetch_values(guarded, session=(0, 0)))
    assert secret in records_of(opened)
    revoke_all(guarded.admin, INTRUDER)
    values = fetch_values(guarded, session=(opened.session_id, 1), is_named=False)
    answer = intruder.ask(ApiKey.FETCH, version, values)
    assert records_of(answer) == b""
    assert set(error_codes(answer)) - {0} == {TOPIC_DENIED}


def test_a_fetch_that_waits_is_judged_again_when_it_is_answered(
    guarded: GuardedAgent, intruder: LoginClient, secret: bytes
) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, READ_TOPIC, TOPIC)])
    assert secret in records_of(intruder.ask(ApiKey.FETCH, 12, fetch_values(guarded)))
    intruder.send_request(ApiKey.FETCH, 12, fetch_values(guarded, wait_s=1.0))
    revoke_all(guarded.admin, INTRUDER)
    answer = intruder.receive_answer(ApiKey.FETCH, 12)
    assert records_of(answer) == b""
    assert set(error_codes(answer)) - {0} == {TOPIC_DENIED}


def heartbeat(client: LoginClient, expression: str) -> set[object]:
    """The ids of the topics that the only member of a group is assigned for an expression, once there are any."""
    epoch, member, assigned = 0, "I" * 22, set[object]()

    def is_assigned() -> bool:  # the expression is looked up beside requests
        nonlocal epoch
        values = {"group_id": OWN, "member_id": member, "member_epoch": epoch, "topic_partitions": []}
        values |= {"subscribed_topic_regex": expression, "rebalance_timeout": timedelta(seconds=30)}
        answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned.update(each.topic_id for each in answer.assignment.topic_partitions)
        return bool(assigned)

    wait_until(is_assigned, "an assignment")
    values = {"group_id": OWN, "member_id": member, "member_epoch": -1, "topic_partitions": []}
    client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**values, "rebalance_timeout": timedelta(seconds=30)})
    return assigned


def test_an_expression_matches_what_may_be_described_alone(guarded: GuardedAgent, intruder: LoginClient) -> None:
    rows = [acl_row(INTRUDER, READ_GROUP, OWN), acl_row(INTRUDER, DESCRIBE_TOPIC, OWN)]
    grant(guarded.admin, rows)
    own = guarded.admin.ask(
        ApiKey.METADATA,
        12,
        {
            "topics": [{"topic_id": None, "name": OWN}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    )
    assert heartbeat(intruder, f"victims.*|{OWN}") == {own.topics[0].topic_id}


def may_describe(client: LoginClient, name: str = TOPIC) -> bool:
    answer = client.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": name}], "response_partition_limit": 10}
    )
    (code,) = {topic.error_code for topic in answer.topics}
    assert code in (0, TOPIC_DENIED), answer
    return bool(code == 0)


PATTERNS = {
    "a name that is one letter longer": (TOPIC + "s", PatternType.LITERAL),
    "a name that is one letter shorter": (TOPIC[:-1], PatternType.LITERAL),
    "a prefix that is one letter longer": (TOPIC + "s", PatternType.PREFIXED),
    "a name in capitals": (TOPIC.upper(), PatternType.LITERAL),
    "an expression": ("victims.*", PatternType.LITERAL),
    "a star at the end": (TOPIC[:-1] + "*", PatternType.LITERAL),
    "a star as a prefix": ("*", PatternType.PREFIXED),
    "the name behind a blank": (" " + TOPIC, PatternType.LITERAL),
}


@pytest.mark.parametrize(("name", "pattern"), PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_that_does_not_fit(
    guarded: GuardedAgent, intruder: LoginClient, name: str, pattern: PatternType
) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, ALL_ON_TOPICS, name, pattern=pattern)])
    assert not may_describe(intruder)
    grant(guarded.admin, [acl_row(INTRUDER, DESCRIBE_TOPIC, TOPIC[:-1], pattern=PatternType.PREFIXED)])
    assert may_describe(intruder)


@pytest.mark.parametrize("principal", ["Intruder", "intruder ", "intrude", "User:intruder", "*intruder"])
def test_an_acl_of_another_principal(guarded: GuardedAgent, intruder: LoginClient, principal: str) -> None:
    grant(guarded.admin, [acl_row(principal, ALL_ON_TOPICS)])
    assert not may_describe(intruder)
    revoke_all(guarded.admin, principal)


def test_deny_goes_before_allow(guarded: GuardedAgent, intruder: LoginClient) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, ALL_ON_TOPICS), acl_row(INTRUDER, ALL_ON_TOPICS, TOPIC)])
    assert may_describe(intruder)
    deny = acl_row(INTRUDER, DESCRIBE_TOPIC, "victims", permission=Permission.DENY, pattern=PatternType.PREFIXED)
    grant(guarded.admin, [deny])
    assert not may_describe(intruder)
    assert may_describe(intruder, OWN)


def test_deny_by_address(guarded: GuardedAgent, intruder: LoginClient) -> None:
    denied = acl_row(INTRUDER, ALL_ON_TOPICS, permission=Permission.DENY, host="127.0.0.9")
    grant(guarded.admin, [acl_row(INTRUDER, ALL_ON_TOPICS), denied])
    assert may_describe(intruder)
    with LoginClient(guarded.broker.bootstrap, source="127.0.0.9") as elsewhere:
        assert elsewhere.log_in(INTRUDER).error_code == 0
        assert not may_describe(elsewhere)


def test_allow_for_another_address(guarded: GuardedAgent, intruder: LoginClient) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, ALL_ON_TOPICS, host="127.0.0.9")])
    assert not may_describe(intruder)


# Transactions.


def add_to_transaction(producer: Entity, transactional_id: str, topic: str = TOPIC) -> dict[str, object]:
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }


def init_values(transactional_id: str) -> dict[str, object]:
    return {"transactional_id": transactional_id, "transaction_timeout": timedelta(seconds=500)}


def test_another_cannot_be_fenced(guarded: GuardedAgent, intruder: LoginClient) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, WRITE_TRANSACTION, OWN), acl_row(INTRUDER, WRITE_TOPIC)])
    victim = guarded.admin.ask(ApiKey.INIT_PRODUCER_ID, 4, init_values(ATTACKED))
    assert victim.error_code == 0
    fence = {**init_values(ATTACKED), "producer_id": victim.producer_id, "producer_epoch": 0}
    for values in (init_values(ATTACKED), fence):
        assert intruder.ask(ApiKey.INIT_PRODUCER_ID, 4, values).error_code == TRANSACTION_DENIED
    ended = {"producer_id": victim.producer_id, "producer_epoch": victim.producer_epoch, "committed": False}
    assert intruder.ask(ApiKey.END_TXN, 3, {"transactional_id": ATTACKED, **ended}).error_code == 53
    assert intruder.ask(ApiKey.END_TXN, 3, {"transactional_id": OWN, **ended}).error_code != 0
    added = guarded.admin.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_to_transaction(victim, ATTACKED))
    assert set(error_codes(added)) == {0}


def test_nothing_is_written_into_the_transaction_of_another(guarded: GuardedAgent, intruder: LoginClient) -> None:
    """Not even where the intruder may write to the topic: the id of the victim's producer is no right."""
    rows = [acl_row(INTRUDER, WRITE_TRANSACTION, OWN), acl_row(INTRUDER, WRITE_TOPIC)]
    grant(guarded.admin, [*rows, acl_row(INTRUDER, READ_GROUP, OWN), acl_row(INTRUDER, READ_TOPIC)])
    victim = guarded.admin.ask(ApiKey.INIT_PRODUCER_ID, 4, init_values(ATTACKED))
    added = guarded.admin.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_to_transaction(victim, ATTACKED))
    assert set(error_codes(added)) == {0}
    own = intruder.ask(ApiKey.INIT_PRODUCER_ID, 4, init_values(OWN))
    assert own.error_code == 0
    for topic in (TOPIC, OWN):
        answer = intruder.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_to_transaction(victim, OWN, topic))
        assert set(error_codes(answer)) - {0} == {49}, answer
    committed = {"partition_index": 0, "committed_offset": 99, "committed_metadata": ""}
    offsets = {"group_id": OWN, "topics": [{"name": TOPIC, "partitions": [committed]}]}
    ids = {"producer_id": victim.producer_id, "producer_epoch": victim.producer_epoch}
    answer = intruder.ask(ApiKey.TXN_OFFSET_COMMIT, 3, {"transactional_id": OWN, **ids, **offsets})
    assert set(error_codes(answer)) - {0}, answer
    batch = hand_made(
        attributes=TRANSACTIONAL_BIT,
        producer_id=int(victim.producer_id),
        producer_epoch=int(victim.producer_epoch),
        base_sequence=0,
    )
    # From version 12 on a batch adds its partition to the transaction by itself (KIP-890).
    tries = itertools.product((OWN, None, ATTACKED), (9, 12))
    for transactional_id, version in tries:
        partition = {"index": 0, "records": Records(batch)}
        topics = [{"name": TOPIC, "partition_data": [partition]}]
        values = {"transactional_id": transactional_id, "acks": -1, "timeout": timedelta(seconds=5)}
        answer = intruder.ask(ApiKey.PRODUCE, version, {**values, "topic_data": topics})
        assert set(error_codes(answer)) - {0}, (transactional_id, answer)
    ended = {"transactional_id": ATTACKED, **ids, "committed": True}
    assert guarded.admin.ask(ApiKey.END_TXN, 3, ended).error_code == 0
    assert RECORD_A not in records_of(guarded.admin.ask(ApiKey.FETCH, 12, fetch_values(guarded)))


def test_the_group_of_another_is_neither_joined_nor_ended(guarded: GuardedAgent, intruder: LoginClient) -> None:
    grant(guarded.admin, [acl_row(INTRUDER, READ_GROUP, OWN), acl_row(INTRUDER, READ_TOPIC)])
    names = guarded.names
    joined = {"group_id": names.consumer_group, "member_id": "V" * 22, "topic_partitions": []}
    for epoch in (0, -1, 1):
        values = {**joined, "member_epoch": epoch, "rebalance_timeout": timedelta(seconds=30)}
        assert intruder.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values).error_code == GROUP_DENIED
    described = guarded.admin.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": [names.consumer_group], "include_authorized_operations": False},
    )
    assert len(described.groups[0].members) == 1
