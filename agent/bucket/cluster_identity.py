"""Holds ledger and bucket together: each names the other, or the agent does not start (safety rule S9).

Rule: `cluster.json` is written once, by a conditional put, before the ledger's first entry, and changed by a recovery
alone; the ledger takes the bucket's id from it once (`Ledger.claim_bucket`), so of two agents that start on one new
ledger with two new buckets the second one is refused. A ledger and a bucket that name others, or different incarnations
of one cluster, are left exactly as they are, and so is a bucket without a name where the ledger has entries: the
objects that they refer to lie elsewhere. So is a ledger that has not come as far as the bucket says it had: it was
restored from a backup, and what followed is lost to it, while its objects are there. Of what was acknowledged then the
garbage collector would see leftovers of sessions.

What `cluster.json` says is believed where its checksum matches (safety rule S20): damage names no other cluster. A file
of before has none; it is damaged where its ids differ from the ledger's as one flipped bit makes them.

An agent that runs goes on looking (`BucketWatch`): its bucket may be recovered under another ledger meanwhile, or the
ledger restored from a backup that is younger than all that this agent has read of it, so that it notices nothing else.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from operator import ne
from typing import Final

import msgspec

from agent.runtime.clock import Clock
from coordinator.ledger.port import POSITION_REVISION_BITS, Ledger, LedgerCorrupt, LedgerIdentity, LedgerUnavailable
from protocol.decoding import JsonDecoder, Undecodable
from protocol.limits import BUCKET_CHECK_INTERVAL_S
from protocol.types import Position, SessionId
from storage.object_store import ObjectDamaged, ObjectExists, ObjectMissing, ObjectStore, StoreError
from storage.refs import (
    INTAKE_PREFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    intake_session_prefix,
    position_of_key,
    session_of_key,
)

log = logging.getLogger(__name__)

CLUSTER_KEY = "cluster.json"
_CHECKSUM_BYTES: Final = 8
REMEDY = (
    "If etcd or its data was wiped, or restored from a backup, stop all agents and run `penstock recover`: it brings "
    'back what the bucket holds (docs/operations/recovery.md, "etcd was wiped or restored from a backup"); nothing was '
    "changed"
)
DISAGREEING = 'docs/operations/bucket.md, "Ledger and bucket disagree"'
UNNAMED = 'docs/operations/bucket.md, "cluster.json is damaged or missing"'
MISTYPED = (
    "is the ledger's name right? The last part of --ledger, /CLUSTER, or --data-dir may be mistyped: the ledger of "
    "that name is new and holds nothing; "
)


class AnotherBucket(LedgerCorrupt):
    """The bucket is not, or not any more, the one of this ledger: nothing may be written into it either."""


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """The bucket's record of the cluster and of itself. Without a `bucket_id` no ledger names the bucket."""

    cluster_id: str
    incarnation: int
    format_version: int = 1
    bucket_id: str = ""
    checksum: str = ""
    """The checksum of the other fields, in hexadecimal digits. Files of before have none, and programs of before pass
    over it."""

    @property
    def identity(self) -> LedgerIdentity:
        """That of the ledger which the bucket belongs to."""
        return LedgerIdentity(cluster_id=self.cluster_id, incarnation=self.incarnation, bucket_id=self.bucket_id)

    @property
    def is_whole(self) -> bool:
        """Whether the checksum matches, or there is none."""
        return self.checksum in ("", self.checksum_of_fields())

    def checksum_of_fields(self) -> str:
        """The checksum of these fields' values, so that white space, their order, and fields of later programs do not
        matter."""
        fields = msgspec.json.encode((self.cluster_id, self.incarnation, self.format_version, self.bucket_id))
        return hashlib.blake2b(fields, digest_size=_CHECKSUM_BYTES).hexdigest()

    @staticmethod
    def of(identity: LedgerIdentity) -> "ClusterFile":
        named = ClusterFile(
            cluster_id=identity.cluster_id, incarnation=identity.incarnation, bucket_id=identity.bucket_id
        )
        return msgspec.structs.replace(named, checksum=named.checksum_of_fields())


