"""A fetch path, its consumer, and the batches and intake objects that it reads."""

from collections.abc import Callable

from agent.fetch.fetch_path import FetchPath
from agent.fetch.sessions import RequestedPartition
from agent.runtime.clock import Clock
from protocol.records.compression import Compression
from storage.object_store import ObjectMeta
from storage.refs import INTAKE_PREFIX
from tests.support.agent.data_paths import DataPaths
from tests.support.records.plain_records import Record, make_batch


def batch(count: int, compression: Compression = Compression.NONE, size: int = 200) -> bytes:
    return make_batch([Record(offset=n, timestamp=1_000 + n, value=b"x" * size) for n in range(count)], compression)


async def intake_objects(paths: DataPaths) -> list[ObjectMeta]:
    return [meta async for meta in paths.memory.list(INTAKE_PREFIX)]


def fetch_path_of(paths: DataPaths, clock: Clock, confirmed_s: Callable[[], float]) -> FetchPath:
    """These paths' fetches by another clock."""
    parts = paths.parts
    return FetchPath(
        parts.context(clock=clock), reader=paths.reader, budget=paths.budget, ahead=paths.ahead, confirmed_s=confirmed_s
    )


def consumer_of(topic: str, offset: int = 0, partition: int = 0) -> RequestedPartition:
    return RequestedPartition(topic, partition, offset, 1 << 20, -1, -1)
