"""The identity of ledger and bucket: each names the other, or the agent does not start (safety rule S9).

`cluster.json` is put once, by a conditional put, before the ledger's first entry; only a recovery changes it. The
ledger takes the bucket's id from it once (`Ledger.claim_bucket`). Where the two do not match, both are left exactly as
they are, and the error says what to do. A running agent goes on checking (`BucketWatch`).
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
    "that name is new and empty; "
)


class AnotherBucket(LedgerCorrupt):
    """The bucket is not this ledger's, or not any more: nothing may be written into it."""


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `cluster.json`. Without a `bucket_id` no ledger names the bucket."""

    cluster_id: str
    incarnation: int
    format_version: int = 1
    bucket_id: str = ""
    checksum: str = ""
    """The checksum of the other fields, in hexadecimal digits. Older versions write none, and ignore it."""

    @property
    def identity(self) -> LedgerIdentity:
        """The identity of the ledger that the bucket belongs to."""
        return LedgerIdentity(cluster_id=self.cluster_id, incarnation=self.incarnation, bucket_id=self.bucket_id)

    @property
    def is_whole(self) -> bool:
        """Whether the checksum matches, or there is none."""
        return self.checksum in ("", self.checksum_of_fields())

    def checksum_of_fields(self) -> str:
        """The checksum of the values, so that white space, the order of fields, and newer fields do not matter."""
        fields = msgspec.json.encode((self.cluster_id, self.incarnation, self.format_version, self.bucket_id))
        return hashlib.blake2b(fields, digest_size=_CHECKSUM_BYTES).hexdigest()

    @staticmethod
    def of(identity: LedgerIdentity) -> "ClusterFile":
        """The file, with its checksum, of the bucket of a ledger."""
        file = ClusterFile(
            cluster_id=identity.cluster_id, incarnation=identity.incarnation, bucket_id=identity.bucket_id
        )
        return msgspec.structs.replace(file, checksum=file.checksum_of_fields())


_decoder = JsonDecoder(ClusterFile)


async def claim_bucket(store: ObjectStore, ledger: Ledger, *, new_bucket_id: str) -> LedgerIdentity:
    """Let a new ledger and an empty bucket name each other, or check that they do; returns the ledger's identity.

    `new_bucket_id` is for a bucket without one. Raises `LedgerCorrupt` as `check_bucket` does, and for a bucket that is
    not the ledger's.
    """
    identity, head = await ledger.identity(), await ledger.head()
    # The bucket names the ledger first, so that a bucket that a ledger names always has its file. After a crash in
    # between the next start goes on here.
    file = await check_bucket(store, identity, appends_count=head.appends_count, new_bucket_id=new_bucket_id)
    if not file.bucket_id:
        return identity
    # Once: of two agents that start on one new ledger with two new buckets, the second one's bucket is another.
    identity = await ledger.claim_bucket(file.bucket_id)
    _check_id(identity, file)
    return identity


async def check_bucket(
    store: ObjectStore, identity: LedgerIdentity, *, appends_count: int = 0, new_bucket_id: str = ""
) -> ClusterFile:
    """Claim an empty bucket for the ledger's cluster, or check that it is the cluster's; returns its `cluster.json`.

    `appends_count` is that of the ledger's head. Raises `LedgerCorrupt` where the two do not belong together: give the
    agent the right bucket or ledger.
    """
    # A ledger that has entries or names a bucket has its bucket already: an empty one is another, or lost its objects.
    if appends_count == 0 and not identity.bucket_id:
        claim = ClusterFile.of(replace(identity, bucket_id=new_bucket_id))
        try:
            await store.put(CLUSTER_KEY, [msgspec.json.encode(claim)], if_absent=True)
        except ObjectExists:
            pass
        else:
            return claim
    try:
        file = await read_own_cluster_file(store, identity)
    except LedgerCorrupt as error:
        if not identity.bucket_id:
            raise
        raise LedgerCorrupt(f"{error}; for this ledger it would be {_content(identity)}") from error
    return check_named(identity, file, is_new=appends_count == 0)


def check_named(identity: LedgerIdentity, file: ClusterFile | None, *, is_new: bool) -> ClusterFile:
    """Return the bucket's file if it names the ledger. `is_new`: the ledger has no entries.

    Raises `LedgerCorrupt` as `check_bucket` does.
    """
    if file is None:
        raise _unnamed(identity, is_new=is_new)
    if not file.identity.is_incarnation_of(identity):
        raise _of_another(identity, file, is_new=is_new)
    if identity.bucket_id:
        _check_id(identity, file)
    return file


async def read_cluster_file(store: ObjectStore) -> ClusterFile | None:
    """The bucket's `cluster.json`; None where it is missing. Raises `LedgerCorrupt` where it is damaged (S20)."""
    try:
        file = _decoder.decode(await store.get(CLUSTER_KEY))
    except ObjectMissing:
        return None
    except (ObjectDamaged, Undecodable) as error:
        raise _damaged(str(error)) from error
    if not file.is_whole:  # else one flipped bit could name another cluster
        raise _damaged("its checksum does not match its fields")
    return file


