"""Real clients whose messages the proxy drops, holds and repeats: what they write is there once all the same."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Act, Rule, Side
from tests.jepsen.workload.libraries import CLIENTS, ENVIRONMENT
from tests.jepsen.workload.worker import WorkerProcess

pytestmark = pytest.mark.xdist_group("proxied brokers")

SECONDS_MAX = 60.0
RULES = {
    "a Produce is lost": Rule(act=Act.DROP, api_key=Api.PRODUCE),
    "the answer to a Produce is lost": Rule(act=Act.DROP, api_key=Api.PRODUCE, side=Side.ANSWER),
    "a Produce comes twice": Rule(act=Act.DUPLICATE, api_key=Api.PRODUCE),
    "a Produce comes late": Rule(act=Act.HOLD, api_key=Api.PRODUCE, seconds=0.5),
    "the answer to a commit is lost": Rule(act=Act.DROP, api_key=Api.END_TXN, side=Side.ANSWER),
    "a commit is lost": Rule(act=Act.DROP, api_key=Api.END_TXN),
}


@pytest.mark.parametrize("client", ["librdkafka", "franz-go"])
@pytest.mark.parametrize("broker", [pytest.param("kafka", marks=pytest.mark.slow), "agent"])
def test_a_transaction_is_there_once_whatever_happens_to_its_messages(
    client: str, broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    proxy = request.getfixturevalue(broker)
    assert isinstance(proxy, KafkaProxy)
    topic, bootstrap = f"proxied-{client}", f"127.0.0.1:{proxy.port}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, 1)]).values():
        future.result(SECONDS_MAX)
    worker = WorkerProcess(
        [*CLIENTS[client](tmp_path), bootstrap, topic, topic, "30000"], tmp_path / "worker.log", ENVIRONMENT
    )
    key = f"{topic}-0"
    try:
        for value, (what, rule) in enumerate(RULES.items()):
            proxy.add(rule)
            answer = worker.ask({"f": "txn", "value": [["send", key, value]], "abort": False}, seconds_max=SECONDS_MAX)
            assert proxy.wait_struck(rule) is not None
            proxy.remove(rule)
            assert answer is not None, what
            assert answer["type"] == "ok", f"{what}: {answer}"
        assert read(worker, key) == list(range(len(RULES)))
    finally:
        worker.kill()


def read(worker: WorkerProcess, key: str) -> list[int]:
    """All values of a key, once the last one is there."""
    worker.ask({"f": "assign", "value": [key], "fresh": True}, seconds_max=SECONDS_MAX)
    values: list[int] = []
    for _ in range(100):
        polled = worker.ask({"f": "poll", "value": [["poll"]]}, seconds_max=SECONDS_MAX)
        assert polled is not None
        values += [value for _, value in polled["value"][0][1].get(key, [])]
        if len(RULES) - 1 in values:
            break
    return values
