"""A data folder with topics of which all is known, and an agent that runs over it.

Rule: an agent is a real process. Topics have one partition and one batch, in an intake object of its own; records carry
their topic's name, so a record of another topic, or with another byte, is noticed.
"""

import asyncio
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from iceberg_export.spark.bucket import open_bucket
from iceberg_export.spark.lake import SparkLake
from protocol.errors import ErrorCode, InvalidBatch
from protocol.types import PartitionIndex
from tests.support.clients.raw_client import RawClient, connected
from tests.support.lake.tail_manifest import topic_in_manifest
from tests.support.processes import Process
from tests.support.records.plain_records import Record, make_batch, read_batches
from tests.support.services.local_services import PENSTOCK, READY

RECORDS = 30
LATER_RECORDS = 2
PADDING, PADDING_ENTRIES = "padding", 12
"""A topic whose entries make a snapshot due."""
GROUP, NOTE = "group", "where the application has come to, in its own words"
"""Of committed offsets."""
SNAPSHOT_SETTLED_SECONDS = 1.0
"""Longer than the ledger takes to point to a snapshot that is written."""
START_SECONDS_MAX = 60.0
HTTP_SECONDS_MAX = 60.0


def marker(topic: str) -> bytes:
    """What every value of a topic's records begins with."""
    return f"<{topic}>".encode()


def expected(topic: str, offset: int) -> tuple[bytes, bytes]:
    """A record's key and value."""
    return f"k{offset % 7}".encode(), marker(topic) + bytes((offset * 31 + place * 7) % 256 for place in range(60))


def records(topic: str, first: int, count: int) -> list[Record]:
    made = [(offset, *expected(topic, offset)) for offset in range(first, first + count)]
    return [
        Record(offset=offset, timestamp=1_700_000_000_000 + offset, key=key, value=value) for offset, key, value in made
    ]


@dataclass(slots=True, kw_only=True)
class Read:
    """What a consumer got of a topic: the offsets of right records, what was wrong, and the error that ended it."""

    offsets: set[int] = field(default_factory=set[int])
    wrong: list[str] = field(default_factory=list[str])
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAgent:
    """A running one."""

    process: Process
    bootstrap: str
    http: str


@contextmanager
def running(data: Path, folder: Path, name: str) -> Iterator[LiveAgent | str]:
    """An agent over a data folder, with a journal if the folder has one; what it said, where it does not serve."""
    has_journal = (data / "journal").is_dir()
    options = {
        "name": "broker",
        "ledger": f"journal://{data}/journal" if has_journal else f"sqlite://{data}/ledger.sqlite",
        "store": f"file://{data}/store",
        "listen": "127.0.0.1:0",
        "http": "127.0.0.1:0",
        "gc-min-age-s": "1",
        "archive-interval-s": "3600",
        "snapshot-entries": "10",
    }
    command = [str(PENSTOCK), "agent", *(f"--{option}={value}" for option, value in options.items())]
    with Process(command, folder, name=name) as process:
        yield agent_of(process)


def agent_of(process: Process) -> LiveAgent | str:
    """The agent that a process is, once it serves; what it said, where it does not."""
    with suppress(AssertionError):
        process.wait_until(lambda: _addresses(process) is not None, "an agent", seconds_max=START_SECONDS_MAX)
    found = _addresses(process)
    if found is None:
        return process.stderr[-4000:] or "it says nothing"
    return LiveAgent(process=process, bootstrap=found[0], http=found[1])


def _addresses(process: Process) -> tuple[str, str] | None:
    match = READY.search(process.stdout)
    return None if match is None else (match.group(1), match.group(2))


def create(agent: LiveAgent, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        created.result(START_SECONDS_MAX)


def tell(agent: LiveAgent, topics: Sequence[str]) -> None:
    """Commit offsets of a group, and alter configs: what the ledger alone knows."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    offsets = [TopicPartition(topic, 0, offset=7 + row, metadata=NOTE) for row, topic in enumerate(topics)]
    for committed in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, offsets)]).values():
        committed.result(START_SECONDS_MAX)
    entry = ConfigEntry("retention.ms", "86400007", incremental_operation=AlterConfigOpType.SET)
    altered = [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
    for done in admin.incremental_alter_configs(altered).values():
        done.result(START_SECONDS_MAX)


def told(agent: LiveAgent, topics: Sequence[str]) -> Mapping[str, object]:
    """What the agent says of these, and its topics, by name. Raises `AssertionError` where it does not answer."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    ends_s = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return _told(admin, topics)
        except KafkaException as error:
            # The admin client repeats no request that timed out: an agent whose connection to etcd breaks says that.
            if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT or time.monotonic() > ends_s:
                raise AssertionError(f"it does not say what it knows: {error}") from error


def _told(admin: AdminClient, topics: Sequence[str]) -> Mapping[str, object]:
    (group,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    committed = group.result(START_SECONDS_MAX).topic_partitions
    described = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics])
    configs = {
        f"{name} of {resource.name}": entry.value
        for resource, answer in described.items()
        for name, entry in answer.result(START_SECONDS_MAX).items()
    }
    names = sorted(admin.list_topics(timeout=START_SECONDS_MAX).topics)
    offsets = {f"offset of {one.topic}": (one.partition, one.offset, one.metadata) for one in committed}
    return {"topics": names, **offsets, **configs}


async def produce(client: RawClient, topic: str, first: int, count: int) -> bool:
    """Whether the records were acknowledged at their offsets."""
    try:
        return await client.produce_batch(topic, 0, make_batch(records(topic, first, count))) == first
    except AssertionError:
        return False


