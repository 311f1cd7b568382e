"""Commits of tables as entries say them, for tests of the state machine."""

from coordinator.commands.commands import CommitTable, NewObject, TableCommit
from protocol.types import ObjectNumber, SessionId, TopicId
from storage.refs import MANIFEST_LIST_SUFFIX, MANIFEST_SUFFIX, METADATA_SUFFIX, table_metadata_key
from tests.support.commands.commands import TOPIC

SESSION = SessionId(1)


def metadata_key(
    number: int, suffix: str = METADATA_SUFFIX, *, session: int = 1, name: str = "t", topic_id: TopicId = TOPIC
) -> str:
    return table_metadata_key(name, topic_id, SessionId(session), ObjectNumber(number), suffix)


def table_commit(
    number: int,
    *,
    replaces: str = "",
    data_files: tuple[str, ...] = (),
    released: tuple[str, ...] = (),
    session: int = 1,
    name: str = "t",
    topic_id: TopicId = TOPIC,
) -> TableCommit:
    """With a manifest list and a manifest of its own; `number` names all three."""

    def key(suffix: str) -> str:
        return metadata_key(number, suffix, session=session, name=name, topic_id=topic_id)

    return TableCommit(
        replaces=replaces,
        metadata=NewObject(key=key(METADATA_SUFFIX), object_bytes=300),
        added=(
            NewObject(key=key(MANIFEST_LIST_SUFFIX), object_bytes=200),
            NewObject(key=key(MANIFEST_SUFFIX), object_bytes=100),
        ),
        data_files=data_files,
        released=released,
    )


def commit_table(commit: TableCommit, *, session: int = 1, topic_id: TopicId = TOPIC) -> CommitTable:
    return CommitTable(topic_id=topic_id, object_session=SessionId(session), table=commit)
