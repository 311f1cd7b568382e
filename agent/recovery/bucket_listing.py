"""The objects that a recovery finds in the bucket by name, and those that it passes over (safety rules S9 and S20).

Rule: only what is not there for certain is forgotten: a name that cannot be looked at may be an object's. What is no
object of Penstock is noted and is no loss, for people and programs leave files in a bucket. But a folder of the intake
that cannot be listed is one: what was acknowledged may lie there.
"""

from collections import deque
from dataclasses import dataclass, field

from agent.bucket.strangers import is_shape_known
from protocol.types import SessionId, TopicId
from storage.keys import printable
from storage.object_store import ObjectMeta, ObjectStore
from storage.refs import (
    INTAKE_PREFIX,
    LAKE_PREFIX,
    REACHED_PREFIX,
    SHORTENED_MARK,
    SNAPSHOT_PREFIX,
    name_in_folder,
    position_of_key,
    session_of_key,
    topic_of_parquet_key,
)


@dataclass(slots=True)
class BucketContents:
    """The result of a listing of the whole bucket."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """In bytes; 0 of what could not be looked at."""
    intake: dict[SessionId, deque[ObjectMeta]] = field(default_factory=dict[SessionId, deque[ObjectMeta]])
    sessions: set[SessionId] = field(default_factory=set[SessionId])
    topic_names: dict[TopicId, str] = field(default_factory=dict[TopicId, str])
    positions: list[int] = field(default_factory=list[int])
    hidden_intake: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Folders of the intake that could not be listed, and why: what was acknowledged may lie there."""
    passed_over: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Objects that are none of these or could not be read, and why."""
    _faulty: set[str] = field(default_factory=set[str])
    """Names, and prefixes of what may lie behind them: a folder that could not be listed, or a link."""

    def note(self, meta: ObjectMeta) -> None:
        """Take down what a listing came upon, if it is no object like any other."""
        if meta.fault:
            self._faulty |= {meta.key, f"{meta.key.removesuffix('/')}/"}
        if meta.hides_others and meta.key.startswith(INTAKE_PREFIX):
            self.hidden_intake.append((meta.key, meta.fault))
        elif meta.fault or not is_shape_known(meta.key):
            self.passed_over.append((printable(meta.key), meta.fault or "its name is none that Penstock gives"))

    def has(self, key: str) -> bool:
        """Whether an object of this key is there for certain."""
        return key in self.sizes and key not in self._faulty

    def lacks(self, key: str) -> bool:
        """Whether it is not there for certain. What neither holds for, the store has to be asked for."""
        return key not in self.sizes and not key.startswith(tuple(self._faulty))


async def keys_of_agents(store: ObjectStore) -> set[str]:
    """The objects that agents write and delete: an archive pass shows by the intake that it releases, and by the
    ledger's mark.

    Other programs' files may come and go; of what cannot be looked at the name tells enough.
    """
    return {
        meta.key
        for prefix in (INTAKE_PREFIX, SNAPSHOT_PREFIX, REACHED_PREFIX)
        async for meta in store.list(prefix)
        if is_shape_known(meta.key)
    }


async def list_bucket(store: ObjectStore) -> BucketContents:
    """Read the names of everything that a recovery may need."""
    bucket = BucketContents()
    async for meta in store.list(INTAKE_PREFIX):
        session = session_of_key(meta.key)
        bucket.note(meta)
        if session is not None:  # also where it could not be looked at: it is read later, and is damaged then
            bucket.sizes[meta.key] = meta.size_bytes
            bucket.sessions.add(session)
            bucket.intake.setdefault(session, deque()).append(meta)
    async for meta in store.list(LAKE_PREFIX):
        session, topic_id = session_of_key(meta.key), topic_of_parquet_key(meta.key)
        bucket.note(meta)
        if session is None:
            continue
        bucket.sizes[meta.key] = meta.size_bytes
        bucket.sessions.add(session)
        name = name_in_folder(meta.key)
        if topic_id is not None and name and not name.endswith(SHORTENED_MARK):
            bucket.topic_names[topic_id] = name
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        async for meta in store.list(prefix):
            position = position_of_key(meta.key)
            if position is not None:  # its name is enough
                bucket.positions.append(position)
            else:
                bucket.note(meta)
    return bucket
