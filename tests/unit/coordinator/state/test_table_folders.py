"""Where a topic's table lies: a long name is shortened, and a table stays where it is."""

import pytest

from coordinator.commands.commands import (
    ArchivedChunk,
    DeleteTopic,
    Done,
    PartitionReplacement,
    RaiseRules,
    Rejected,
    ReplaceChunks,
    ReplacedChunk,
    TableCommit,
)
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.state.table_folders import folder_name, lake_folders
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId
from storage.refs import intake_key, metadata_copy_key, parquet_key, topic_folder, version_hint_key
from tests.support.commands.commands import TOPIC, Batch, Cluster, create, start
from tests.support.commands.table_commits import table_commit

LONG = "n" * 249
SHORT = "n" * 150 + "!"
SESSION = SessionId(1)


def cluster(name: str, *, rules: int) -> Cluster:
    made = Cluster()
    made.do(start(rules=RULES_NEWEST))
    if rules > made.state.rules_version:
        assert made.do(RaiseRules(rules_version=rules)) == Done()
    made.do(create(name))
    return made


def replace(name_in_key: str, table: TableCommit | None = None) -> ReplaceChunks:
    old = ReplacedChunk(
        offset_first=Offset(0), offset_end=Offset(1), object_key=intake_key(SESSION, ObjectNumber(0)), byte_first=0
    )
    new = ArchivedChunk(
        offset_first=Offset(0),
        offset_end=Offset(1),
        row_group=0,
        row_first=0,
        row_count=1,
        byte_first=4,
        byte_count=70,
        max_timestamp=Milliseconds(1_000),
    )
    return ReplaceChunks(
        topic_id=TOPIC,
        object_session=SESSION,
        object_key=parquet_key(name_in_key, TOPIC, SESSION, ObjectNumber(9)),
        object_bytes=100,
        partitions=(PartitionReplacement(partition=PartitionIndex(0), replaced=(old,), archived=(new,)),),
        table=table,
    )


@pytest.mark.parametrize(
    ("name", "rules", "in_folder"),
    [
        ("orders", RULES_FIRST, "orders"),
        ("orders", RULES_NEWEST, "orders"),
        ("n" * 222, RULES_NEWEST, "n" * 222),
        ("n" * 223, RULES_NEWEST, SHORT),
        (LONG, RULES_FIRST, LONG),
        (LONG, RULES_NEWEST, SHORT),
    ],
)
def test_a_name_that_does_not_fit_is_shortened_once_all_agents_know(name: str, rules: int, in_folder: str) -> None:
    state = cluster(name, rules=rules).state
    topic = state.topics[TOPIC]
    assert folder_name(state, topic) == in_folder
    assert lake_folders(state, topic) == tuple(topic_folder(each, TOPIC) for each in dict.fromkeys((in_folder, name)))


def test_a_file_and_its_table_lie_under_the_shortened_name() -> None:
    made = cluster(LONG, rules=RULES_NEWEST)
    made.produce(0, Batch())
    key = parquet_key(SHORT, TOPIC, SESSION, ObjectNumber(9))
    assert made.do(replace(SHORT, table_commit(5, name=SHORT, data_files=(key,)))) == Done()
    assert made.do(DeleteTopic(topic_id=TOPIC)) == Done()
    assert {metadata_copy_key(SHORT, TOPIC, 1), version_hint_key(SHORT, TOPIC)} <= made.state.released.keys()


def test_under_older_rules_a_shortened_key_is_refused() -> None:
    made = cluster(LONG, rules=RULES_FIRST)
    made.produce(0, Batch())
    assert isinstance(made.do(replace(SHORT)), Rejected)


def test_a_table_that_is_there_stays_when_the_rules_are_raised() -> None:
    made = cluster(LONG, rules=RULES_FIRST)
    made.produce(0, Batch())
    key = parquet_key(LONG, TOPIC, SESSION, ObjectNumber(9))
    assert made.do(replace(LONG, table_commit(5, name=LONG, data_files=(key,)))) == Done()
    assert made.do(RaiseRules(rules_version=RULES_NEWEST)) == Done()
    assert folder_name(made.state, made.state.topics[TOPIC]) == LONG
