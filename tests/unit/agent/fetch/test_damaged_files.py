"""Archived files whose bytes changed in the bucket: their records alone are not served, and the log says so once."""

import asyncio

import pytest

from protocol.errors import ErrorCode
from protocol.limits import DAMAGED_CHUNK_REREAD_INTERVAL_S
from tests.support.agent.archived_files import archived_file
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.agent.fetch_paths import batch, consumer_of
from tests.support.commands.commands import TOPIC


async def damage(paths: DataPaths, key: str, at: bytes, instead: bytes) -> bytes:
    """Change bytes of an object, wherever they stand. Returns what it was before."""
    whole = await paths.memory.get(key)
    assert at in whole
    await paths.memory.put(key, [whole.replace(at, instead + at[len(instead) :])])
    return whole


def error_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [record.__dict__ for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("at", "instead"),
    [
        pytest.param(b"penstock.archive", b"\xff", id="UnicodeDecodeError in a name of the footer's metadata"),
        pytest.param(b'"version"', b'"verSION"', id="KeyError in what the footer says"),
        pytest.param(b"timestamp_type", b"T", id="KeyError for a column"),
        pytest.param(b"PAR1", b"PAR2", id="no end of a Parquet file"),
    ],
)
async def test_a_damaged_footer_is_an_error_of_its_partition_and_of_nothing_else(at: bytes, instead: bytes) -> None:
    async with data_paths(partitions=2, cache_bytes=0) as paths:
        damaged, _ = [await archived_file(paths, partition) for partition in (0, 1)]
        await damage(paths, damaged, at, instead)
        wanted = [consumer_of("t", partition=partition) for partition in (0, 1)]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    assert [read.error_code for read in reads] == [ErrorCode.kafka_storage_error, ErrorCode.none]
    assert [read.offset_next for read in reads] == [-1, 3]


async def test_a_damaged_file_is_logged_once_counted_each_time_and_not_read_again_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with data_paths(cache_bytes=0) as paths:
        key = await archived_file(paths, 0)
        whole = await damage(paths, key, b"PAR1", b"PAR2")
        answers = [(await paths.fetch(1)).error_code for _ in range(3)]
        await paths.memory.put(key, [whole])
        answers.append((await paths.fetch(1)).error_code)
        paths.parts.clock.seconds += DAMAGED_CHUNK_REREAD_INTERVAL_S
        answers.append((await paths.fetch(1)).error_code)
        exposition = paths.parts.metrics.exposition().decode()
    assert answers == [ErrorCode.kafka_storage_error] * 4 + [ErrorCode.none]
    (line,) = error_lines(caplog)
    assert {name: line[name] for name in ("topic", "partition", "offset", "key")} == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "key": key,
    }
    assert 'docs/operations/damage.md, "A damaged file"' in str(line["message"])
    assert line["reason"] == "a Parquet file ends with b'PAR1', not with b'PAR2'", "the key is not said twice"
    assert "penstock_fetch_damaged_objects_total 4.0" in exposition


async def test_the_line_about_a_cut_file_says_its_key_once(caplog: pytest.LogCaptureFixture) -> None:
    async with data_paths(cache_bytes=0) as paths:
        key = await archived_file(paths, 0)
        await paths.memory.put(key, [b"PAR"])
        await paths.fetch(1)
    (line,) = error_lines(caplog)
    assert (line["key"], line["reason"]) == (key, "has 3 bytes, too few for a Parquet file")


async def test_a_damaged_chunk_keeps_no_other_one_of_its_object_from_being_served() -> None:
    async with data_paths(partitions=2, cache_bytes=0) as paths:
        await asyncio.gather(*(paths.produce(batch(3), partition=partition) for partition in (0, 1)))
        state = paths.parts.ledger.state
        first, second = (partition.index.row(0) for partition in state.topics[TOPIC].partitions)
        assert first.object_id == second.object_id
        key = state.objects[first.object_id].key
        stored = bytearray(await paths.memory.get(key))
        stored[first.byte_first + 100] ^= 1
        await paths.memory.put(key, [stored])
        answers = list[ErrorCode]()
        for partition in (0, 1, 0, 1):
            wanted = [consumer_of("t", partition=partition)]
            (read,) = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            answers.append(read.error_code)
    assert answers == [ErrorCode.kafka_storage_error, ErrorCode.none] * 2
