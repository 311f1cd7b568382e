"""The metadata path, one core: chunks/s through codec and apply, memory per chunk, and the cold start of a snapshot.

Run: `.venv/bin/python -m benchmarks.micro.apply [--chunks 1000000] [--rounds 5]`. One JSON line a row on stdout.
Goals: docs of performance, "apply": 300,000 chunks/s, 250 bytes a chunk, a million chunks loaded in 5 s.
"""

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

from coordinator.apply.apply import apply_proposal
from coordinator.codec.codec import decode, encode
from coordinator.commands.commands import (
    BatchColumns,
    ChunkColumns,
    Command,
    CommitChunks,
    CreateTopic,
    Proposal,
    RaiseRules,
    Rejected,
    StartSession,
)
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import LedgerRecord
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.records.crc import crc32c, pack_crcs
from protocol.types import Milliseconds, ObjectNumber, Position, SessionId, TopicId

TOPIC = TopicId(bytes(range(16)))
SESSION = SessionId(1)
PARTITIONS = 100
CHUNK_BYTES = 1_000
RECORDS = 10


def seconds(work: Callable[[], object], count: int = 1) -> float:
    """How long `work` takes `count` times."""
    began = time.perf_counter()
    for _ in range(count):
        work()
    return time.perf_counter() - began


def commit(
    session: SessionId, number: int, chunks: int, *, is_idempotent: bool = False, round_number: int = 0
) -> CommitChunks:
    """One object with `chunks` chunks of one batch each, spread over the partitions."""
    producers = [row % PARTITIONS if is_idempotent else -1 for row in range(chunks)]
    per_partition = chunks // PARTITIONS
    sequences = [(round_number * per_partition + row // PARTITIONS) * RECORDS for row in range(chunks)]
    return CommitChunks(
        object_session=session,
        object_number=ObjectNumber(number),
        object_bytes=chunks * CHUNK_BYTES,
        topic_ids=(TOPIC,),
        chunks=ChunkColumns(
            topic=[0] * chunks,
            partition=[row % PARTITIONS for row in range(chunks)],
            byte_first=[row * CHUNK_BYTES for row in range(chunks)],
            batch_count=[1] * chunks,
        ),
        batches=BatchColumns(
            record_bytes=[CHUNK_BYTES] * chunks,
            record_count=[RECORDS] * chunks,
            max_timestamp=[1_700_000_000_000 + row for row in range(chunks)],
            producer_id=producers,
            producer_epoch=[0 if is_idempotent else -1] * chunks,
            base_sequence=sequences if is_idempotent else [-1] * chunks,
            is_transactional=[0] * chunks,
        ),
        batch_crcs=pack_crcs([crc32c(row.to_bytes(8, "big"), number) for row in range(chunks)]),
    )


class Applier:
    """A state with one session and one topic."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.state = ClusterState.empty("bench", 1)
        self.number = 0
        self.apply(StartSession(name="a", node_id=1, endpoints=(), zone=None, rules_version=RULES_NEWEST))
        self.apply(RaiseRules(rules_version=RULES_NEWEST))
        self.apply(CreateTopic(name="t", topic_id=TOPIC, partition_count=partitions, configs=()))

    def apply(self, command: Command) -> None:
        proposal = Proposal(time_ms=Milliseconds(self.number), command=command)
        _, outcome = apply_proposal(self.state, SESSION, self.number, proposal)
        assert not isinstance(outcome, Rejected), outcome
        self.number += 1

    def apply_all(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self.apply(command)


def _decoded(number: int, *, is_idempotent: bool) -> Command:
    command = commit(SESSION, number, 1_000, is_idempotent=is_idempotent, round_number=number)
    return decode(_record(Proposal(time_ms=None, command=command))).command


def _record(proposal: Proposal) -> LedgerRecord:
    payload = encode(proposal, RULES_NEWEST, SESSION, 0)
    return LedgerRecord(position=Position(SESSION + 1), session=SESSION, number=0, payload=payload)


def codec_rows(rounds: int) -> Iterator[dict[str, object]]:
    """Microseconds to encode and decode entries of one chunk and of a thousand."""
    for chunks in (1, 1_000):
        proposal = Proposal(time_ms=Milliseconds(5), command=commit(SESSION, 0, chunks, is_idempotent=True))
        record = _record(proposal)
        count = 2_000 // chunks + 20
        encoding = min(seconds(lambda: encode(proposal, RULES_NEWEST, SESSION, 0), count) for _ in range(rounds))  # noqa: B023 - called here
        decoding = min(seconds(lambda: decode(record), count) for _ in range(rounds))  # noqa: B023 - called here
        yield {
            "what": "codec",
            "chunks": chunks,
            "entry_bytes": len(record.payload),
            "encode_us": round(encoding / count * 1e6, 1),
            "decode_us": round(decoding / count * 1e6, 1),
        }


def apply_rows(rounds: int) -> Iterator[dict[str, object]]:
    """Chunks applied a second, from decoded entries of a thousand."""
    for is_idempotent in (False, True):
        best = 0.0
        for _ in range(rounds):
            applier = Applier()
            entries = [_decoded(number, is_idempotent=is_idempotent) for number in range(100)]
            best = max(best, 100_000 / seconds(lambda: applier.apply_all(entries)))  # noqa: B023 - called here
            assert applier.state.topics[TOPIC].partitions[0].log_end == 100_000 // PARTITIONS * RECORDS
        yield {"what": "apply", "is_idempotent": is_idempotent, "chunks_per_s": round(best)}


def snapshot_rows(chunks: int) -> Iterator[dict[str, object]]:
    """Memory of a large state, and how long it takes to write and read its snapshot."""
    applier = Applier()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(chunks // 1_000):
        applier.apply(commit(SESSION, number, 1_000, is_idempotent=False))
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    data = encode_snapshot(applier.state)
    yield {
        "what": "snapshot",
        "chunks": chunks,
        "memory_bytes_per_chunk": round(memory / chunks, 1),
        "snapshot_bytes": len(data),
        "encode_s": round(seconds(lambda: encode_snapshot(applier.state)), 3),
        "decode_s": round(seconds(lambda: decode_snapshot(data)), 3),
        "digest_s": round(seconds(lambda: digest(applier.state)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for rows in (codec_rows(arguments.rounds), apply_rows(arguments.rounds), snapshot_rows(arguments.chunks)):
        for row in rows:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
