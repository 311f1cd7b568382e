"""Simulated people who change tables through the catalog, and have them begun again from the files of their logs.

Rule: one editor sets its own property, so its value is the last one that was acknowledged, or one of an edit whose
outcome is not known; a table that was begun again has none. What snapshots need that a tag keeps, `tests.simulation.
tables` judges as of all others.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Final

from agent.broker import Broker
from agent.lake.table_rebuild import FileLost, NothingToRebuild
from agent.lake.table_updates import TopicGone
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from iceberg_export.tables.edits import (
    EditInvalid,
    RemoveSnapshotRef,
    RequirementFailed,
    SetProperties,
    SetSnapshotRef,
    TableEdit,
    Update,
)
from iceberg_export.tables.metadata import TableMetadata, decode
from protocol.types import TopicId
from storage.object_store import StoreError
from tests.simulation.clients.clients import ClientWorld
from tests.simulation.cluster.agents import Life

PAUSE_SECONDS_MAX: Final = 6.0
REBUILD_CHANCE: Final = 0.2
TAG_CHANCE: Final = 0.4
UNTAG_CHANCE: Final = 0.2
TAG: Final = "kept"
TAG_AGE_MS: Final = 15_000
"""A world is to be clean in the end."""


class TableEditor:
    """Edits the tables of some topics by any agent, one edit of a table at a time."""

    def __init__(self, world: ClientWorld, name: str, topics: Sequence[str]) -> None:
        self._world = world
        self._topics = topics
        self._property = name
        self._numbers = count(1)
        self._busy: dict[str, Life] = {}
        """Who is about to change each table."""
        self._possible: dict[str, set[str | None]] = defaultdict(lambda: {None})
        """What the property of each topic's table may be."""

    async def run(self) -> None:
        chance = self._world.chance
        while True:
            await self._world.clock.sleep(chance.random() * PAUSE_SECONDS_MAX)
            life, topic = chance.choice(self._world.agents).life, chance.choice(self._topics)
            before = self._busy.get(topic)
            if life is not None and life.broker is not None and (before is None or before.is_dead):
                self._begin(topic, life, life.broker)

    def judge(self) -> None:
        """When nothing is on its way any more."""
        for topic, possible in self._possible.items():
            found = self._metadata_of(topic)
            value = None if found is None else dict(found.properties).get(self._property)
            if value not in possible:
                self._world.around.history.violation(f"the table of {topic} has {value!r}, not one of {possible}")

    def _begin(self, topic: str, life: Life, broker: Broker) -> None:
        found = self._metadata_of(topic)
        topic_id = self._world.around.ledger.truth.state.topic_ids.get(topic)
        if found is None or topic_id is None:
            return
        if self._world.chance.random() < REBUILD_CHANCE:
            work = self._rebuild(broker, topic, topic_id)
        else:
            work = self._edit(broker, topic, topic_id, self._drawn(found))
        self._busy[topic] = life
        self._world.around.loop.create_task(work, context=life.context)

    def _drawn(self, found: TableMetadata) -> Update:
        chance, current = self._world.chance, found.current()
        if current is None or chance.random() >= TAG_CHANCE:
            return SetProperties(updates={self._property: str(next(self._numbers))})
        if chance.random() < UNTAG_CHANCE:
            return RemoveSnapshotRef(ref_name=TAG)
        return SetSnapshotRef(ref_name=TAG, type="tag", snapshot_id=current.snapshot_id, max_ref_age_ms=TAG_AGE_MS)

    async def _edit(self, broker: Broker, topic: str, topic_id: TopicId, update: Update) -> None:
        value = update.updates[self._property] if isinstance(update, SetProperties) else None
        if value is not None:
            self._possible[topic].add(value)
        try:
            await broker.lake.table_updates.make(topic_id, TableEdit(requirements=(), updates=(update,)))
        except (RequirementFailed, EditInvalid, TopicGone, StoreError, LedgerError, OutcomeUnknown):
            pass
        else:
            self._world.around.history.note("editor", "edits a table", f"{topic} {update}")
            if value is not None:
                self._possible[topic] = {value}
        del self._busy[topic]

    async def _rebuild(self, broker: Broker, topic: str, topic_id: TopicId) -> None:
        self._possible[topic].add(None)
        try:
            await broker.lake.table_rebuild.rebuild(topic_id)
        except (NothingToRebuild, FileLost, StoreError, LedgerError, OutcomeUnknown):
            pass
        else:
            self._world.around.history.note("editor", "begins a table again", topic)
            self._possible[topic] = {None}
        del self._busy[topic]

    def _metadata_of(self, topic: str) -> TableMetadata | None:
        state = self._world.around.ledger.truth.state
        topic_id = state.topic_ids.get(topic)
        table = None if topic_id is None else state.topics[topic_id].table
        stored = None if table is None else self._world.around.bucket.objects.get(table.metadata_key)
        return None if stored is None else decode(stored.payload)
