"""The routes of the HTTP port.

Rule: only the agent decides its health, so an outage of the ledger or the store never takes it out of service. Every
error is JSON with a code, a message and a remedy. Bodies have a size limit. Views of the state: `agent.views.state`.

    GET  /live  /ready  /metrics
    GET  /api/status   /api/topics   /api/topics/NAME   /api/lake?limit=   /api/lake/NAME
    GET  /api/lake/NAME/index?after=&limit=   /api/lake/NAME/rewrites?purpose=rewrite|backfill&behind=
    POST /api/lake/NAME/rewrites  `iceberg_export.compaction.rewrites.Rewritten`
    GET  /api/tail/NAME   /api/tail/NAME/bytes?key=&first=&count=     `agent.http.tail`
    POST /api/archive  {"topics": ["orders"], "wait": true}
    POST /api/lake/NAME/rebuild  {}
    GET  /api/state
    GET  /api/inspect/state  /api/inspect/objects?limit=  /api/inspect/ledger?after=&limit=
    GET  /api/inspect/chunks?topic=&partition=&limit=     /api/inspect/object?key=
    GET  /api/inspect/transactions?limit=
    /iceberg/v1/...       `agent.http.iceberg.rest_api`
    /schema-registry/...  `agent.http.registry.rest_api`
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount

from agent.admin.security_changes import SecurityChanges
from agent.admin.topics import TopicError, deadline_s
from agent.http.access_guard import AccessGuard, on_access_denied
from agent.http.authorization import (
    AccessDenied,
    allowed,
    described,
    guarded_route,
    identity_of,
    require_on_cluster,
    require_on_topic,
)
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.iceberg.errors import CATALOG_PREFIX
from agent.http.iceberg.rest_api import build_catalog
from agent.http.path_hints import answer_to_misplaced
from agent.http.registry.rest_api import registry_mount
from agent.http.services import AdminServices
from agent.http.tail import NotOfTopic, ObjectRange, RangeTooLarge, TailReads, Throttled
from agent.lake.rewrite_jobs import NoRewrite
from agent.lake.table_rebuild import FileLost, NothingToRebuild
from agent.lake.topic_work import REMEDY_TABLE, remedy_of
from agent.security.http_identity import HttpIdentities
from agent.views.inspection import InspectError, NoSuchKey, check_inspectable, inspect_object, ledger_rows
from agent.views.state import chunk_rows, object_rows, state_digest, state_summary, topic_details, topic_rows
from agent.views.tables import TableDamaged, index_page, lake_details, lake_rows
from agent.views.transactions import transaction_list
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from coordinator.state.state import TopicState
from iceberg_export.compaction.rewrites import Purpose, decode_rewritten, encode_plan
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import (
    HTTP_BODY_BYTES_MAX,
    HTTP_ROWS_DEFAULT,
    HTTP_ROWS_MAX,
    HTTP_TAIL_RANGE_BYTES_MAX,
    REWRITE_BODY_BYTES_MAX,
)
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError

log = logging.getLogger(__name__)

NUMBER_DIGITS = 18
"""Longer numbers are rejected: Python raises another error for thousands of digits."""
SHOWN_CHARS_MAX = 40
REBUILD_REMEDY = 'rebuild it with penstock lake rebuild: docs/operations/damage.md, "A table\'s metadata is damaged"'
PUBLIC_STATUS = frozenset({"is_ready", "name", "version", "cluster_id", "kafka"})
"""The fields of the status for clients that may not describe the cluster: what Kafka clients learn without rights."""
BYTES_TYPE = "application/octet-stream"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ApiError(Exception):
    """An error response. `remedy` says what the caller should do."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy


