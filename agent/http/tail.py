"""One topic's records as they lie in the bucket, for readers that may not read the bucket itself.

    POST /api/tail {"topics": ["orders"]}         these topics' part of the tail manifest
    GET /api/tail/NAME                            one topic's part of it
    GET /api/tail/NAME/bytes?key=&first=&count=   bytes of an object, as far as they are the topic's
    POST /api/tail/NAME/urls {"ranges": [[key, first, count], ...]}   URLs, each signed for such bytes

A reader of `intake/` in the bucket can read every topic, as its objects hold chunks of many. Here a reader with
READ on one topic gets the bytes of that topic alone, through the agent. The manifest: `iceberg_export.tail.manifest`.
Rule: an intake object's footer says which of its bytes are chunks of which topic, by the topic's id. So a range is
allowed or denied the same way by every agent, before and after the archive pass, and for a topic that was created again
under the same name. Of archived files those in the folder of the topic's table are the topic's.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agent.http.services import AdminServices
from agent.http.tail_urls import TailUrls
from agent.runtime.threads import run_in_thread
from coordinator.state.state import TopicState
from coordinator.state.table_folders import lake_folders
from iceberg_export.tail.manifest import TailManifest, encode_manifest
from iceberg_export.tail.planner import TailTopics, chunks_each, waiting_chunks
from protocol.limits import HTTP_TAIL_FOOTERS_MAX, HTTP_TAIL_RANGE_BYTES_MAX, HTTP_TAIL_READS_MAX
from protocol.types import TopicId
from storage.chunk_format import TAIL_BYTES_HINT, ChunkFormatError, FooterChunk, TailTooShort, read_footer
from storage.keys import is_key
from storage.object_store import ObjectDamaged, ObjectMissing
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

    async def manifest(self, topic_ids: Collection[TopicId]) -> bytes:
        """The topics' part of a tail manifest of now, without those that do not exist. Call it behind a barrier."""
        state, planned = self._ledger.state, TailTopics()
        each_max = chunks_each([count for topic_id in topic_ids for count in waiting_chunks(state, topic_id)])
        topics = [planned.topic(state, topic_id, each_max=each_max) for topic_id in sorted(topic_ids)]
        manifest = TailManifest(
            cluster_id=state.cluster_id,
            incarnation=state.incarnation,
            position=state.position,
            written_ms=self._clock.now_ms(),
            topics=tuple(topic for topic in topics if topic is not None),
        )
        return await run_in_thread(encode_manifest, manifest)

    async def read(self, user: str, topic: TopicState, part: ObjectRange) -> bytes:
        """The bytes, if they are the topic's, counted against the user's fetch quota.

        Raises `NotOfTopic`, `RangeTooLarge`, `Throttled`, `ObjectMissing`, `StoreError`.
        """
        count = self._within_quota(user)
        content = await self._read(topic, part)
        count(len(content))
        return content

    async def signed(
        self, user: str, topic: TopicState, parts: Sequence[ObjectRange], urls: TailUrls
    ) -> list[str | None]:
        """A URL for each range of an intake object; None where the bytes are not the topic's, or do not exist.

        The bytes count against the user's fetch quota. Raises `Throttled`, `StoreError`.
        """
        count = self._within_quota(user)
        signed: list[str | None] = []
        for part in parts:
            async with self._slots:
                try:
                    is_owned = await self._is_in_intake(topic.topic_id, part)
                except ObjectMissing:
                    is_owned = False
            assert part.byte_count is not None, "a range has a length"
            signed.append(await urls.sign(part.key, part.byte_first, part.byte_count) if is_owned else None)
        count(sum(part.byte_count or 0 for part, url in zip(parts, signed, strict=True) if url is not None))
        return signed

    def _within_quota(self, user: str) -> Callable[[int], None]:
        """Counts bytes against the user's fetch quota. Raises `Throttled` where nothing is left of it."""
        quotas = self._quotas
        client = None if quotas is None else quotas.of_client(user, "")
        meter = None if client is None else client.fetch
        if quotas is None or meter is None:
            return lambda _: None
        seconds = meter.counted.throttle_s(meter.limit, self._clock.monotonic_s(), quotas.windows)
        if seconds > 0:
            raise Throttled(seconds)
        return lambda byte_count: meter.counted.count(byte_count, self._clock.monotonic_s(), quotas.windows)

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
        # The answer to a range without bytes would show whether an object of others exists.
        if not part.key.startswith(INTAKE_PREFIX) or not part.byte_count or not is_key(part.key):
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
