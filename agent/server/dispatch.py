"""The handler of each API, and the codec around it: decodes the request's body, encodes what the handler returns.

An API is a row of `protocol.api_versions` and a module of `agent.handlers`, which is found by being there. A module has
`API_KEY` and `handle(services, request, body)`, which returns the response's fields. The APIs of `RAW` read and write
their bytes themselves: `handle(services, request)`. APIs that are always rejected are rows of one table.
"""

import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

import agent.handlers
from agent.handlers.rejected_requests import REJECTIONS
from agent.request.deferred import DeferredValues, later
from agent.request.messages import Values, decode, encode, encode_yielding
from agent.request.services import Answer, Request, Services
from protocol.api_versions import ApiKey
from protocol.connection import RequestFrame
from storage.object_store import Buffer

Handler = Callable[[Services, Request, Any], Awaitable[Values | DeferredValues[Any]]]
"""Takes the decoded body, returns the fields of the response."""
RawHandler = Callable[[Services, Request], Awaitable[Answer]]
"""Takes the request's bytes, returns those of the response."""

RAW: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS})
"""Hot APIs with a codec of their own; and ApiVersions, which answers in versions that cannot be decoded (KIP-511)."""


def with_codec(handle: Handler) -> RawHandler:
    """The handler, with its request decoded and its response encoded.

    Raises `MalformedRequest` where the body cannot be decoded: close the connection.
    """

    async def answer(services: Services, request: Request) -> Answer:
        frame = request.frame
        # No variable holds the decoded body: a response may be minutes away.
        values = await handle(services, request, await decode(frame))
        if isinstance(values, DeferredValues):
            return later(values.pending, partial(_encode_result, frame, values))
        return await encode_yielding(frame, values)

    return answer


def _encode_result(frame: RequestFrame, deferred: DeferredValues[Any], result: object) -> list[Buffer]:
    return encode(frame, deferred.values(result))


def _handlers() -> Iterator[tuple[int, RawHandler]]:
    for rejection in REJECTIONS:
        yield rejection.api_key, with_codec(rejection.handle)
    for module_info in pkgutil.iter_modules(agent.handlers.__path__):
        module = import_module(f"{agent.handlers.__name__}.{module_info.name}")
        if hasattr(module, "API_KEY"):
            yield module.API_KEY, module.handle if module.API_KEY in RAW else with_codec(module.handle)


HANDLERS: Final[dict[int, RawHandler]] = dict(_handlers())