async def read_own_cluster_file(store: ObjectStore, identity: LedgerIdentity) -> ClusterFile | None:
    """The bucket's `cluster.json`, where one without a checksum is compared with the identity of the ledger, too."""
    file = await read_cluster_file(store)
    if file is not None:
        check_undamaged(identity, file)
    return file


def _damaged(reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"{CLUSTER_KEY} in the bucket is damaged ({reason}): {UNNAMED}")


def check_undamaged(identity: LedgerIdentity, file: ClusterFile) -> None:
    """Raise `LedgerCorrupt` where a file without a checksum differs from the ledger's names as by one flipped bit.

    That is one character of an id, or the name of the bucket's field. Ids are random, so no other cluster or bucket has
    an id so near. Another incarnation is always believed: it is all that a recovery changes.
    """
    if file.checksum or file.incarnation != identity.incarnation or is_named(identity, file):
        return
    own = msgspec.structs.replace(file, cluster_id=identity.cluster_id, bucket_id=identity.bucket_id or file.bucket_id)
    is_field_lost = not file.bucket_id and file.cluster_id == identity.cluster_id
    if is_field_lost or _is_one_byte_away(msgspec.json.encode(file), msgspec.json.encode(own)):
        raise _damaged("it has no checksum, and one character of it differs from what this ledger's bucket says")


def _is_one_byte_away(one: bytes, other: bytes) -> bool:
    return len(one) == len(other) and sum(map(ne, one, other)) == 1


def is_named(identity: LedgerIdentity, file: ClusterFile) -> bool:
    """Whether the bucket's file names this ledger, and the bucket is the one that the ledger names."""
    is_id_right = not identity.bucket_id or file.bucket_id == identity.bucket_id
    return file.identity.is_incarnation_of(identity) and is_id_right


def _check_id(identity: LedgerIdentity, file: ClusterFile) -> None:
    """Raise `AnotherBucket` where the ledger names another bucket."""
    if identity.bucket_id != file.bucket_id:
        raise AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id or 'without an id'}"
            f", and this is the bucket {file.bucket_id or 'without an id'}, which names the same cluster: were two "
            "agents started on one new ledger with different buckets? Give all of them the same --store. If nothing "
            f"was written into this bucket, delete {CLUSTER_KEY} from it, and it is free ({DISAGREEING}); nothing was "
            "changed"
        )


def _unnamed(identity: LedgerIdentity, *, is_new: bool) -> LedgerCorrupt:
    if is_new:
        return AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id}, and this one has "
            f"no {CLUSTER_KEY}: give all agents the same --store. If the ledger was begun by mistake and is empty, "
            "begin with another one (another /CLUSTER in --ledger, or another --data-dir) "
            f"({DISAGREEING}); nothing was changed"
        )
    bucket = f" ({identity.bucket_id})" if identity.bucket_id else ""
    restoring = (
        f"; where only {CLUSTER_KEY} is gone from the bucket, it would be {_content(identity)} ({UNNAMED})"
        if identity.bucket_id
        else ""
    )
    return AnotherBucket(
        f"the ledger of cluster {identity.cluster_id} is in use, but its bucket has no {CLUSTER_KEY}: the objects that "
        "its entries refer to are in another bucket, or were deleted. Give all agents the same --store, that of the "
        f"ledger's bucket{bucket}, or begin with a new ledger (another --data-dir) ({DISAGREEING}){restoring}; "
        "nothing was changed"
    )


def _content(identity: LedgerIdentity) -> str:
    """The content of `cluster.json` in the bucket of this ledger, for an operator to put back."""
    return msgspec.json.encode(ClusterFile.of(identity)).decode()


def _of_another(identity: LedgerIdentity, file: ClusterFile, *, is_new: bool) -> LedgerCorrupt:
    mistyped = MISTYPED if is_new and file.cluster_id != identity.cluster_id else ""
    return AnotherBucket(
        f"{mistyped}the bucket belongs to cluster {file.cluster_id}, incarnation {file.incarnation}, but the ledger "
        f"to {identity.cluster_id}, incarnation {identity.incarnation}: give the agent the ledger and the bucket of "
        f"one cluster. {REMEDY}"
    )


def without_ledger(ledger_url: str, file: ClusterFile) -> AnotherBucket:
    """The error where the embedded ledger is missing or empty, and the bucket has a cluster."""
    return AnotherBucket(
        f"there is no ledger {ledger_url}, and the bucket belongs to cluster {file.cluster_id}, incarnation "
        f"{file.incarnation}: is the ledger's name right? The last part of --ledger, or --data-dir, may be mistyped. "
        "If the ledger is lost, stop all agents and run `penstock recover`; nothing was changed"
    )


