"""How long messages take to read and to write, beside kio: `python -m benchmarks.micro.codecs [--seconds 0.2]`.

A row is a JSON line: microseconds of CPU, the least of many rounds in which both take turns, and how many times as long
kio takes. A write takes a handler's mapping, and kio's an entity that is made before: to make it takes nearly as long
again. kio's reader is compiled, but cannot take bytes from strangers (`protocol.codecs.reader` says why). `first_ms` is
the time to generate both codecs, and `import_ms` that to import kio's schemas before, once in a process.
"""

import argparse
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from protocol.api_versions import ApiKey
from protocol.codecs.reader import request_reader
from protocol.codecs.schema import structure_schema
from protocol.codecs.writer import response_writer
from protocol.errors import ErrorCode
from protocol.messages import read_request, response_type, write_response
from tests.support.handlers.handler_client import built, frame_of

ROUND_US = 2_000.0
ROUNDS_MIN = 5
NONE = ErrorCode.none
MEMBER = "consumer-1-6f1d9b1e-2f5c-4be0-9a4f-2f1c9a8b0d11"
SUBSCRIPTION = bytes(60)
SECONDS = timedelta(seconds=10)
IN_GROUP = {"group_id": "group-1", "generation_id": 3, "member_id": MEMBER}
IN_TRANSACTION = {"transactional_id": "tx-1", "producer_id": 5, "producer_epoch": 0}
Fields = Mapping[str, Any]


class Example(NamedTuple):
    """A message of an API, in a version that clients use."""

    name: str
    api_key: ApiKey
    version: int
    request: Fields
    response: Fields


def rows(count: int, **fields: object) -> list[dict[str, object]]:
    return [{"partition_index": index, **fields} for index in range(count)]


def orders(partitions: Sequence[object]) -> list[Fields]:
    """A topic with these partitions."""
    return [{"name": "orders", "partitions": partitions}]


def metadata(topics: int, partitions: int, asked: Sequence[Fields] | None) -> Example:
    replicas = {"replica_nodes": (1, 2, 0), "isr_nodes": (1, 2, 0), "offline_replicas": ()}
    partition_rows = rows(partitions, error_code=NONE, leader_id=1, leader_epoch=0, **replicas)
    topic_rows = [
        {
            "error_code": NONE,
            "name": f"topic-{number}",
            "topic_id": UUID(int=number + 1),
            "is_internal": False,
            "partitions": partition_rows,
            "topic_authorized_operations": -(1 << 31),
        }
        for number in range(topics)
    ]
    brokers = [{"node_id": node, "host": f"broker-{node}.example.org", "port": 9092, "rack": "a"} for node in range(3)]
    request = {
        "topics": asked,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    response = {"brokers": brokers, "cluster_id": "c" * 22, "controller_id": 0, "topics": topic_rows}
    return Example(f"Metadata of {topics * partitions}", ApiKey.METADATA, 12, request, response)


def offset_commit(count: int) -> Example:
    request = {
        "group_id": "group-1",
        "generation_id_or_member_epoch": 3,
        "member_id": MEMBER,
        "topics": orders(rows(count, committed_offset=12_345, committed_metadata="")),
    }
    response = {"topics": orders(rows(count, error_code=NONE))}
    return Example(f"OffsetCommit of {count}", ApiKey.OFFSET_COMMIT, 8, request, response)


def list_offsets(count: int) -> Example:
    request = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": orders(rows(count, current_leader_epoch=0, timestamp=-1)),
    }
    response = {"topics": orders(rows(count, error_code=NONE, timestamp=-1, offset=123, leader_epoch=0))}
    return Example(f"ListOffsets of {count}", ApiKey.LIST_OFFSETS, 7, request, response)


