"""The cluster's ledger in etcd.

An append is one transaction, guarded by the session's key and by the absence of its first entry; its position is the
transaction's revision, above that of the incarnation (`log.position_first`). An append whose answer never came is
settled by a repeat (safety rule S10): one within the call, further ones by the caller.

The other modules of this room: `sessions`, `entry_reader` (load and tail), `trimming`, `guarded_requests`, `keys`, and
`lineage`, which finds out whether it is still the same ledger that answers (safety rule S9). Contract:
tests/contract/test_ledger.py. Source: etcd's "KV API guarantees".
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Self

from aetcd.rpc import rpc_pb2

from coordinator.ledger.append_rules import NewestGroup, check_group, entries_of, is_next, position_of_repeat
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.entry_reader import EntryReader
from coordinator.ledger.etcd.guarded_requests import GuardedRequests, GuardedResult
from coordinator.ledger.etcd.keys import (
    EtcdKeys,
    prefix_end,
    read_pointer,
    write_head,
    write_meta,
    write_pointer,
)
from coordinator.ledger.etcd.lineage import Lineage
from coordinator.ledger.etcd.requests import delete, get, has_value, is_absent, is_created_at, put
from coordinator.ledger.etcd.server import check_version, find_identity, find_or_create, notices, read_status
from coordinator.ledger.etcd.sessions import EtcdSession, EtcdSessions
from coordinator.ledger.etcd.trimming import EntryTrimming
from coordinator.ledger.port import (
    Fenced,
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    check_restart,
    not_fenced,
)
from protocol.limits import LEDGER_GROUP_ENTRIES_MAX, LEDGER_SESSION_SECONDS
from protocol.types import Position, SessionId


class EtcdLedger:
    """Implements `coordinator.ledger.port.Ledger`. Made by `open`."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        identity: LedgerIdentity,
        *,
        session_seconds: int,
        is_compacted: bool,
        quota_bytes: int | None,
    ) -> None:
        self._client = client
        self._quota_bytes = quota_bytes
        self._is_compacted = is_compacted
        self._keys = keys
        self._lineage = Lineage(keys, identity)
        self._requests = GuardedRequests(client, self._lineage)
        self._sessions = EtcdSessions(client, keys, self._lineage, self._requests, session_seconds=session_seconds)
        self._reader = EntryReader(client, keys, self._lineage, self._requests)
        self._trimming = EntryTrimming(client, keys, self._lineage, self._requests, is_compacted=is_compacted)

    @classmethod
    async def open(
        cls,
        client: EtcdClient,
        cluster: str,
        *,
        new_cluster_id: str | None,
        session_seconds: int = LEDGER_SESSION_SECONDS,
        is_compacted: bool = True,
        quota_bytes: int | None = None,
    ) -> Self:
        """Open the ledger of `cluster`; where there is none, create it with that id, or raise `LedgerMissing` without
        one, and write nothing. The client is closed with the ledger.

        A session whose lease is not renewed (`keep_session`) for `session_seconds` is over. `is_compacted`: whether
        `trim` compacts etcd's whole history. `quota_bytes`: the quota of an etcd whose API does not report it. Raises
        `LedgerUnavailable`, after which the same client may be tried again, `LedgerUnsupported`, and `LedgerCorrupt`
        where the prefix holds something else.
        """
        keys = EtcdKeys(cluster)
        check_version((await read_status(client)).version, client.endpoint)
        if new_cluster_id is None:
            identity = await find_identity(client, keys)
        else:
            identity = await find_or_create(client, keys, new_cluster_id)
        if identity is None:
            raise LedgerMissing(
                f"etcd at {client.endpoint} has no ledger of cluster {cluster}: that name, the last part of --ledger, "
                "may be mistyped. Else this is not the etcd that the agents use, or it was wiped"
            )
        return cls(
            client,
            keys,
            identity,
            session_seconds=session_seconds,
            is_compacted=is_compacted,
            quota_bytes=quota_bytes,
        )

    async def notices(self) -> list[str]:
        """Warnings for the operator of this etcd (safety rule S10)."""
        return await notices(self._client, self._keys, is_compacted=self._is_compacted)

    async def identity(self) -> LedgerIdentity:
        return self._lineage.identity

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        lineage, meta = self._lineage, self._keys.meta
        without = lineage.identity
        if not without.bucket_id:
            claimed = replace(without, bucket_id=bucket_id)
            # Of two that claim, one finds another value (safety rule S9); `write` has learnt it then.
            guard = has_value(meta, write_meta(without))
            if (await self._requests.write(compare=[guard], success=[put(meta, write_meta(claimed))])).is_done:
                lineage.claimed(claimed)
        return lineage.identity

    async def open_session(self, name: str) -> SessionId:
        return await self._sessions.open(name)

    async def keep_session(self, session: SessionId) -> None:
        await self._sessions.keep(session)

    async def close_session(self, session: SessionId) -> None:
        await self._sessions.close(session)

    async def revoke_session(self, name: str, session: SessionId) -> None:
        await self._sessions.revoke(name, session)

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        return await self._sessions.is_ended(name, session)

    async def live_names(self) -> Sequence[str]:
        return await self._sessions.live_names()

    def released_names(self) -> AsyncGenerator[str, None]:
        return self._sessions.released_names()

    # Entries.

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        check_group(entries)
        opened = self._sessions.opened(session)
        if opened.is_unsure and not is_next(opened.newest, entries):
            newest = await self._newest(session)
            if newest is not None and _is_newer(newest, opened.newest):
                opened.newest = newest
        if not is_next(opened.newest, entries):
            return self._settle(
                opened, session, entries, await self._requests.read(self._requests_about(opened.name, session, entries))
            )
        opened.is_unsure = True
        written = await self._append(opened.name, session, entries)
        if not written.is_done:
            return self._settle(opened, session, entries, written.responses)
        position = self._lineage.position(written.revision)
        self._lineage.see(position)
        opened.newest = NewestGroup(position=position, entries=tuple(entries))
        opened.is_unsure = False
        return position

    async def _append(self, name: str, session: SessionId, entries: Sequence[LedgerEntry]) -> GuardedResult:
        puts = [put(self._keys.entry(session, entry.number), entry.payload) for entry in entries]
        return await self._requests.write(
            compare=[
                is_created_at(self._keys.session(name), self._lineage.revision(session)),
                is_absent(self._keys.entry(session, entries[0].number)),
            ],
            success=[put(self._keys.head, write_head(session, entries[-1].number)), *puts],
            failure=self._requests_about(name, session, entries),
            is_repeatable=True,
        )

    def _requests_about(self, name: str, session: SessionId, entries: Sequence[LedgerEntry]) -> list[rpc_pb2.RequestOp]:
        """Asks for the session, and for what stands under the numbers of `entries`."""
        first = self._keys.entry(session, entries[0].number)
        return [get(self._keys.session(name)), get(first, self._keys.entry(session, entries[-1].number + 1))]

    def _settle(
        self,
        opened: EtcdSession,
        session: SessionId,
        entries: Sequence[LedgerEntry],
        answers: Sequence[rpc_pb2.ResponseOp],
    ) -> Position:
        """The position of a group that was not appended now: an earlier try was, or it must not be."""
        sessions, appended = (response.response_range.kvs for response in answers)
        if not sessions or self._lineage.session(sessions[0].create_revision) != session:
            raise Fenced(f"session {session} is over")
        first_copy = [self._lineage.record(pair) for pair in appended if pair.mod_revision == appended[0].mod_revision]
        position = position_of_repeat(session, opened.newest, first_copy, entries)
        group = NewestGroup(position=position, entries=tuple(entries))
        if _is_newer(group, opened.newest):
            opened.newest = group
            opened.is_unsure = False
        return position

    async def _newest(self, session: SessionId) -> NewestGroup | None:
        """The group of a session with the highest numbers that was not trimmed. A late copy of an earlier one may stand
        behind it in the log.
        """
        first, end = self._keys.entry(session, 0), prefix_end(self._keys.entries_of(session))
        descending = rpc_pb2.RangeRequest.DESCEND
        page = await self._requests.range(first, end, limit=LEDGER_GROUP_ENTRIES_MAX, sort_order=descending)
        if not page.kvs:
            return None
        revision = page.kvs[0].mod_revision
        group = [self._lineage.record(pair) for pair in reversed(page.kvs) if pair.mod_revision == revision]
        return NewestGroup(position=self._lineage.position(revision), entries=entries_of(group))

    # Reading.

    async def load(self) -> LedgerStart:
        return await self._reader.load()

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        return self._reader.tail(after)

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        return await self._reader.untrimmed_entries()

    async def head(self) -> Head:
        seen = self._lineage.seen
        return self._lineage.judge_head((await self._requests.range(self._keys.head)).kvs, seen)

    # Snapshots.

    async def pointer(self) -> SnapshotPointer | None:
        pairs = (await self._requests.read([get(self._keys.snapshot)]))[0].response_range.kvs
        return read_pointer(pairs[0].value) if pairs else None

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        key = self._keys.snapshot
        guard = is_absent(key) if expected is None else has_value(key, write_pointer(expected))
        return (await self._requests.write(compare=[guard], success=[put(key, write_pointer(pointer))])).is_done

    async def trim(self, position: Position) -> None:
        pointer = await self.pointer()
        covered = Position(0) if pointer is None else pointer.position
        if position > covered:
            raise LedgerCorrupt(f"trim up to {position} was asked for, but the snapshot covers only up to {covered}")
        await self._trimming.trim(position)

    async def size(self) -> LedgerSize:
        return (await read_status(self._client)).size(self._quota_bytes)

    # Recovery.

    async def fence(self) -> None:
        """The transactions of all agents compare meta's whole value (`Lineage.guards`), so they fail from then on."""
        keys, lineage = self._keys, self._lineage
        seen = lineage.seen
        sessions, sessions_end = keys.sessions, prefix_end(keys.sessions)
        answer = await self._client.txn(
            rpc_pb2.TxnRequest(
                compare=[*lineage.guards(), is_absent(sessions, sessions_end)],
                success=[put(keys.meta, write_meta(lineage.identity, is_fenced=True))],
                failure=[*lineage.asking(), get(sessions, sessions_end)],
            )
        )
        if answer.succeeded:
            return
        lineage.judge(answer.responses[:2], seen)
        if not lineage.is_fenced(answer.responses[:2]):
            names = [keys.read_session_name(pair.key) for pair in answer.responses[2].response_range.kvs]
            if not names:
                raise LedgerUnavailable("an agent began to use the ledger just now: try again")
            raise SessionHeld(f"agents still run under the names {names}: stop them first")

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        check_restart(identity, pointer)
        keys, meta, snapshot = self._keys, write_meta(identity), write_pointer(pointer)
        answer = await self._client.txn(rpc_pb2.TxnRequest(success=[get(keys.meta), get(keys.snapshot)]))
        values = [pair.value for response in answer.responses for pair in response.response_range.kvs]
        if values == [meta, snapshot]:  # an earlier try, whose answer did not come, was carried out
            self._lineage.restart(identity)
            return
        seen = self._lineage.seen
        answer = await self._client.txn(
            rpc_pb2.TxnRequest(
                compare=self._lineage.guards(on_fenced=True),
                success=[
                    delete(keys.entries, prefix_end(keys.entries)),
                    delete(keys.head),
                    delete(keys.trimmed),
                    put(keys.meta, meta),
                    put(keys.snapshot, snapshot),
                ],
                failure=self._lineage.asking(),
            )
        )
        if not answer.succeeded:
            self._lineage.judge(answer.responses, seen)
            raise not_fenced()
        self._sessions.forget()
        self._lineage.restart(identity)

    async def close(self) -> None:
        await self._client.close()


def _is_newer(group: NewestGroup, than: NewestGroup | None) -> bool:
    """By their numbers: a late copy of an earlier group has a higher position."""
    return than is None or than.number_last < group.number_last
