"""Names and values under a cluster's prefix in etcd.

Rule: pure; `coordinator.ledger.etcd.ledger` reads and writes them. Layout:

    /penstock/<cluster>/meta                      cluster id, incarnation, bucket id, and whether it is fenced
    /penstock/<cluster>/sessions/<name>           leased; its create_revision is the session
    /penstock/<cluster>/ledger/<session>/<n>      an entry; both numbers 16 hexadecimal digits
    /penstock/<cluster>/head                      put by every append: position by mod_revision, appends by version;
                                                  its value names the append's last entry
    /penstock/<cluster>/snapshot                  the pointer
    /penstock/<cluster>/trimmed                   the position up to which entries were dropped
    /penstock/<cluster>/doctor                    put and deleted by `penstock doctor`

Sessions and positions in keys and values are the ledger's, which count the incarnation (`log.position_first`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from coordinator.ledger.port import UNREADABLE, LedgerCorrupt, LedgerIdentity, SnapshotPointer
from protocol.decoding import JsonDecoder, Undecodable, decode_number, decode_text
from protocol.types import Position, SessionId

_T = TypeVar("_T")
ROOT = "/penstock"


class _Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    cluster_id: str
    incarnation: int
    is_fenced: bool = False
    bucket_id: str = ""


class _Pointer(msgspec.Struct, frozen=True):
    position: int
    object_key: str
    appends_count: int
    digest: bytes


_meta_decoder = JsonDecoder(_Meta)
_pointer_decoder = JsonDecoder(_Pointer)


@dataclass(frozen=True, slots=True)
class EtcdKeys:
    """The keys of one cluster."""

    cluster: str

    @property
    def prefix(self) -> bytes:
        return f"{ROOT}/{self.cluster}/".encode()

    @property
    def meta(self) -> bytes:
        return self.prefix + b"meta"

    @property
    def head(self) -> bytes:
        return self.prefix + b"head"

    @property
    def snapshot(self) -> bytes:
        return self.prefix + b"snapshot"

    @property
    def trimmed(self) -> bytes:
        return self.prefix + b"trimmed"

    @property
    def doctor(self) -> bytes:
        return self.prefix + b"doctor"

    @property
    def entries(self) -> bytes:
        return self.prefix + b"ledger/"

    @property
    def sessions(self) -> bytes:
        return self.prefix + b"sessions/"

    def session(self, name: str) -> bytes:
        return self.sessions + name.encode()

    def entries_of(self, session: SessionId) -> bytes:
        """The prefix of a session's entries."""
        return self.entries + f"{session:016x}/".encode()

    def entry(self, session: SessionId, number: int) -> bytes:
        return self.entries + f"{session:016x}/{number:016x}".encode()

    def runs(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """The entries of `keys`, which are in order, as ranges that hold no other. A damaged key is one by itself."""
        runs: list[tuple[bytes, bytes]] = []
        for key in keys:
            try:
                session, number = self.read_entry(key)
                end = self.entry(session, number + 1)
            except LedgerCorrupt:
                end = key + b"\0"
            if runs and runs[-1][1] == key:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((key, end))
        return runs

    def read_entry(self, key: bytes) -> tuple[SessionId, int]:
        """Session and number of an entry's key. Raises `LedgerCorrupt`, also where `entry` writes them otherwise."""
        digits, _, number_digits = key.removeprefix(self.entries).partition(b"/")
        try:
            session, number = SessionId(decode_number(digits, base=16)), decode_number(number_digits, base=16)
        except Undecodable as error:
            raise _strange(key, "entry of a ledger") from error
        if self.entry(session, number) != key:
            raise _strange(key, "entry of a ledger")
        return session, number

    def read_session_name(self, key: bytes) -> str:
        """The name in a session's key. Raises `LedgerCorrupt`."""
        try:
            return decode_text(key.removeprefix(self.sessions))
        except Undecodable as error:
            raise _strange(key, "session of an agent") from error


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def write_meta(identity: LedgerIdentity, *, is_fenced: bool = False) -> bytes:
    """The key's whole value: transactions compare it."""
    return msgspec.json.encode(
        _Meta(
            cluster_id=identity.cluster_id,
            incarnation=identity.incarnation,
            is_fenced=is_fenced,
            bucket_id=identity.bucket_id,
        )
    )


def read_meta(value: bytes) -> LedgerIdentity:
    meta = _decode(_meta_decoder, value, "meta")
    return LedgerIdentity(cluster_id=meta.cluster_id, incarnation=meta.incarnation, bucket_id=meta.bucket_id)


def is_fenced(value: bytes) -> bool:
    """Whether the ledger whose meta this is was closed (`Ledger.fence`)."""
    return _decode(_meta_decoder, value, "meta").is_fenced


def write_head(session: SessionId, number: int) -> bytes:
    """The head's value, for people: the last entry of the newest append."""
    return b"%x/%x" % (session, number)


def write_pointer(pointer: SnapshotPointer) -> bytes:
    return msgspec.json.encode(
        _Pointer(
            position=pointer.position,
            object_key=pointer.object_key,
            appends_count=pointer.appends_count,
            digest=pointer.digest,
        )
    )


def read_pointer(value: bytes) -> SnapshotPointer:
    pointer = _decode(_pointer_decoder, value, "snapshot")
    return SnapshotPointer(
        position=Position(pointer.position),
        object_key=pointer.object_key,
        appends_count=pointer.appends_count,
        digest=pointer.digest,
    )


def read_trimmed(value: bytes) -> Position:
    """The position up to which entries were dropped. Raises `LedgerCorrupt`."""
    try:
        return Position(decode_number(value))
    except Undecodable as error:
        raise _unreadable("trimmed", error) from error


def _decode(decoder: JsonDecoder[_T], value: bytes, name: str) -> _T:
    """The decoded value, if it encodes to the very same bytes: a field under another name is damage (S20)."""
    try:
        decoded = decoder.decode(value)
    except Undecodable as error:
        raise _unreadable(name, error) from error
    if msgspec.json.encode(decoded) != value:
        raise _unreadable(name, "it says more, or otherwise, than this program writes")
    return decoded


def _unreadable(name: str, error: Undecodable | str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"the key {name!r} holds what this program cannot read ({error}): it is damaged, or a newer version wrote it, "
        f"then upgrade; {UNREADABLE}"
    )


def _strange(key: bytes, kind: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"{key!r} is no {kind}: it is damaged, or another program wrote it; {UNREADABLE}")
