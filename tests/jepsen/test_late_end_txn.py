"""KAFKA-17754 on a real Apache Kafka: V1 loses a write and shows an aborted one, V2 does neither."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jepsen.checker import Options, Verdict, check
from tests.jepsen.clients import CLIENTS
from tests.jepsen.kafka import KafkaServer
from tests.jepsen.late_end_txn import Outcome, Scene
from tests.jepsen.proxy import KafkaProxy

V1 = ("librdkafka", pytest.param("java-v1", marks=pytest.mark.slow))
V2 = ("franz-go", pytest.param("java-v2", marks=pytest.mark.slow))
NONE, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 0, 47, 90


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProxy]:
    """A proxy before a broker of Apache Kafka that tells clients the proxy's address."""
    with ExitStack() as stack:
        proxies: list[KafkaProxy] = []

        def advertise(port: int) -> int:
            proxies.append(stack.enter_context(KafkaProxy(port)))
            return proxies[0].port

        stack.enter_context(KafkaServer(tmp_path_factory.mktemp("late") / "kafka", advertise=advertise))
        yield proxies[0]


def played(act: str, client: str, proxy: KafkaProxy, folder: Path) -> Outcome:
    topic = f"{act}-{client}".replace("_", "-")
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
    for future in admin.create_topics([NewTopic(topic, 2)]).values():
        future.result(60)
    with Scene(client=client, command=CLIENTS[client](folder), proxy=proxy, folder=folder, topic=topic) as scene:
        return scene.commit_late() if act == "commit_late" else scene.abort_late()


def verdict(outcome: Outcome) -> Verdict:
    return check(outcome.history, Options())


@pytest.mark.parametrize("client", V1)
def test_with_v1_a_late_commit_shows_what_the_next_transaction_aborts(
    client: str, proxy: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played("commit_late", client, proxy, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ("ok", "fail"), outcome
    assert outcome.error == NONE
    assert "G1a" in verdict(outcome).errors


@pytest.mark.parametrize("client", V1)
def test_with_v1_a_late_abort_loses_a_write_of_the_next_transaction_that_commits(
    client: str, proxy: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played("abort_late", client, proxy, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ("fail", "ok"), outcome
    assert outcome.error == NONE
    assert {"lost-write", "torn-transaction"} <= set(verdict(outcome).errors)


@pytest.mark.parametrize("client", V2)
@pytest.mark.parametrize(("act", "ends"), [("commit_late", ("ok", "fail")), ("abort_late", ("fail", "ok"))])
def test_with_v2_a_late_end_meets_another_epoch_and_decides_nothing(
    act: str, ends: tuple[str, str], client: str, proxy: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played(act, client, proxy, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ends, outcome
    assert outcome.error in {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
    assert verdict(outcome).is_valid, verdict(outcome).summary()