_decoder = JsonDecoder(ClusterFile)


async def claim_bucket(store: ObjectStore, ledger: Ledger, *, new_bucket_id: str) -> LedgerIdentity:
    """Let a new ledger and an empty bucket name each other, or find that they do, and return the ledger's identity.

    First the bucket names the ledger, then the ledger the bucket: so a bucket that a ledger names has its name. A crash
    in between leaves the first half, which is found and gone on with. `new_bucket_id`: of a bucket that has none.
    Raises `LedgerCorrupt` as `check_bucket` does, and for a bucket that is not the one of the ledger.
    """
    identity, head = await ledger.identity(), await ledger.head()
    found = await check_bucket(store, identity, appends_count=head.appends_count, new_bucket_id=new_bucket_id)
    if not found.bucket_id:
        return identity
    identity = await ledger.claim_bucket(found.bucket_id)
    _check_id(identity, found)
    return identity


async def check_bucket(
    store: ObjectStore, identity: LedgerIdentity, *, appends_count: int = 0, new_bucket_id: str = ""
) -> ClusterFile:
    """Claim an empty bucket for the ledger's cluster, or find that it is the same one; return what it says.

    `appends_count`: of the ledger's head. A ledger that holds entries, or names a bucket, has one already, so an empty
    one is either not its own or has lost everything: it is not claimed. Raises `LedgerCorrupt` where the two do not
    belong together: point the agent at the right bucket or ledger.
    """
    if appends_count == 0 and not identity.bucket_id:
        claim = ClusterFile.of(replace(identity, bucket_id=new_bucket_id))
        try:
            await store.put(CLUSTER_KEY, [msgspec.json.encode(claim)], if_absent=True)
        except ObjectExists:
            pass
        else:
            return claim
    try:
        found = await read_own_cluster_file(store, identity)
    except LedgerCorrupt as error:
        if not identity.bucket_id:
            raise
        raise LedgerCorrupt(f"{error}; for this ledger it would be {_content(identity)}") from error
    return check_named(identity, found, is_new=appends_count == 0)


def check_named(identity: LedgerIdentity, found: ClusterFile | None, *, is_new: bool) -> ClusterFile:
    """Pass if what the bucket says of itself names the ledger, which is new where it has no entries.

    Raises `LedgerCorrupt` as `check_bucket` does.
    """
    if found is None:
        raise _unnamed(identity, is_new=is_new)
    if not found.identity.is_incarnation_of(identity):
        raise _of_another(identity, found, is_new=is_new)
    if identity.bucket_id:
        _check_id(identity, found)
    return found


async def read_cluster_file(store: ObjectStore) -> ClusterFile | None:
    """The bucket's record of itself; None where it has none. Raises `LedgerCorrupt` if that cannot be read."""
    try:
        found = _decoder.decode(await store.get(CLUSTER_KEY))
    except ObjectMissing:
        return None
    except (ObjectDamaged, Undecodable) as error:
        raise _damaged(str(error)) from error
    if not found.is_whole:
        raise _damaged("its checksum does not match what it says")
    return found


async def read_own_cluster_file(store: ObjectStore, identity: LedgerIdentity) -> ClusterFile | None:
    """The same, compared with the identity of the ledger, which tells damage from the file of another cluster."""
    found = await read_cluster_file(store)
    if found is not None:
        check_undamaged(identity, found)
    return found


def _damaged(reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"{CLUSTER_KEY} in the bucket is damaged ({reason}): {UNNAMED}")


def check_undamaged(identity: LedgerIdentity, found: ClusterFile) -> None:
    """Raise `LedgerCorrupt` where a file without a checksum differs from the ledger's names as by one flipped bit.

    That is one character of an id, or the name of the bucket's field. Ids are random, so no other cluster and no other
    bucket has one so near. Another incarnation is always believed: it is all that a recovery changes.
    """
    if found.checksum or found.incarnation != identity.incarnation or is_named(identity, found):
        return
    own = msgspec.structs.replace(
        found, cluster_id=identity.cluster_id, bucket_id=identity.bucket_id or found.bucket_id
    )
    is_field_lost = not found.bucket_id and found.cluster_id == identity.cluster_id
    if is_field_lost or _is_one_byte_away(msgspec.json.encode(found), msgspec.json.encode(own)):
        raise _damaged("it has no checksum, and one character of it differs from what this ledger's bucket says")


