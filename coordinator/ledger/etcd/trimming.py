"""Deletes the entries of one ledger in etcd that a snapshot covers, and compacts etcd's history up to them.

In: a position that a durable snapshot covers. Out: nothing. A trim deletes whole groups: an append is guarded by the
absence of its first entry alone, so a delayed copy of an append whose first entry is gone would write its group again
(safety rule S10). A damaged key is deleted, too: the snapshot covers it.
"""

import contextlib
from collections.abc import Sequence

from aetcd.rpc import kv_pb2, rpc_pb2

from coordinator.ledger.etcd.access import NotPermitted
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.guarded_requests import GuardedRequests
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end, read_trimmed
from coordinator.ledger.etcd.lineage import Lineage
from coordinator.ledger.etcd.requests import delete, has_value, is_absent, is_unmodified_after, put
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import ETCD_PAGE_ENTRIES_MAX, LEDGER_GROUP_ENTRIES_MAX
from protocol.types import Position


class EntryTrimming:
    """Trims a ledger. `is_compacted`: whether a trim compacts etcd's whole history."""

    def __init__(
        self, client: EtcdClient, keys: EtcdKeys, lineage: Lineage, requests: GuardedRequests, *, is_compacted: bool
    ) -> None:
        self._client = client
        self._keys = keys
        self._lineage = lineage
        self._requests = requests
        self._is_compacted = is_compacted

    async def trim(self, position: Position) -> None:
        """Delete all entries at or below `position`."""
        revision = self._lineage.revision(position)
        if revision == 0:
            return
        await self._raise_trimmed(position)
        revision_compacted = revision
        first, end = self._keys.entries, prefix_end(self._keys.entries)
        while True:
            page = await self._requests.range(first, end, limit=ETCD_PAGE_ENTRIES_MAX, max_mod_revision=revision)
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
        pairs = (await self._requests.range(key)).kvs
        if pairs and read_trimmed(pairs[0].value) >= position:
            return
        guard = has_value(key, pairs[0].value) if pairs else is_absent(key)
        if not (await self._requests.write(compare=[guard], success=[put(key, b"%d" % position)])).is_done:
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
            written = await self._requests.write(
                compare=[is_unmodified_after(first, end, revision) for first, end in some],
                success=[delete(first, end) for first, end in some],
            )
            if not written.is_done:
                return None
            dropped = written.revision
        return dropped


def _whole_groups(page: rpc_pb2.RangeResponse) -> Sequence[kv_pb2.KeyValue]:
    """The entries of a page but for the last group, where the rest of it may be on the next page."""
    if not page.more:
        return page.kvs
    last = page.kvs[-1].mod_revision
    whole = [pair for pair in page.kvs if pair.mod_revision != last]
    assert whole, f"a page of {len(page.kvs)} entries holds no whole group"
    return whole
