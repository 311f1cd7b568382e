"""The handler of each API, and the codec around it: decodes the request's body, encodes what the handler returns.

An API is a row of `protocol.api_versions` and a module of `agent.handlers`, which is found by being there. A module has
`API_KEY` and `handle(services, request, body)`, which returns the response's fields. The APIs of `RAW` read and write
their bytes themselves: `handle(services, request)`. APIs that are always rejected are rows of one table.
Rule: every API has a row in `agent.security.required_rights`. The operations on the cluster that a whole request needs
are asked for here, before its handler runs.
"""

import pkgutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

import agent.handlers
from agent.handlers.rejected_requests import REJECTIONS
from agent.request.changes import CHANGES
from agent.request.cluster_denials import CLUSTER_DENIALS
from agent.request.deferred import DeferredValues, later
from agent.request.messages import Values, decode, encode, encode_yielding
from agent.request.request_audit import with_recorded_changes
from agent.request.services import Answer, Request, Services
from agent.security.required_rights import REQUIRED_RIGHTS
from protocol.api_versions import ApiKey
from protocol.connection import RequestFrame
from storage.object_store import Buffer

Handler = Callable[[Services, Request, Any], Awaitable[Values | DeferredValues[Any]]]
"""Takes the decoded body, returns the fields of the response."""
RawHandler = Callable[[Services, Request], Coroutine[Any, Any, Answer]]
"""Takes the request's bytes, returns those of the response."""

RAW: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS})
"""APIs of records, with codecs of their own; ApiVersions answers in versions that cannot be decoded (KIP-511)."""


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


def with_cluster_rights(api_key: ApiKey, handle: Handler) -> Handler:
    """The handler, behind the operations on the cluster that requests of its API need as a whole."""
    required = REQUIRED_RIGHTS[api_key]
    if not required.cluster:
        return handle
    denial = CLUSTER_DENIALS[api_key]

    async def answer(services: Services, request: Request, body: object) -> Values | DeferredValues[Any]:
        is_required = request.frame.api_version >= required.cluster_since
        if is_required and not await request.rights.may_on_cluster(*required.cluster):
            return denial(body)
        return await handle(services, request, body)

    return answer


def _encode_result(frame: RequestFrame, deferred: DeferredValues[Any], result: object) -> list[Buffer]:
    return encode(frame, deferred.values(result))


def _handlers() -> Iterator[tuple[int, RawHandler]]:
    for rejection in REJECTIONS:
        yield rejection.api_key, with_codec(with_cluster_rights(rejection.api_key, rejection.handle))
    for module_info in pkgutil.iter_modules(agent.handlers.__path__):
        module = import_module(f"{agent.handlers.__name__}.{module_info.name}")
        if hasattr(module, "API_KEY"):
            api_key = ApiKey(module.API_KEY)
            # A look-up that fails here is a handler whose rights nothing states: the agent does not start.
            is_raw = api_key in RAW and not REQUIRED_RIGHTS[api_key].cluster
            if is_raw:
                yield api_key, module.handle
                continue
            handle = with_recorded_changes(module.handle) if api_key in CHANGES else module.handle
            yield api_key, with_codec(with_cluster_rights(api_key, handle))


HANDLERS: Final[dict[int, RawHandler]] = dict(_handlers())
