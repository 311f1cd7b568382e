"""Objects and their references (safety rule S6). Part of `coordinator.apply`.

Rule: an object is in the state while chunks refer to it; with the last reference its key goes to `released`, with the
state's time, and stays there until its deletion is reported.
"""

from collections.abc import Iterable

from coordinator.state import ClusterState, ObjectState
from protocol.types import ObjectId
from storage.refs import ObjectKind


def is_key_known(state: ClusterState, key: str) -> bool:
    """Whether an entry named this object before: it must not become referenced a second time."""
    return key in state.object_ids or key in state.released


def add_object(state: ClusterState, *, key: str, kind: ObjectKind, object_bytes: int, references: int) -> None:
    """Enter an object under the state's next object id; without references it is released at once."""
    if not references:
        state.released[key] = state.time_ms
        return
    object_id = state.object_id_next
    state.object_id_next = ObjectId(object_id + 1)
    state.objects[object_id] = ObjectState(key=key, kind=kind, object_bytes=object_bytes, references=references)
    state.object_ids[key] = object_id


def release_references(state: ClusterState, object_ids: Iterable[int]) -> None:
    """Drop one reference for each of `object_ids`, which may name an object several times."""
    for value in object_ids:
        object_id = ObjectId(value)
        released = state.objects[object_id]
        released.references -= 1
        if not released.references:
            del state.objects[object_id]
            del state.object_ids[released.key]
            state.released[released.key] = state.time_ms
