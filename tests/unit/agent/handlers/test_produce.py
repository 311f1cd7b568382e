"""A refusal tells the log start where Kafka has asked the log, and the records at fault."""

from agent.handlers.produce import _refusal
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch


def test_records_that_the_log_refuses_come_with_the_log_start_and_their_rows() -> None:
    told = _refusal(InvalidBatch(ErrorCode.invalid_record, "no key", (0, 2)), 40)
    assert (told.error_code, told.base_offset, told.log_start, told.rows_refused) == (87, -1, 40, (0, 2))
    assert told.error_message == "no key"


def test_bytes_that_are_not_one_batch_never_reach_the_log() -> None:
    assert _refusal(NotOneBatch(ErrorCode.invalid_record, "two"), 40).log_start == -1


def test_a_wrong_checksum_and_a_batch_too_large_are_told_without_the_log() -> None:
    assert _refusal(InvalidBatch(ErrorCode.corrupt_message, "crc"), 40).log_start == -1
    assert _refusal(InvalidBatch(ErrorCode.message_too_large, "large"), 40).log_start == -1