def examples() -> list[Example]:
    """The APIs that clients call all the time, or with many rows."""
    members = [f"{MEMBER}{number}" for number in range(10)]
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    coordinator = {"key": "group-1", "node_id": 1, "host": "broker-1.example.org", "port": 9092}
    added = [{"partition_index": index, "partition_error_code": NONE} for index in range(4)]
    return [
        Example("Heartbeat", ApiKey.HEARTBEAT, 4, IN_GROUP, {"error_code": NONE}),
        offset_commit(1),
        offset_commit(16),
        offset_commit(1_000),
        Example(
            "JoinGroup of 10",
            ApiKey.JOIN_GROUP,
            9,
            {
                "group_id": "group-1",
                "session_timeout": SECONDS,
                "rebalance_timeout": SECONDS,
                "member_id": MEMBER,
                "protocol_type": "consumer",
                "protocols": [{"name": name, "metadata": SUBSCRIPTION} for name in ("range", "cooperative-sticky")],
            },
            {
                "error_code": NONE,
                "generation_id": 3,
                **protocol,
                "leader": MEMBER,
                "member_id": MEMBER,
                "members": [{"member_id": member, "metadata": SUBSCRIPTION} for member in members],
            },
        ),
        Example(
            "SyncGroup of 10",
            ApiKey.SYNC_GROUP,
            5,
            {
                **IN_GROUP,
                **protocol,
                "assignments": [{"member_id": member, "assignment": SUBSCRIPTION} for member in members],
            },
            {"error_code": NONE, **protocol, "assignment": SUBSCRIPTION},
        ),
        metadata(1, 16, [{"topic_id": None, "name": "orders"}]),
        metadata(100, 16, None),
        Example(
            "FindCoordinator",
            ApiKey.FIND_COORDINATOR,
            4,
            {"key_type": 0, "coordinator_keys": ["group-1"]},
            {"coordinators": [{**coordinator, "error_code": NONE, "error_message": None}]},
        ),
        Example(
            "AddPartitionsToTxn of 4",
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {
                **{f"v3_and_below_{name}": value for name, value in IN_TRANSACTION.items()},
                "v3_and_below_topics": [{"name": "orders", "partitions": [0, 1, 2, 3]}],
            },
            {"results_by_topic_v3_and_below": [{"name": "orders", "results_by_partition": added}]},
        ),
        Example("EndTxn", ApiKey.END_TXN, 3, {**IN_TRANSACTION, "committed": True}, {"error_code": NONE}),
        list_offsets(16),
        list_offsets(1_000),
    ]


def cpu_us(work: Callable[[], object], count: int) -> float:
    """Microseconds of one call, over `count` of them."""
    began = time.process_time_ns()
    for _ in range(count):
        work()
    return (time.process_time_ns() - began) / count / 1_000


def least_us(works: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The least time of each, in rounds that take turns."""
    counts = [max(1, int(ROUND_US / max(cpu_us(work, 3), 1.0))) for work in works]
    least = [float("inf")] * len(works)
    end, rounds_count = time.monotonic() + seconds, 0
    while rounds_count < ROUNDS_MIN or time.monotonic() < end:
        rounds_count += 1
        for index, (work, count) in enumerate(zip(works, counts, strict=True)):
            least[index] = min(least[index], cpu_us(work, count))
    return least


def measure(example: Example, seconds: float) -> dict[str, object]:
    """One row."""
    began = time.process_time()
    schema = load_request_schema(example.api_key, example.version)
    entity_type = response_type(example.api_key, example.version)
    imported = time.process_time()
    request_reader(structure_schema(schema), example.name)
    response_writer(structure_schema(entity_type), example.name, has_tags_in_header=True)
    generated = time.process_time()

    frame = frame_of(example.api_key, example.version, example.request)
    body, kio_reader, kio_writer = bytes(frame.body), entity_reader(schema), entity_writer(entity_type)
    entity = built(entity_type, {"throttle_time": timedelta(0), **example.response})

    def write_by_kio() -> bytes:
        out = io.BytesIO()
        kio_writer(out, entity)
        return out.getvalue()

    assert b"".join(write_response(frame, example.response)).endswith(write_by_kio())
    read_us, kio_read_us = least_us([lambda: read_request(frame), lambda: kio_reader(body, 0)], seconds)
    write_us, kio_write_us = least_us([lambda: write_response(frame, example.response), write_by_kio], seconds)
    return {
        "message": example.name,
        "read_us": round(read_us, 2),
        "kio_read": f"{kio_read_us / read_us:.1f}x",
        "write_us": round(write_us, 2),
        "kio_write": f"{kio_write_us / write_us:.1f}x",
        "first_ms": round((generated - imported) * 1_000, 1),
        "import_ms": round((imported - began) * 1_000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each pair of codecs")
    options = parser.parse_args()
    for example in examples():
        print(json.dumps(measure(example, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
