"""Copies table metadata to the names that readers without a catalog expect: `v<N>.metadata.json`, `version-hint.text`.

The copies decide nothing: the ledger has the table's pointer. Iceberg prescribes their names, which hold no session.
Safety rule S6 therefore does not protect them: they are overwritten. Only the topic's owner by rendezvous hashing
writes them, and only while its session is confirmed.

Specification: `org.apache.iceberg.hadoop.HadoopTableOperations` (Iceberg 1.12).
"""

import logging
from collections.abc import Sequence
from functools import partial

from agent.bucket.failed_deletions import UNDELETABLE
from agent.context import AgentContext
from agent.lake.topic_work import TopicWork
from agent.runtime.periodic_job import PeriodicJob
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import TopicState
from coordinator.state.table_folders import folder_name
from protocol.limits import TABLE_COPIES_INTERVAL_S, TABLE_COPIES_KEPT, VERSION_HINT_BYTES_MAX
from protocol.types import TopicId
from storage.object_store import ObjectMissing, ObjectsNotDeleted
from storage.refs import metadata_copy_key, table_metadata_folder, topic_of_copy, version_hint_key, version_of_copy

log = logging.getLogger(__name__)


class HadoopMetadata:
    """Every agent has one."""

    def __init__(self, context: AgentContext) -> None:
        self._store = context.store
        self._ledger = context.ledger
        self._work = TopicWork(
            "hadoop metadata",
            failing="readers without a catalog do not see the newest version of a table",
            clock=context.clock,
            metrics=context.metrics,
        )
        self._copied: dict[TopicId, tuple[str, list[int]]] = {}
        """The metadata key that was copied last, and the versions with a copy, ascending."""

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(name="hadoop metadata", interval_s=TABLE_COPIES_INTERVAL_S, run_once=self._copy_due)

    async def _copy_due(self) -> None:
        """Copy the metadata of this agent's tables."""
        topics = self._ledger.state.topics
        for topic_id in self._copied.keys() - topics.keys():
            del self._copied[topic_id]
        for topic in list(topics.values()):
            if self._needs_copy(topic) and self._work.is_due(topic):
                await self._work.run(topic, partial(self._try, topic.topic_id))
        self._work.forget_others(self._ledger.state.topics)

    def _needs_copy(self, topic: TopicState) -> bool:
        if topic.table is None or self._copied.get(topic.topic_id, ("",))[0] == topic.table.metadata_key:
            return False
        if owner_of(topic.topic_id, self._ledger.state.sessions) == self._ledger.session:
            return True
        # Another agent writes the copies now, so what is known here may be out of date.
        self._copied.pop(topic.topic_id, None)
        return False

    async def _try(self, topic_id: TopicId) -> None:
        try:
            await self.copy(topic_id)
        except ObjectMissing as error:
            topic = self._ledger.state.topics.get(topic_id)
            if topic is not None and topic.table is not None and topic.table.metadata_key in str(error):
                raise
            log.info(
                "a table's metadata was replaced while it was copied; its next version is copied",
                extra={"topic_id": topic_id.hex(), "reason": str(error)},
            )

    async def copy(self, topic_id: TopicId) -> None:
        """Copy the current metadata of a topic's table, if the topic exists. Raises `StoreError`s."""
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or topic.table is None or not self._ledger.is_confirmed:
            return
        metadata_key, version = topic.table.metadata_key, topic.table.version
        known = self._copied.get(topic_id)
        content = await self._store.get(metadata_key)
        if known is None and await self._is_copied(topic, content):
            oldest = max(1, version - TABLE_COPIES_KEPT + 1)
            self._copied[topic_id] = (metadata_key, list(range(oldest, version + 1)))
            return
        versions = await self._listed_versions(topic) if known is None else known[1]
        # The metadata comes before the hint, so that a hint never leads to a copy that does not exist.
        for key, text in (
            (metadata_copy_key(self._name(topic), topic_id, version), content),
            (version_hint_key(self._name(topic), topic_id), str(version).encode()),
        ):
            if not self._may_write(topic_id):
                return
            await self._store.put(key, (text,))
        # Readers go up from the hint while there is a next version (HadoopTableOperations.refresh). After a recovery
        # the table's version is lower than before, so copies with higher numbers have to be deleted.
        current = [*(number for number in versions if number < version), version][-TABLE_COPIES_KEPT:]
        surplus = [number for number in versions if number not in current]
        if not self._may_write(topic_id):
            return  # a new owner, or a recovery, may have written some of these copies
        undeleted = await self._drop(topic, surplus)
        self._copied[topic_id] = (metadata_key, sorted([*undeleted, *current]))

    async def _drop(self, topic: TopicState, versions: Sequence[int]) -> Sequence[int]:
        """Delete copies. Returns the versions that the store did not delete: the next version tries them again."""
        keys = {metadata_copy_key(self._name(topic), topic.topic_id, version): version for version in versions}
        if not keys:
            return ()
        try:
            await self._store.delete(list(keys))
        except ObjectsNotDeleted as error:
            log.error(
                "the store did not delete old copies of a table's metadata; readers without a catalog may read a "
                f"version that is newer than the table ({UNDELETABLE})",
                extra={"topic_id": topic.topic_id.hex(), "reason": str(error)},
            )
            return [keys[key] for key in error.reasons]
        return ()

    def _name(self, topic: TopicState) -> str:
        """The name of the topic in its table's folder."""
        return folder_name(self._ledger.state, topic)

    def _may_write(self, topic_id: TopicId) -> bool:
        """Whether the topic exists and this agent still owns it."""
        # A copy for a deleted topic would stay until this session ends. Another owner may have copied newer versions.
        state = self._ledger.state
        is_owner = owner_of(topic_id, state.sessions) == self._ledger.session
        return topic_id in state.topics and is_owner and self._ledger.is_confirmed

    async def _is_copied(self, topic: TopicState, content: bytes) -> bool:
        """Whether the hint leads to this metadata. The number is not enough: a recovery may use a number twice."""
        assert topic.table is not None
        if await self._hint(topic) != topic.table.version:
            return False
        try:
            copy = await self._store.get(metadata_copy_key(self._name(topic), topic.topic_id, topic.table.version))
        except ObjectMissing:
            return False
        return copy == content

    async def _listed_versions(self, topic: TopicState) -> list[int]:
        """The versions with a copy in the bucket, ascending."""
        folder = table_metadata_folder(self._name(topic), topic.topic_id)
        # Agents' other names in the folder begin with a session, so they sort before "v" and are not listed. Files of
        # other programs may follow. A copy that cannot be read counts by its name, and is deleted by it (S20).
        versions = [
            version_of_copy(meta.key)
            async for meta in self._store.list(folder, after=f"{folder}v")
            if topic_of_copy(meta.key) is not None
        ]
        return sorted(version for version in versions if version is not None)

    async def _hint(self, topic: TopicState) -> int | None:
        try:
            text = await self._store.get(version_hint_key(self._name(topic), topic.topic_id))
        except ObjectMissing:
            return None
        digits = bytes(text[:VERSION_HINT_BYTES_MAX])
        return int(digits) if digits.isdigit() else None
