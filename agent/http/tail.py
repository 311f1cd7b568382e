"""One topic's records as they lie in the bucket, for readers that may not read the bucket itself.

    GET /api/tail/NAME                            the topic's part of the tail manifest (`iceberg_export.tail.manifest`)
    GET /api/tail/NAME/bytes?key=&first=&count=   bytes of an object, as far as they are the topic's

A reader of `intake/` in the bucket can read every topic, as its objects hold chunks of many. Here a reader with
READ on one topic gets the bytes of that topic alone, through the agent.
Rule: an intake object's footer says which of its bytes are chunks of which topic, by the topic's id. So a range is
allowed or denied the same way by every agent, before and after the archive pass, and for a topic that was created again
under the same name. Of archived files those in the folder of the topic's table are the topic's.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from agent.http.services import AdminServices
from agent.runtime.threads import run_in_thread
from coordinator.state.state import TopicState
from coordinator.state.table_folders import lake_folders
from iceberg_export.tail.manifest import TailManifest, encode_manifest
from iceberg_export.tail.planner import TailTopics, chunks_each, waiting_chunks
from protocol.limits import HTTP_TAIL_FOOTERS_MAX, HTTP_TAIL_RANGE_BYTES_MAX, HTTP_TAIL_READS_MAX
from protocol.types import TopicId
from storage.chunk_format import TAIL_BYTES_HINT, ChunkFormatError, FooterChunk, TailTooShort, read_footer
from storage.keys import is_key
from storage.object_store import ObjectDamaged
from storage.refs import INTAKE_PREFIX


class NotOfTopic(Exception):
    """The bytes are none of the topic's, or there are no such bytes: the answer is the same."""


class Throttled(Exception):
    """The client's fetch quota is used up. `seconds`: until there is some again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the fetch quota is used up for {seconds:.1f} s")
        self.seconds = seconds


class RangeTooLarge(Exception):
    """The range exceeds HTTP_TAIL_RANGE_BYTES_MAX bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRange:
    """Bytes `[byte_first, byte_first + byte_count)` of an object; the whole object where `byte_count` is None."""

    key: str
    byte_first: int = 0
    byte_count: int | None = None


class TailReads:
    """The reads of topics through one agent."""

    def __init__(self, services: AdminServices) -> None:
        self._ledger = services.ledger
        self._store = services.store
        self._clock = services.clock
        self._quotas = services.quotas
        self._footers: OrderedDict[str, Sequence[FooterChunk]] = OrderedDict()
        self._slots = asyncio.Semaphore(HTTP_TAIL_READS_MAX)

    async def manifest(self, topic_id: TopicId) -> bytes | None:
        """The topic's part of a tail manifest of now; None where it was deleted. Call it behind a barrier."""
        state = self._ledger.state
        each_max = chunks_each(waiting_chunks(state, topic_id))
        topic = TailTopics().topic(state, topic_id, each_max=each_max)
        if topic is None:
            return None
        manifest = TailManifest(
            cluster_id=state.cluster_id,
            incarnation=state.incarnation,
            position=state.position,
            written_ms=self._clock.now_ms(),
            topics=(topic,),
        )
        return await run_in_thread(encode_manifest, manifest)

    async def read(self, user: str, topic: TopicState, part: ObjectRange) -> bytes:
        """The bytes, if they are the topic's, counted against the user's fetch quota.

        Raises `NotOfTopic`, `RangeTooLarge`, `Throttled`, `ObjectMissing`, `StoreError`.
        """
        quotas = self._quotas
        client = None if quotas is None else quotas.of_client(user, "")
        meter = None if client is None else client.fetch
        if quotas is None or meter is None:
            return await self._read(topic, part)
        seconds = meter.counted.throttle_s(meter.limit, self._clock.monotonic_s(), quotas.windows)
        if seconds > 0:
            raise Throttled(seconds)
        content = await self._read(topic, part)
        meter.counted.count(len(content), self._clock.monotonic_s(), quotas.windows)
        return content

    async def _read(self, topic: TopicState, part: ObjectRange) -> bytes:
        if part.byte_count is not None and part.byte_count > HTTP_TAIL_RANGE_BYTES_MAX:
            raise RangeTooLarge
        is_archived = part.key.startswith(lake_folders(self._ledger.state, topic))
        async with self._slots:
            if not is_key(part.key) or not (is_archived or await self._is_in_intake(topic.topic_id, part)):
                raise NotOfTopic
            if part.byte_count is not None:
                return await self._store.get_range(part.key, part.byte_first, part.byte_count)
            if (await self._store.head(part.key)).size_bytes > HTTP_TAIL_RANGE_BYTES_MAX:
                raise RangeTooLarge
            return await self._store.get(part.key)

    async def _is_in_intake(self, topic_id: TopicId, part: ObjectRange) -> bool:
        """Whether every byte of the range lies in a chunk of the topic."""
        if not part.key.startswith(INTAKE_PREFIX) or part.byte_count is None:
            return False
        position, end = part.byte_first, part.byte_first + part.byte_count
        for chunk in await self._chunks(part.key):
            if chunk.topic_id == topic_id and chunk.byte_first <= position < chunk.byte_first + chunk.byte_count:
                position = chunk.byte_first + chunk.byte_count
        return position >= end

    async def _chunks(self, key: str) -> Sequence[FooterChunk]:
        """The chunks of an intake object, in the order of their bytes. An object never changes, so they are cached."""
        cached = self._footers.get(key)
        if cached is None:
            size = (await self._store.head(key)).size_bytes
            try:
                cached = await self._read_footer(key, size)
            except ChunkFormatError as error:
                raise ObjectDamaged(f"{key} is no intake object: {error}") from error
            self._footers[key] = cached
        self._footers.move_to_end(key)
        if len(self._footers) > HTTP_TAIL_FOOTERS_MAX:
            self._footers.popitem(last=False)
        return cached

    async def _read_footer(self, key: str, size: int) -> Sequence[FooterChunk]:
        count = min(size, TAIL_BYTES_HINT)
        try:
            return read_footer(await self._store.get_range(key, size - count, count), size)
        except TailTooShort as error:
            count = error.bytes_needed
            return read_footer(await self._store.get_range(key, size - count, count), size)
