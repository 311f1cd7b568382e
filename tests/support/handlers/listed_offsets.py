"""ListOffsets 1 for the end of a topic's first partition."""

import asyncio
import struct

from agent.request.services import Request
from tests.support.agent.data_paths import DataPaths, services_of
from tests.support.handlers.byte_requests import joined, request
from tests.support.handlers.handler_client import handled


def latest_of(topic: bytes) -> Request:
    """The request for the end of partition 0."""
    body = struct.pack(">iih", -1, 1, len(topic)) + topic + struct.pack(">iiq", 1, 0, -1)
    return request(2, 1, body)


async def listed(paths: DataPaths, topic: bytes = b"t") -> tuple[int, int]:
    """The error code and the offset that the handler answers."""
    async with asyncio.TaskGroup() as tasks:
        answer = await handled(services_of(paths, paths.parts.clock, tasks), latest_of(topic))
    error_code, _, offset = struct.unpack(">hqq", joined(answer)[-18:])
    return error_code, offset
