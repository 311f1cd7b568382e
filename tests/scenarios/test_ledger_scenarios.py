"""Plays the ledgers of `tests/scenarios/ledger/*.txt` and compares what applying each entry answered.

A scenario is blocks of a command, a line of dashes, and the expected trace, in the way of etcd raft's datadriven tests.
`PENSTOCK_REWRITE=1` writes the traces anew: read the difference before it is committed. Commands:

    start SESSION NAME [node=N] [rules=N]       end SESSION of=SESSION       rules SESSION VERSION
    drain SESSION of=SESSION
    create SESSION TOPIC [partitions=N] [CONFIG=VALUE ...]                   delete SESSION TOPIC
    ids SESSION COUNT        time SESSION        expire SESSION cutoff=MS
    commit SESSION OBJECT [of=SESSION] TOPIC/PARTITION:BATCH[,BATCH...] ...
    forget SESSION KEY ...   forget-sessions SESSION SESSION ...
    delete-records SESSION TOPIC/PARTITION:OFFSET ...
    retain SESSION now=MS [ms=MS] [bytes=BYTES] TOPIC ...
    state

A batch is RECORDS[@PRODUCER.EPOCH.SEQUENCE][~MS][!]: MS is its greatest timestamp, `!` means transactional. Every
command but `state` takes `at=MS`, the proposed time, and `number=N`, the entry's number where it is not the session's
next one.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    ChunksCommitted,
    Command,
    CreateTopic,
    DeleteTopic,
    Done,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    LogStartsAdvanced,
    Outcome,
    ProducerIdsAllocated,
    RaiseRules,
    Rejected,
    ReportTime,
    StartDrain,
)
from coordinator.commands.delegation_tokens import TokenCreated, TokenExpirySet, TokensRemoved
from coordinator.commands.group import GroupsClaimed, OffsetsCommitted
from coordinator.commands.registry import RegistryRejected, SchemaRegistered, VersionsDeleted
from coordinator.commands.security import AclsCreated, AclsDeleted, ScramAltered
from coordinator.commands.transaction import TransactionalOffsetsPending, TransactionDecided
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, SessionId, TopicId
from tests.support.commands.commands import Batch, Chunk, Cluster, commit, retain, start

FOLDER = Path(__file__).parent / "ledger"
SEPARATOR = "----"
BATCH = re.compile(r"(\d+)(?:@(\d+)\.(-?\d+)\.(-?\d+))?(?:~(-?\d+))?(!?)")


def test_there_are_scenarios() -> None:
    assert list(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_ledger_is_applied_as_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    played = "\n\n".join(play(text)) + "\n"
    if "PENSTOCK_REWRITE" in os.environ:
        path.write_text(played, encoding="utf-8")
        return
    assert played == text, f"{path.name}: run with PENSTOCK_REWRITE=1 and read the difference"


def play(text: str) -> Iterator[str]:
    """Every block with the trace that it really gives; comments stay."""
    cluster = Cluster()
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        said = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
        orders = [line for line in said if not line.startswith("#")]
        if not orders:
            yield "\n".join(said)
            continue
        trace = [line for order in orders for line in answer(cluster, order)]
        yield "\n".join([*said, SEPARATOR, *trace])


def answer(cluster: Cluster, order: str) -> Iterator[str]:
    """Carry out one command and describe the outcome."""
    if order == "state":
        yield from describe_state(cluster.state)
        return
    words = order.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    name, session, *rest = [word for word in words if "=" not in word]
    time_ms = int(options.pop("at")) if "at" in options else None
    number = int(options.pop("number")) if "number" in options else None
    command = read_command(cluster, name, int(session), rest, options)
    if number is None:
        outcome = cluster.do(command, session=int(session), time_ms=time_ms)
    else:
        outcome = cluster.put(command, session=int(session), number=number, time_ms=time_ms)
    yield describe(outcome)


def read_command(  # noqa: C901 - one arm per command
    cluster: Cluster, name: str, session: int, rest: list[str], options: dict[str, str]
) -> Command:
    """The command of one line."""
    match name:
        case "start":
            return start(rest[0], node=int(options.get("node", session)), rules=int(options.get("rules", 1)))
        case "end":
            return EndSession(session=SessionId(int(options["of"])))
        case "drain":
            return StartDrain(session=SessionId(int(options["of"])))
        case "rules":
            return RaiseRules(rules_version=int(rest[0]))
        case "create":
            partitions = int(options.pop("partitions", "1"))
            return CreateTopic(
                name=rest[0],
                topic_id=fresh_id(cluster),
                partition_count=partitions,
                configs=tuple(sorted(options.items())),
            )
        case "delete":
            return DeleteTopic(topic_id=id_of(cluster, rest[0]))
        case "ids":
            return AllocateProducerIds(count=int(rest[0]))
        case "time":
            return ReportTime()
        case "expire":
            return ExpireProducers(cutoff_ms=Milliseconds(int(options["cutoff"])))
        case "commit":
            command = commit(int(rest[0]), *[read_chunk(cluster, word) for word in rest[1:]], session=session)
            return replace(command, object_session=SessionId(int(options.get("of", session))))
        case "forget":
            return ForgetObjects(object_keys=tuple(rest))
        case "forget-sessions":
            return ForgetSessions(sessions=tuple(SessionId(int(word)) for word in rest))
        case "delete-records":
            return read_deletion(cluster, rest)
        case "retain":
            return retain(
                int(options["now"]),
                *[id_of(cluster, topic) for topic in rest],
                retention_ms=int(options.get("ms", -1)),
                retention_bytes=int(options.get("bytes", -1)),
            )
        case _:
            raise AssertionError(f"no such command: {name}")


def read_deletion(cluster: Cluster, words: list[str]) -> AdvanceLogStart:
    rows = [re.split("[/:]", word) for word in words]
    topic_ids = tuple(dict.fromkeys(id_of(cluster, topic) for topic, _, _ in rows))
    return AdvanceLogStart(
        topic_ids=topic_ids,
        topic=[topic_ids.index(id_of(cluster, topic)) for topic, _, _ in rows],
        partition=[int(partition) for _, partition, _ in rows],
        log_start=[int(offset) for _, _, offset in rows],
    )


def fresh_id(cluster: Cluster) -> TopicId:
    """Topic ids in order of entries, so that a scenario gives the same state every time."""
    return TopicId((len(cluster.records) + 1).to_bytes(16, "big"))


def id_of(cluster: Cluster, topic: str) -> TopicId:
    return cluster.state.topic_ids.get(topic, TopicId(bytes([255] * 16)))


def read_chunk(cluster: Cluster, word: str) -> Chunk:
    place, _, batches = word.partition(":")
    topic, _, partition = place.partition("/")
    return Chunk(
        topic_id=id_of(cluster, topic),
        partition=int(partition),
        batches=[read_batch(batch) for batch in batches.split(",")],
    )


def read_batch(word: str) -> Batch:
    found = BATCH.fullmatch(word)
    assert found is not None, f"not a batch: {word}"
    records, producer, epoch, sequence, timestamp, mark = found.groups()
    return Batch(
        records=int(records),
        timestamp=int(timestamp or 1_000),
        producer=int(producer or -1),
        epoch=int(epoch or -1),
        sequence=int(sequence or -1),
        is_transactional=bool(mark),
    )


def describe(outcome: Outcome) -> str:
    """An outcome in one line."""
    match outcome:
        case Done():
            return "done"
        case Rejected(error_code=error_code, reason=reason):
            return f"refused {error_code.name}: {reason}"
        case ProducerIdsAllocated(producer_id_first=first, count=count):
            return f"producer ids {first} to {first + count - 1}"
        case ChunksCommitted():
            batches = [
                f"@{offset}" if error_code == 0 else ErrorCode(error_code).name
                for error_code, offset in zip(outcome.error_codes, outcome.base_offsets, strict=True)
            ]
            stamps = [str(time_ms) for time_ms in outcome.append_time_ms if time_ms >= 0]
            return " ".join([*batches, *(f"stamped={stamp}" for stamp in stamps)])
        case LogStartsAdvanced():
            starts = zip(outcome.error_codes, outcome.log_starts, strict=True)
            return " ".join(f"from={start}" if code == 0 else ErrorCode(code).name for code, start in starts)
        case GroupsClaimed():
            claims = zip(outcome.error_codes, outcome.claim_epochs, strict=True)
            return " ".join(f"claim={epoch}" if code == 0 else ErrorCode(code).name for code, epoch in claims)
        case OffsetsCommitted():
            return " ".join("committed" if code == 0 else ErrorCode(code).name for code in outcome.error_codes)
        case (
            TransactionDecided()
            | TransactionalOffsetsPending()
            | SchemaRegistered()
            | VersionsDeleted()
            | RegistryRejected()
            | AclsCreated()
            | AclsDeleted()
            | ScramAltered()
            | TokenCreated()
            | TokenExpirySet()
            | TokensRemoved()
        ):
            return str(outcome)


def describe_state(state: ClusterState) -> Iterator[str]:
    """What of the state a reader of a scenario wants to see."""
    yield f"time={state.time_ms} rules={state.rules_version} appends={state.appends_count}"
    for session_id, session in sorted(state.sessions.items()):
        yield f"session {session_id} {session.name} next={session.entry_next}"
    for session_id, end_ms in sorted(state.sessions_ended.items()):
        yield f"session {session_id} ended at={end_ms}"
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            chunks = [
                f"[{chunk.offset_first},{chunk.offset_end})@{chunk.object_id}+{chunk.byte_first}"
                for chunk in partition.index.rows_from(0)
            ]
            producers = [
                f"{producer_id}.{producer.epoch}.{producer.sequence_next}"
                for producer_id, producer in sorted(partition.producers.items())
            ]
            starts = {"start": partition.log_start, "table": partition.table_start}
            moved = [f"{name}={start}" for name, start in starts.items() if start]
            yield " ".join([f"{topic.name}/{number}", *moved, f"end={partition.log_end}", *chunks, *producers])
    for object_id, found in sorted(state.objects.items()):
        yield f"object {object_id} {found.key} references={found.references}"
    for key, released_ms in sorted(state.released.items()):
        yield f"released {key} at={released_ms}"
