"""Checks of a ledger by `penstock doctor`. In etcd: every endpoint, version, access, room, whether its entries can be
read, and how long a write takes. A file: whether it is damaged.

No ledger is made, and nothing stays behind. The messages are those that an agent logs.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.failure import CommandFailed
from agent.cli.output import bytes_text
from agent.config.addresses import EtcdUrl, HostPort, JournalUrl, SqliteUrl, read_ledger_url
from agent.config.settings import Settings
from agent.ledger.open_ledger import etcd_client
from agent.runtime.clock import SystemClock
from coordinator.ledger.port import UNREADABLE, LedgerCorrupt, LedgerError
from coordinator.ledger.sqlite import is_missing
from protocol.limits import ETCD_QUOTA_BYTES_DEFAULT
from storage.embedded.journal.open_journal import is_empty

if TYPE_CHECKING:
    from coordinator.ledger.etcd.client import EtcdClient
    from coordinator.ledger.etcd.keys import EtcdKeys

WRITE_SAMPLES = 20
WRITE_SLOW_MS = 50.0
PRESSURE_HIGH = 0.8


async def check_ledger(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """The findings: damage of an embedded ledger's file, or the state of etcd. `machine_checks` checks the folder."""
    url = read_ledger_url(settings.ledger_url)
    if isinstance(url, SqliteUrl) and not is_missing(Path(url.path)):
        yield await _file(Path(url.path), is_durable=settings.is_durable)
    if isinstance(url, JournalUrl) and not is_empty(Path(url.path)):
        yield await _journal(Path(url.path))
    if not isinstance(url, EtcdUrl):
        return
    from coordinator.ledger.etcd.keys import EtcdKeys

    failures: list[DoctorFinding] = []
    answering: list[HostPort] = []
    for endpoint in url.endpoints:
        client = etcd_client(settings.ledger_access, [endpoint])
        try:
            yield await _endpoint(client, settings.ledger_access.quota_bytes)
            answering.append(endpoint)
        except LedgerError as error:
            failures.append(_finding(CheckStatus.DOUBTFUL, str(error), "agents use the other endpoints meanwhile"))
        finally:
            await client.close()
    if not answering:
        yield _finding(CheckStatus.FAILED, failures[0].text, "repair it: until then an agent waits, and logs this")
        return
    for failure in failures:
        yield failure
    client = etcd_client(settings.ledger_access, answering)
    try:
        async for finding in _use(client, EtcdKeys(url.cluster), is_compacted=settings.ledger_access.is_compacted):
            yield finding
    except LedgerError as error:
        yield _finding(CheckStatus.FAILED, str(error), "repair it: until then an agent does not start, or waits")
    finally:
        await client.close()


async def _file(file: Path, *, is_durable: bool) -> DoctorFinding:
    """The check of an embedded ledger, on a copy, as a broker may have it open: reads every entry with its checksum."""
    from agent.cli.offline import copied_ledger

    try:
        async with copied_ledger(file, is_durable=is_durable) as ledger:
            count = len(await ledger.untrimmed_entries())
    except (LedgerError, CommandFailed) as error:
        return _finding(CheckStatus.FAILED, str(error), 'docs/operations/recovery.md, "The embedded ledger is damaged"')
    return _finding(CheckStatus.FINE, f"{file} and its write-ahead log are intact: {count} entries")


async def _journal(folder: Path) -> DoctorFinding:
    """The check of an embedded ledger in a journal, which a broker may have open: reads every entry."""
    from agent.cli.offline import copied_journal

    try:
        async with copied_journal(folder) as ledger:
            count = len(await ledger.untrimmed_entries())
    except LedgerError as error:
        remedy = 'docs/operations/recovery.md, "The ledger in a journal is damaged"'
        return _finding(CheckStatus.FAILED, str(error), remedy)
    return _finding(CheckStatus.FINE, f"the ledger in {folder} is intact: {count} entries")


async def _endpoint(client: "EtcdClient", quota_bytes: int | None) -> DoctorFinding:
    from coordinator.ledger.etcd.server import check_version, read_status

    status = await read_status(client)
    check_version(status.version, client.endpoint)
    quota = status.quota_bytes or quota_bytes or ETCD_QUOTA_BYTES_DEFAULT
    text = (
        f"etcd {status.version} at {client.endpoint}: {bytes_text(status.used_bytes)} in use, file of "
        f"{bytes_text(status.file_bytes)}, quota {bytes_text(quota)}"
    )
    if status.file_bytes > PRESSURE_HIGH * quota:
        remedy = 'etcd accepts no writes beyond its quota: see docs/operations/etcd.md, "etcd is full"'
        return _finding(CheckStatus.DOUBTFUL, text, remedy)
    return _finding(CheckStatus.FINE, text)


async def _use(client: "EtcdClient", keys: "EtcdKeys", *, is_compacted: bool) -> AsyncIterator[DoctorFinding]:
    from coordinator.ledger.etcd.server import find_identity, forget_trial, notices, try_write

    identity = await find_identity(client, keys)
    cluster = (
        f"{identity.cluster_id}, incarnation {identity.incarnation}"
        if identity
        else "none yet; the first agent creates it"
    )
    yield _finding(CheckStatus.FINE, f"cluster below {keys.prefix.decode()}: {cluster}")
    if identity is not None:
        yield await _entries(client, keys.cluster)
    clock, milliseconds = SystemClock(), list[float]()
    try:
        for _ in range(WRITE_SAMPLES):
            began_s = clock.monotonic_s()
            await try_write(client, keys)
            milliseconds.append((clock.monotonic_s() - began_s) * 1000)
    finally:
        await forget_trial(client, keys)
    text = f"a small append takes {median(milliseconds):.1f} ms (median), {max(milliseconds):.1f} ms (longest)"
    if median(milliseconds) > WRITE_SLOW_MS:
        yield _finding(CheckStatus.DOUBTFUL, text, "give etcd a faster disk, or run the agents nearer to it")
    else:
        yield _finding(CheckStatus.FINE, text)
    for notice in await notices(client, keys, is_compacted=is_compacted):
        yield _finding(CheckStatus.DOUBTFUL, notice, 'docs/operations/etcd.md, "Compaction and size"')


async def _entries(client: "EtcdClient", cluster: str) -> DoctorFinding:
    """The check that an agent that starts can read all entries above the snapshot."""
    from coordinator.codec.codec import decode
    from coordinator.ledger.etcd.ledger import EtcdLedger

    ledger = await EtcdLedger.open(client, cluster, new_cluster_id=None)
    records = (await ledger.load()).records
    for record in records:
        try:
            decode(record)
        except LedgerCorrupt as error:
            text = f"entry {record.number} of session {record.session} at position {record.position} cannot be used"
            return _finding(CheckStatus.FAILED, f"{text}: {error}", f"agents do not start: {UNREADABLE}")
    return _finding(CheckStatus.FINE, f"{len(records)} entries above the snapshot can be read")


def _finding(verdict: CheckStatus, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name="ledger", verdict=verdict, text=text, remedy=remedy)
