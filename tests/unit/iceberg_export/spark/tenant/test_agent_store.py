"""Objects through an agent: which request is made for which key, and what is done where the store rejects keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from iceberg_export.spark.tenant.agent_store import AgentStore, tail_prefix
from iceberg_export.spark.tenant.client import AgentClient, AgentResponse
from iceberg_export.spark.tenant.signed_reads import NotSigned, SignedRange, SignedReads
from iceberg_export.spark.tenant.vended_folders import VendedFolder, VendedFolders
from protocol.limits import HTTP_TAIL_RANGE_BYTES_MAX
from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore, StoreDenied, StoreMisconfigured

ID = "0123456789abcdef0123456789abcdef"
FOLDER = f"lake/orders-{ID}/"
LISTED = b'{"topics": [{"name": "long-name", "id": "ASNFZ4mrze8BI0VniavN7w"}]}'
Query = Mapping[str, str | int] | None


@dataclass(slots=True)
class RecordingAgent:
    """Answers with bytes of `objects`, and records what was asked."""

    objects: dict[str, bytes]
    asked: list[tuple[str, Query]] = field(default_factory=list[tuple[str, Query]])
    is_closed: bool = False

    @property
    def url(self) -> str:
        return "https://agent:9644"

    async def get(self, path: str, query: Query = None) -> AgentResponse:
        self.asked.append((path, query))
        if query is None:
            return AgentResponse(body=LISTED, date_ms=None)
        content = self.objects[str(query["key"])]
        if "count" in query:
            content = content[int(query["first"]) : int(query["first"]) + int(query["count"])]
        return AgentResponse(body=content, date_ms=None)

    def close(self) -> None:
        self.is_closed = True


@dataclass(slots=True)
class Folders:
    """Vends these stores in turn; None for no keys."""

    stores: list[ObjectStore | None]
    forgotten: int = 0
    topics: set[str] = field(default_factory=set[str])

    async def folder(self, topic: str) -> VendedFolder | None:
        self.topics.add(topic)
        store = self.stores[0]
        return None if store is None else VendedFolder(folder=FOLDER, store=store)

    def forget(self, topic: str, rejected: VendedFolder) -> None:
        assert rejected.store is self.stores.pop(0)
        self.forgotten += 1


@dataclass(slots=True)
class Signed:
    """Reads that are signed: those that are known."""

    contents: Mapping[tuple[str, SignedRange], bytes]
    is_closed: bool = False

    async def read(self, topic: str, wanted: SignedRange) -> bytes:
        if (topic, wanted) not in self.contents:
            raise NotSigned
        return self.contents[topic, wanted]

    def close(self) -> None:
        self.is_closed = True


def store_of(
    agent: RecordingAgent,
    *stores: ObjectStore | None,
    signed: Mapping[tuple[str, SignedRange], bytes] = MappingProxyType({}),
) -> tuple[AgentStore, Folders]:
    folders = Folders([*stores] or [None])
    client: AgentClient = agent  # type: ignore[assignment]  # it has what is used of it
    vended: VendedFolders = folders  # type: ignore[assignment]
    reads: SignedReads = Signed(signed)  # type: ignore[assignment]
    return AgentStore(client, vended, reads), folders


class Rejecting(MemoryStore):
    """A store that rejects its keys."""

    async def get(self, key: str) -> bytes:
        raise StoreMisconfigured("ExpiredToken")


async def test_chunks_come_through_the_agent_by_the_topics_name() -> None:
    agent = RecordingAgent({"intake/1/2": b"0123456789"})
    store, _ = store_of(agent)
    assert tail_prefix("a.b") == "tail/a.b/"
    assert await store.get_range("tail/a.b/intake/1/2", 3, 4) == b"3456"
    assert agent.asked == [("/api/tail/a.b/bytes", {"key": "intake/1/2", "first": 3, "count": 4})]
    with pytest.raises(ObjectDamaged, match="was cut"):
        await store.get_range("tail/a.b/intake/1/2", 8, 4)


async def test_chunks_come_from_the_store_where_the_agent_signs_them() -> None:
    agent = RecordingAgent({"intake/1/2": b"0123456789"})
    store, _ = store_of(agent, signed={("t", SignedRange("intake/1/2", 3, 4)): b"3456"})
    assert await store.get_range("tail/t/intake/1/2", 3, 4) == b"3456"
    assert agent.asked == []
    assert await store.get_range("tail/t/intake/1/2", 3, 0) == b""


async def test_a_long_range_is_read_in_parts() -> None:
    content = bytes(HTTP_TAIL_RANGE_BYTES_MAX) + b"end"
    agent = RecordingAgent({"intake/1/2": b"x" + content})
    store, _ = store_of(agent)
    assert await store.get_range("tail/t/intake/1/2", 1, len(content)) == content
    assert [query and query["count"] for _, query in agent.asked] == [HTTP_TAIL_RANGE_BYTES_MAX, 3]


async def test_files_come_from_the_store_with_vended_keys_else_through_the_agent() -> None:
    key = f"{FOLDER}data/1-1.parquet"
    vended = MemoryStore()
    await vended.put(key, [b"from the store"])
    agent = RecordingAgent({key: b"through the agent"})
    assert await store_of(agent, vended)[0].get(key) == b"from the store"
    assert await store_of(agent, vended)[0].get_range(key, 5, 3) == b"the"
    assert agent.asked == []
    assert await store_of(agent)[0].get(key) == b"through the agent"
    assert await store_of(agent)[0].get_range(key, 0, 7) == b"through"
    with pytest.raises(ObjectMissing):
        await store_of(agent, MemoryStore())[0].get(key)


async def test_keys_that_the_store_rejects_are_renewed_once() -> None:
    key = f"{FOLDER}data/1-1.parquet"
    vended = MemoryStore()
    await vended.put(key, [b"content"])
    store, folders = store_of(RecordingAgent({}), Rejecting(), vended)
    assert await store.get(key) == b"content"
    assert folders.forgotten == 1
    store, _ = store_of(RecordingAgent({}), Rejecting(), Rejecting())
    with pytest.raises(StoreDenied, match="rejects the credentials that the agent vended for topic orders: Expired"):
        await store.get(key)
    store, _ = store_of(RecordingAgent({key: b"through the agent"}), Rejecting(), None)
    assert await store.get(key) == b"through the agent"


async def test_a_shortened_folder_is_one_of_the_topic_with_its_id() -> None:
    key = f"lake/long!-{ID}/data/1-1.parquet"
    agent = RecordingAgent({key: b"content"})
    store, folders = store_of(agent)
    assert await store.get(key) == b"content"
    assert await store.get(key) == b"content"
    assert folders.topics == {"long-name"}
    assert [path for path, _ in agent.asked] == ["/api/topics", *["/api/tail/long-name/bytes"] * 2]
    with pytest.raises(ObjectMissing, match="may not describe it"):
        await store.get(f"lake/other!-{ID[::-1]}/data/1-1.parquet")


async def test_it_only_reads() -> None:
    agent = RecordingAgent({})
    store, _ = store_of(agent)
    with pytest.raises(ObjectMissing, match="of no topic's table"):
        await store.get("cluster.json")
    with pytest.raises(StoreDenied):
        await store.put("lake/x", [b""])
    with pytest.raises(StoreDenied):
        await store.delete(["lake/x"])
    with pytest.raises(StoreDenied):
        await store.head("lake/x")
    with pytest.raises(StoreDenied):
        store.list("")
    assert await store.server_time_ms() is None
    await store.close()
    assert agent.is_closed