def build_app(
    services: AdminServices,
    catalog: CatalogParts | None = None,
    *,
    identities: HttpIdentities,
    is_metrics_open: bool = False,
) -> Starlette:
    """The application. Its only state of its own is the catalog's cache.

    Args:
        identities: finds out who asks.
        is_metrics_open: whether /metrics answers everybody.
    """
    api = _HttpApi(services)
    guarded = partial(guarded_route, hidden=_no_such_topic)
    routes: list[BaseRoute] = [
        guarded("/live", api.live),
        guarded("/ready", api.ready),
        guarded("/metrics", api.metrics),
        guarded("/api/status", api.status),
        guarded("/api/state", api.state),
        guarded("/api/topics", api.topics),
        guarded("/api/topics/{name}", api.topic),
        guarded("/api/lake", api.lake),
        guarded("/api/lake/{name}", api.table),
        guarded("/api/lake/{name}/index", api.archived_index),
        guarded("/api/lake/{name}/rewrites", api.rewrites, methods=("GET", "POST")),
        guarded("/api/lake/{name}/rebuild", api.rebuild, methods=("POST",)),
        guarded("/api/acls/confirm", api.confirm_acls, methods=("POST",)),
        guarded("/api/tail/{name}", api.tail),
        guarded("/api/tail/{name}/bytes", api.tail_bytes),
        guarded("/api/archive", api.archive, methods=("POST",)),
        guarded("/api/audit", api.audit, methods=("POST",)),
        guarded("/api/inspect/state", api.inspect_state),
        guarded("/api/inspect/objects", api.inspect_objects),
        guarded("/api/inspect/chunks", api.inspect_chunks),
        guarded("/api/inspect/ledger", api.inspect_ledger),
        guarded("/api/inspect/object", api.inspect_object),
        guarded("/api/inspect/transactions", api.inspect_transactions),
        registry_mount(services),
    ]
    if catalog is not None:
        routes.append(Mount(CATALOG_PREFIX, app=build_catalog(services, catalog)))
    handlers: Mapping[type[Exception], Callable[[Request, Exception], Response]] = {
        ApiError: _on_api_error,
        AccessDenied: on_access_denied,
        HTTPException: _on_http_exception,
        ObjectDamaged: _on_damaged,
        ObjectMissing: _on_missing,
        StoreError: _on_unavailable,
        LedgerError: _on_unavailable,
    }
    guard = Middleware(AccessGuard, identities=identities, is_metrics_open=is_metrics_open)
    return Starlette(routes=routes, exception_handlers=dict(handlers), middleware=[guard])


