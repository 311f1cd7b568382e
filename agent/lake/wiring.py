"""Wires the background writers to the lake with the components that they share."""

from collections.abc import Sequence

from agent.cache.chunk_cache import ChunkCache
from agent.config.addresses import read_store_url, store_root
from agent.config.settings import Settings
from agent.context import AgentContext
from agent.lake.archiver import Archiver
from agent.lake.compactor import FileCompactor
from agent.lake.hadoop_metadata import HadoopMetadata
from agent.lake.rewrite_jobs import LakeRewrites
from agent.lake.snapshot_expiry import SnapshotExpiry
from agent.lake.table_commits import TableCommits
from agent.lake.table_rebuild import TableRebuild
from agent.lake.table_updates import TableUpdates
from agent.ledger.entry_objects import UncommittedObjects
from agent.runtime.periodic_job import PeriodicJob
from iceberg_export.archive.plan import ArchivePolicy
from iceberg_export.parquet.reader import ParquetReader


class LakeRoles:
    """Every agent has them."""

    def __init__(self, context: AgentContext, *, settings: Settings, archive: ParquetReader, cache: ChunkCache) -> None:
        lake = TableCommits(
            context,
            root=store_root(read_store_url(settings.store_url)),
            archive=archive,
            uncommitted=UncommittedObjects(
                store=context.store,
                ledger=context.ledger,
                is_bucket_ours=context.is_bucket_ours,
                metrics=context.metrics,
            ),
        )
        self.archiver = Archiver(
            context,
            lake=lake,
            cache=cache,
            policy=ArchivePolicy(age_ms=settings.archive_interval_s * 1000, bytes_target=settings.archive_bytes),
        )
        self.table_rebuild = TableRebuild(ledger=context.ledger, lake=lake)
        self.table_updates = TableUpdates(ledger=context.ledger, lake=lake, clock=context.clock)
        self._compactor = FileCompactor(context, lake=lake)
        self.rewrites = LakeRewrites(
            archive=archive,
            ledger=context.ledger,
            lake=lake,
            broker_configs=context.broker_configs,
            is_authorizer_enabled=context.is_authorizer_enabled,
        )
        self._snapshot_expiry = SnapshotExpiry(context, lake=lake, superseded_ms=settings.gc_min_age_s * 1000)
        self._table_copies = HadoopMetadata(context)

    @property
    def jobs(self) -> Sequence[PeriodicJob]:
        return (self.archiver.job, self._compactor.job, self._snapshot_expiry.job, self._table_copies.job)
