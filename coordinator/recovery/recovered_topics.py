"""The topics of a recovery: what came back of each, and topics whose entries are lost, created again.

In: the ids of topics and partitions that intake objects name, and the outcomes of their commits. Out: a
`TopicRecovered` for each topic that the recovery touches, for the report.
"""

import itertools
from dataclasses import dataclass
from typing import Final

from coordinator.apply.chunks import NO_ERROR
from coordinator.apply.topics import create_topic
from coordinator.commands.commands import ChunksCommitted, CommitChunks, CreateTopic, Rejected
from coordinator.ledger.port import LedgerCorrupt
from coordinator.recovery.intake_objects import batch_rows
from coordinator.state.state import ClusterState, PartitionState
from protocol.errors import ErrorCode
from protocol.types import TopicId

UNLIMITED_RETENTION: Final = (("retention.bytes", "-1"), ("retention.ms", "-1"))
"""The configs of a topic whose own are lost: no record is deleted before an operator has set others."""
RECOVERED_NAME = "recovered-{}"
"""The name of a topic whose creation is lost, by its id."""
NAME_ERRORS: Final = (ErrorCode.invalid_topic_exception, ErrorCode.topic_already_exists)
"""Errors of a creation that another name may avoid."""


@dataclass(slots=True, kw_only=True)
class TopicRecovered:
    """The outcome of the recovery for one topic's batches."""

    topic: str
    is_name_lost: bool = False
    are_configs_lost: bool = False
    """The topic is created again: no snapshot and no entry has it."""
    records: int = 0
    batches: int = 0
    duplicates: int = 0
    without_sequence: int = 0
    """Batches that are kept although others of their producer are missing before them."""
    rejected: int = 0
    """Batches that no ledger would take: of a stale epoch, or repeats of what is long gone."""
    of_transactions: int = 0
    """Batches of transactions whose end is lost: left out, as if they had been aborted."""
    offsets_lost: int = 0
    """Offsets whose objects are not in the bucket any more."""


class RecoveredTopics:
    """The topics that a recovery touches. `names`: those that the bucket knows, for topics that the state does not."""

    def __init__(self, state: ClusterState, names: dict[TopicId, str]) -> None:
        self._state = state
        self._names = names
        self.outcomes: dict[TopicId, TopicRecovered] = {}

    def outcome(self, topic_id: TopicId) -> TopicRecovered:
        """The outcome for a topic of the state, to add to."""
        return self.outcomes.setdefault(topic_id, TopicRecovered(topic=self._state.topics[topic_id].name))

    def ensure(self, topic_id: TopicId, partition: int) -> None:
        """Create the topic and its partitions if their entries are lost. Raises `LedgerCorrupt` if that is rejected."""
        if topic_id not in self._state.topics:
            self._create(topic_id)
        topic = self._state.topics[topic_id]
        while len(topic.partitions) <= partition:
            topic.partitions.append(PartitionState(unknown_producers_below=self._state.producers_before_deletion))
            self._state.partitions_count += 1

    def log_ends(self, topic_ids: tuple[TopicId, ...]) -> dict[TopicId, list[int]]:
        """The log ends of the partitions of topics, which `count` compares with after a commit."""
        topics = self._state.topics
        return {topic_id: [each.log_end for each in topics[topic_id].partitions] for topic_id in topic_ids}

    def count(
        self,
        command: CommitChunks,
        outcome: ChunksCommitted,
        *,
        rows_behind_a_gap: set[int],
        ends_before: dict[TopicId, list[int]],
    ) -> None:
        """Count the batches of a commit by what became of them."""
        for topic_id, partition, row in batch_rows(command):
            recovered = self.outcome(topic_id)
            if command.batches.is_transactional[row]:
                assert outcome.error_codes[row] != NO_ERROR, "`abort_transactions` forgot every transactional id"
                recovered.of_transactions += 1
            elif outcome.error_codes[row] != NO_ERROR:
                recovered.rejected += 1
            elif outcome.base_offsets[row] < ends_before[topic_id][partition]:
                recovered.duplicates += 1
            else:
                recovered.batches += 1
                recovered.records += command.batches.record_count[row]
                recovered.without_sequence += row in rows_behind_a_gap

    def _create(self, topic_id: TopicId) -> None:
        """Create the topic under the first name that is free."""
        known, made_up = self._names.get(topic_id), RECOVERED_NAME.format(topic_id.hex())
        names = (name for name in (known, made_up) if name is not None)
        further = (f"{made_up}-{number}" for number in itertools.count(2))
        name = next(names)
        rejection = self._rejection(topic_id, name)
        while rejection is not None:
            if rejection.error_code not in NAME_ERRORS:
                raise LedgerCorrupt(f"the topic {topic_id.hex()} cannot be made again: {rejection.reason}")
            name = next(names, None) or next(further)
            rejection = self._rejection(topic_id, name)
        self.outcomes[topic_id] = TopicRecovered(topic=name, is_name_lost=name != known, are_configs_lost=True)

    def _rejection(self, topic_id: TopicId, name: str) -> Rejected | None:
        """Create the topic under the name; None if that succeeded."""
        outcome = create_topic(
            self._state, CreateTopic(name=name, topic_id=topic_id, partition_count=1, configs=UNLIMITED_RETENTION)
        )
        return outcome if isinstance(outcome, Rejected) else None
