"""An `ObjectStore` whose objects a tenant reads through an agent: those of its topics' tables, and of their tails.

    tail/TOPIC/intake/...    bytes of an intake object that are the topic's: by signed URLs, else through the agent
    lake/TOPIC-ID/...        an object of a topic's table: by vended keys from the store, else through the agent

Rule: it only reads. The agent decides what may be read, at each request; of an intake object it returns chunks of one
topic, so the key of a chunk names the topic, and bytes between two chunks are never asked for.
"""

from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote

from iceberg_export.spark.tenant.client import AgentClient
from iceberg_export.spark.tenant.signed_reads import NotSigned, SignedRange, SignedReads
from iceberg_export.spark.tenant.topics import listed_topics
from iceberg_export.spark.tenant.vended_folders import VendedFolder, VendedFolders
from protocol.limits import HTTP_TAIL_RANGE_BYTES_MAX
from protocol.types import TopicId
from storage.object_store import (
    Buffer,
    ObjectMeta,
    ObjectMissing,
    ObjectStore,
    StoreDenied,
    StoreMisconfigured,
    cut_short,
)
from storage.refs import LAKE_PREFIX, SHORTENED_MARK, name_in_folder, topic_of_folder

TAIL_PREFIX = "tail/"
READ_ONLY = "a reader through an agent only reads objects: a job that needs more reads the bucket with its keys"


def tail_prefix(topic: str) -> str:
    """The beginning of the keys of a topic's intake objects here."""
    return f"{TAIL_PREFIX}{topic}/"


class AgentStore:
    """Implements `storage.object_store.ObjectStore`. For one event loop."""

    def __init__(self, client: AgentClient, folders: VendedFolders, signed: SignedReads) -> None:
        self._client = client
        self._folders = folders
        self._signed = signed
        self._names: dict[TopicId, str] = {}
        """The names of topics by their ids, for folders whose names are shortened."""

    async def get(self, key: str) -> bytes:
        return await self._read(key, None)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._read(key, (byte_first, byte_count))

    async def head(self, key: str) -> ObjectMeta:
        raise StoreDenied(f"head {key}: {READ_ONLY}")

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        raise StoreDenied(f"put {key}: {READ_ONLY}")

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        raise StoreDenied(f"list {prefix}: {READ_ONLY}")

    async def delete(self, keys: Sequence[str]) -> None:
        raise StoreDenied(f"delete {len(keys)} objects: {READ_ONLY}")

    async def server_time_ms(self) -> int | None:
        """None: nothing that only reads needs it."""
        return None

    async def close(self) -> None:
        self._signed.close()
        self._client.close()

    async def _read(self, key: str, part: tuple[int, int] | None) -> bytes:
        """The object, or the bytes `(first, count)` of it."""
        if key.startswith(TAIL_PREFIX):
            topic, _, stored_key = key.removeprefix(TAIL_PREFIX).partition("/")
            return await self._tail(topic, stored_key, part)
        topic = await self._topic_of(key)
        folder = await self._folders.folder(topic)
        if folder is None or not key.startswith(folder.folder):
            return await self._through_agent(topic, key, part)
        try:
            return await _from_store(folder, key, part)
        except StoreMisconfigured:
            self._folders.forget(topic, folder)  # they expired or were revoked: new ones show whether it is that
        renewed = await self._folders.folder(topic)
        if renewed is None:
            return await self._through_agent(topic, key, part)
        try:
            return await _from_store(renewed, key, part)
        except StoreMisconfigured as error:
            raise StoreDenied(
                f"the store rejects the credentials that the agent vended for topic {topic}: {error}"
            ) from error

    async def _tail(self, topic: str, key: str, part: tuple[int, int] | None) -> bytes:
        if part is not None and part[1] > 0:
            try:
                return await self._signed.read(topic, SignedRange(key, *part))
            except NotSigned:
                pass
        return await self._through_agent(topic, key, part)

    async def _topic_of(self, key: str) -> str:
        """The name of the topic in whose table's folder an object lies. Raises `ObjectMissing` for an unknown one."""
        if not key.startswith(LAKE_PREFIX):
            raise ObjectMissing(f"{key} is of no topic's table")
        name, topic_id = name_in_folder(key), topic_of_folder(key.split("/")[1])
        if not name.endswith(SHORTENED_MARK) or topic_id is None:
            return name
        if topic_id not in self._names:
            self._names.update({topic.topic_id: topic.name for topic in await listed_topics(self._client)})
        if topic_id not in self._names:
            raise ObjectMissing(f"the topic of {key} does not exist, or the user may not describe it")
        return self._names[topic_id]

    async def _through_agent(self, topic: str, key: str, part: tuple[int, int] | None) -> bytes:
        path = f"/api/tail/{quote(topic, safe='')}/bytes"
        if part is None:
            return (await self._client.get(path, {"key": key})).body
        parts: list[bytes] = []
        byte_first, byte_count = part
        for first in range(byte_first, byte_first + byte_count, HTTP_TAIL_RANGE_BYTES_MAX):
            count = min(HTTP_TAIL_RANGE_BYTES_MAX, byte_first + byte_count - first)
            content = (await self._client.get(path, {"key": key, "first": first, "count": count})).body
            if len(content) != count:
                raise cut_short(key, len(content), first, count)
            parts.append(content)
        return b"".join(parts)


async def _from_store(folder: VendedFolder, key: str, part: tuple[int, int] | None) -> bytes:
    store: ObjectStore = folder.store
    return await (store.get(key) if part is None else store.get_range(key, *part))
