"""A ledger that does not answer in the time that a request has is told, and holds up no connection."""

import struct

from protocol.errors import ErrorCode
from protocol.limits import LEDGER_WAIT_SECONDS_MAX
from protocol.types import Offset
from tests.support.commands.commands import TOPIC
from tests.support.handlers.byte_requests import joined, request
from tests.support.handlers.handler_client import handled
from tests.support.handlers.stalled_ledger import Impatient, stalled

TIMED_OUT = struct.pack(">h", ErrorCode.request_timed_out)
NOT_AVAILABLE = struct.pack(">h", ErrorCode.coordinator_not_available)
TIMEOUT = struct.pack(">i", 2_500)


async def test_a_topic_that_is_not_created_within_the_requests_time_is_told_as_timed_out() -> None:
    clock = Impatient()
    topics = b"\0\0\0\1\0\1u" + b"\0\0\0\1\0\1" + bytes(4) + bytes(4)
    async with stalled(clock) as services:
        answer = joined(await handled(services, request(19, 2, topics + TIMEOUT + b"\0")))
        assert b"\0\1u" + TIMED_OUT in answer
        assert clock.waits == [2.5]


async def test_a_topic_that_is_not_deleted_within_the_requests_time_is_told_as_timed_out() -> None:
    clock = Impatient()
    async with stalled(clock) as services:
        answer = joined(await handled(services, request(20, 1, b"\0\0\0\1\0\1t" + TIMEOUT)))
        assert b"\0\1t" + TIMED_OUT in answer
        assert clock.waits == [2.5]


async def test_records_that_are_not_deleted_within_the_requests_time_are_told_as_timed_out() -> None:
    clock = Impatient()
    partition = struct.pack(">iiq", 1, 0, 2)
    async with stalled(clock) as services:
        services.state.topics[TOPIC].partitions[0].index.append(3, 1, 0, 1, 1, -1)
        services.state.topics[TOPIC].partitions[0].log_end = Offset(3)
        answer = joined(await handled(services, request(21, 0, b"\0\0\0\1\0\1t" + partition + TIMEOUT)))
        assert answer[-14:] == struct.pack(">iq", 0, -1) + TIMED_OUT
        assert clock.waits[-1] == 2.5


async def test_a_topic_that_metadata_cannot_create_in_time_is_told_as_timed_out() -> None:
    clock = Impatient()
    async with stalled(clock) as services:
        answer = joined(await handled(services, request(3, 4, b"\0\0\0\1\0\1u\1")))
        assert TIMED_OUT + b"\0\1u" in answer
        assert clock.waits == [LEDGER_WAIT_SECONDS_MAX]


async def test_a_producer_that_gets_no_id_in_time_is_told_to_come_again() -> None:
    clock = Impatient()
    async with stalled(clock) as services:
        answer = joined(await handled(services, request(22, 0, b"\xff\xff" + TIMEOUT)))
        assert answer[8:10] == NOT_AVAILABLE
        assert clock.waits == [LEDGER_WAIT_SECONDS_MAX]
