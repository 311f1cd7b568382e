"""Intake objects that are read for a recovery."""

import pytest

from coordinator.recovery.intake_objects import read_object
from protocol.types import ObjectNumber, PartitionIndex, SessionId
from storage.chunk_format import ChunkFormatError, ChunkParts, encode_object
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch


def test_an_object_that_says_it_is_another_one_is_damaged() -> None:
    chunk = ChunkParts(topic_id=TOPIC, partition=PartitionIndex(0), parts=[make_batch([Record(offset=0, timestamp=1)])])
    content = b"".join(encode_object(SessionId(1), ObjectNumber(3), [chunk]).parts)
    assert not read_object("k", content, session=SessionId(1), number=ObjectNumber(3), modified_ms=5).faults
    with pytest.raises(ChunkFormatError, match="object 3 of session 1"):
        read_object("k", content, session=SessionId(2), number=ObjectNumber(3), modified_ms=5)
