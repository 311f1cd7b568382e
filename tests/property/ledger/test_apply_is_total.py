"""Whatever well-formed command comes at whatever state, apply carries it out or refuses it, and never fails.

Replacements of chunks and commits of tables are made of the state, as an archiver makes them, and spoiled then: these
say the most that has to fit together, and one that fails half-way would end every agent at each start.
"""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator.apply import producer_bounds
from coordinator.apply.apply import apply_proposal
from coordinator.commands.commands import (
    Command,
    CommitTable,
    Done,
    Outcome,
    PartitionReplacement,
    Proposal,
    RaiseRules,
    Rejected,
    ReplaceChunks,
    ReportTime,
    TableCommit,
)
from coordinator.commands.registry import RegistryRejected
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.commands.transaction import TransactionDecided
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.refs import parquet_key
from tests.support.commands.archive_commits import archive_of, upkeep_of
from tests.support.commands.commands import Batch, Chunk, Cluster, commit, create, start
from tests.support.strategies.ledger_commands import TOPICS, chunks, commands, numbers, sessions, times, topic_ids
from tests.support.strategies.transaction_commands import transaction_commands

SPOILS = ("none", "data file", "released", "replaced file", "no partition", "one row less", "another partition", "rows")
PRODUCERS_FEW = 2


def spoiled(state: ClusterState, command: Command | None, spoil: str, number: int) -> Command | None:
    """A replacement, or a table's commit, that fits no more, or by chance."""
    if isinstance(command, CommitTable):
        return replace(command, table=spoiled_table(state, command.table, spoil, number))
    if not isinstance(command, ReplaceChunks):
        return command
    partition = command.partitions[0]
    if spoil == "no partition":
        command = replace(command, partitions=())
    elif spoil == "one row less":
        command = replace(command, partitions=(replace(partition, replaced=partition.replaced[:-1]),))
    elif spoil == "another partition":
        other = PartitionReplacement(
            partition=PartitionIndex(number % 3), replaced=partition.replaced, archived=partition.archived
        )
        command = replace(command, partitions=(partition, other))
    elif spoil == "rows":
        rows = tuple(replace(archived, row_count=(1 << 31) - 1) for archived in partition.archived)
        command = replace(command, partitions=(replace(partition, archived=rows),))
    if command.table is not None:
        command = replace(command, table=spoiled_table(state, command.table, spoil, number))
    return command


def spoiled_table(state: ClusterState, table: TableCommit, spoil: str, number: int) -> TableCommit:
    known = [*state.object_ids, *state.released, parquet_key("a", TOPICS[0], SessionId(1), ObjectNumber(0))]
    key = known[number % len(known)]
    if spoil == "data file":
        return replace(table, data_files=(*table.data_files, key))
    if spoil == "released":
        return replace(table, released=(*table.released, key))
    if spoil == "replaced file":
        files = [each for each in known if each.endswith(".parquet")]
        return replace(table, data_files=tuple(dict.fromkeys((*table.data_files, *files))))
    return table


producer_writes = st.builds(
    lambda number, session, parts: commit(number, *parts, session=session),
    numbers,
    sessions,
    st.lists(chunks, min_size=1, max_size=3),
)
made_of_state = st.tuples(numbers, topic_ids, st.integers(-1, 3), st.sampled_from(SPOILS), st.integers(0, 12))
Step = tuple[int, Command | tuple[int, TopicId, int, str, int], int | None]
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(sessions, commands | transaction_commands | producer_writes | made_of_state | made_of_state, times),
    max_size=50,
)


replacements: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.just(1),
        st.tuples(numbers, st.just(TOPICS[0]), st.integers(-1, 2), st.sampled_from(SPOILS), st.integers(0, 12)),
        times,
    ),
    min_size=1,
    max_size=8,
)


def command_of(state: ClusterState, session: int, step: Command | tuple[int, TopicId, int, str, int]) -> Command | None:
    if not isinstance(step, tuple):
        return step
    number, topic_id, row, spoil, choice = step
    if row < 0:
        return spoiled(state, upkeep_of(state, session, number, topic_id), spoil, choice)
    return spoiled(state, archive_of(state, session, number, topic_id, row), spoil, choice)


def is_refusal(outcome: Outcome) -> bool:
    if isinstance(outcome, TransactionDecided):
        return outcome.error_code is not ErrorCode.none
    return isinstance(outcome, Rejected | RegistryRejected)


def check_refused(cluster: Cluster, before: bytes, session: int, number: int, time_ms: int | None) -> None:
    """What was refused changed what an entry changes that only tells the time."""
    other = decode_snapshot(before)
    other.position, other.appends_count = cluster.state.position, cluster.state.appends_count
    time = None if time_ms is None else Milliseconds(time_ms)
    apply_proposal(other, SessionId(session), number, Proposal(time_ms=time, command=ReportTime()))
    assert digest(other) == digest(cluster.state)


def run(rules: int, drawn: Sequence[Step], *, is_archived: bool = False) -> None:
    """Apply what is drawn. `is_archived`: a topic begins with a file that no table has, and more records behind it."""
    cluster = Cluster()
    cluster.do(start("a", node=1, rules=RULES_NEWEST + 1))
    cluster.do(start("b", node=2, rules=RULES_NEWEST + 1), session=2)
    if rules > RULES_FIRST:
        cluster.do(RaiseRules(rules_version=rules))
    cluster.do(create("a", topic_id=TOPICS[0], partitions=2))
    cluster.do(create("b", topic_id=TOPICS[1], penstock_transaction_placement="commit"))
    if is_archived:
        two = [Chunk(topic_id=TOPICS[0], partition=partition, batches=[Batch(records=4)]) for partition in (0, 1)]
        cluster.do(commit(90, *two))
        first = archive_of(cluster.state, 1, 90, TOPICS[0], 0)

        assert isinstance(first, ReplaceChunks)
        assert cluster.do(replace(first, table=None)) == Done()
        cluster.do(commit(91, *two))
    for session, step, time_ms in drawn:
        command = command_of(cluster.state, session, step)
        if command is None:
            continue
        number = cluster.numbers.get(session, 0)
        before, is_live = encode_snapshot(cluster.state), session in cluster.state.sessions
        outcome = cluster.do(command, session=session, time_ms=time_ms)
        if is_live and is_refusal(outcome):
            check_refused(cluster, before, session, number, time_ms)


@pytest.fixture(autouse=True, scope="module")
def few_producers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_bounds, "PRODUCER_STATES_PER_PARTITION_MAX", PRODUCERS_FEW)
        patch.setattr(producer_bounds, "PRODUCER_STATES_MAX", PRODUCERS_FEW + 1)
        yield


@given(st.sampled_from([RULES_FIRST, RULES_NEWEST]), steps)
def test_any_command_at_any_state_is_carried_out_or_changes_nothing(rules: int, drawn: Sequence[Step]) -> None:
    run(rules, drawn)


@given(st.sampled_from([RULES_FIRST, RULES_NEWEST]), replacements)
def test_so_is_any_replacement_of_chunks(rules: int, drawn: Sequence[Step]) -> None:
    run(rules, drawn, is_archived=True)
