"""KAFKA-17754: on a real Apache Kafka V1 loses a write and shows an aborted one, V2 does neither; Penstock never."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jepsen.checks.checker import Options, Verdict, check
from tests.jepsen.late_end_txn import Outcome, Scene
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.workload.libraries import CLIENTS

pytestmark = pytest.mark.xdist_group("proxied brokers")

V1 = ("librdkafka", pytest.param("java-v1", marks=pytest.mark.slow))
V2 = ("franz-go", pytest.param("java-v2", marks=pytest.mark.slow))
ACTS = [("commit_late", ("ok", "fail")), ("abort_late", ("fail", "ok"))]
"""And how the two transactions end where the late one decides nothing."""
NONE, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 0, 47, 51, 90
CONNECTION_CLOSED = -1


def played(act: str, client: str, proxy: KafkaProxy, folder: Path, *, is_copied: bool = False) -> Outcome:
    topic = f"{act}-{client}{'-copied' if is_copied else ''}".replace("_", "-")
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, 2)]).values():
        future.result(60)
    command = CLIENTS[client](folder)
    scene = Scene(client=client, command=command, proxy=proxy, folder=folder, topic=topic, is_copied=is_copied)
    with scene:
        return scene.commit_late() if act == "commit_late" else scene.abort_late()


def verdict(outcome: Outcome) -> Verdict:
    return check(outcome.history, Options())


@pytest.mark.slow  # it is Apache Kafka that is judged: Penstock is below
@pytest.mark.parametrize("client", V1)
def test_with_v1_a_late_commit_shows_what_the_next_transaction_aborts(
    client: str, kafka: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played("commit_late", client, kafka, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ("ok", "fail"), outcome
    assert outcome.error == NONE
    assert "G1a" in verdict(outcome).errors


@pytest.mark.slow  # it is Apache Kafka that is judged: Penstock is below
@pytest.mark.parametrize("client", V1)
def test_with_v1_a_late_abort_loses_a_write_of_the_next_transaction_that_commits(
    client: str, kafka: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played("abort_late", client, kafka, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ("fail", "ok"), outcome
    assert outcome.error == NONE
    assert {"lost-write", "torn-transaction"} <= set(verdict(outcome).errors)


@pytest.mark.slow  # it is Apache Kafka that is judged: Penstock is below
@pytest.mark.parametrize("client", V2)
@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize(("act", "ends"), ACTS)
def test_with_v2_a_late_end_meets_another_epoch_and_decides_nothing(
    act: str, ends: tuple[str, str], is_copied: bool, client: str, kafka: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played(act, client, kafka, tmp_path, is_copied=is_copied)
    assert (outcome.first.type, outcome.second.type) == ends, outcome
    # A busy Kafka may still be writing the markers of the transaction before.
    assert outcome.error in {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS}
    assert verdict(outcome).is_valid, verdict(outcome).summary()


@pytest.mark.parametrize("client", V1)
@pytest.mark.parametrize(("act", "ends"), ACTS)
def test_s7_on_penstock_a_late_end_of_v1_decides_nothing_and_its_connection_is_closed(
    act: str, ends: tuple[str, str], client: str, agent: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played(act, client, agent, tmp_path)
    assert (outcome.first.type, outcome.second.type) == ends, outcome
    assert outcome.error == CONNECTION_CLOSED
    assert verdict(outcome).is_valid, verdict(outcome).summary()


@pytest.mark.parametrize("client", V2)
@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize(("act", "ends"), ACTS)
def test_on_penstock_a_late_end_of_v2_decides_nothing(
    act: str, ends: tuple[str, str], is_copied: bool, client: str, agent: KafkaProxy, tmp_path: Path
) -> None:
    outcome = played(act, client, agent, tmp_path, is_copied=is_copied)
    assert (outcome.first.type, outcome.second.type) == ends, outcome
    assert outcome.error in {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
    assert verdict(outcome).is_valid, verdict(outcome).summary()
