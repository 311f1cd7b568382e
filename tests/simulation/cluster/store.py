"""The bucket in the world, and each agent's way to it.

Rule: a delete is judged when it arrives: what the ledger refers to, what may still come true, and what was released
less than the grace ago must never go (safety rule S6). The bucket lies only in the ways of real ones: answers that are
lost or late, lists that miss what is new and name what is gone, objects that are not there yet. It may reject requests,
or break a promise, as `tests.simulation.faults.hard_faults` has it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from zlib import crc32

from agent.bucket.cluster_file import CLUSTER_KEY
from agent.bucket.permissions import CHECKS_PREFIX
from protocol.limits import LEDGER_SESSION_SECONDS
from storage.decorators.failing import StoreOperation
from storage.object_store import (
    Buffer,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    StoreDenied,
    StoreError,
    StoreUnavailable,
    cut_short,
)
from storage.refs import (
    INTAKE_PREFIX,
    LAKE_PREFIX,
    METADATA_SUFFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    TAIL_KEY,
    VERSION_HINT,
    session_of_key,
    topic_of_copy,
)
from tests.simulation.audit.older_forms import check_snapshot
from tests.simulation.audit.truth import Truth
from tests.simulation.cluster.ledger import LedgerServer
from tests.simulation.cluster.links import LATE_SECONDS_MAX, Link, Unanswered
from tests.simulation.faults.disturbances import Spells
from tests.simulation.faults.other_bucket import OtherBucket
from tests.simulation.history import History

T = TypeVar("T")

FRESH_SECONDS = 3.0
"""For how long a lying bucket may not show what was put, or still list what was deleted."""
LAST_DELETION_SECONDS_MAX = LEDGER_SESSION_SECONDS + LATE_SECONDS_MAX
"""After so long without a ledger the last deletion has landed that was decided while there was one (safety rule S9)."""
SKEW_SECONDS_MAX = 11.0
"""By how much the ledger's time may be ahead: the clock's check allows ten seconds (safety rule S2)."""

PROTECTED_OF: Final = 3
"""One of so many objects is protected, by its key, while some are."""


class NoRoom(StoreUnavailable):
    """The disk is full, and nothing was put."""


@dataclass(frozen=True, slots=True)
class _Stored:
    payload: bytes
    put_s: float


class SimulatedBucket:
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
        self.is_full = False
        self.is_protecting = False
        """Whether some objects cannot be deleted."""
        self.unconditional = Spells(loop.time)
        """While it ignores If-None-Match."""
        self.denying = Spells(loop.time)
        """While it answers 403 to some agent."""
        self.replaced = Spells(loop.time)
        """While some agent's endpoint leads to another bucket."""
        self.answered: set[str] = set()
        """Keys whose put was answered to its agent."""
        self.unwanted: set[str] = set()
        """Keys that some agent asked to delete."""

    def put(self, key: str, payload: bytes, *, if_absent: bool) -> None:
        if key == TAIL_KEY:
            self._truth.tails.judge(payload)
        if self.is_full and key.startswith((INTAKE_PREFIX, LAKE_PREFIX)):
            raise NoRoom(f"{key}: no space left on device")
        if key in self.objects:
            if if_absent and not self.unconditional.is_on:
                raise ObjectExists(f"{key} exists")
            is_overwritten = key in {CLUSTER_KEY, TAIL_KEY} or topic_of_copy(key) is not None
            is_overwritten = is_overwritten or key.startswith(CHECKS_PREFIX)
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
        reasons: dict[str, StoreError] = {}
        self.unwanted.update(keys)
        for key in keys:
            is_protected = self.is_protecting and not key.startswith(CHECKS_PREFIX)
            if is_protected and crc32(key.encode()) % PROTECTED_OF == 0:
                reasons[key] = StoreDenied(f"delete {key}: AccessDenied")
            elif key in self.objects:
                fault = self._fault_of_deletion(who, key)
                self._history.note("bucket", "deleted", f"{key} by {who}")
                if fault:
                    self._history.violation(f"{who} deleted {key}, {fault} (S6)")
                del self.objects[key]
                self.deleted_s[key] = self._loop.time()
        if reasons:
            raise ObjectsNotDeleted(reasons)

    def bring_back(self, other: OtherBucket) -> None:
        """People move what came into another bucket to where it belongs."""
        for key, payload in other.brought_back(self._ledger, self._history).items():
            if key not in self.objects:
                self._history.note("bucket", "brought back", f"{key} {len(payload)}")
                self.objects[key] = _Stored(payload, self._loop.time())
                self.answered.discard(key)  # its agent may have seen that this put does not count

    def _fault_of_deletion(self, who: str, key: str) -> str:
        """Why this object had to stay; empty where it may go."""
        if key.startswith(REACHED_PREFIX):
            # An older one says nothing that the newest does not, whatever became of the ledger.
            newest = max(found for found in self.objects if found.startswith(REACHED_PREFIX))
            return "which says how far the ledger has come" if key == newest else ""
        if key.startswith(CHECKS_PREFIX):
            return ""
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

    def __init__(self, bucket: SimulatedBucket, link: Link, chance: random.Random) -> None:
        self._bucket = bucket
        self._link = link
        self._chance = chance
        self.lie_chance = 0.0
        self.flip_chance = 0.0
        """How often what is read of an archive file has a flipped bit."""
        self.mix_up_chance = 0.0
        """How often another intake object of the same size is read."""
        self.denied: frozenset[StoreOperation] = frozenset()
        """What the bucket answers with 403."""
        self.other: OtherBucket | None = None
        """The bucket that the endpoint leads to instead."""
        self._finds_full = False

    @property
    def is_known_full(self) -> bool:
        """Whether a put of this agent found no room, and there still is none."""
        return self._finds_full and self._bucket.is_full

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        payload = b"".join(parts)

        def act() -> None:
            if self.other is None:
                self._bucket.put(key, payload, if_absent=if_absent)
            else:
                self.other.put(key, payload, if_absent=if_absent, now_s=self._link.now_s)

        try:
            await self._ask(StoreOperation.PUT, key, act)
        except NoRoom:
            self._finds_full = True
            raise
        self._bucket.answered.add(key)

    async def get(self, key: str) -> bytes:
        return self._flipped(key, await self._read(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        found = (await self._read(self._mixed_up(key)))[byte_first : byte_first + byte_count]
        if len(found) != byte_count:
            raise cut_short(key, len(found), byte_first, byte_count)
        return self._flipped(key, found)

    async def head(self, key: str) -> ObjectMeta:
        found = await self._ask(StoreOperation.HEAD, key, lambda: self._find(key, is_lying=False))
        return ObjectMeta(key=key, size_bytes=len(found), modified_ms=0)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        is_lying = self._lies()

        def act() -> list[ObjectMeta]:
            other = self.other
            return self._bucket.listed(prefix, is_lying=is_lying) if other is None else other.listed(prefix)

        found = await self._ask(StoreOperation.LIST, prefix, act)
        for meta in (each for each in found if each.key > after):
            if self._lies():
                raise StoreUnavailable(f"list {prefix} broke off")
            yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        named = tuple(keys)

        def act() -> None:
            if self.other is None:
                self._bucket.delete(self._link.name, named)
            else:
                self.other.delete(named)

        await self._ask(StoreOperation.DELETE, f"{len(named)}: {named[0] if named else ''}", act, named)

    async def server_time_ms(self) -> int | None:
        return await self._ask(StoreOperation.TIME, "", self._bucket.now_ms) if self._bucket.has_clock else None

    async def close(self) -> None:
        """Nothing is held open."""

    def _lies(self) -> bool:
        return self.lie_chance > 0 and self._chance.random() < self.lie_chance

    def _find(self, key: str, *, is_lying: bool) -> bytes:
        return self._bucket.find(key, is_lying=is_lying) if self.other is None else self.other.find(key)

    async def _read(self, key: str) -> bytes:
        is_lying = self._lies()
        found = await self._ask(StoreOperation.GET, key, lambda: self._find(key, is_lying=is_lying))
        if self._lies():
            raise StoreUnavailable(f"{key} broke off")
        return found

    def _mixed_up(self, key: str) -> str:
        """Another intake object of the same size, now and then."""
        objects = self._bucket.objects
        if not self.mix_up_chance or key not in objects or self._chance.random() >= self.mix_up_chance:
            return key
        size = len(objects[key].payload)
        others = [other for other in objects if other.startswith(INTAKE_PREFIX) and len(objects[other].payload) == size]
        return self._chance.choice(others) if key in others else key

    def _flipped(self, key: str, found: bytes) -> bytes:
        if not self.flip_chance or not is_archive_file(key) or self._chance.random() >= self.flip_chance:
            return found
        bit = int(self._chance.random() * len(found) * 8)
        damaged = bytearray(found)
        damaged[bit // 8] ^= 1 << bit % 8
        return bytes(damaged)

    async def _ask(self, operation: StoreOperation, subject: str, act: Callable[[], T], keys: Sequence[str] = ()) -> T:
        def act_if_allowed() -> T:
            if operation in self.denied:
                denied = StoreDenied(f"{operation} {subject}: AccessDenied")
                # S3 answers deletions key by key.
                raise ObjectsNotDeleted(dict.fromkeys(keys, denied)) if keys else denied
            return act()

        try:
            return await self._link.call(f"{operation} {subject}".rstrip(), act_if_allowed)
        except Unanswered as error:
            raise StoreUnavailable(str(error)) from error


def is_archive_file(key: str) -> bool:
    """Whether an object is a data file of a table, which carries checksums."""
    return key.startswith(LAKE_PREFIX) and key.endswith(".parquet")
