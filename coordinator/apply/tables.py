"""Moves the pointers of topics' Iceberg tables. Called by `coordinator.apply.apply`.

Rule: nothing here reads metadata: what a version of a table needs, and what it needs no more, its proposer says, and
each of it counts as one reference of the object (safety rule S6). So a data file stays while the log or any snapshot of
the table needs it. Everything is compared before anything is changed.
"""

from coordinator.apply.objects import add_object, is_key_known, release_key, release_references
from coordinator.commands.commands import CommitTable, Done, Outcome, Rejected, TableCommit
from coordinator.state.state import ClusterState, TableState, TopicState
from coordinator.state.table_folders import folder_name, lake_folders
from protocol.errors import ErrorCode
from protocol.limits import TABLE_COPIES_KEPT
from protocol.types import ObjectId, SessionId
from storage.refs import (
    METADATA_SUFFIX,
    ObjectKind,
    metadata_copy_key,
    table_metadata_folder,
    version_hint_key,
)


def commit_table(state: ClusterState, session_id: SessionId, command: CommitTable) -> Outcome:
    """Make the next version of a table true."""
    difference: str | None = None
    topic = state.topics.get(command.topic_id)
    if command.object_session != session_id:  # S1
        difference = f"the objects are of session {command.object_session}, the entry of session {session_id}"
    elif topic is None:
        difference = f"there is no topic with the id {command.topic_id.hex()}"
    else:
        difference = table_difference(state, session_id, topic, command.table, new_file=None)
        if difference is None:
            change_table(state, topic, command.table)
    if difference is not None:
        return Rejected(error_code=ErrorCode.invalid_request, reason=difference)
    return Done()


def table_difference(
    state: ClusterState, session_id: SessionId, topic: TopicState, commit: TableCommit, *, new_file: str | None
) -> str | None:
    """In what the commit does not fit to the state, in words; None where it does.

    `new_file`: the key of the data file that the same entry brings in.
    """
    table = topic.table
    current = "" if table is None else table.metadata_key
    if commit.replaces != current:
        return f"the table's metadata is {current!r}, the command replaces {commit.replaces!r}"
    new_keys = [commit.metadata.key, *(added.key for added in commit.added)]
    prefix = f"{table_metadata_folder(folder_name(state, topic), topic.topic_id)}{session_id:016x}-"
    if len({*new_keys, *commit.data_files}) != len(new_keys) + len(commit.data_files):
        return "an object enters the table twice"
    for key in new_keys:
        if not key.startswith(prefix):
            return f"the key {key!r} does not begin with {prefix!r}"
        if is_key_known(state, key):
            return f"the object {key!r} is known already"
    if not commit.metadata.key.endswith(METADATA_SUFFIX):
        return f"{commit.metadata.key!r} does not end with {METADATA_SUFFIX!r}"
    for key in commit.data_files:
        if key != new_file and not _may_enter(state, topic, key):
            return f"{key!r} is no data file of the log, or is in the table already"
    return _release_difference(state, table, commit.released)


def _release_difference(state: ClusterState, table: TableState | None, released: tuple[str, ...]) -> str | None:
    table_objects = frozenset[ObjectId]() if table is None else table.objects
    if len(set(released)) != len(released):
        return "an object leaves the table twice"
    for key in released:
        if state.object_ids.get(key) not in table_objects:
            return f"{key!r} leaves the table, and is not in it"
    if table is not None and table.metadata_key not in released:
        return f"the metadata {table.metadata_key!r} is replaced, and does not leave the table"
    return None


def _may_enter(state: ClusterState, topic: TopicState, key: str) -> bool:
    object_id = state.object_ids.get(key)
    if object_id is None or not key.startswith(tuple(f"{folder}data/" for folder in lake_folders(state, topic))):
        return False
    return topic.table is None or object_id not in topic.table.objects


def change_table(state: ClusterState, topic: TopicState, commit: TableCommit) -> None:
    """Carry out a commit that differs in nothing."""
    if topic.table is None:
        topic.table = TableState(metadata_key="", version=0, objects=set())
    table = topic.table
    for new in (commit.metadata, *commit.added):
        table.objects.add(state.object_id_next)
        add_object(state, key=new.key, kind=ObjectKind.TABLE_METADATA, object_bytes=new.object_bytes, references=1)
    for key in commit.data_files:
        object_id = state.object_ids[key]
        state.objects[object_id].references += 1
        table.objects.add(object_id)
    released = {state.object_ids[key] for key in commit.released}
    table.objects -= released
    table.unneeded -= released
    release_references(state, sorted(released))
    table.metadata_key = commit.metadata.key
    table.version += 1


def release_table(state: ClusterState, topic: TopicState) -> None:
    """The table of a topic that is deleted goes with it, and so do the copies of its metadata."""
    if topic.table is None:
        return
    release_references(state, sorted(topic.table.objects))
    newest, name = topic.table.version, folder_name(state, topic)
    for version in range(max(1, newest - TABLE_COPIES_KEPT + 1), newest + 1):
        release_key(state, metadata_copy_key(name, topic.topic_id, version))
    release_key(state, version_hint_key(name, topic.topic_id))


def unneeded_files(state: ClusterState, table: TableState) -> set[ObjectId]:
    """The table's data files to which nothing but the table refers."""
    return {
        object_id
        for object_id in table.objects
        if state.objects[object_id].kind is ObjectKind.PARQUET and state.objects[object_id].references == 1
    }
