"""Copies the metadata of tables to where readers without a catalog look for it.

Rule: `v<N>.metadata.json` is put before `version-hint.text` names it, so whoever follows the hint finds a whole table,
though for a moment not the newest. The copies decide nothing: the ledger has the pointer. Their names are Iceberg's,
without a session, so safety rule S6 does not hold for them; they are overwritten, and only the topic's owner, by
rendezvous hashing, writes them, while its session is confirmed. What an agent before left is put right where its hint
is not what the state says, after a recovery too, which begins at an older version: readers go up from the hint as long
as they find another version, so no newer copy may stay.

Specification: `org.apache.iceberg.hadoop.HadoopTableOperations` (Iceberg 1.12).
"""

import logging
from collections.abc import Sequence
from functools import partial

from agent.bucket.failed_deletions import UNDELETABLE
from agent.lake.topic_work import TopicWork
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import TopicState
from coordinator.state.table_folders import folder_name
from protocol.limits import TABLE_COPIES_INTERVAL_S, TABLE_COPIES_KEPT, VERSION_HINT_BYTES_MAX
from protocol.types import TopicId
from storage.object_store import ObjectMissing, ObjectsNotDeleted, ObjectStore
from storage.refs import metadata_copy_key, table_metadata_folder, topic_of_copy, version_hint_key, version_of_copy

log = logging.getLogger(__name__)


class HadoopMetadata:
    """Every agent has one."""

    def __init__(
        self, *, store: ObjectStore, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock, metrics: Metrics
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._work = TopicWork(
            "hadoop metadata",
            failing="readers without a catalog do not see the newest version of a table yet",
            clock=clock,
            metrics=metrics,
        )
        self._copied: dict[TopicId, tuple[str, list[int]]] = {}
        """Which metadata was copied last, and the versions of which there are copies, the oldest first."""

    async def run(self) -> None:
        """Follow the tables, for ever."""
        while True:
            await self._clock.sleep(TABLE_COPIES_INTERVAL_S)
            topics = self._metadata.state.topics
            for topic_id in self._copied.keys() - topics.keys():
                del self._copied[topic_id]
            for topic in list(topics.values()):
                if self._is_wanted(topic) and self._work.is_due(topic):
                    await self._work.run(topic, partial(self._try, topic.topic_id))
            self._work.forget_others(self._metadata.state.topics)

    def _is_wanted(self, topic: TopicState) -> bool:
        if topic.table is None or self._copied.get(topic.topic_id, ("",))[0] == topic.table.metadata_key:
            return False
        if owner_of(topic.topic_id, self._metadata.state.sessions) == self._writer.session:
            return True
        # Whoever is the owner now writes what comes next: nothing that is known here holds any longer.
        self._copied.pop(topic.topic_id, None)
        return False

    async def _try(self, topic_id: TopicId) -> None:
        try:
            await self.copy(topic_id)
        except ObjectMissing as error:
            topic = self._metadata.state.topics.get(topic_id)
            if topic is not None and topic.table is not None and topic.table.metadata_key in str(error):
                raise
            log.info("a table moved on while it was copied", extra={"topic_id": topic_id.hex(), "reason": str(error)})

    async def copy(self, topic_id: TopicId) -> None:
        """Have the copies of a topic's table say what the state says, if it is there still. Raises `StoreError`s."""
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or topic.table is None or not self._writer.is_confirmed:
            return
        metadata_key, version = topic.table.metadata_key, topic.table.version
        known = self._copied.get(topic_id)
        content = await self._store.get(metadata_key)
        if known is None and await self._is_copied(topic, content):
            oldest = max(1, version - TABLE_COPIES_KEPT + 1)
            self._copied[topic_id] = (metadata_key, list(range(oldest, version + 1)))
            return
        versions = await self._versions_found(topic) if known is None else known[1]
        for key, text in (
            (metadata_copy_key(self._name(topic), topic_id, version), content),
            (version_hint_key(self._name(topic), topic_id), str(version).encode()),
        ):
            if not self._may_write(topic_id):
                return
            await self._store.put(key, (text,))
        kept = [*(found for found in versions if found < version), version][-TABLE_COPIES_KEPT:]
        gone = [found for found in versions if found not in kept]
        if not self._may_write(topic_id):
            return  # the versions of a recovery or of another owner may be among them
        left = await self._drop(topic, gone)
        self._copied[topic_id] = (metadata_key, sorted([*left, *kept]))

    async def _drop(self, topic: TopicState, versions: Sequence[int]) -> Sequence[int]:
        """Delete copies and return those that are still there: they are tried again at the table's next version."""
        keys = {metadata_copy_key(self._name(topic), topic.topic_id, version): version for version in versions}
        if not keys:
            return ()
        try:
            await self._store.delete(list(keys))
        except ObjectsNotDeleted as error:
            log.error(
                "copies of a table's metadata could not be deleted; readers without a catalog may follow one that is "
                f"newer than the table ({UNDELETABLE})",
                extra={"topic_id": topic.topic_id.hex(), "reason": str(error)},
            )
            return [keys[key] for key in error.reasons]
        return ()

    def _name(self, topic: TopicState) -> str:
        """The name of the topic in its table's folder."""
        return folder_name(self._metadata.state, topic)

    def _may_write(self, topic_id: TopicId) -> bool:
        """Whether the topic is there, and this agent its owner still. Nobody would delete what came for one that was
        deleted meanwhile before sessions end; and another owner may have copied newer versions."""
        state = self._metadata.state
        is_owner = owner_of(topic_id, state.sessions) == self._writer.session
        return topic_id in state.topics and is_owner and self._writer.is_confirmed

    async def _is_copied(self, topic: TopicState, content: bytes) -> bool:
        """Whether the hint leads to this very metadata: after a recovery another one may have had its number."""
        assert topic.table is not None
        if await self._hint(topic) != topic.table.version:
            return False
        try:
            copy = await self._store.get(metadata_copy_key(self._name(topic), topic.topic_id, topic.table.version))
        except ObjectMissing:
            return False
        return copy == content

    async def _versions_found(self, topic: TopicState) -> list[int]:
        """The versions of which somebody left copies, ascending."""
        folder = table_metadata_folder(self._name(topic), topic.topic_id)
        # Names of everything else there begin with a session, and so come before these; others' may not. A copy that
        # cannot be looked at counts by its name, and is deleted by it like any other.
        found = [
            version_of_copy(meta.key)
            async for meta in self._store.list(folder, after=f"{folder}v")
            if topic_of_copy(meta.key) is not None
        ]
        return sorted(one for one in found if one is not None)

    async def _hint(self, topic: TopicState) -> int | None:
        try:
            text = await self._store.get(version_hint_key(self._name(topic), topic.topic_id))
        except ObjectMissing:
            return None
        digits = bytes(text[:VERSION_HINT_BYTES_MAX])
        return int(digits) if digits.isdigit() else None
