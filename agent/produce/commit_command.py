"""The command that commits a sealed intake object."""

from coordinator.commands.commands import BatchColumns, ChunkColumns, CommitChunks, QuotaUse
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from storage.batcher import SealedIntake


def commit_command(intake: SealedIntake, rules_version: int, quota_uses: tuple[QuotaUse, ...] = ()) -> CommitChunks:
    """The command that commits a sealed intake. Batch CRCs are left out where the rules in force have no field (S3)."""
    return CommitChunks(
        object_session=intake.session,
        object_number=intake.number,
        object_bytes=intake.object_bytes,
        topic_ids=intake.topic_ids,
        chunks=ChunkColumns(
            topic=intake.chunk_topics,
            partition=intake.chunk_partitions,
            byte_first=intake.chunk_byte_firsts,
            batch_count=intake.chunk_batch_counts,
        ),
        batches=BatchColumns(
            record_bytes=intake.batch_record_bytes,
            record_count=intake.batch_record_counts,
            max_timestamp=intake.batch_max_timestamps,
            producer_id=intake.batch_producer_ids,
            producer_epoch=intake.batch_producer_epochs,
            base_sequence=intake.batch_base_sequences,
            is_transactional=intake.batch_is_transactional,
        ),
        batch_crcs=intake.batch_crcs if rules_version >= RULES_CHECKED_STORAGE else b"",
        quota_uses=quota_uses,
    )
