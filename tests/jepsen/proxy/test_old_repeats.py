"""Real idempotent producers whose repeats are older than what the broker remembers: they go on, with nothing twice.

librdkafka is not among them. It has one request of a partition in flight, and waits for it before it follows a hint.
"""

import re
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import tests
from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Act, Rule, Side
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.local_services import PenstockFactory
from tests.torture.history import UNKNOWN_OFFSET, Value
from tests.torture.workload import commands
from tools.steps import ROOT

FORGETFUL = (sys.executable, Path(tests.__path__[0]) / "support" / "modified_agents" / "forgetful_agent.py")
TOPIC = "repeats"
PAUSE_MS = 2
LATE_SECONDS = 0.3
SECONDS_MAX = 60.0


@pytest.mark.parametrize("library", ["java", pytest.param("go", marks=pytest.mark.slow)])
def test_a_producer_goes_on_after_repeats_that_are_no_longer_remembered(
    library: str, penstock: PenstockFactory, tmp_path: Path
) -> None:
    port = free_port()
    with KafkaProxy(port) as proxy:
        broker = penstock(
            listen=f"127.0.0.1:{port}", options={"advertise": f"127.0.0.1:{proxy.port}"}, program=FORGETFUL
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(TOPIC, 1)]).values():
            future.result(SECONDS_MAX)
        stop_file = tmp_path / "stop"
        arguments = ["produce", f"127.0.0.1:{proxy.port}", TOPIC, "1", str(stop_file), library, str(PAUSE_MS)]
        command = [*commands(tmp_path / "clients")[library], *arguments]
        with Process(command, tmp_path, name=library, env={"PYTHONPATH": str(ROOT)}) as producer:
            deadline_s = time.monotonic() + SECONDS_MAX
            while not repeats_answered(broker.http):
                assert time.monotonic() < deadline_s, "no repeat was older than what is remembered"
                lose_answers(proxy)
            stop_file.touch()
            assert producer.wait_ended(seconds_max=SECONDS_MAX) == 0, "it waits until all is acknowledged"
            lines = [line.split() for line in producer.stdout.splitlines()]
        assert [line for line in lines if line[0] == "E"] == []
        sent = [line[-1] for line in lines if line[0] == "S"]
        acknowledged = {line[-1]: int(line[3]) for line in lines if line[0] == "A"}
        assert sorted(acknowledged, key=int) == sorted(sent, key=int)
        written = read(broker.bootstrap, len(sent))
        assert [value.counter for value in written] == sorted(map(int, sent)), "each once, in their order"
        if library == "java":  # franz-go counts the offsets of such a batch from -1
            for counter, offset in acknowledged.items():
                assert offset == UNKNOWN_OFFSET or written[offset].counter == int(counter)


def lose_answers(proxy: KafkaProxy) -> None:
    """An answer comes late, so that its client sends all that it may have in flight. The answers behind it are lost."""
    late = Rule(act=Act.HOLD, api_key=Api.PRODUCE, side=Side.ANSWER, seconds=LATE_SECONDS)
    lost = Rule(act=Act.DROP, api_key=Api.PRODUCE, side=Side.ANSWER)
    proxy.add(late)
    assert proxy.wait_struck(late) is not None
    proxy.add(lost)
    assert proxy.wait_struck(lost) is not None
    proxy.remove(late)
    proxy.remove(lost)


def repeats_answered(http: str) -> int:
    """How many batches were answered as appended before."""
    with urlopen(f"http://{http}/metrics", timeout=SECONDS_MAX) as answer:
        metrics = answer.read().decode()
    found = re.search(r'produce_batches_rejected_total\{error="DUPLICATE_SEQUENCE_NUMBER"\} (\S+)', metrics)
    return 0 if found is None else int(float(found[1]))


def read(bootstrap: str, count: int) -> list[Value]:
    """The values of the partition, which has `count` records and no more."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "group.id": "unused"}
    with closing(Consumer(settings)) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=SECONDS_MAX) == (0, count)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values: list[Value] = []
        while len(values) < count:
            (message,) = consumer.consume(1, timeout=SECONDS_MAX)
            content = message.value()
            assert message.error() is None
            assert content is not None
            values.append(Value.read(content.decode().rpartition(":")[0]))
        return values