class _HttpApi:
    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._ledger = services.ledger
        self._tail = TailReads(services)

    async def live(self, _: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(self, _: Request) -> Response:
        if self._services.is_ready():
            # During an outage the agent still serves reads, so it stays ready. The body names the outage.
            return PlainTextResponse("".join(f"{line}\n" for line in ("ready", *self._services.notices())))
        return PlainTextResponse(
            "not ready: the agent has not finished its first sync, or is draining\n", status_code=503
        )

    async def metrics(self, _: Request) -> Response:
        self._services.metrics.is_ready.set(self._services.is_ready())
        return Response(self._services.metrics.exposition(), media_type=METRICS_TYPE)

    async def status(self, request: Request) -> Response:
        """Where clients connect, and more only to those that may describe the cluster."""
        status = {"is_ready": self._services.is_ready(), **self._services.status()}
        if not await allowed(request, Operation.DESCRIBE, ResourceType.CLUSTER, (CLUSTER_NAME,)):
            status = {name: value for name, value in status.items() if name in PUBLIC_STATUS}
        return JSONResponse(status)

    async def state(self, _: Request) -> Response:
        return JSONResponse(state_digest(self._ledger.state))

    async def topics(self, request: Request) -> Response:
        await self._ledger.barrier()
        names = await described(request, self._ledger.state.topic_ids)
        return JSONResponse({"topics": topic_rows(self._ledger.state, names)})

    async def topic(self, request: Request) -> Response:
        await self._ledger.barrier()
        name = request.path_params["name"]
        shows_configs = bool(await allowed(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, (name,)))
        layers = self._services.broker_configs.layers if shows_configs else None
        return JSONResponse(topic_details(self._find(name), layers))

    async def lake(self, request: Request) -> Response:
        limit = _limit(request)
        await self._ledger.barrier()
        names = await described(request, self._ledger.state.topic_ids)
        is_operator = await allowed(request, Operation.DESCRIBE, ResourceType.CLUSTER, (CLUSTER_NAME,))
        catalogs = [sync.view() for sync in self._services.catalog_syncs] if is_operator else []
        return JSONResponse({"tables": lake_rows(self._ledger.state, limit, names), "external_catalogs": catalogs})

    async def table(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            details = await lake_details(self._ledger, self._services.store, name)
        except TableDamaged as error:
            raise ApiError(422, "table_damaged", str(error), REBUILD_REMEDY) from error
        if details is None:
            self._find(name)
        return JSONResponse(details)

    async def archived_index(self, request: Request) -> Response:
        after, limit = _number(request, "after"), _limit(request)
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        return JSONResponse(index_page(self._ledger.state, topic, after=after or 0, limit=limit))

    async def rewrites(self, request: Request) -> Response:
        """GET: a plan of the files to rewrite. POST: commit a rewritten file."""
        body = await _read_json(request, REWRITE_BODY_BYTES_MAX) if request.method == "POST" else b""
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        try:
            if request.method == "POST":
                await self._services.rewrites.commit(topic, decode_rewritten(body))
                return JSONResponse({"done": True})
            purpose, behind = Purpose(_text(request, "purpose")), request.query_params.get("behind", "")
            plan = await self._services.rewrites.plan(topic, purpose, behind=behind)
        except NoRewrite as error:
            status, code = (409, "overtaken") if error.is_overtaken else (400, "bad_request")
            raise ApiError(status, code, str(error), "request the plan again" if error.is_overtaken else "") from error
        except ValueError as error:
            raise ApiError(400, "bad_request", str(error), "use penstock lake rewrite or backfill") from error
        return Response(encode_plan(plan), media_type="application/json")

    async def rebuild(self, request: Request) -> Response:
        await _json_body(request)
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        try:
            return JSONResponse((await self._services.table_rebuild.rebuild(topic.topic_id)).to_dict())
        except NothingToRebuild as error:
            remedy = "the first archive pass creates the table: run penstock archive TOPIC"
            raise ApiError(409, "no_table", str(error), remedy) from error
        except FileLost as error:
            raise ApiError(422, "file_lost", str(error), 'docs/operations/damage.md, "Objects are missing"') from error
        except OutcomeUnknown as error:
            raise ApiError(
                503, "outcome_unknown", f"the rebuild may have been committed: {error}", "send the request again"
            ) from error

    async def confirm_acls(self, request: Request) -> Response:
        """Confirm the ACLs that a recovery restored. Agents serve others than super users again from here on."""
        await _json_body(request)
        changes = SecurityChanges(self._ledger, self._services.clock, deadline_s(self._services.clock))
        try:
            await changes.create_acls([])
        except TopicError as error:
            raise ApiError(503, "unavailable", str(error.message), "try again once the ledger answers") from error
        state = self._ledger.state
        return JSONResponse({"acls": len(state.acls), "scram_credentials": len(state.scram)})

    async def tail(self, request: Request) -> Response:
        """One topic's part of the tail manifest."""
        await self._ledger.barrier()
        name = request.path_params["name"]
        manifest = await self._tail.manifest(self._find(name).topic_id)
        if manifest is None:
            raise _no_such_topic(name)
        return Response(manifest, media_type=BYTES_TYPE)

    async def tail_bytes(self, request: Request) -> Response:
        """Bytes of an object of the bucket that are one topic's."""
        await self._ledger.barrier()
        topic, user = self._find(request.path_params["name"]), identity_of(request).principal.name
        part = ObjectRange(
            key=_text(request, "key"), byte_first=_number(request, "first") or 0, byte_count=_number(request, "count")
        )
        try:
            return Response(await self._tail.read(user, topic, part), media_type=BYTES_TYPE)
        except (NotOfTopic, ObjectMissing) as error:
            remedy = "get /api/tail/NAME again: a plan is good for as long as --gc-min-age-s"
            raise ApiError(404, "unknown_object", f"there are no such bytes of topic {topic.name}", remedy) from error
        except RangeTooLarge as error:
            message = f"the range exceeds {HTTP_TAIL_RANGE_BYTES_MAX} bytes"
            raise ApiError(413, "too_large", message, "read it in parts with first= and count=") from error
        except Throttled as error:
            raise ApiError(429, "throttled", str(error), "read less, or wait") from error

    async def archive(self, request: Request) -> Response:
        body = await _json_body(request)
        names, is_awaited = body.get("topics"), body.get("wait", True)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ApiError(400, "bad_request", "topics must be a list of names", 'send {"topics": ["orders"]}')
        for name in dict.fromkeys(names):
            await require_on_topic(request, name, (Operation.ALTER,), _no_such_topic)
        await self._ledger.barrier()
        topics = [self._find(name) for name in names]
        if is_awaited:
            try:
                reports = await self._services.archiver.archive_topics([topic.topic_id for topic in topics])
            except StoreError as error:
                if remedy_of(error) != REMEDY_TABLE:
                    raise
                raise ApiError(422, "table_damaged", str(error), REBUILD_REMEDY) from error
            return JSONResponse({"passes": [report.to_dict() for report in reports]})
        work = BackgroundTask(self._archive, topics)
        return JSONResponse({"passes": [], "started": names}, status_code=202, background=work)

    async def _archive(self, topics: Sequence[TopicState]) -> None:
        """Archive in the background. The caller does not wait, so errors go to the log."""
        try:
            await self._services.archiver.archive_topics([topic.topic_id for topic in topics])
        except StoreError as error:
            log.error(
                "an archive request failed; its topics are not archived: %s",
                remedy_of(error),
                extra={"topics": ",".join(topic.name for topic in topics), "reason": str(error)},
            )

    async def audit(self, request: Request) -> Response:
        body = await _json_body(request)
        is_repairing, is_deep = body.get("repair") is True, body.get("deep") is True
        if is_repairing:
            await require_on_cluster(request, Operation.ALTER)
        report = await self._services.new_audit().run(is_repairing=is_repairing, is_deep=is_deep)
        return JSONResponse(report.to_dict())

    async def inspect_state(self, _: Request) -> Response:
        return JSONResponse(state_summary(self._ledger.state))

    async def inspect_objects(self, request: Request) -> Response:
        state = self._ledger.state
        rows = object_rows(state, released_max=_limit(request))
        return JSONResponse({"objects": rows, "released": len(state.released)})

    async def inspect_chunks(self, request: Request) -> Response:
        name, partition, limit = _text(request, "topic"), _number(request, "partition"), _limit(request)
        await self._ledger.barrier()
        rows = chunk_rows(self._ledger.state, self._find(name), partition)
        return JSONResponse({"chunks": list(islice(rows, limit))})

    async def inspect_transactions(self, request: Request) -> Response:
        limit = _limit(request)
        await self._ledger.barrier()
        state = self._ledger.state
        ids = await allowed(request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_ids)
        topics = await described(request, state.topic_ids)
        return JSONResponse(transaction_list(self._ledger.state, limit, self._services.checked_time(), ids, topics))

    async def inspect_ledger(self, request: Request) -> Response:
        after, limit = _number(request, "after"), _limit(request)
        ledger = self._ledger.backend
        records, head = await ledger.untrimmed_entries(), await ledger.head()
        rows = ledger_rows(records, after=-1 if after is None else after, limit=limit)
        return JSONResponse({"head": head.position, "entries": rows})

    async def inspect_object(self, request: Request) -> Response:
        key = _text(request, "key")
        try:
            check_inspectable(key)
            return JSONResponse(await inspect_object(self._services.store, key))
        except NoSuchKey as error:
            raise ApiError(400, "bad_request", str(error), "list keys with penstock inspect objects") from error
        except ObjectMissing as error:
            raise ApiError(404, "unknown_object", str(error), "list keys with penstock inspect objects") from error
        except InspectError as error:
            raise ApiError(422, "unreadable", str(error), "check the key") from error

    def _find(self, name: str) -> TopicState:
        state = self._ledger.state
        topic_id = state.topic_ids.get(name)
        if topic_id is None:
            raise _no_such_topic(name)
        return state.topics[topic_id]


def _no_such_topic(name: str) -> ApiError:
    return ApiError(404, "unknown_topic", f"there is no topic {name!r}", "list topics with penstock topics list")


async def _read_json(request: Request, bytes_max: int) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # A page in somebody's browser cannot send this type to a port of the machine without asking first.
        raise ApiError(415, "bad_request", "the body must be JSON", "send Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            raise ApiError(413, "too_large", f"the body exceeds {bytes_max} bytes", "name fewer topics")
    return bytes(body)


async def _json_body(request: Request) -> dict[str, object]:
    body = await _read_json(request, HTTP_BODY_BYTES_MAX)
    try:
        return decode_json_object(body)
    except Undecodable as error:
        message = f"the body is not a JSON object: {error}"
        raise ApiError(400, "bad_request", message, 'send {"topics": ["orders"]}') from error


def _text(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if not text:
        raise ApiError(400, "bad_request", f"{name} is missing", f"give {name}=")
    return text


def _number(request: Request, name: str, range_end: str = "on") -> int | None:
    """The number in the query; None without one. `range_end` completes the range in the error message."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS:
        message = f"{name}={text[:SHOWN_CHARS_MAX]} is not a whole number from 0 {range_end}"
        raise ApiError(400, "bad_request", message, f"give {name} as a whole number, or omit it")
    return int(text)


def _limit(request: Request) -> int:
    limit = _number(request, "limit", f"to {HTTP_ROWS_MAX}")
    return HTTP_ROWS_DEFAULT if limit is None else min(limit, HTTP_ROWS_MAX)


def _error(status: int, code: str, message: str, remedy: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "remedy": remedy}}, status_code=status)


def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error(error.status, error.code, error.message, error.remedy)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    misplaced = answer_to_misplaced(request) if error.status_code == 404 else None
    if misplaced is not None:
        return misplaced
    remedy = (
        "paths are /live /ready /metrics /api/status /api/state /api/topics /api/lake /api/tail /api/archive "
        "/api/audit /api/inspect/... /iceberg/v1/... /schema-registry/..."
    )
    return _error(error.status_code, "http", f"{request.method} {request.url.path}: {error.detail}", remedy)


def _on_damaged(_: Request, error: Exception) -> Response:
    return _error(422, "object_damaged", str(error), 'docs/operations/damage.md, "A damaged file"')


def _on_missing(_: Request, error: Exception) -> Response:
    return _error(422, "object_missing", str(error), 'docs/operations/damage.md, "Objects are missing"')


def _on_unavailable(_: Request, error: Exception) -> Response:
    return _error(
        503, "unavailable", str(error), "the ledger or the store does not answer: try again, and read the agent's log"
    )
