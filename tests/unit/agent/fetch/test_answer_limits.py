"""Fetches while other clients leave much unread: they answer less, and never nothing."""

from functools import partial

from agent.fetch.sessions import RequestedPartition
from protocol.limits import MIB
from tests.support.agent.data_paths import data_paths
from tests.support.records.plain_records import Record, make_batch

BATCH = make_batch([Record(offset=0, timestamp=1, value=b"x" * 200)])


async def test_a_fetch_answers_no_more_than_there_is_room_for_once_it_has_waited_and_a_batch_at_least() -> None:
    async with data_paths() as paths:
        await paths.produce(*[BATCH] * 4)
        batch_bytes, wanted = len(BATCH), RequestedPartition("t", 0, 0, MIB, -1, -1)
        for room_bytes, count in ((MIB, 4), (2 * batch_bytes, 2), (1, 1)):
            (read,) = await paths.fetch_path.fetch(
                [wanted], max_wait_ms=0, bytes_min=1, bytes_max=MIB, capacity_bytes=partial(int, room_bytes)
            )
            assert read.record_bytes == count * batch_bytes
