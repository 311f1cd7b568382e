"""A bucket that is not the cluster's, to which one agent's endpoint leads for a while (safety rule S22).

Rule: it takes puts as the right one does, and has nothing else: no `cluster.json`. What an agent put there half a
minute after the endpoint changed must not count; what it put earlier may, so people bring it back at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.bucket.cluster_file import CLUSTER_KEY
from protocol.limits import BUCKET_CONFIRMED_SECONDS_MAX
from storage.object_store import ObjectExists, ObjectMeta, ObjectMissing
from storage.refs import TAIL_KEY, session_of_key
from tests.simulation.audit.truth import Truth
from tests.simulation.cluster.ledger import LedgerServer
from tests.simulation.history import History


@dataclass(frozen=True, slots=True)
class _Put:
    payload: bytes
    at_s: float


class OtherBucket:
    """What came into it since `begun_s`, in seconds of the world."""

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s
        self._objects: dict[str, _Put] = {}

    def put(self, key: str, payload: bytes, *, if_absent: bool, now_s: float) -> None:
        before = self._objects.get(key)
        if before is not None and if_absent:
            raise ObjectExists(f"{key} exists")
        self._objects[key] = _Put(payload, now_s if before is None else before.at_s)

    def find(self, key: str) -> bytes:
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectMissing(f"{key} does not exist")
        return stored.payload

    def listed(self, prefix: str) -> list[ObjectMeta]:
        keys = sorted(key for key in self._objects if key.startswith(prefix))
        return [ObjectMeta(key=key, size_bytes=len(self._objects[key].payload), modified_ms=0) for key in keys]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)

    def brought_back(self, ledger: LedgerServer, history: History) -> dict[str, bytes]:
        """What people move into the cluster's bucket, by key: all that may be in use."""
        pointer = ledger.pointer
        for key, stored in self._objects.items():
            age_s = stored.at_s - self._begun_s
            is_counted = key in ledger.truth.referred or (pointer is not None and pointer.object_key == key)
            if is_counted and age_s > BUCKET_CONFIRMED_SECONDS_MAX:
                history.violation(f"{key} counts, and was put into another bucket {age_s:.3f} s after the change (S22)")
        return {
            key: stored.payload
            for key, stored in self._objects.items()
            if key not in {CLUSTER_KEY, TAIL_KEY} and not _is_garbage(key, ledger.truth)
        }


def _is_garbage(key: str, truth: Truth) -> bool:
    """Whether nothing looks for it any more: its session left it and is over, or it was released and counts as gone."""
    state, session = truth.state, session_of_key(key)
    if key in state.object_ids or key in state.released:
        return False
    return key in truth.referred or (session is not None and session not in state.sessions)
