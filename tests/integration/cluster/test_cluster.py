"""Several agents over one etcd and one bucket are one Kafka cluster.

Rule: real agents, real clients; what is produced through one agent is there through every other at once.
"""

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster.cluster import ClusterFactory

SECONDS_MAX = 60.0


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(value)
    consumer.close()
    return found


def test_what_one_agent_takes_every_agent_serves(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [cluster.start(name) for name in ("a", "b", "c")]
    values = [f"record {row}".encode() for row in range(300)]
    for row, agent in enumerate(agents):
        produce(agent.bootstrap, "shared", values[row * 100 : row * 100 + 100])
    for agent in agents:
        assert consume(agent.bootstrap, "shared", 300) == values
