"""The object `cluster.json`, by which a bucket names the ledger that it belongs to (safety rules S9 and S20).

It has the ids of cluster and bucket, the incarnation, and a checksum. A damaged file is an error: it never passes for
another cluster's, and never for a missing one. `agent.bucket.cluster_identity` compares it with the ledger.
"""

import hashlib
from operator import ne
from typing import Final

import msgspec

from coordinator.ledger.port import LedgerCorrupt, LedgerIdentity
from protocol.decoding import JsonDecoder, Undecodable
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore

CLUSTER_KEY = "cluster.json"
_CHECKSUM_BYTES: Final = 8
REMEDY_CLUSTER_FILE = 'docs/operations/bucket.md, "cluster.json is damaged or missing"'


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
    def is_intact(self) -> bool:
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


async def read_cluster_file(store: ObjectStore) -> ClusterFile | None:
    """The bucket's `cluster.json`; None where it is missing. Raises `LedgerCorrupt` where it is damaged (S20)."""
    try:
        file = _decoder.decode(await store.get(CLUSTER_KEY))
    except ObjectMissing:
        return None
    except (ObjectDamaged, Undecodable) as error:
        raise _damage(str(error)) from error
    if not file.is_intact:  # else one flipped bit could name another cluster
        raise _damage("its checksum does not match its fields")
    return file


async def read_own_cluster_file(store: ObjectStore, identity: LedgerIdentity) -> ClusterFile | None:
    """The bucket's `cluster.json`, where one without a checksum is compared with the identity of the ledger, too."""
    file = await read_cluster_file(store)
    if file is not None:
        check_undamaged(identity, file)
    return file


def _damage(reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"{CLUSTER_KEY} in the bucket is damaged ({reason}): {REMEDY_CLUSTER_FILE}")


def check_undamaged(identity: LedgerIdentity, file: ClusterFile) -> None:
    """Raise `LedgerCorrupt` where a file without a checksum differs from the ledger's names as by one flipped bit.

    That is one character of an id, or the name of the bucket's field. Ids are random, so no other cluster or bucket has
    an id so near. Another incarnation is always believed: it is all that a recovery changes.
    """
    if file.checksum or file.incarnation != identity.incarnation or is_match(identity, file):
        return
    own = msgspec.structs.replace(file, cluster_id=identity.cluster_id, bucket_id=identity.bucket_id or file.bucket_id)
    is_field_lost = not file.bucket_id and file.cluster_id == identity.cluster_id
    if is_field_lost or _is_one_byte_away(msgspec.json.encode(file), msgspec.json.encode(own)):
        raise _damage("it has no checksum, and one character of it differs from what this ledger's bucket says")


def _is_one_byte_away(one: bytes, other: bytes) -> bool:
    return len(one) == len(other) and sum(map(ne, one, other)) == 1


def is_match(identity: LedgerIdentity, file: ClusterFile) -> bool:
    """Whether ledger and bucket belong together: the file names the ledger, and the ledger names no other bucket."""
    is_id_right = not identity.bucket_id or file.bucket_id == identity.bucket_id
    return file.identity.is_incarnation_of(identity) and is_id_right


def expected_content(identity: LedgerIdentity) -> str:
    """The content of `cluster.json` in the bucket of this ledger, for an operator to put back."""
    return msgspec.json.encode(ClusterFile.of(identity)).decode()