class BucketWatch:
    """Checks while an agent runs that its ledger and bucket still belong together.

    The bucket may be recovered under another ledger meanwhile, or the ledger restored from a backup. A backup that is
    younger than everything that this agent has read of the ledger shows itself nowhere else.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        ledger: Ledger,
        identity: LedgerIdentity,
        position: Callable[[], Position],
        clock: Clock,
    ) -> None:
        """`position` returns the position that the agent has applied. While it stands still a check is one GET; else
        three LISTs are added.
        """
        self._store = store
        self._ledger = ledger
        self._identity = identity
        self._position = position
        self._clock = clock
        self._is_doubt_logged = False

    async def run(self) -> None:
        """Check every BUCKET_CHECK_INTERVAL_S. Runs until it is cancelled; an outage is waited out."""
        position_checked = self._position()
        while True:
            await self._clock.sleep(BUCKET_CHECK_INTERVAL_S)
            position = self._position()
            try:
                if position == position_checked:
                    await self._is_named()
                else:
                    await self.is_ours()
            except (StoreError, LedgerUnavailable) as error:
                log.warning(
                    "the owner of the bucket could not be checked; the agent tries again", extra={"reason": str(error)}
                )
            else:
                position_checked = position

    async def is_ours(self) -> bool:
        """Whether the bucket names this ledger. False where its name cannot be read: then nothing may be deleted.

        Raises `LedgerCorrupt` where the bucket has objects of a longer ledger than this one is now, and `AnotherBucket`
        where it names another ledger; the agent has to end then (safety rule S9). Raises `StoreError` and
        `LedgerUnavailable`.
        """
        is_named = await self._is_named()
        await check_reached(self._store, self._ledger, is_recovery_foreign=True)
        return is_named

    async def _is_named(self) -> bool:
        try:
            file = await read_own_cluster_file(self._store, self._identity)
        except LedgerCorrupt as error:
            return self._doubt(str(error))
        if file is None:
            return self._doubt(f"{CLUSTER_KEY} is gone from the bucket")
        self._is_doubt_logged = False
        own = self._identity
        if not is_named(own, file):
            # The other ledger decides what is garbage now: records that this agent acknowledges would be deleted.
            raise AnotherBucket(
                f"the bucket of this agent belongs to cluster {file.cluster_id}, incarnation {file.incarnation} now, "
                f"and the agent's ledger to {own.cluster_id}, incarnation {own.incarnation}: was the cluster "
                "recovered under another ledger's name while agents ran? This agent ends, as the other ledger would "
                'not know the records that it acknowledges. See docs/operations/recovery.md, "The bucket was '
                "recovered under another ledger's name\""
            )
        return True

    def _doubt(self, reason: str) -> bool:
        if not self._is_doubt_logged:
            log.error(
                "the bucket names no owner: no garbage is deleted from it, no agent can be started on it, and "
                f"soon nothing is acknowledged into it, until {CLUSTER_KEY} names this cluster again ({UNNAMED})",
                extra={"reason": reason, "content": msgspec.json.encode(ClusterFile.of(self._identity)).decode()},
            )
        self._is_doubt_logged = True
        return False


async def check_reached(store: ObjectStore, ledger: Ledger, *, is_recovery_foreign: bool = False) -> None:
    """Return if the ledger reaches every position that objects of the bucket name. Raises `LedgerCorrupt` otherwise.

    A ledger that ends before one of them was restored from a backup. The records behind it are lost to it while their
    objects are in the bucket, and the garbage collector would delete these as leftovers of sessions.
    `is_recovery_foreign`: objects of a later incarnation are of a recovery under another ledger's name, and do not
    count; `cluster.json` names its ledger once it has ended.
    """
    hint = await ledger.head()
    keys: list[str] = []
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        keys += [meta.key async for meta in store.list(prefix)]
    # Keys sort by session, and a session is a position: objects of sessions behind the hint are few.
    keys += [
        meta.key async for meta in store.list(INTAKE_PREFIX, after=intake_session_prefix(SessionId(hint.position)))
    ]
    # After the listings: an object's position was in the ledger before its put.
    head = await ledger.head()
    for key in keys:
        position = position_of_key(key) or session_of_key(key) or Position(0)
        is_later = position >> POSITION_REVISION_BITS > head.position >> POSITION_REVISION_BITS
        if position > head.position and not (is_later and is_recovery_foreign):
            raise LedgerCorrupt(
                f"the bucket has {key}, written when the ledger was at {position} or further, but the ledger ends at "
                f"{head.position}: it is an older copy of the cluster's ledger. {REMEDY}"
            )
