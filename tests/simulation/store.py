"""The bucket in the world, and each agent's way to it.

Rule: a delete is judged when it arrives: what the ledger refers to, what may still come true, and what was released
less than the grace ago must never go (safety rule S6). The bucket lies only in the ways of real ones: answers that are
lost or late, lists that miss what is new and name what is gone, objects that are not there yet.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.cluster_identity import CLUSTER_KEY
from protocol.limits import LEDGER_SESSION_SECONDS
from storage.object_store import Buffer, ObjectExists, ObjectMeta, ObjectMissing, StoreUnavailable
from storage.refs import (
    METADATA_SUFFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    TAIL_KEY,
    VERSION_HINT,
    session_of_key,
    topic_of_copy,
)
from tests.simulation.history import History
from tests.simulation.ledger import LedgerServer
from tests.simulation.links import LATE_SECONDS_MAX, Link, Unanswered
from tests.simulation.older_forms import check_snapshot
from tests.simulation.truth import Truth

T = TypeVar("T")

FRESH_SECONDS = 3.0
"""For how long a lying bucket may not show what was put, or still list what was deleted."""
LAST_DELETION_SECONDS_MAX = LEDGER_SESSION_SECONDS + LATE_SECONDS_MAX
"""After so long without a ledger the last deletion has landed that was decided while there was one (safety rule S9)."""
SKEW_SECONDS_MAX = 11.0
"""By how much the ledger's time may be ahead: the clock's check allows ten seconds (safety rule S2)."""


@dataclass(frozen=True, slots=True)
class _Stored:
    payload: bytes
    put_s: float


class Bucket:
    """Holds the objects."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        history: History,
        ledger: LedgerServer,
        truth: Truth,
        grace_s: float,
        now_ms: Callable[[], int],
        has_clock: bool = True,
    ) -> None:
        self._loop = loop
        self._history = history
        self._ledger = ledger
        self._truth = truth
        self._grace_s = grace_s
        self.now_ms = now_ms
        self.has_clock = has_clock
        self.objects: dict[str, _Stored] = {}
        self.snapshot_kept = ""
        """A recovery needs this one."""
        self.deleted_s: dict[str, float] = {}

    def put(self, key: str, payload: bytes, *, if_absent: bool) -> None:
        if key == TAIL_KEY:
            self._truth.tails.judge(payload)
        if key in self.objects:
            if if_absent:
                raise ObjectExists(f"{key} exists")
            is_overwritten = key in {CLUSTER_KEY, TAIL_KEY} or topic_of_copy(key) is not None
            if self.objects[key].payload != payload and not is_overwritten:
                self._history.violation(f"{key} was put twice with other bytes")
        if key.startswith(SNAPSHOT_PREFIX):
            check_snapshot(payload, self._history)
        self._history.note("bucket", "put", f"{key} {len(payload)}")
        self.objects[key] = _Stored(payload, self._loop.time())

    def find(self, key: str, *, is_lying: bool) -> bytes:
        stored = self.objects.get(key)
        # An agent that does not find who owns the bucket says so and ends, and is right to do it.
        is_hidden = is_lying and key != CLUSTER_KEY
        if stored is None or (is_hidden and self._loop.time() - stored.put_s < FRESH_SECONDS):
            raise ObjectMissing(f"{key} does not exist")
        return stored.payload

    def listed(self, prefix: str, *, is_lying: bool) -> list[ObjectMeta]:
        now_s = self._loop.time()
        sizes = {
            key: (len(stored.payload), self._modified_ms(stored))
            for key, stored in self.objects.items()
            if not is_lying or now_s - stored.put_s >= FRESH_SECONDS
        }
        if is_lying:
            gone = (key for key, deleted_s in self.deleted_s.items() if now_s - deleted_s < FRESH_SECONDS)
            sizes.update((key, (1, 0)) for key in gone)
        keys = sorted(key for key in sizes if key.startswith(prefix))
        return [ObjectMeta(key=key, size_bytes=sizes[key][0], modified_ms=sizes[key][1]) for key in keys]

    def _modified_ms(self, stored: _Stored) -> int:
        """In whole seconds, as S3 tells it."""
        age_ms = int((self._loop.time() - stored.put_s) * 1000)
        return (self.now_ms() - age_ms) // 1000 * 1000

    def delete(self, who: str, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self.objects:
                fault = self._fault_of_deletion(who, key)
                self._history.note("bucket", "deleted", f"{key} by {who}")
                if fault:
                    self._history.violation(f"{who} deleted {key}, {fault} (S6)")
                del self.objects[key]
                self.deleted_s[key] = self._loop.time()

    def _fault_of_deletion(self, who: str, key: str) -> str:
        """Why this object had to stay; empty where it may go."""
        if key.startswith(REACHED_PREFIX):
            # An older one says nothing that the newest does not, whatever became of the ledger.
            newest = max(found for found in self.objects if found.startswith(REACHED_PREFIX))
            return "which says how far the ledger has come" if key == newest else ""
        state = self._truth.state
        lost_s = self._ledger.lost_s
        if lost_s is not None and self._loop.time() - lost_s > LAST_DELETION_SECONDS_MAX:
            return "though its ledger is lost (S9)"
        if key.startswith(SNAPSHOT_PREFIX):
            if key == self.snapshot_kept:
                return "from which a recovery begins (S9)"
            # A copy that was restored points to an old one, which agents may have been about to delete: a recovery
            # does not begin from there, but from the newest.
            pointer = self._ledger.pointer if lost_s is None else None
            return "to which the snapshot pointer points" if pointer and pointer.object_key == key else ""
        if key in state.object_ids:
            return "to which the index refers"
        if topic_of_copy(key) is not None:
            folder = key.rpartition("/")[0]
            hint = self.objects.get(f"{folder}/{VERSION_HINT}")
            is_named = hint is not None and key == f"{folder}/v{hint.payload.decode()}{METADATA_SUFFIX}"
            return "which readers without a catalog look for" if is_named and key not in state.released else ""
        session = session_of_key(key)
        if session is None:
            return "which is not garbage"
        released_s = self._truth.released_s.get(key)
        if released_s is not None:
            told_ms = None if key in self._truth.released_untimed else state.released.get(key)
            return self._fault_of_age(self._loop.time() - released_s, told_ms)
        if session in state.sessions:
            if state.sessions[session].name != who.partition("/")[0]:
                return f"whose session {session} lives and may still commit it"
            # Of its own a session may know that no entry brings it in: none may do so from now on, whatever becomes of
            # the ledger.
            self._truth.discarded.add(key)
        return ""

    def _fault_of_age(self, age_s: float, told_ms: int | None) -> str:
        """The grace counts from the time that the entry which released it told, and may have been long on its way; else
        from when somebody told one next.
        """
        behind_s = 0.0
        if told_ms is not None:
            behind_s = max(0.0, self.now_ms() / 1000 - age_s - told_ms / 1000)
        is_early = age_s < self._grace_s - SKEW_SECONDS_MAX - behind_s
        return f"released only {age_s:.3f} s ago" if is_early else ""


class SimulatedStore:
    """One agent's way to the bucket. Implements `storage.object_store.ObjectStore`."""

    def __init__(self, bucket: Bucket, link: Link, chance: random.Random) -> None:
        self._bucket = bucket
        self._link = link
        self._chance = chance
        self.lie_chance = 0.0

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        payload = b"".join(parts)
        await self._ask(f"put {key}", lambda: self._bucket.put(key, payload, if_absent=if_absent))

    async def get(self, key: str) -> bytes:
        is_lying = self._lies()
        found = await self._ask(f"get {key}", lambda: self._bucket.find(key, is_lying=is_lying))
        if self._lies():
            raise StoreUnavailable(f"{key} broke off")
        return found

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        found = (await self.get(key))[byte_first : byte_first + byte_count]
        if len(found) != byte_count:
            raise StoreUnavailable(f"{key} gave {len(found)} instead of {byte_count} bytes from byte {byte_first}")
        return found

    async def head(self, key: str) -> ObjectMeta:
        found = await self._ask(f"head {key}", lambda: self._bucket.find(key, is_lying=False))
        return ObjectMeta(key=key, size_bytes=len(found), modified_ms=0)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        is_lying = self._lies()
        found = await self._ask(f"list {prefix}", lambda: self._bucket.listed(prefix, is_lying=is_lying))
        for meta in (each for each in found if each.key > after):
            if self._lies():
                raise StoreUnavailable(f"list {prefix} broke off")
            yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        named = tuple(keys)
        who = self._link.name
        await self._ask(f"delete {len(named)}: {named[0] if named else ''}", lambda: self._bucket.delete(who, named))

    async def server_time_ms(self) -> int | None:
        return await self._ask("time", self._bucket.now_ms) if self._bucket.has_clock else None

    async def close(self) -> None:
        """Nothing is held open."""

    def _lies(self) -> bool:
        return self.lie_chance > 0 and self._chance.random() < self.lie_chance

    async def _ask(self, what: str, act: Callable[[], T]) -> T:
        try:
            return await self._link.call(what, act)
        except Unanswered as error:
            raise StoreUnavailable(str(error)) from error
