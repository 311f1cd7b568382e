"""The listing of the bucket for a recovery: the objects that it uses, and the names that it skips (S9, S20).

A recovery forgets only objects that certainly do not exist: an unreadable name may be an object. Names that are not
Penstock's are reported and are no loss, because people and programs leave files in a bucket.
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
    """The sizes in bytes by key; 0 for an object that could not be read."""
    intake: dict[SessionId, deque[ObjectMeta]] = field(default_factory=dict[SessionId, deque[ObjectMeta]])
    sessions: set[SessionId] = field(default_factory=set[SessionId])
    topic_names: dict[TopicId, str] = field(default_factory=dict[TopicId, str])
    positions: list[int] = field(default_factory=list[int])
    hidden_intake: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Folders of the intake that could not be listed, and why. A loss: they may hold acknowledged records."""
    passed_over: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Other names, and unreadable objects, with the reasons. No loss."""
    _faulty: set[str] = field(default_factory=set[str])
    """Unreadable names, and the prefixes of keys that may be below them: a folder that could not be listed, a link."""

    def note(self, meta: ObjectMeta) -> None:
        """Note an entry of a listing that is not an ordinary object of Penstock."""
        if meta.fault:
            self._faulty |= {meta.key, f"{meta.key.removesuffix('/')}/"}
        if meta.hides_others and meta.key.startswith(INTAKE_PREFIX):
            self.hidden_intake.append((meta.key, meta.fault))
        elif meta.fault or not is_shape_known(meta.key):
            self.passed_over.append((printable(meta.key), meta.fault or "Penstock does not write such names"))

    def has(self, key: str) -> bool:
        """Whether an object with this key certainly exists."""
        return key in self.sizes and key not in self._faulty

    def lacks(self, key: str) -> bool:
        """Whether an object with this key certainly does not exist. If neither is certain, ask the store for it."""
        return key not in self.sizes and not key.startswith(tuple(self._faulty))


async def keys_of_agents(store: ObjectStore) -> set[str]:
    """The keys that change while agents work: intake objects, snapshots and progress marks.

    Files of other programs are not among them. An unreadable object counts by its key.
    """
    return {
        meta.key
        for prefix in (INTAKE_PREFIX, SNAPSHOT_PREFIX, REACHED_PREFIX)
        async for meta in store.list(prefix)
        if is_shape_known(meta.key)
    }


async def list_bucket(store: ObjectStore) -> BucketContents:
    """List everything that a recovery may need."""
    bucket = BucketContents()
    async for meta in store.list(INTAKE_PREFIX):
        session = session_of_key(meta.key)
        bucket.note(meta)
        if session is not None:  # also if it could not be read: a later read reports it as damaged
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
            if position is not None:  # the key has everything that is needed
                bucket.positions.append(position)
            else:
                bucket.note(meta)
    return bucket
