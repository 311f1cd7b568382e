"""The cluster's ledger in etcd.

Rule: an append is one transaction, guarded by the session's key and by the absence of its first entry; its position is
the transaction's revision, above that of the incarnation (`log.position_first`). What is behind an answer that never
came is settled by repeating (safety rule S10). Reads that begin something (`load`, `head`) are linearizable; a tail is
a watch, which etcd itself keeps in order and whole. Whether it is still the same ledger that answers:
`coordinator.ledger.etcd.lineage` (safety rule S9). Keys: `coordinator.ledger.etcd.keys`. Contract:
tests/contract/test_ledger.py. Source: etcd's "KV API guarantees".

Above 500 lines, for each operation of the port is one transaction here, and all share session, lineage and guards.
"""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Self

from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.ledger.append_rules import NewestGroup, check_group, entries_of, is_next, position_of_repeat
from coordinator.ledger.etcd.access import LeaseGone, NotPermitted
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.keys import (
    EtcdKeys,
    prefix_end,
    read_pointer,
    read_trimmed,
    write_head,
    write_meta,
    write_pointer,
)
from coordinator.ledger.etcd.lineage import Lineage
from coordinator.ledger.etcd.requests import delete, get, has_value, is_absent, is_created_at, is_unmodified_after, put
from coordinator.ledger.etcd.server import check_version, find_identity, find_or_create, notices, read_status
from coordinator.ledger.port import (
    Fenced,
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerStart,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    Trimmed,
    check_restart,
    not_fenced,
)
from protocol.limits import ETCD_PAGE_ENTRIES_MAX, LEDGER_GROUP_ENTRIES_MAX, LEDGER_SESSION_SECONDS
from protocol.types import Position, SessionId


@dataclass(slots=True, kw_only=True)
class _Session:
    """A session that this object opened."""

    name: str
    lease: int
    newest: NewestGroup | None = None
    is_unsure: bool = False
    """Whether a group may have been appended after `newest`: an answer did not come."""


