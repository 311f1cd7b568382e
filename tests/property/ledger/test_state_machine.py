"""Whatever is written to the ledger, every agent computes the same sound state from it, and never fails.

Entries are arbitrary commands of a few sessions, topics, objects and producers, so that they meet each other; some come
under numbers that repeat or leave a gap.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.apply.apply import apply
from coordinator.commands.commands import (
    ChunksCommitted,
    Command,
    Proposal,
    RaiseRules,
)
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_CHECKED_STORAGE, RULES_NEWEST
from coordinator.invariants import check
from coordinator.ledger.port import LedgerCorrupt, LedgerRecord
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.types import Position, SessionId, TopicId
from tests.support.commands.archive_commits import archive_of, upkeep_of
from tests.support.commands.commands import Cluster, create, start
from tests.support.commands.entries import decode, encode, since_of
from tests.support.strategies.ledger_commands import TOPICS, commands, numbers, sessions, times, topic_ids

ROOT = Path(__file__).parents[3]
UPKEEP = -1
"""In the place of the row from which a pass begins: no pass, the table alone."""


steps = st.lists(
    st.tuples(
        sessions,
        commands | st.tuples(numbers, topic_ids, st.integers(UPKEEP, 3)),
        times,
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, 1]),
    ),
    max_size=40,
)


def edges(state: ClusterState) -> dict[tuple[TopicId, int], tuple[int, int, int, int]]:
    """Where every partition's log, table and index start, and where they end: none of it ever moves back."""
    return {
        (topic_id, number): (held.log_start, held.table_start, held.index.first, held.log_end)
        for topic_id, topic in state.topics.items()
        for number, held in enumerate(topic.partitions)
    }


def run(
    entries: Sequence[tuple[int, Command | tuple[int, TopicId, int], int | None, int]], *, is_newest: bool = False
) -> Cluster:
    """A cluster with two sessions and a topic that went through the steps, checked after each."""
    cluster = Cluster()
    cluster.do(start("a", node=1, rules=RULES_NEWEST))
    cluster.do(start("b", node=2, rules=RULES_NEWEST), session=2)
    cluster.do(create("a", topic_id=TOPICS[0], partitions=2))
    if is_newest:
        cluster.do(RaiseRules(rules_version=RULES_NEWEST))
    for session, step, time_ms, slip in entries:
        if not isinstance(step, tuple):
            command: Command | None = step
        elif step[2] == UPKEEP:
            command = upkeep_of(cluster.state, session, *step[:2])
        else:
            command = archive_of(cluster.state, session, *step)
        if command is None:
            continue
        number = max(0, cluster.numbers.get(session, 0) + slip)
        cluster.numbers[session] = cluster.numbers.get(session, 0) + (slip == 0)
        before = edges(cluster.state)
        outcome = cluster.put(command, session=session, number=number, time_ms=time_ms)
        after = edges(cluster.state)
        for partition in before.keys() & after.keys():
            assert all(one <= other for one, other in zip(before[partition], after[partition], strict=True))
        if isinstance(outcome, ChunksCommitted):
            for error_code, offset in zip(outcome.error_codes, outcome.base_offsets, strict=True):
                assert (offset == -1) is (error_code != 0)
    return cluster


@given(steps, st.booleans())
def test_a_snapshot_at_any_position_leads_to_the_same_state(
    entries: list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]], is_newest: bool
) -> None:
    cluster = run(entries, is_newest=is_newest)
    state = ClusterState.empty("cluster", 1)
    for record in cluster.records:
        apply(state, record)
        state = decode_snapshot(encode_snapshot(state))
        assert check(state) == []
    assert digest(state) == digest(cluster.state)


@given(steps, st.data())
def test_repeating_what_was_applied_changes_nothing_but_positions(
    entries: list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]], data: st.DataObject
) -> None:
    cluster = run(entries)
    live = [record for record in cluster.records if record.session in cluster.state.sessions]
    if not live:
        return
    record = data.draw(st.sampled_from(live))
    if record.number >= cluster.state.sessions[record.session].entry_next:
        return
    before = digest(cluster.state)
    assert apply(cluster.state, record)[0] is None
    assert digest(cluster.state) == before


unchecked = commands.filter(lambda command: since_of(command) < RULES_CHECKED_ENTRIES).map(
    lambda command: encode(Proposal(time_ms=None, command=command), RULES_CHECKED_STORAGE)
)
"""Entries in whose place changed bytes may be other entries: those of today have checksums."""


@given(st.one_of(st.binary(max_size=200), unchecked), st.data())
def test_any_bytes_are_applied_or_refused_as_unreadable(payload: bytes, data: st.DataObject) -> None:
    mutated = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3))):
        if mutated:
            mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cluster = Cluster()
    cluster.do(start())
    cluster.do(create("a", topic_id=TOPICS[0], partitions=2))
    record = LedgerRecord(position=Position(9), session=SessionId(1), number=2, payload=bytes(mutated))
    before = digest(cluster.state)
    try:
        apply(cluster.state, record)
    except LedgerCorrupt:
        assert digest(cluster.state) == before
    else:
        assert decode(bytes(mutated)) is not None
        assert check(cluster.state) == []


REPLAY = """
import sys
from coordinator.apply.apply import apply
from coordinator.ledger.port import LedgerRecord
from coordinator.snapshot import digest
from coordinator.state.state import ClusterState
state = ClusterState.empty("cluster", 1)
for line in sys.stdin:
    position, session, number, payload = line.split()
    apply(state, LedgerRecord(position=int(position), session=int(session), number=int(number),
                              payload=bytes.fromhex(payload)))
    print(digest(state).hex())
"""


@settings(max_examples=5)
@given(st.lists(steps, min_size=3, max_size=3))
def test_another_process_with_another_hash_seed_computes_the_same_digests(
    runs: list[list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]]],
) -> None:
    cluster = run([entry for entries in runs for entry in entries])
    lines = "\n".join(f"{r.position} {r.session} {r.number} {r.payload.hex()}" for r in cluster.records)
    answers = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            input=lines,
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            text=True,
        ).stdout
        for seed in ("0", "4711")
    }
    assert len(answers) == 1
    (answer,) = answers
    assert answer.split()[-1] == digest(cluster.state).hex()
