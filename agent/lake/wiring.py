"""Wires the background writers to the lake with the components that they share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agent.config.addresses import read_store_url, store_root
from agent.config.settings import Settings
from agent.lake.archiver import Archiver
from agent.lake.compactor import FileCompactor
from agent.lake.hadoop_metadata import HadoopMetadata
from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.snapshot_expiry import SnapshotExpiry
from agent.lake.table_commits import TableCommits
from agent.lake.table_rebuild import TableRebuild
from agent.lake.table_updates import TableUpdates
from agent.ledger.entry_objects import UncommittedObjects
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from iceberg_export.archive.plan import ArchivePolicy
from iceberg_export.parquet.reader import ParquetReader
from protocol.types import Milliseconds
from storage.object_store import ObjectStore


class LakeRoles:
    """Every agent has them. `proposed_time` returns None while this machine's clock is not trusted (safety rule S2)."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: ObjectStore,
        archive: ParquetReader,
        ledger: LedgerClient,
        clock: Clock,
        metrics: Metrics,
        proposed_time: Callable[[], Milliseconds | None],
        broker_configs: Mapping[str, str],
        is_bucket_ours: Callable[[], Awaitable[bool]],
    ) -> None:
        lake = TableCommits(
            root=store_root(read_store_url(settings.store_url)),
            store=store,
            archive=archive,
            ledger=ledger,
            proposed_time=proposed_time,
            uncommitted=UncommittedObjects(store=store, ledger=ledger, is_bucket_ours=is_bucket_ours, metrics=metrics),
        )
        self.archiver = Archiver(
            ledger=ledger,
            lake=lake,
            clock=clock,
            metrics=metrics,
            policy=ArchivePolicy(age_ms=settings.archive_interval_s * 1000, bytes_target=settings.archive_bytes),
        )
        self.table_rebuild = TableRebuild(ledger=ledger, lake=lake)
        self.table_updates = TableUpdates(ledger=ledger, lake=lake, clock=clock)
        self._compactor = FileCompactor(
            ledger=ledger,
            lake=lake,
            clock=clock,
            metrics=metrics,
            broker_configs=broker_configs,
        )
        self.rewrites = LakeRewrites(archive=archive, ledger=ledger, lake=lake, broker_configs=broker_configs)
        self._snapshot_expiry = SnapshotExpiry(
            ledger=ledger,
            lake=lake,
            clock=clock,
            metrics=metrics,
            superseded_ms=settings.gc_min_age_s * 1000,
        )
        self._table_copies = HadoopMetadata(store=store, ledger=ledger, clock=clock, metrics=metrics)

    @property
    def jobs(self) -> Sequence[PeriodicJob]:
        return (self.archiver.job, self._compactor.job, self._snapshot_expiry.job, self._table_copies.job)
