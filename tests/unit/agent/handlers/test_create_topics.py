"""A request for very many partitions creates nothing, as in Kafka."""

import struct

from protocol.errors import ErrorCode
from protocol.limits import PARTITIONS_CREATED_PER_REQUEST_MAX
from tests.support.handlers.byte_requests import joined, request
from tests.support.handlers.handler_client import handled
from tests.support.handlers.stalled_ledger import Impatient, stalled

EXCESSIVE = b"Excessively large number of partitions per request."


def asked(*topics: tuple[bytes, int, int]) -> bytes:
    """A validating request in version 4, of names, numbers of partitions and numbers of assignments."""
    body = struct.pack(">i", len(topics))
    for name, partition_count, assignment_count in topics:
        replication_factor = -1 if assignment_count else 1
        body += struct.pack(">h", len(name)) + name + struct.pack(">ih", partition_count, replication_factor)
        body += struct.pack(">i", assignment_count)
        body += b"".join(struct.pack(">iii", index, 1, 1) for index in range(assignment_count)) + bytes(4)
    return body + struct.pack(">i", 30_000) + b"\1"


def told(name: bytes, error_code: ErrorCode, message: bytes | None) -> bytes:
    text = b"\xff\xff" if message is None else struct.pack(">h", len(message)) + message
    return struct.pack(">h", len(name)) + name + struct.pack(">h", error_code) + text


async def answered(*topics: tuple[bytes, int, int]) -> bytes:
    """The answer's topics."""
    async with stalled(Impatient()) as services:
        return joined(await handled(services, request(19, 4, asked(*topics))))[12:]


async def test_as_many_partitions_as_one_request_may_create_are_valid() -> None:
    half = PARTITIONS_CREATED_PER_REQUEST_MAX // 2
    answer = await answered((b"u", half, 0), (b"v", half - 1, 0), (b"w", -1, 0))
    assert answer == b"".join(told(name, ErrorCode.none, None) for name in (b"u", b"v", b"w"))


async def test_one_partition_more_and_no_topic_of_the_request_is_created() -> None:
    half = PARTITIONS_CREATED_PER_REQUEST_MAX // 2
    answer = await answered((b"u", half, 0), (b"v", half, 0), (b"w", -1, 1))
    assert answer == b"".join(told(name, ErrorCode.policy_violation, EXCESSIVE) for name in (b"u", b"v", b"w"))


async def test_a_number_that_is_refused_by_itself_does_not_count() -> None:
    answer = await answered((b"u", -7, 0), (b"v", PARTITIONS_CREATED_PER_REQUEST_MAX, 0))
    assert answer.startswith(told(b"u", ErrorCode.invalid_partitions, b"Number of partitions must be larger than 0."))
    assert answer.endswith(told(b"v", ErrorCode.none, None))