@dataclass(frozen=True, slots=True)
class _GuardedResult:
    """The result of a guarded transaction. `responses` are those of its failure branch, where the guards failed."""

    is_done: bool
    revision: int
    responses: Sequence[rpc_pb2.ResponseOp]


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
        self._session_seconds = session_seconds
        self._is_compacted = is_compacted
        self._quota_bytes = quota_bytes
        self._keys = keys
        self._lineage = Lineage(keys, identity)
        self._sessions: dict[SessionId, _Session] = {}

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
            # Of two that claim, one finds another value (safety rule S9); `_write` has learnt it then.
            guard = has_value(meta, write_meta(without))
            if (await self._write(compare=[guard], success=[put(meta, write_meta(claimed))])).is_done:
                lineage.claimed(claimed)
        return lineage.identity

    # Sessions. One is the position of its key's creation (safety rule S12).

    async def open_session(self, name: str) -> SessionId:
        lease = await self._client.grant_lease(self._session_seconds)
        key = self._keys.session(name)
        try:
            written = await self._write(compare=[is_absent(key)], success=[put(key, b"", lease)], failure=[get(key)])
        except (LedgerUnavailable, LedgerCorrupt):
            await self._revoke(lease)
            raise
        if not written.is_done:
            await self._revoke(lease)
            live = self._lineage.session(written.responses[0].response_range.kvs[0].create_revision)
            raise SessionHeld(f"session {live} lives under the name {name!r}")
        session = self._lineage.session(written.revision)
        self._sessions[session] = _Session(name=name, lease=lease)
        return session

    async def close_session(self, session: SessionId) -> None:
        closed = self._sessions.pop(session, None)
        if closed is not None:
            await self._client.revoke_lease(closed.lease)

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        pairs = (await self._read_checked([get(self._keys.session(name))]))[0].response_range.kvs
        return not pairs or self._lineage.session(pairs[0].create_revision) != session

    async def live_names(self) -> Sequence[str]:
        keys = self._keys
        pairs = (await self._read_checked([get(keys.sessions, prefix_end(keys.sessions))]))[0].response_range.kvs
        return sorted(keys.read_session_name(pair.key) for pair in pairs)

    async def released_names(self) -> AsyncGenerator[str, None]:
        first = self._keys.sessions
        create = rpc_pb2.WatchCreateRequest(
            key=first,
            range_end=prefix_end(first),
            start_revision=(await self._range(self._keys.head)).header.revision,
            filters=[rpc_pb2.WatchCreateRequest.NOPUT],
        )
        async with self._client.watch(create, is_asked=False) as responses:
            async for response in responses:
                if response.canceled:
                    raise LedgerUnavailable(f"etcd ended a watch: {response.cancel_reason}")
                for event in response.events:
                    yield self._keys.read_session_name(event.kv.key)

    async def _revoke(self, lease: int) -> None:
        with contextlib.suppress(LedgerUnavailable):  # it runs out by itself
            await self._client.revoke_lease(lease)

    async def keep_session(self, session: SessionId) -> None:
        opened = self._sessions.get(session)
        if opened is None:
            raise Fenced(f"session {session} is not one of this agent's, or over")
        try:
            await self._client.keep_alive(opened.lease, seconds=self._session_seconds / 3)
        except LeaseGone as error:
            raise Fenced(f"the lease of session {session} has run out") from error

    # Entries.

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        check_group(entries)
        opened = self._sessions.get(session)
        if opened is None:
            raise Fenced(f"session {session} is not one of this agent's, or over")
        if opened.is_unsure and not is_next(opened.newest, entries):
            found = await self._newest(session)
            if found is not None and _is_newer(found, opened.newest):
                opened.newest = found
        if not is_next(opened.newest, entries):
            return self._settle(
                opened, session, entries, await self._read_checked(self._looking(opened.name, session, entries))
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

    async def _append(self, name: str, session: SessionId, entries: Sequence[LedgerEntry]) -> _GuardedResult:
        puts = [put(self._keys.entry(session, entry.number), entry.payload) for entry in entries]
        return await self._write(
            compare=[
                is_created_at(self._keys.session(name), self._lineage.revision(session)),
                is_absent(self._keys.entry(session, entries[0].number)),
            ],
            success=[put(self._keys.head, write_head(session, entries[-1].number)), *puts],
            failure=self._looking(name, session, entries),
        )

    def _looking(self, name: str, session: SessionId, entries: Sequence[LedgerEntry]) -> list[rpc_pb2.RequestOp]:
        """Asks for the session, and for what stands under the numbers of `entries`."""
        first = self._keys.entry(session, entries[0].number)
        return [get(self._keys.session(name)), get(first, self._keys.entry(session, entries[-1].number + 1))]

    def _settle(
        self, opened: _Session, session: SessionId, entries: Sequence[LedgerEntry], looked: Sequence[rpc_pb2.ResponseOp]
    ) -> Position:
        """The position of a group that was not appended now: an earlier try was, or it must not be."""
        sessions, appended = (response.response_range.kvs for response in looked)
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
        newest = rpc_pb2.RangeRequest
        found = await self._range(first, end, limit=LEDGER_GROUP_ENTRIES_MAX, sort_order=newest.DESCEND)
        if not found.kvs:
            return None
        revision = found.kvs[0].mod_revision
        group = [self._lineage.record(pair) for pair in reversed(found.kvs) if pair.mod_revision == revision]
        return NewestGroup(position=self._lineage.position(revision), entries=entries_of(group))

    # Reading.

    async def load(self) -> LedgerStart:
        while True:
            try:
                return await self._load()
            except Trimmed:
                continue  # compacted while it was read: begin again at a newer revision

    async def _load(self) -> LedgerStart:
        head, trimmed, revision, answers = await self._begin_reading(get(self._keys.snapshot))
        snapshots = answers[0].response_range.kvs
        pointer = read_pointer(snapshots[0].value) if snapshots else None
        after = Position(0) if pointer is None else pointer.position
        self._lineage.judge_trimmed(trimmed, pointer)
        return LedgerStart(pointer=pointer, head=head, records=await self._read_entries(after, revision))

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        while True:
            try:
                async with aclosing(self._tail(after)) as records_of:
                    async for records in records_of:
                        after = records[-1].position
                        yield records
            except Trimmed:
                await self._check_kept(after)  # else only etcd's history is gone: the live keys are read again

    async def _tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        """The entries above `after`, then new ones. Raises `Trimmed` where that needs compacted history."""
        revision = await self._check_kept(after)
        records = await self._read_entries(after, revision)
        if records:
            yield records
        create = rpc_pb2.WatchCreateRequest(
            key=self._keys.entries,
            range_end=self._keys.meta + b"\0",  # the entries and the identity: nothing stands between them
            start_revision=revision,  # what stood there at it is passed over (`EtcdClient.watch` says why)
            filters=[rpc_pb2.WatchCreateRequest.NODELETE],
        )
        async with self._client.watch(create) as responses:
            async for response in responses:
                if response.compact_revision:
                    raise Trimmed(f"etcd has compacted up to {response.compact_revision}")
                if response.canceled:
                    raise LedgerUnavailable(f"etcd ended a watch: {response.cancel_reason}")
                records = self._records_of(response, revision)
                if records:
                    yield records

    def _records_of(self, response: rpc_pb2.WatchResponse, after_revision: int) -> list[LedgerRecord]:
        records: list[LedgerRecord] = []
        for event in response.events:
            if event.kv.key == self._keys.meta:
                self._lineage.judge_event(event.kv)
            elif event.kv.mod_revision > after_revision:
                records.append(self._lineage.record(event.kv))
        return self._handed_over(_in_order(records))

    def _handed_over(self, records: list[LedgerRecord]) -> list[LedgerRecord]:
        self._lineage.read(records)
        return records

    async def _check_kept(self, after: Position) -> int:
        """A revision at which everything above `after` was there. Raises `Trimmed`."""
        _, trimmed, revision, _ = await self._begin_reading()
        if after < trimmed:
            raise Trimmed(f"position {after} was asked for, everything up to {trimmed} is trimmed")
        return revision

    async def _begin_reading(
        self, *more: rpc_pb2.RequestOp
    ) -> tuple[Head, Position, int, Sequence[rpc_pb2.ResponseOp]]:
        """Head, position up to which is trimmed, and the answers to `more`, all at one revision, which is the third."""
        seen, requests = self._lineage.seen, self._lineage.reading()
        answer = await self._client.txn(rpc_pb2.TxnRequest(success=[*requests, *more]))
        head, trimmed = self._lineage.judge_reading(answer.responses[: len(requests)], seen)
        return head, trimmed, int(answer.header.revision), answer.responses[len(requests) :]

    async def _read_entries(self, after: Position, revision: int) -> list[LedgerRecord]:
        """The entries above `after` that were there at `revision`, in order."""
        records: list[LedgerRecord] = []
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        above = self._lineage.revision(after) + 1
        while True:
            page = await self._range(first, end, limit=ETCD_PAGE_ENTRIES_MAX, revision=revision, min_mod_revision=above)
            records.extend(self._lineage.record(pair) for pair in page.kvs)
            if not page.more:
                return self._handed_over(_in_order(records))
            first = page.kvs[-1].key + b"\0"

    async def kept(self) -> Sequence[LedgerRecord]:
        while True:
            _, trimmed, revision, _ = await self._begin_reading()
            try:
                return await self._read_entries(trimmed, revision)
            except Trimmed:
                continue  # compacted while it was read: begin again at a newer revision

    async def head(self) -> Head:
        seen = self._lineage.seen
        return self._lineage.judge_head((await self._range(self._keys.head)).kvs, seen)

    # Snapshots.

    async def pointer(self) -> SnapshotPointer | None:
        found = (await self._read_checked([get(self._keys.snapshot)]))[0].response_range.kvs
        return read_pointer(found[0].value) if found else None

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        key = self._keys.snapshot
        guard = is_absent(key) if expected is None else has_value(key, write_pointer(expected))
        return (await self._write(compare=[guard], success=[put(key, write_pointer(pointer))])).is_done

    async def trim(self, position: Position) -> None:
        """Deletes whole groups: an append is guarded by the absence of its first entry alone, so a delayed copy of an
        append whose first entry is gone would write its group again. A damaged key is deleted, too: the snapshot covers
        it.
        """
        pointer = await self.pointer()
        covered = Position(0) if pointer is None else pointer.position
        if position > covered:
            raise LedgerCorrupt(f"trim up to {position} was asked for, but the snapshot covers only up to {covered}")
        revision = self._lineage.revision(position)
        if revision == 0:
            return
        await self._raise_trimmed(position)
        revision_compacted = revision
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        while True:
            page = await self._range(first, end, limit=ETCD_PAGE_ENTRIES_MAX, max_mod_revision=revision)
            whole = _whole_groups(page)
            dropped_revision = await self._drop([pair.key for pair in whole], revision)
            if dropped_revision is None:
                continue
            # Up to there, not only up to `position`: etcd keeps what lived at the revision that it compacts to.
            revision_compacted = max(revision_compacted, dropped_revision)
            if not page.more:
                break
            first = whole[-1].key + b"\0"
        if self._is_compacted:
            with contextlib.suppress(NotPermitted):  # `notices` reported it at the start
                await self._client.compact(revision_compacted)

    async def _raise_trimmed(self, position: Position) -> None:
        """Note that entries up to `position` go, unless others go further: then this is theirs to say."""
        key = self._keys.trimmed
        found = (await self._range(key)).kvs
        if found and read_trimmed(found[0].value) >= position:
            return
        guard = has_value(key, found[0].value) if found else is_absent(key)
        if not (await self._write(compare=[guard], success=[put(key, b"%d" % position)])).is_done:
            raise LedgerUnavailable("somebody else trims the ledger: try again")

    async def _drop(self, keys: Sequence[bytes], revision: int) -> int | None:
        """Delete entries put up to `revision`: one range for each run of a session's numbers.

        A copy of an append that was on its way all the time may be carried out once the first copy was dropped. It is
        counted in the head, so it has to stay until it is trimmed itself. Returns the last revision that deleted, or 0;
        None where a copy came in among `keys` since they were listed: list them again.
        """
        runs = self._keys.runs(keys)
        dropped = 0
        for row in range(0, len(runs), LEDGER_GROUP_ENTRIES_MAX):
            some = runs[row : row + LEDGER_GROUP_ENTRIES_MAX]
            written = await self._write(
                compare=[is_unmodified_after(first, end, revision) for first, end in some],
                success=[delete(first, end) for first, end in some],
            )
            if not written.is_done:
                return None
            dropped = written.revision
        return dropped

    async def pressure(self) -> float:
        return (await read_status(self._client)).pressure(self._quota_bytes)

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
        found = [pair.value for response in answer.responses for pair in response.response_range.kvs]
        if found == [meta, snapshot]:  # an earlier try, whose answer did not come, was carried out
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
        self._sessions.clear()
        self._lineage.restart(identity)

    async def close(self) -> None:
        await self._client.close()

    # Requests.

    async def _write(
        self,
        *,
        success: Sequence[rpc_pb2.RequestOp],
        compare: Sequence[rpc_pb2.Compare] = (),
        failure: Sequence[rpc_pb2.RequestOp] = (),
    ) -> _GuardedResult:
        """Carry out `success`, if this is still the ledger that was opened and `compare` holds, else ask `failure`."""
        lineage = self._lineage
        identity, seen = lineage.identity, lineage.seen
        answer = await self._client.txn(
            rpc_pb2.TxnRequest(
                compare=[*lineage.guards(), *compare], success=success, failure=[*lineage.asking(), *failure]
            )
        )
        if answer.succeeded:
            return _GuardedResult(is_done=True, revision=answer.header.revision, responses=())
        lineage.judge(answer.responses[:2], seen)
        lineage.judge_open(answer.responses[:2])
        if lineage.identity != identity:  # a bucket was claimed meanwhile: that alone may be why it was not carried out
            return await self._write(success=success, compare=compare, failure=failure)
        return _GuardedResult(is_done=False, revision=answer.header.revision, responses=answer.responses[2:])

    async def _read_checked(self, requests: Sequence[rpc_pb2.RequestOp]) -> Sequence[rpc_pb2.ResponseOp]:
        """The answers to `asked` at one revision, of the ledger that was opened."""
        seen = self._lineage.seen
        answer = await self._client.txn(rpc_pb2.TxnRequest(success=[*self._lineage.asking(), *requests]))
        self._lineage.judge(answer.responses[:2], seen)
        return answer.responses[2:]

    async def _range(self, key: bytes, end: bytes = b"", **options: int) -> rpc_pb2.RangeResponse:
        return await self._client.range(rpc_pb2.RangeRequest(key=key, range_end=end, **options))


def _is_newer(group: NewestGroup, than: NewestGroup | None) -> bool:
    """By their numbers: a late copy of an earlier group has a higher position."""
    return than is None or than.number_last < group.number_last


def _whole_groups(page: rpc_pb2.RangeResponse) -> Sequence[kv_pb2.KeyValue]:
    """The entries of a page but for the last group, where the rest of it may be on the next page."""
    if not page.more:
        return page.kvs
    last = page.kvs[-1].mod_revision
    whole = [pair for pair in page.kvs if pair.mod_revision != last]
    assert whole, f"a page of {len(page.kvs)} entries holds no whole group"
    return whole


def _in_order(records: list[LedgerRecord]) -> list[LedgerRecord]:
    return sorted(records, key=lambda record: (record.position, record.number))