def _is_one_byte_away(one: bytes, other: bytes) -> bool:
    return len(one) == len(other) and sum(map(ne, one, other)) == 1


def is_named(identity: LedgerIdentity, found: ClusterFile) -> bool:
    """Whether the bucket says that it is that of the ledger which an agent has open."""
    is_id_right = not identity.bucket_id or found.bucket_id == identity.bucket_id
    return found.identity.is_incarnation_of(identity) and is_id_right


def _check_id(identity: LedgerIdentity, found: ClusterFile) -> None:
    """Raise where the ledger names another bucket."""
    if identity.bucket_id != found.bucket_id:
        raise AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id or 'of nobody yet'}"
            f", and this is the bucket {found.bucket_id or 'without an id'}, which names the same cluster: were two "
            "agents started on one new ledger with different buckets? Give all of them the same --store. If nothing "
            f"was written into this one, {CLUSTER_KEY} can be deleted from it, and it is free ({DISAGREEING}); nothing "
            "was changed"
        )


def _unnamed(identity: LedgerIdentity, *, is_new: bool) -> LedgerCorrupt:
    if is_new:
        return AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id}, and this one has "
            f"no {CLUSTER_KEY}: give all agents the same --store. If the ledger was begun by mistake and holds "
            "nothing, begin with another one (another /CLUSTER in --ledger, or another --data-dir) "
            f"({DISAGREEING}); nothing was changed"
        )
    named = f" ({identity.bucket_id})" if identity.bucket_id else ""
    alone = (
        f"; where the objects are there and {CLUSTER_KEY} alone is gone, it would be {_content(identity)} ({UNNAMED})"
        if identity.bucket_id
        else ""
    )
    return AnotherBucket(
        f"the ledger of cluster {identity.cluster_id} is in use, but its bucket has no {CLUSTER_KEY}: what the "
        "entries refer to lies in another bucket, or was deleted. Give all agents the same --store, that of the bucket "
        f"which the ledger has{named}, or begin with a new ledger (another --data-dir) ({DISAGREEING}){alone}; "
        "nothing was changed"
    )


def _content(identity: LedgerIdentity) -> str:
    """The object that belongs into the bucket of this ledger, for a person to put back."""
    return msgspec.json.encode(ClusterFile.of(identity)).decode()


def _of_another(identity: LedgerIdentity, found: ClusterFile, *, is_new: bool) -> LedgerCorrupt:
    mistyped = MISTYPED if is_new and found.cluster_id != identity.cluster_id else ""
    return AnotherBucket(
        f"{mistyped}the bucket belongs to cluster {found.cluster_id}, incarnation {found.incarnation}, but the ledger "
        f"to {identity.cluster_id}, incarnation {identity.incarnation}: give the agent the ledger and the bucket of "
        f"one cluster. {REMEDY}"
    )


def without_ledger(ledger_url: str, found: ClusterFile) -> AnotherBucket:
    """The fault where the embedded ledger is missing or empty, and the bucket has a cluster."""
    return AnotherBucket(
        f"there is no ledger {ledger_url}, and the bucket belongs to cluster {found.cluster_id}, incarnation "
        f"{found.incarnation}: is the ledger's name right? The last part of --ledger, or --data-dir, may be mistyped. "
        "If the ledger is lost, stop all agents and run `penstock recover`; nothing was changed"
    )


