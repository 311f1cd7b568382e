"""The routes of `/api/tail`: one topic's records as they lie in the bucket, for readers that may not read all of it.

Rule: every request asks for READ on the topic again, behind a barrier. What is read: `agent.http.tail`.
"""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.api_requests import ApiError, find_topic, json_body, query_number, query_text, topic_names
from agent.http.authorization import denial, identity_of, require
from agent.http.services import AdminServices
from agent.http.tail import NotOfTopic, ObjectRange, RangeTooLarge, TailReads, Throttled
from agent.security.audit.audit_events import AuditedResource, CredentialEvent
from protocol.auth.operations import Operation, ResourceType
from protocol.limits import (
    HTTP_TAIL_OBJECT_BYTES_MAX,
    HTTP_TAIL_RANGE_BYTES_MAX,
    HTTP_TAIL_URL_SECONDS,
    HTTP_TAIL_URLS_MAX,
)
from storage.object_store import ObjectMissing

BYTES_TYPE = "application/octet-stream"
PLAN_AGAIN = "get the topic's part of the tail manifest again: a plan is good for as long as --gc-min-age-s"

RANGES_REMEDY = 'send {"ranges": [["intake/...", 8, 100]]}'


class TailRoutes:
    """The handlers. The guard of the routes has asked for READ, where the path names the topic."""

    def __init__(self, services: AdminServices) -> None:
        self._ledger = services.ledger
        self._urls = services.tail_urls
        self._tail = TailReads(services)

    async def topic(self, request: Request) -> Response:
        """One topic's part of the tail manifest."""
        await self._ledger.barrier()
        topic = find_topic(self._ledger.state, request.path_params["name"])
        return Response(await self._tail.manifest((topic.topic_id,)), media_type=BYTES_TYPE)

    async def topics(self, request: Request) -> Response:
        """The part of the tail manifest with the topics that the body names, all of one position.

        Those that do not exist, or that the client may not know of, are left out.
        """
        names = topic_names(await json_body(request))
        hidden = await identity_of(request).rights.denied_names(Operation.DESCRIBE, ResourceType.TOPIC, names)
        for name in sorted(hidden):
            error = denial(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
            if error.rejection.status == 401:
                raise error
        visible = [name for name in names if name not in hidden]
        await require(request, Operation.READ, ResourceType.TOPIC, *visible)
        await self._ledger.barrier()
        topic_ids = self._ledger.state.topic_ids
        manifest = await self._tail.manifest([topic_ids[name] for name in visible if name in topic_ids])
        return Response(manifest, media_type=BYTES_TYPE)

    async def bytes(self, request: Request) -> Response:
        """Bytes of an object of the bucket that are one topic's."""
        await self._ledger.barrier()
        topic = find_topic(self._ledger.state, request.path_params["name"])
        part = ObjectRange(
            key=query_text(request, "key"),
            byte_first=query_number(request, "first") or 0,
            byte_count=query_number(request, "count"),
        )
        try:
            content = await self._tail.read(identity_of(request).principal.name, topic, part)
        except (NotOfTopic, ObjectMissing) as error:
            message = f"there are no such bytes of topic {topic.name}"
            raise ApiError(404, "unknown_object", message, PLAN_AGAIN) from error
        except RangeTooLarge as error:
            message = f"the range exceeds {HTTP_TAIL_RANGE_BYTES_MAX} bytes"
            raise ApiError(413, "too_large", message, "read it in parts with first= and count=") from error
        except Throttled as error:
            raise _throttled(error) from error
        return Response(content, media_type=BYTES_TYPE)

    async def urls(self, request: Request) -> Response:
        """A URL for each range of an intake object, signed for that range alone, and for HTTP_TAIL_URL_SECONDS.

        A URL is null for bytes that are not the topic's. `urls` is null where the store does not hold to signed ranges:
        then `bytes` is the way.
        """
        parts = _ranges(await json_body(request))
        await self._ledger.barrier()
        topic, identity = find_topic(self._ledger.state, request.path_params["name"]), identity_of(request)
        urls = self._urls
        if urls is None or not urls.is_usable:
            return JSONResponse({"urls": None})
        try:
            signed = await self._tail.signed(identity.principal.name, topic, parts, urls)
        except Throttled as error:
            raise _throttled(error) from error
        identity.record(
            CredentialEvent(
                source=identity.audit_source,
                api=identity.api,
                resource=AuditedResource(kind=ResourceType.TOPIC, name=topic.name),
                operation=Operation.READ,
                scope=f"ranges of intake objects, each for {HTTP_TAIL_URL_SECONDS} s",
            )
        )
        return JSONResponse({"urls": signed}, headers={"Cache-Control": "no-store"})


def _ranges(body: Mapping[str, object]) -> list[ObjectRange]:
    """The ranges that the body names."""
    ranges = body.get("ranges")
    if not isinstance(ranges, list) or len(ranges) > HTTP_TAIL_URLS_MAX:
        message = f"ranges must be a list of at most {HTTP_TAIL_URLS_MAX} ranges"
        raise ApiError(400, "bad_request", message, RANGES_REMEDY)
    return [_range(each) for each in ranges]


def _range(value: object) -> ObjectRange:
    match value:
        case [str(key), int(first), int(count)] if (
            0 <= first <= HTTP_TAIL_OBJECT_BYTES_MAX and 0 < count <= HTTP_TAIL_OBJECT_BYTES_MAX
        ):
            return ObjectRange(key=key, byte_first=first, byte_count=count)
        case _:
            raise ApiError(400, "bad_request", "a range must be a key, a first byte and a count", RANGES_REMEDY)


def _throttled(error: Throttled) -> ApiError:
    return ApiError(429, "throttled", str(error), "read less, or wait", retry_after_s=error.seconds)
