"""What the ledger says of producers that are forgotten because they were idle for long.

Rule: judged apart from `txn.producer_state`, by entries and their outcomes. A partition forgets a producer only if it
has nothing open there, and its newest batch is old enough by times that somebody told; what it wrote while nobody told
the time counts as written when the next such entry is applied (safety rule S2).
"""

from collections.abc import Collection
from typing import Final

from coordinator.commands.commands import ChunksCommitted, CommitChunks, Done, ExpireProducers, Outcome, Proposal
from coordinator.commands.transaction import TransactionDecided
from coordinator.state.state import ClusterState, PartitionState
from tests.simulation.clients.wire import Place
from tests.simulation.history import History

CHECK_SECONDS: Final = 2.0
"""In the place of `PRODUCER_EXPIRY_CHECK_INTERVAL_S`."""


class ProducerEntries:
    """Of one run."""

    def __init__(self, *, history: History, topics: Collection[str], expiration_ms: int) -> None:
        """`topics`: whose partitions are looked at. `expiration_ms`: how long idle producers are kept."""
        self._history = history
        self._topics = topics
        self._expiration_ms = expiration_ms
        self._batches: set[tuple[Place, int, int, int]] = set()
        self._used_ms: dict[tuple[Place, int], int | None] = {}
        """When a producer's newest batch was written, at the earliest; None where nobody told the time."""
        self._open: set[tuple[Place, int]] = set()
        """Who has something open before the entry that is looked at."""

    def before(self, state: ClusterState) -> None:
        """An entry is about to be applied."""
        self._open = {
            (place, producer_id)
            for place, partition in self._partitions(state).items()
            for producer_id in partition.open_producers()
        }

    def after(self, state: ClusterState, proposal: Proposal | None, outcome: Outcome | None) -> None:
        """It was applied."""
        command = None if proposal is None else proposal.command
        told_ms = None if proposal is None or proposal.time_ms is None else int(state.time_ms)
        if isinstance(command, CommitChunks) and isinstance(outcome, ChunksCommitted):
            self._look_at_batches(state, command, outcome, told_ms)
        elif isinstance(command, ExpireProducers) and isinstance(outcome, Done):
            self._look_at_expiry(state)
        elif isinstance(outcome, TransactionDecided) and told_ms is not None:
            # Its marker may count as written; so nothing is known to be younger.
            self._used_ms.update({one: told_ms for one, used_ms in self._used_ms.items() if used_ms is None})

    def overdue(self, state: ClusterState) -> str:
        """Who is not forgotten, though nobody wrote for long."""
        for place, partition in self._partitions(state).items():
            if partition.producers:
                return f"{place} does not forget the producers {sorted(partition.producers)}"
        return ""

    def _partitions(self, state: ClusterState) -> dict[Place, PartitionState]:
        found = [state.topics[state.topic_ids[name]] for name in self._topics if name in state.topic_ids]
        return {(topic.name, number): each for topic in found for number, each in enumerate(topic.partitions)}

    def _look_at_batches(
        self, state: ClusterState, command: CommitChunks, outcome: ChunksCommitted, told_ms: int | None
    ) -> None:
        chunks, batches, row = command.chunks, command.batches, 0
        for topic_row, partition, count in zip(chunks.topic, chunks.partition, chunks.batch_count, strict=True):
            topic = state.topics.get(command.topic_ids[topic_row])
            place = ("" if topic is None else topic.name, int(partition))
            for at in range(row, row + count):
                producer_id = int(batches.producer_id[at])
                if outcome.error_codes[at] or producer_id < 0 or place[0] not in self._topics:
                    continue
                batch = (place, producer_id, int(batches.producer_epoch[at]), int(batches.base_sequence[at]))
                is_new = batch not in self._batches
                self._batches.add(batch)
                if is_new or self._used_ms.get((place, producer_id)) is None:
                    self._used_ms[place, producer_id] = told_ms
            row += count

    def _look_at_expiry(self, state: ClusterState) -> None:
        partitions = self._partitions(state)
        for (place, producer_id), used_ms in list(self._used_ms.items()):
            if place in partitions and producer_id in partitions[place].producers:
                if used_ms is None:
                    self._used_ms[place, producer_id] = int(state.time_ms)
                continue
            del self._used_ms[place, producer_id]
            self._history.note("ledger", "forgets producer", f"{producer_id} of {place}")
            if (place, producer_id) in self._open:
                self._history.violation(f"{place} forgets the producer {producer_id}, which has something open there")
            if used_ms is None or used_ms > state.time_ms - self._expiration_ms:
                when = "while nobody told the time" if used_ms is None else f"at {used_ms}"
                self._history.violation(
                    f"{place} forgets the producer {producer_id} at {state.time_ms}, which wrote {when} (S2)"
                )