async def read_topic(client: RawClient, topic: str, end: int) -> Read:
    """Everything of a topic below `end`, as a consumer goes through it; past an error it goes on at the next offset
    that it knows to be another object's."""
    found = Read()
    offset = 0
    while offset < end:
        fetched = await client.fetch(topic, 0, offset, wait_ms=0)
        if fetched.error_code is not ErrorCode.none:
            found.error = found.error or f"{fetched.error_code.name} at {offset}"
            if offset >= RECORDS:
                break
            offset = RECORDS
            continue
        try:
            batches = read_batches(fetched.records)
        except (InvalidBatch, ValueError, IndexError) as error:
            found.wrong.append(f"a batch at {offset} that is none: {error!r}")
            break
        for record in batches.records:
            if (record.key, record.value) != expected(topic, record.offset) or record.headers:
                found.wrong.append(f"offset {record.offset}: {record}"[:300])
            else:
                found.offsets.add(record.offset)
        covered = max((last for _, last in batches.ranges), default=offset)
        missing = set(range(offset, min(covered, end))) - found.offsets
        if missing and not found.wrong:
            found.wrong.append(f"offsets {min(missing)} to {max(missing)} are passed over in silence")
        if covered <= offset:
            found.error = found.error or f"nothing at {offset}, no error"
            if offset >= RECORDS:
                break
            covered = RECORDS
        offset = covered
    return found


def post(agent: LiveAgent, path: str, body: object) -> tuple[int, str]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://{agent.http}{path}", data, headers={"Content-Type": "application/json"})
    return _answer(request)


def get(agent: LiveAgent, path: str) -> tuple[int, str]:
    return _answer(urllib.request.Request(f"http://{agent.http}{path}"))


def _answer(request: urllib.request.Request) -> tuple[int, str]:
    """Status and body; 0 where there is no answer."""
    try:
        with urllib.request.urlopen(request, timeout=HTTP_SECONDS_MAX) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, repr(error)


def audit(data: Path) -> str:
    """What an audit of a stopped agent's folder says that reads every object."""
    command = [str(PENSTOCK), "audit", "--data-dir", str(data), "--json", "--deep"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    return (done.stdout + done.stderr).decode(errors="replace")


def recovery(data: Path) -> str:
    """What a recovery of a stopped agent's folder would bring back, as JSON; or why there would be none."""
    command = [str(PENSTOCK), "recover", "--data-dir", str(data), "--dry-run", "--force", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    return (done.stdout if done.returncode == 0 else done.stdout + done.stderr).decode(errors="replace")


def build(
    data: Path,
    folder: Path,
    *,
    archived: Sequence[str],
    waiting: Sequence[str],
    has_journal: bool = True,
    is_killed: bool = False,
) -> None:
    """A data folder whose agent has stopped, or was killed: then all that SQLite knows of `waiting` is in its
    write-ahead log. `archived` topics lie in files of a table each, the others in the journal, or in a pack without it.
    """
    if has_journal:
        (data / "journal").mkdir(parents=True)  # `running` begins it
    with running(data, folder, "build") as agent:
        assert isinstance(agent, LiveAgent), agent
        for first in range(0, len(archived), 50):
            create(agent, archived[first : first + 50])
        asyncio.run(fill(agent, archived))
        status, text = post(agent, "/api/archive", {"topics": list(archived), "wait": True})
        assert status == 200, text
        lake = data / "store" / "lake"
        agent.process.wait_until(
            lambda: len(list(lake.glob("*/metadata/version-hint.text"))) >= len(archived), "copies of tables"
        )
    with running(data, folder, "build") as agent:
        assert isinstance(agent, LiveAgent), agent
        create(agent, [*waiting, PADDING])
        asyncio.run(fill(agent, [*waiting, *[PADDING] * PADDING_ENTRIES]))
        agent.process.wait_until(
            lambda: _padding_is_known(data) and _snapshot_is_known(agent, data),
            "a tail manifest with the records of all topics, and a snapshot",
        )
        if is_killed:
            agent.process.kill()


def _padding_is_known(data: Path) -> bool:
    """Whether the tail manifest has what was produced last: tables are read before the next agent writes a manifest."""
    lake = SparkLake(open_bucket(f"file://{data / 'store'}", {}))
    topic = topic_in_manifest(lake, PADDING)
    partition = None if topic is None else topic.partition(PartitionIndex(0))
    return partition is not None and lake.readable(partition).end > 0


def _snapshot_is_known(agent: LiveAgent, data: Path) -> bool:
    """Whether the ledger points to the newest snapshot: one that an agent leaves before it does is read by no start."""
    _, metrics = get(agent, "/metrics")
    if re.search(r"(?m)^penstock_snapshots_total [1-9]", metrics) is None:
        return False
    snapshots = list((data / "store" / "ledger" / "snapshots").glob("*"))
    try:
        newest_s = max(path.stat().st_mtime for path in snapshots)
    except FileNotFoundError:  # the agent has just deleted an older one
        return False
    return newest_s < time.time() - SNAPSHOT_SETTLED_SECONDS


async def fill(agent: LiveAgent, topics: Sequence[str]) -> None:
    """Produce each topic's records, in an intake object of its own."""
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            await client.produce_batch(topic, 0, make_batch(records(topic, 0, RECORDS)))


def copied(data: Path, target: Path) -> Path:
    """A copy of a data folder, its locks and sparse files included."""
    subprocess.run(["cp", "-a", "--sparse=always", str(data), str(target)], check=True, timeout=120)
    return target


def dropped(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)
