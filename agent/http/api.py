"""The routes of the HTTP port.

Rule: only the agent decides its health, so an outage of the ledger or the store never takes it out of service. Every
error is JSON with a code, a message and a remedy. Bodies have a size limit. Views of the state: `agent.views.state`.

    GET  /live  /ready  /metrics
    GET  /api/status   /api/agents   /api/topics   /api/topics/NAME   /api/lake?limit=   /api/lake/NAME
    GET  /api/lake/NAME/index?after=&limit=   /api/lake/NAME/rewrites?purpose=rewrite|backfill&behind=
    POST /api/lake/NAME/rewrites  `iceberg_export.compaction.rewrites.Rewritten`
    POST /api/tail  {"topics": ["orders"]}                            `agent.http.tail`
    GET  /api/tail/NAME   /api/tail/NAME/bytes?key=&first=&count=
    POST /api/tail/NAME/urls  {"ranges": [["intake/...", 8, 100]]}
    POST /api/agents/NAME/drain  {}
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
from types import MappingProxyType

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
from agent.http.agent_routes import AgentRoutes
from agent.http.api_requests import (
    TOPICS_REMEDY,
    ApiError,
    find_topic,
    json_body,
    no_such_topic,
    query_limit,
    query_number,
    query_text,
    read_json,
    topic_names,
)
from agent.http.authorization import (
    AccessDenied,
    allowed,
    described,
    guarded_route,
    identity_of,
    require_on_cluster,
    require_on_topic,
)
from agent.http.change_audit import CLUSTER, announce_change, topic_resource
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.iceberg.errors import CATALOG_PREFIX
from agent.http.iceberg.rest_api import build_catalog
from agent.http.path_hints import answer_to_misplaced
from agent.http.registry.rest_api import registry_mount
from agent.http.request_metrics import RequestTimer
from agent.http.services import AdminServices
from agent.http.tail_routes import TailRoutes
from agent.lake.rewrite_jobs import NoRewrite
from agent.lake.table_rebuild import FileLost, NothingToRebuild
from agent.lake.topic_work import REMEDY_TABLE, remedy_of
from agent.runtime.metrics import EXPOSITION_TYPE
from agent.runtime.yielding import CooperativeYield
from agent.security.http_identity import HttpIdentities
from agent.views.inspection import InspectError, NoSuchKey, check_inspectable, inspect_object, ledger_rows
from agent.views.state import chunk_rows, object_rows, state_digest, state_summary, topic_details, topic_rows
from agent.views.tables import TableDamaged, index_page, lake_details, lake_rows
from agent.views.transactions import transaction_list
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from coordinator.state.state import TopicState
from iceberg_export.compaction.rewrites import Purpose, decode_rewritten, encode_plan
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType
from protocol.limits import REWRITE_BODY_BYTES_MAX
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError

log = logging.getLogger(__name__)

REBUILD_REMEDY = 'rebuild it with penstock lake rebuild: docs/operations/damage.md, "A table\'s metadata is damaged"'
PUBLIC_STATUS = frozenset({"is_ready", "name", "version", "kafka"})
"""The fields of the status for clients that may not describe the cluster: what Kafka clients learn without rights."""
LOGGED_IN_STATUS = PUBLIC_STATUS | {"cluster_id"}
"""The same for clients that have logged in. Salts of unknown users may follow from the cluster's id (ADR 32)."""


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
    api, tail, agents = _HttpApi(services), TailRoutes(services), AgentRoutes(services)
    guarded = partial(guarded_route, hidden=no_such_topic)
    routes: list[BaseRoute] = [
        guarded("/live", api.live),
        guarded("/ready", api.ready),
        guarded("/metrics", api.metrics),
        guarded("/api/status", api.status),
        guarded("/api/state", api.state),
        guarded("/api/agents", agents.agents),
        guarded("/api/agents/{name}/drain", agents.drain, methods=("POST",)),
        guarded("/api/topics", api.topics),
        guarded("/api/topics/{name}", api.topic),
        guarded("/api/lake", api.lake),
        guarded("/api/lake/{name}", api.table),
        guarded("/api/lake/{name}/index", api.archived_index),
        guarded("/api/lake/{name}/rewrites", api.rewrites, methods=("GET", "POST")),
        guarded("/api/lake/{name}/rebuild", api.rebuild, methods=("POST",)),
        guarded("/api/acls/confirm", api.confirm_acls, methods=("POST",)),
        guarded("/api/tail", tail.topics, methods=("POST",)),
        guarded("/api/tail/{name}", tail.topic),
        guarded("/api/tail/{name}/bytes", tail.bytes),
        guarded("/api/tail/{name}/urls", tail.urls, methods=("POST",)),
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
    guard = Middleware(AccessGuard, identities=identities, clock=services.clock, is_metrics_open=is_metrics_open)
    timer = Middleware(RequestTimer, metrics=services.metrics, monotonic_s=services.clock.monotonic_s)
    return Starlette(routes=routes, exception_handlers=dict(handlers), middleware=[timer, guard])


class _HttpApi:
    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._ledger = services.ledger

    async def live(self, _: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(self, _: Request) -> Response:
        if self._services.is_ready():
            # During an outage the agent still serves reads, so it stays ready, and the body does not name the outage:
            # metrics and the log do. Warnings are there by their kinds, and no more: it answers strangers.
            kinds = dict.fromkeys(notice.kind.value for notice in self._services.notices())
            return PlainTextResponse("".join(f"{line}\n" for line in ("ready", *kinds)))
        return PlainTextResponse(f"{self._services.not_ready_line()}\n", status_code=503)

    async def metrics(self, _: Request) -> Response:
        self._services.metrics.is_ready.set(self._services.is_ready())
        await self._services.refresh_metrics()
        return Response(await self._services.metrics.exposition_in_thread(), media_type=EXPOSITION_TYPE)

    async def status(self, request: Request) -> Response:
        """Where clients connect, and more only to those that may describe the cluster."""
        notices = [notice.detail for notice in self._services.notices()]
        status = {"is_ready": self._services.is_ready(), "notices": notices, **self._services.status()}
        if not await allowed(request, Operation.DESCRIBE, ResourceType.CLUSTER, (CLUSTER_NAME,)):
            shown = LOGGED_IN_STATUS if identity_of(request).mechanism else PUBLIC_STATUS
            status = {name: value for name, value in status.items() if name in shown}
        return JSONResponse(status)

    async def state(self, _: Request) -> Response:
        return JSONResponse(state_digest(self._ledger.state))

    async def topics(self, request: Request) -> Response:
        await self._ledger.barrier()
        names = await described(request, self._ledger.state.topic_ids)
        turns = CooperativeYield(self._services.clock)
        return JSONResponse({"topics": await topic_rows(self._ledger.state, turns, names)})

    async def topic(self, request: Request) -> Response:
        await self._ledger.barrier()
        name = request.path_params["name"]
        shows_configs = bool(await allowed(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, (name,)))
        layers = self._services.broker_configs.layers if shows_configs else None
        return JSONResponse(topic_details(self._find(name), layers))

    async def lake(self, request: Request) -> Response:
        limit = query_limit(request)
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
        after, limit = query_number(request, "after"), query_limit(request)
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        return JSONResponse(index_page(self._ledger.state, topic, after=after or 0, limit=limit))

    async def rewrites(self, request: Request) -> Response:
        """GET: a plan of the files to rewrite. POST: commit a rewritten file."""
        body = await read_json(request, REWRITE_BODY_BYTES_MAX) if request.method == "POST" else b""
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        try:
            if request.method == "POST":
                rewritten = decode_rewritten(body)
                announce_change(request, topic_resource(topic.name), Operation.ALTER, "a rewritten file committed")
                await self._services.rewrites.commit(topic, rewritten)
                return JSONResponse({"done": True})
            purpose, behind = Purpose(query_text(request, "purpose")), request.query_params.get("behind", "")
            plan = await self._services.rewrites.plan(topic, purpose, behind=behind)
        except NoRewrite as error:
            status, code = (409, "overtaken") if error.is_overtaken else (400, "bad_request")
            raise ApiError(status, code, str(error), "request the plan again" if error.is_overtaken else "") from error
        except ValueError as error:
            raise ApiError(400, "bad_request", str(error), "use penstock lake rewrite or backfill") from error
        return Response(encode_plan(plan), media_type="application/json")

    async def rebuild(self, request: Request) -> Response:
        await json_body(request)
        await self._ledger.barrier()
        topic = self._find(request.path_params["name"])
        announce_change(request, topic_resource(topic.name), Operation.ALTER, "the table's metadata rebuilt")
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
        await json_body(request)
        announce_change(request, CLUSTER, Operation.ALTER, "the restored ACLs confirmed")
        changes = SecurityChanges(self._ledger, self._services.clock, deadline_s(self._services.clock))
        try:
            await changes.create_acls([])
        except TopicError as error:
            raise ApiError(503, "unavailable", str(error.message), "try again once the ledger answers") from error
        state = self._ledger.state
        return JSONResponse({"acls": len(state.acls), "scram_credentials": len(state.scram)})

    async def archive(self, request: Request) -> Response:
        body = await json_body(request)
        names, is_awaited = topic_names(body), body.get("wait", True)
        if not names:
            raise ApiError(400, "bad_request", "topics names no topic", TOPICS_REMEDY)
        for name in names:
            await require_on_topic(request, name, (Operation.ALTER,), no_such_topic)
        await self._ledger.barrier()
        topics = [self._find(name) for name in names]
        for topic in topics:
            text = "archived" if is_awaited else "an archive pass started"
            announce_change(request, topic_resource(topic.name), Operation.ALTER, text)
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
        body = await json_body(request)
        is_repairing, is_deep = body.get("repair") is True, body.get("deep") is True
        if is_repairing:
            await require_on_cluster(request, Operation.ALTER)
            announce_change(request, CLUSTER, Operation.ALTER, "leftover objects of the bucket deleted")
        report = await self._services.new_audit().run(is_repairing=is_repairing, is_deep=is_deep)
        return JSONResponse(report.to_dict())

    async def inspect_state(self, _: Request) -> Response:
        return JSONResponse(state_summary(self._ledger.state))

    async def inspect_objects(self, request: Request) -> Response:
        state = self._ledger.state
        rows = object_rows(state, released_max=query_limit(request))
        return JSONResponse({"objects": rows, "released": len(state.released)})

    async def inspect_chunks(self, request: Request) -> Response:
        name, partition, limit = query_text(request, "topic"), query_number(request, "partition"), query_limit(request)
        await self._ledger.barrier()
        rows = chunk_rows(self._ledger.state, self._find(name), partition)
        return JSONResponse({"chunks": list(islice(rows, limit))})

    async def inspect_transactions(self, request: Request) -> Response:
        limit = query_limit(request)
        await self._ledger.barrier()
        state = self._ledger.state
        ids = await allowed(request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_ids)
        topics = await described(request, state.topic_ids)
        return JSONResponse(transaction_list(self._ledger.state, limit, self._services.checked_time(), ids, topics))

    async def inspect_ledger(self, request: Request) -> Response:
        after, limit = query_number(request, "after"), query_limit(request)
        ledger = self._ledger.backend
        records, head = await ledger.untrimmed_entries(), await ledger.head()
        rows = ledger_rows(records, after=-1 if after is None else after, limit=limit)
        return JSONResponse({"head": head.position, "entries": rows})

    async def inspect_object(self, request: Request) -> Response:
        key = query_text(request, "key")
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
        return find_topic(self._ledger.state, name)


def _error(
    status: int, code: str, message: str, remedy: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    content = {"error": {"code": code, "message": message, "remedy": remedy}}
    return JSONResponse(content, status_code=status, headers=headers)


def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error(error.status, error.code, error.message, error.remedy, error.headers)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    misplaced = answer_to_misplaced(request) if error.status_code == 404 else None
    if misplaced is not None:
        return misplaced
    remedy = (
        "paths are /live /ready /metrics /api/status /api/state /api/agents /api/topics /api/lake /api/tail "
        "/api/archive /api/audit /api/inspect/... /iceberg/v1/... /schema-registry/..."
    )
    return _error(error.status_code, "http", f"{request.method} {request.scope['path']}: {error.detail}", remedy)


def _on_damaged(_: Request, error: Exception) -> Response:
    return _error(422, "object_damaged", str(error), 'docs/operations/damage.md, "A damaged file"')


def _on_missing(_: Request, error: Exception) -> Response:
    return _error(422, "object_missing", str(error), 'docs/operations/damage.md, "Objects are missing"')


def _on_unavailable(_: Request, error: Exception) -> Response:
    return _error(
        503, "unavailable", str(error), "the ledger or the store does not answer: try again, and read the agent's log"
    )
