"""A refusal tells the log start where Kafka has asked the log, and the records at fault; nothing refused is kept."""

import asyncio
import struct

import pytest

from agent.handlers import produce
from agent.handlers.produce import _refusal
from agent.services import Request
from protocol.compression import Compression
from protocol.connection import read_request_frame
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import MIB
from storage.failing import Fault, FaultKind, Operation
from tests.made_records import Record, make_batch
from tests.unit.agent.data_paths import data_paths, services_of
from tests.unit.agent.ledger_parts import ManualClock

HEAD = struct.pack(">hhih", 0, 3, 7, -1) + b"\xff\xff" + struct.pack(">hi", -1, 30_000) + b"\0\0\0\1\0\1t"


def test_records_that_the_log_refuses_come_with_the_log_start_and_their_rows() -> None:
    told = _refusal(InvalidBatch(ErrorCode.invalid_record, "no key", (0, 2)), 40)
    assert (told.error_code, told.base_offset, told.log_start, told.rows_refused) == (87, -1, 40, (0, 2))
    assert told.error_message == "no key"


def test_bytes_that_are_not_one_batch_never_reach_the_log() -> None:
    assert _refusal(NotOneBatch(ErrorCode.invalid_record, "two"), 40).log_start == -1


def test_a_wrong_checksum_and_a_batch_too_large_are_told_without_the_log() -> None:
    assert _refusal(InvalidBatch(ErrorCode.corrupt_message, "crc"), 40).log_start == -1
    assert _refusal(InvalidBatch(ErrorCode.message_too_large, "large"), 40).log_start == -1


@pytest.mark.parametrize(("value_bytes", "is_memory_shared"), [(1, False), (MIB // 4, True)])
async def test_accepted_records_move_out_of_a_request_that_was_refused_for_the_most_part(
    value_bytes: int, *, is_memory_shared: bool
) -> None:
    batch = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=bytes(value_bytes))], Compression.NONE)
    accepted = struct.pack(">ii", 0, len(batch)) + batch
    refused = struct.pack(">ii", 1, MIB) + bytes(MIB)
    received = bytearray(HEAD + struct.pack(">i", 2) + accepted + refused)
    frame = read_request_frame(0, memoryview(received))
    is_shared: list[bool] = []

    async def look() -> None:
        """While the records are being put: what somebody looks into cannot change its size."""
        try:
            received.clear()
        except BufferError:
            is_shared.append(True)
        else:
            is_shared.append(False)

    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        paths.store.script(Fault(operation=Operation.PUT, kind=FaultKind.SLOW, pause_s=1.0))
        paths.during_pause = look
        request = Request(frame=frame, listener="PLAINTEXT", peer="test")
        answer = await produce.handle(services_of(paths, ManualClock(), tasks), request)
        assert isinstance(answer, asyncio.Future)
        told = b"".join(await answer)
    assert is_shared == [is_memory_shared]
    codes = struct.unpack(">h", told[19:21]) + struct.unpack(">h", told[41:43])
    assert codes == (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