class BucketWatch:
    """Whether the bucket still belongs to the ledger that an agent has open."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        ledger: Ledger,
        identity: LedgerIdentity,
        position: Callable[[], Position],
        clock: Clock,
    ) -> None:
        """`position`: how far the agent has read. While that stands still a look is one GET, and three LISTs else."""
        self._store = store
        self._ledger = ledger
        self._identity = identity
        self._position = position
        self._clock = clock
        self._is_doubt_logged = False

    async def run(self) -> None:
        """Look again and again, for ever; a store or a ledger that is away is asked again the next time."""
        looked_at = self._position()
        while True:
            await self._clock.sleep(BUCKET_CHECK_INTERVAL_S)
            position = self._position()
            try:
                if position == looked_at:
                    await self._is_named()
                else:
                    await self.is_ours()
            except (StoreError, LedgerUnavailable) as error:
                log.warning("could not look whose bucket it is", extra={"reason": str(error)})
            else:
                looked_at = position

    async def is_ours(self) -> bool:
        """Whether the bucket says so. False where it says nothing that can be read: then nothing may be deleted, and
        somebody has to look, but what is there can be served.

        Raises `LedgerCorrupt` where it was written by agents that had come further than the ledger now is, and
        `AnotherBucket` where it names another ledger, which judges what is garbage from now on: what this agent
        acknowledged after that would be lost, so it has to end (safety rule S9). Raises `StoreError` and
        `LedgerUnavailable`.
        """
        is_named = await self._is_named()
        await check_reached(self._store, self._ledger, is_recovery_foreign=True)
        return is_named

    async def _is_named(self) -> bool:
        try:
            found = await read_own_cluster_file(self._store, self._identity)
        except LedgerCorrupt as error:
            return self._doubt(str(error))
        if found is None:
            return self._doubt(f"{CLUSTER_KEY} is gone from the bucket")
        self._is_doubt_logged = False
        mine = self._identity
        if not is_named(mine, found):
            raise AnotherBucket(
                f"the bucket of this agent belongs to cluster {found.cluster_id}, incarnation {found.incarnation} now, "
                f"and the agent's ledger to {mine.cluster_id}, incarnation {mine.incarnation}: was the cluster "
                "recovered under another ledger's name while agents ran? This agent ends, for what it acknowledged "
                'the other ledger would not know. See docs/operations/recovery.md, "The bucket was recovered under '
                "another ledger's name\""
            )
        return True

    def _doubt(self, reason: str) -> bool:
        if not self._is_doubt_logged:
            log.error(
                "the bucket names no owner: no garbage is deleted from it, no agent can be started on it, and "
                f"soon nothing is acknowledged into it, until {CLUSTER_KEY} is back as it was ({UNNAMED})",
                extra={"reason": reason, "content": msgspec.json.encode(ClusterFile.of(self._identity)).decode()},
            )
        self._is_doubt_logged = True
        return False


async def check_reached(store: ObjectStore, ledger: Ledger, *, is_recovery_foreign: bool = False) -> None:
    """Pass if the ledger has come as far as the bucket says. Raises `LedgerCorrupt` where it was further once.

    The bucket is listed first, and the head read then: whatever is in the bucket was in the ledger before, or is of a
    recovery that began a later incarnation. `is_recovery_foreign`: that one was under another ledger's name, or this
    one would say so itself; then `cluster.json` alone says when it has come to its end.
    """
    hint = await ledger.head()
    keys: list[str] = []
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        keys += [meta.key async for meta in store.list(prefix)]
    # Keys sort by session, and a session is a position: what younger ones wrote, which is little.
    keys += [
        meta.key async for meta in store.list(INTAKE_PREFIX, after=intake_session_prefix(SessionId(hint.position)))
    ]
    head = await ledger.head()
    for key in keys:
        position = position_of_key(key) or session_of_key(key) or Position(0)
        is_later = position >> POSITION_REVISION_BITS > head.position >> POSITION_REVISION_BITS
        if position > head.position and not (is_later and is_recovery_foreign):
            raise LedgerCorrupt(
                f"the bucket holds {key}, written when the ledger was at {position} or further, but the ledger ends at "
                f"{head.position}: it is an older copy of the cluster's ledger. {REMEDY}"
            )
