"""Asks a handler as a client does: its request is written, and its answer read, by kio."""

import asyncio
import typing
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta

from kio.index import load_request_schema

from agent.request.connection_epochs import RequestEpoch
from agent.request.services import Request, Services
from agent.security.quotas.throttling import usage_of
from agent.security.rights import ALL_RIGHTS, Rights
from agent.server.dispatch import HANDLERS
from agent.telemetry.client_info import ConnectedClient
from protocol.api_versions import range_of
from protocol.connection import RequestFrame
from protocol.messages import response_type
from protocol.throttle_time import with_throttle_time
from storage.object_store import Buffer
from tests.support.records.kio_messages import KioEntity, kio_read, kio_write, made

CORRELATION_ID_BYTES = 4
TIMEOUT = timedelta(seconds=1)


async def ask(
    services: Services,
    api_key: int,
    version: int,
    client: ConnectedClient | None = None,
    connection_epoch: RequestEpoch | None = None,
    user: str | None = None,
    rights: Rights = ALL_RIGHTS,
    /,
    **values: object,
) -> KioEntity:
    """The response to a request with these fields; mappings stand for structures, lists for arrays.

    What a `user` asks is counted in that user's quotas.
    """
    data = await ask_for_bytes(services, api_key, version, client, connection_epoch, user, rights, **values)
    return kio_read(response_type(api_key, version), data)


async def ask_for_bytes(
    services: Services,
    api_key: int,
    version: int,
    client: ConnectedClient | None = None,
    connection_epoch: RequestEpoch | None = None,
    user: str | None = None,
    rights: Rights = ALL_RIGHTS,
    /,
    **values: object,
) -> bytes:
    """The same as bytes, behind their header: kio does not read every answer that clients do."""
    frame = frame_of(api_key, version, values)
    request = Request(
        frame=frame,
        listener="PLAINTEXT",
        peer="127.0.0.1:50000",
        client=client or ConnectedClient(),
        connection_epoch=connection_epoch,
        usage=None if user is None else usage_of(services.quotas, user, frame),
        rights=rights,
    )
    return answered(request.frame, await handled(services, request))


def frame_of(api_key: int, version: int, values: Mapping[str, object]) -> RequestFrame:
    """The frame of a request with these fields."""
    return RequestFrame(
        number=0,
        api_key=api_key,
        api_version=version,
        correlation_id=7,
        client_id="me",
        header_bytes=10,
        body=memoryview(kio_write(built(load_request_schema(api_key, version), values))),
    )


def answered(frame: RequestFrame, answer: Sequence[Buffer]) -> bytes:
    """The body of the response to a frame. A throttle time can be put into the answer as its handler divides it."""
    served = range_of(frame.api_key)
    assert served is not None
    header_bytes = CORRELATION_ID_BYTES + served.response_header_version(frame.api_version)
    sent = b"".join(bytes(part) for part in answer)
    throttled = with_throttle_time(frame.api_key, frame.api_version, answer, 0)
    assert b"".join(bytes(part) for part in throttled) == sent
    return sent[header_bytes:]


async def handled(services: Services, request: Request) -> Sequence[Buffer]:
    """The response to a request, header included, as a connection sends it."""
    answer = await HANDLERS[request.frame.api_key](services, request)
    if isinstance(answer, asyncio.Future):
        answer = await answer
    assert answer is not None
    return answer


async def turns_of_others(asked: Coroutine[object, object, KioEntity]) -> tuple[KioEntity, int]:
    """The answer, and how often another task had its turn before it came."""
    turns_count = 0
    task = asyncio.ensure_future(asked)
    while not task.done():
        turns_count += 1
        await asyncio.sleep(0)
    return task.result(), turns_count - 1


def built(schema: type, values: Mapping[str, object]) -> KioEntity:
    """kio's entity with these fields; mappings stand for structures, lists for arrays."""
    assert is_dataclass(schema)
    assert set(values) <= {field.name for field in fields(schema)}, f"{schema.__name__} lacks a field of {set(values)}"
    hints = typing.get_type_hints(schema)
    return made(schema, **{name: _value(hints[name], value) for name, value in values.items()})


def _value(hint: object, value: object) -> object:
    match value:
        case Mapping():
            return built(_structure(hint), value)
        case list():
            return tuple(_value(hint, each) for each in value)
        case _:
            return value


def _structure(hint: object) -> type:
    """The structure that an array's hint is about."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return next(_structure(each) for each in typing.get_args(hint) if each not in (type(None), Ellipsis))
