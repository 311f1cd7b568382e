"""The status of an etcd: its version, how full it is, other users of it, whether its history is ever compacted.

Rule: reads only, but for `try_write`. What etcd's API does not report is not guessed: its flags cannot be read, so
whether it compacts its history by itself shows only in what it did (docs/adr/0010-ledger-in-etcd.md).
"""

import re
from dataclasses import dataclass

from aetcd.rpc import rpc_pb2
from google.protobuf.unknown_fields import UnknownFieldSet

from coordinator.ledger.etcd.access import NotPermitted
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.keys import EtcdKeys, prefix_end, read_meta, write_meta
from coordinator.ledger.etcd.requests import delete, get, is_absent, put
from coordinator.ledger.port import LedgerIdentity, LedgerSize, LedgerUnsupported, Trimmed
from protocol.limits import ETCD_QUOTA_BYTES_DEFAULT, ETCD_UNCOMPACTED_REVISIONS_MAX

VERSION_MIN = (3, 5)
TRIAL_BYTES = 1024
_QUOTA_FIELD = 12
"""`dbSizeQuota` of StatusResponse, which etcd has from 3.6 and the stubs lack."""
_FIRST_KEY, _BEYOND_ALL_KEYS = b"\0", b"\0"
"""The same bytes mean this as the beginning of a range, and as its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdStatus:
    """One member's. `file_bytes` is what counts against the quota, `used_bytes` what of it is not free again."""

    version: str
    file_bytes: int
    used_bytes: int
    quota_bytes: int | None
    """None before etcd 3.6, whose status lacks it."""

    def size(self, quota_bytes: int | None) -> LedgerSize:
        """The used bytes and the quota; `quota_bytes` is the quota where etcd does not report it."""
        return LedgerSize(
            used_bytes=self.used_bytes, quota_bytes=self.quota_bytes or quota_bytes or ETCD_QUOTA_BYTES_DEFAULT
        )


async def read_status(client: EtcdClient) -> EtcdStatus:
    """Raises `LedgerUnavailable`."""
    status = await client.status()
    quotas = [field.data for field in UnknownFieldSet(status) if field.field_number == _QUOTA_FIELD]
    return EtcdStatus(
        version=status.version,
        file_bytes=status.dbSize,
        used_bytes=status.dbSizeInUse,
        quota_bytes=quotas[0] if quotas else None,
    )


def check_version(version: str, endpoint: str) -> None:
    """Raise `LedgerUnsupported` where etcd is too old."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < VERSION_MIN:
        raise LedgerUnsupported(
            f"etcd at {endpoint} has version {version}; {'.'.join(map(str, VERSION_MIN))} is the oldest that works: "
            "upgrade it"
        )


async def find_identity(client: EtcdClient, keys: EtcdKeys) -> LedgerIdentity | None:
    """Whose ledger there is, without making one."""
    pairs = (await client.range(rpc_pb2.RangeRequest(key=keys.meta))).kvs
    return read_meta(pairs[0].value) if pairs else None


async def find_or_create(client: EtcdClient, keys: EtcdKeys, cluster_id: str) -> LedgerIdentity:
    """Whose ledger there is; where there is none, one is made with that id."""
    new = LedgerIdentity(cluster_id=cluster_id, incarnation=1)
    answer = await client.txn(
        rpc_pb2.TxnRequest(
            compare=[is_absent(keys.meta)], success=[put(keys.meta, write_meta(new))], failure=[get(keys.meta)]
        ),
    )
    return new if answer.succeeded else read_meta(answer.responses[0].response_range.kvs[0].value)


async def try_write(client: EtcdClient, keys: EtcdKeys) -> None:
    """Write as much as a small append does, where no agent looks."""
    await client.txn(
        rpc_pb2.TxnRequest(compare=[is_absent(keys.entries)], success=[put(keys.doctor, bytes(TRIAL_BYTES))])
    )


async def forget_trial(client: EtcdClient, keys: EtcdKeys) -> None:
    await client.txn(rpc_pb2.TxnRequest(success=[delete(keys.doctor)]))


async def notices(client: EtcdClient, keys: EtcdKeys, *, is_compacted: bool) -> list[str]:
    """Warnings for the operator of this etcd (safety rule S10). Raises `LedgerUnavailable`."""
    rejected = "--no-etcd-compaction" if not is_compacted else await _why_not_compacted(client)
    if rejected:
        return [
            f"agents do not compact etcd's history ({rejected}), so etcd must, started with "
            f"--auto-compaction-retention; its API does not show whether it was. {await _history(client, keys)}"
        ]
    if await _is_shared(client, keys):
        return [
            f"etcd holds other keys than those below {keys.prefix.decode()}: agents compact its whole history behind "
            "what they trimmed, and watchers of those keys must handle it. To leave that to etcd, start it with "
            "--auto-compaction-retention, and agents with --no-etcd-compaction"
        ]
    return []


async def _why_not_compacted(client: EtcdClient) -> str:
    """Why this user cannot compact, or nothing. Behind the first revision there is no history to lose."""
    try:
        await client.compact(1)
    except NotPermitted:
        return "their user may not: etcd lets only role root"
    return ""


async def _history(client: EtcdClient, keys: EtcdKeys) -> str:
    """The compacted part of etcd's history, in words: the only trace that compaction leaves."""
    try:
        answer = await client.range(rpc_pb2.RangeRequest(key=keys.meta, revision=1))
    except Trimmed:
        return "History was compacted before"
    revision = answer.header.revision
    if revision < ETCD_UNCOMPACTED_REVISIONS_MAX:
        return "None was compacted yet, but there is little"
    return f"None of its {revision} revisions was compacted so far: it will run full"


async def _is_shared(client: EtcdClient, keys: EtcdKeys) -> bool:
    """Whether there are keys of others."""
    for first, end in ((_FIRST_KEY, keys.prefix), (prefix_end(keys.prefix), _BEYOND_ALL_KEYS)):
        if (await client.range(rpc_pb2.RangeRequest(key=first, range_end=end, limit=1))).kvs:
            return True
    return False
