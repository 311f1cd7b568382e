"""Objects and their references (safety rule S6). Called by `coordinator.apply.apply`.

Rule: an object is in the state while chunks refer to it; with the last reference its key goes to `released`, with the
state's time, and stays there until its deletion is reported. An entry has no time while its agent's clock is unchecked.
The state's time may then be as old as the last entry that had one, and the grace would seem to have passed with the
next: such an object waits for that entry (safety rule S2), and its grace begins then.
"""

from collections import Counter
from collections.abc import Iterable

from coordinator.state.chunk_index import NO_OBJECT
from coordinator.state.state import NO_TIME, ClusterState, ObjectState
from protocol.types import ObjectId
from storage.refs import ObjectKind, topic_of_parquet_key


def is_key_known(state: ClusterState, key: str) -> bool:
    """Whether an entry named this object before: it must not become referenced a second time."""
    return key in state.object_ids or key in state.released


def add_object(state: ClusterState, *, key: str, kind: ObjectKind, object_bytes: int, references: int) -> None:
    """Enter an object under the state's next object id; without references it is released at once."""
    if not references:
        _release(state, key)
        return
    object_id = state.object_id_next
    state.object_id_next = ObjectId(object_id + 1)
    state.objects[object_id] = ObjectState(key=key, kind=kind, object_bytes=object_bytes, references=references)
    state.object_ids[key] = object_id


def release_references(state: ClusterState, object_ids: Iterable[int]) -> None:
    """Drop one reference for each of `object_ids`, which may name an object several times. Markers refer to none."""
    objects = state.objects
    # Counted first: an object is released when its last reference goes, and may lose several by one entry.
    counts = Counter(object_ids)
    del counts[NO_OBJECT]
    for value, count in counts.items():
        object_id = ObjectId(value)
        released = objects[object_id]
        released.references -= count
        if not released.references:
            del objects[object_id]
            del state.object_ids[released.key]
            _release(state, released.key)
        # A table's snapshots hold one reference to each of its files, so the last one may be the table's alone.
        elif released.references == 1 and released.kind is ObjectKind.PARQUET:
            _note_unneeded(state, object_id, released.key)


def release_key(state: ClusterState, key: str) -> None:
    """Let the garbage collector delete what no entry ever named, but may be there: a copy of a table's metadata."""
    _release(state, key)


def _note_unneeded(state: ClusterState, object_id: ObjectId, key: str) -> None:
    """Handles the loss of a file's last reference but one: if the last one is the table's, no chunk needs the file."""
    topic_id = topic_of_parquet_key(key)
    topic = None if topic_id is None else state.topics.get(topic_id)
    if topic is not None and topic.table is not None and object_id in topic.table.objects:
        topic.table.unneeded.add(object_id)


def stamp_untimed(state: ClusterState) -> None:
    """Let the grace of objects that entries without a time released begin now, at the state's time."""
    for key in state.released_untimed:
        if state.released.get(key) == NO_TIME:
            state.released[key] = state.time_ms
    state.released_untimed.clear()


def _release(state: ClusterState, key: str) -> None:
    if state.is_time_known:
        state.released[key] = state.time_ms
    else:
        state.released[key] = NO_TIME
        state.released_untimed.append(key)
