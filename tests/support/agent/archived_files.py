"""A topic whose records are archived in one file."""

from storage.refs import LAKE_PREFIX
from tests.support.agent.data_paths import DataPaths
from tests.support.agent.fetch_paths import batch
from tests.support.commands.commands import TOPIC


async def archived_file(paths: DataPaths, partition: int) -> str:
    """The key of a file that one partition's records are archived in."""
    before = {meta.key async for meta in paths.memory.list(LAKE_PREFIX)}
    await paths.produce(batch(3), partition=partition)
    await paths.archiver.archive_topic(TOPIC)
    (key,) = [
        meta.key
        async for meta in paths.memory.list(LAKE_PREFIX)
        if meta.key not in before and meta.key.endswith(".parquet")
    ]
    return key
