"""What descriptions of transactions promise to those who use them, and where other systems had to give way.

Of Kafka (exactly-once in Kafka Streams; its limits and costs): what was consumed counts when what was made of it is
seen, and neither without the other; what nobody ends is aborted when its time is over, and holds up no one for longer.
Of WarpStream: clients read on where there is nothing but aborted records. There librdkafka took an empty batch for one
that did not fit, and gave up.
"""

import json
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.transactional_client import (
    COMMITTED,
    NONE,
    UNCOMMITTED,
    V1,
    V2,
    Connection,
    Script,
    Versions,
    connected,
    connections,
    coordinator_of,
)
from tests.support.cluster.cluster import ClusterAgent
from tests.support.cluster.faults import SECONDS_MAX, wait_state

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition as KafkaPartition

SHORT = timedelta(milliseconds=500)
GENERATIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["V1", "V2"])
FETCH_BYTES = 2_000

pytestmark = pytest.mark.timeout(240)


def copy(through: Connection, script: Script, group: str, values: Sequence[bytes], position: int) -> None:
    """Up to before the end of one transaction: its output, and how far its input is consumed."""
    if script.versions.adds:
        assert through.add_offsets(script.producer, group) is NONE
    for value in values:
        script.send(through, value, 1)
    assert through.commit_offsets(script.producer, group, {0: position}, script.versions.offsets) == [NONE]


@GENERATIONS
def test_who_crashes_between_its_output_and_its_commit_counts_nothing_twice(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    """The clicks of WarpStream's example: consumed from partition 0, counted in partition 1."""
    group, clicks = f"{topic}-group", [b"%d" % number for number in range(6)]
    with connections(topic, [agent.bootstrap for agent in agents]) as all_agents:
        through = coordinator_of(group, all_agents)
        source = Script.begun(through, f"{topic}-source", versions)
        for click in clicks:
            source.send(through, click)
        source.commit(through)
        for crashes_at in (2, 2, 4, None):
            script = Script.begun(through, f"{topic}-copier", versions)  # a new instance: what was open is aborted
            code, position = through.committed(group, is_stable=True)
            assert code is NONE, "the instance before holds nothing up"
            for first in range(max(position, 0), len(clicks), 2):
                copy(through, script, group, clicks[first : first + 2], first + 2)
                if first == crashes_at:
                    break
                script.commit(through)
        for reader in all_agents:
            assert reader.values(1) == clicks
        assert through.committed(group, is_stable=True) == (NONE, len(clicks))


@GENERATIONS
def test_what_nobody_ends_is_aborted_and_holds_up_readers_no_longer(
    agents: list[ClusterAgent], topic: str, versions: Versions
) -> None:
    group = f"{topic}-group"
    with connections(topic, [agent.bootstrap for agent in agents]) as all_agents:
        through = coordinator_of(group, all_agents)
        gone = Script(through.begun(f"{topic}-gone", timeout=SHORT), versions, topic)
        copy(through, gone, group, [b"gone"], 7)
        other = Script.begun(through, f"{topic}-other", versions)
        other.send(through, b"behind", 1)
        other.commit(through)
        assert through.end_offset(1, COMMITTED) < through.end_offset(1, UNCOMMITTED)
        wait_state(agents[0], through, f"{topic}-gone", "CompleteAbort")
        for reader in all_agents:
            assert reader.values(1) == [b"behind"]
            assert reader.end_offset(1, COMMITTED) == reader.end_offset(1, UNCOMMITTED)
        assert through.committed(group, is_stable=True) == (NONE, -1)


def consumed_by_librdkafka(bootstrap: str, topic: str, offsets: Sequence[int]) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": FETCH_BYTES,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < len(offsets):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"nothing comes after {found}"
        assert message.error() is None, message.error()
        offset = message.offset()
        assert offset is not None
        found.append(offset)
    consumer.close()
    return found


def consumed_by_kafka_python(bootstrap: str, topic: str, offsets: Sequence[int]) -> list[int]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    place, found = KafkaPartition(topic, 0), list[int]()
    consumer.assign([place])
    consumer.seek(place, 0)
    while len(found) < len(offsets):
        polled = consumer.poll(int(SECONDS_MAX * 1000)).get(place, [])
        assert polled, f"nothing comes after {found}"
        found += [record.offset for record in polled]
    consumer.close()
    return found


def archive(agent: ClusterAgent, topic: str) -> None:
    body = json.dumps({"topics": [topic], "wait": True}).encode()
    request = Request(f"http://{agent.http}/api/archive", data=body, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=SECONDS_MAX) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("is_archived", [False, True], ids=["in the intake", "in the archive"])
def test_clients_read_on_where_there_is_nothing_but_aborted_records(
    agents: list[ClusterAgent], topic: str, is_archived: bool
) -> None:
    agent = agents[0]
    with ExitStack() as stack:
        through = stack.enter_context(connected(agent.bootstrap, topic))
        script, offsets = Script.begun(through, topic), list[int]()
        for number in range(12):  # long runs of aborted records, more than a fetch takes, and one committed behind each
            for _ in range(number % 4 * 3):
                script.send(through, b"aborted" * 50)
            if number % 4:
                script.abort(through)
            offsets.append(script.send(through, b"committed"))
            script.commit(through)
        for _ in range(5):
            script.send(through, b"aborted" * 50)
        script.abort(through)
        if is_archived:
            archive(agent, topic)
        assert [offset for offset, _ in through.read(bytes_max=500)] == offsets
    assert consumed_by_librdkafka(agent.bootstrap, topic, offsets) == offsets
    assert consumed_by_kafka_python(agent.bootstrap, topic, offsets) == offsets
