"""The Iceberg REST catalog on the HTTP port: every topic is a table in the namespace `lake`.

Rule: the catalog is read-only except for properties, branches and tags (`agent.lake.table_updates`). It rejects every
other change and names the alternative (`agent.http.iceberg.unsupported`). Access control comes first
(`agent.http.access_guard`). `config` lists the rejected operations as supported. Clients then show our error, and
delete the files that they wrote for the commit, instead of raising an error of their own.

    GET    /iceberg/v1/config
    GET    /iceberg/v1/namespaces        GET HEAD /iceberg/v1/namespaces/lake
    GET    /iceberg/v1/namespaces/lake/tables?pageToken=&pageSize=
    GET    /iceberg/v1/namespaces/lake/tables/TOPIC?snapshots=all|refs        HEAD  the same path
    POST   /iceberg/v1/namespaces/lake/tables/TOPIC
    GET    /iceberg/v1/namespaces/lake/tables/TOPIC/credentials
    POST   /iceberg/v1/namespaces/lake/tables/TOPIC/metrics

Specification: Apache Iceberg REST Catalog API (open-api/rest-catalog-open-api.yaml) of Iceberg 1.12.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.authorization import AccessDenied, described, guarded_route, identity_of, may_describe, require
from agent.http.change_audit import announce_change, topic_resource
from agent.http.iceberg import unsupported
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.iceberg.errors import (
    CATALOG_PREFIX,
    NO_STORE,
    CatalogError,
    error_response,
    no_such_namespace,
    no_such_table,
    rejected,
)
from agent.http.iceberg.tables import CatalogTables, LoadedTable, NoSuchTopic, with_named_snapshots
from agent.http.iceberg.unsupported import forbidden
from agent.http.iceberg.vended_credentials import CredentialVendor
from agent.http.services import AdminServices
from agent.lake.table_updates import TopicGone
from agent.security.audit.audit_events import AuditedResource, CredentialEvent
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from iceberg_export.tables.edits import EditInvalid, RequirementFailed, decode_edit
from protocol.auth.operations import Operation, ResourceType
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import CATALOG_BODY_BYTES_MAX
from storage.object_store import StoreError, StoreUnavailable
from storage.refs import LAKE_PREFIX
from storage.s3.session_credentials import SessionCredentials

Handler = Callable[[Request], Awaitable[Response]]

NAMESPACE = LAKE_PREFIX.removesuffix("/")
LEVELS = "\x1f"
"""Separates the levels of a namespace in a path."""
NOTE = "penstock.credentials"
"""The property with the reason why a table comes without credentials."""
DELEGATION = "x-iceberg-access-delegation"
PAGE_DIGITS = 9
OAUTH_PATH = "/v1/oauth/tokens"
NO_OAUTH = "the catalog issues no tokens: set the client's property token to one of the agent's --http-token-file"

_PREFIX = "/v1/{prefix}"
_TABLE = f"{_PREFIX}/namespaces/{{namespace}}/tables/{{table}}"
ENDPOINTS = (
    f"GET {_PREFIX}/namespaces",
    f"POST {_PREFIX}/namespaces",
    f"GET {_PREFIX}/namespaces/{{namespace}}",
    f"HEAD {_PREFIX}/namespaces/{{namespace}}",
    f"DELETE {_PREFIX}/namespaces/{{namespace}}",
    f"POST {_PREFIX}/namespaces/{{namespace}}/properties",
    f"GET {_PREFIX}/namespaces/{{namespace}}/tables",
    f"POST {_PREFIX}/namespaces/{{namespace}}/tables",
    f"POST {_PREFIX}/namespaces/{{namespace}}/register",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_TABLE}",
    f"DELETE {_TABLE}",
    f"POST {_TABLE}/metrics",
    f"POST {_PREFIX}/tables/rename",
    f"POST {_PREFIX}/transactions/commit",
)
CREDENTIALS_ENDPOINT = f"GET {_TABLE}/credentials"


def build_catalog(services: AdminServices, parts: CatalogParts) -> Starlette:
    """The application below /iceberg."""
    catalog = _Catalog(services, parts)
    space = "/v1/namespaces/{namespace}"
    table = f"{space}/tables/{{table}}"
    view = f"{space}/views/{{view}}"
    route = partial(
        guarded_route, hidden=partial(no_such_table, NAMESPACE), prefix=CATALOG_PREFIX, topic_parameter="table"
    )
    routes = [
        route("/v1/config", catalog.config),
        route("/v1/namespaces", catalog.namespaces, methods=("GET", "POST")),
        route(space, catalog.namespace, methods=("GET", "HEAD", "DELETE")),
        route(f"{space}/properties", catalog.rejected_in_namespace(unsupported.ALTER_NAMESPACE), methods=("POST",)),
        route(f"{space}/tables", catalog.tables, methods=("GET", "POST")),
        route(f"{space}/register", catalog.rejected_in_namespace(unsupported.REGISTER_TABLE), methods=("POST",)),
        route(table, catalog.table, methods=("GET", "HEAD", "POST", "DELETE")),
        route(f"{table}/credentials", catalog.credentials),
        route(f"{table}/metrics", catalog.metrics, methods=("POST",)),
        route("/v1/tables/rename", _rejected(unsupported.RENAME_TABLE), methods=("POST",)),
        route("/v1/transactions/commit", _rejected(unsupported.COMMIT_MANY), methods=("POST",)),
        route(f"{space}/views", catalog.views, methods=("GET", "POST")),
        route(f"{space}/register-view", catalog.rejected_in_namespace(unsupported.CREATE_VIEW), methods=("POST",)),
        route(view, catalog.view, methods=("GET", "HEAD", "POST", "DELETE")),
        route("/v1/views/rename", _rejected(unsupported.CREATE_VIEW), methods=("POST",)),
        route(OAUTH_PATH, _no_oauth, methods=("POST",)),
    ]
    handlers: Mapping[type[Exception], Callable[[Request, Exception], Response]] = {
        CatalogError: _on_catalog_error,
        AccessDenied: _on_access_denied,
        HTTPException: _on_http_exception,
        StoreError: _on_unavailable,
        LedgerError: _on_unavailable,
        Exception: _on_bug,
    }
    return Starlette(routes=routes, exception_handlers=dict(handlers))


class _Catalog:
    def __init__(self, services: AdminServices, parts: CatalogParts) -> None:
        self._parts = parts
        self._tables = CatalogTables(services=services, root_uri=parts.root_uri)

    async def config(self, _: Request) -> Response:
        """`warehouse` is ignored: there is only one. Tokens are never exchanged."""
        endpoints = [*ENDPOINTS, *([CREDENTIALS_ENDPOINT] if self._parts.credentials else [])]
        overrides = {"token-refresh-enabled": "false", "token-exchange-enabled": "false"}
        return _json({"defaults": dict(self._parts.file_io), "overrides": overrides, "endpoints": endpoints})

    async def namespaces(self, request: Request) -> Response:
        if request.method == "POST":
            raise await self._creation_rejected(request)
        parent = request.query_params.get("parent", "")
        if parent:
            _check_namespace(parent)
        return _json({"namespaces": [] if parent else [[NAMESPACE]]})

    async def _creation_rejected(self, request: Request) -> CatalogError:
        levels = (await _json_body(request)).get("namespace")
        if levels == [NAMESPACE]:
            return CatalogError(409, "AlreadyExistsException", f"namespace {NAMESPACE} exists already")
        return forbidden(unsupported.CREATE_NAMESPACE)

    async def namespace(self, request: Request) -> Response:
        _check_namespace(request.path_params["namespace"])
        match request.method:
            case "HEAD":
                return Response(status_code=204)
            case "DELETE":
                raise forbidden(unsupported.DROP_NAMESPACE)
            case _:
                location = f"{self._parts.root_uri}/{NAMESPACE}"
                return _json({"namespace": [NAMESPACE], "properties": {"location": location}})

    async def tables(self, request: Request) -> Response:
        _check_namespace(request.path_params["namespace"])
        if request.method == "POST":
            name = (await _json_body(request)).get("name")
            if not isinstance(name, str) or not name:
                raise CatalogError(400, "BadRequestException", "the table to create has no name")
            if await may_describe(request, name) and await self._tables.exists(name):
                raise CatalogError(409, "AlreadyExistsException", f"table {NAMESPACE}.{name} exists already")
            raise forbidden(unsupported.CREATE_TABLE.format(name=name))
        names = await self._tables.names()
        visible = await described(request, names)
        names, next_token = _page([name for name in names if name in visible], request)
        rows = [{"namespace": [NAMESPACE], "name": name} for name in names]
        return _json({"identifiers": rows, "next-page-token": next_token})

    async def table(self, request: Request) -> Response:
        name = _table_name(request)
        match request.method:
            case "GET":
                return await self._load(name, request)
            case "POST":
                _check_media_type(request)
                return await self._commit(name, request)
            case _:
                await self._check_exists(name)
                if request.method == "DELETE":
                    raise forbidden(unsupported.DROP_TABLE.format(name=name))
                return Response(status_code=204)

    async def _commit(self, name: str, request: Request) -> Response:
        """Commit a change of properties, branches or tags. The answer is the table after it: Iceberg's
        `CommitTableResponse`."""
        body = await _body(request)
        await self._check_exists(name)
        updates = unsupported.read_updates(body)
        rejection = unsupported.commit_rejection(f"{NAMESPACE}.{name}", updates)
        if rejection is not None:
            raise rejection
        for operation in unsupported.required_operations(updates):
            await require(request, operation, ResourceType.TOPIC, name)
        announce_change(request, topic_resource(name), _operation_of(updates), unsupported.shown(updates))
        try:
            await self._tables.edit(name, decode_edit(body))
            table = await self._edited(name)
        except EditInvalid as error:
            raise CatalogError(400, "BadRequestException", str(error)) from error
        except RequirementFailed as error:
            raise CatalogError(409, "CommitFailedException", str(error)) from error
        except OutcomeUnknown as error:
            message = f"the commit may have been made: {error}; load the table to check"
            raise CatalogError(500, "CommitStateUnknownException", message) from error
        except (NoSuchTopic, TopicGone):
            raise no_such_table(NAMESPACE, name) from None
        rest = json.dumps({"metadata-location": table.metadata_uri})
        return _with_metadata(rest, table.metadata)

    async def _edited(self, name: str) -> LoadedTable:
        """The table after a committed edit. Raises `OutcomeUnknown`: an error here must not look like a failed edit."""
        try:
            return await self._tables.load(name)
        except (StoreError, LedgerError) as error:
            raise OutcomeUnknown(f"it was made, but the table cannot be read: {error}") from error

    async def _load(self, name: str, request: Request) -> Response:
        snapshots = request.query_params.get("snapshots", "all")
        if snapshots not in ("all", "refs"):
            raise CatalogError(400, "BadRequestException", f"snapshots={snapshots[:40]} is neither all nor refs")
        try:
            table = await self._tables.load(name)
        except NoSuchTopic:
            raise no_such_table(NAMESPACE, name) from None
        metadata = table.metadata if snapshots == "all" else with_named_snapshots(table.metadata)
        config, storage = await self._access(table, name, request)
        rest = json.dumps({"metadata-location": table.metadata_uri, "config": config, "storage-credentials": storage})
        return _with_metadata(rest, metadata)

    async def _access(
        self, table: LoadedTable, name: str, request: Request
    ) -> tuple[dict[str, str], list[dict[str, object]]]:
        """Engines' access to the table's files: properties, and credentials by key prefix."""
        config = dict(self._parts.file_io)
        vendor = self._parts.credentials
        delegations = [word.strip() for word in request.headers.get(DELEGATION, "").split(",") if word.strip()]
        if vendor is None or (delegations and "vended-credentials" not in delegations):
            return config, []
        try:
            keys = await self._vended(vendor, table.folder, name, request)
        except StoreError as error:
            if vendor.is_required:
                raise StoreUnavailable(f"the catalog got no credentials for table {name}: {error}") from error
            return {**config, NOTE: f"none, use your own: {error}"}, []
        config |= {**_credential_properties(keys), "client.refresh-credentials-endpoint": _credentials_path(name)}
        return config, [self._stored(table.folder, keys)]

    async def credentials(self, request: Request) -> Response:
        """Credentials for one table's files. Engines request new ones before the old ones expire."""
        name, vendor = _table_name(request), self._parts.credentials
        try:
            folder = await self._tables.folder(name)
        except NoSuchTopic:
            raise no_such_table(NAMESPACE, name) from None
        if vendor is None:
            return _json({"storage-credentials": []})
        return _json({"storage-credentials": [self._stored(folder, await self._vended(vendor, folder, name, request))]})

    async def _vended(self, vendor: CredentialVendor, folder: str, name: str, request: Request) -> SessionCredentials:
        """Credentials for the client, recorded in the audit log."""
        identity = identity_of(request)
        keys = await vendor.of_folder(folder, identity.principal.name)
        identity.record(
            CredentialEvent(
                source=identity.audit_source,
                api=identity.api,
                resource=AuditedResource(kind=ResourceType.TOPIC, name=name),
                operation=Operation.READ,
                scope=f"{folder}*, for at most {vendor.seconds} s",
            )
        )
        return keys

    def _stored(self, folder: str, keys: SessionCredentials) -> dict[str, object]:
        return {
            "prefix": f"{self._parts.root_uri}/{folder}",
            "config": {**self._parts.file_io, **_credential_properties(keys)},
        }

    async def metrics(self, request: Request) -> Response:
        """Accept an engine's report of measurements, and discard it."""
        await self._check_exists(_table_name(request))
        return Response(status_code=204)

    async def views(self, request: Request) -> Response:
        _check_namespace(request.path_params["namespace"])
        if request.method == "POST":
            raise forbidden(unsupported.CREATE_VIEW)
        return _json({"identifiers": [], "next-page-token": None})

    async def view(self, request: Request) -> Response:
        _check_namespace(request.path_params["namespace"])
        raise CatalogError(404, "NoSuchViewException", "this catalog has no views")

    def rejected_in_namespace(self, message: str) -> Handler:
        async def reject(request: Request) -> Response:
            _check_namespace(request.path_params["namespace"])
            raise forbidden(message)

        return reject

    async def _check_exists(self, name: str) -> None:
        if not await self._tables.exists(name):
            raise no_such_table(NAMESPACE, name)


def _operation_of(updates: Sequence[unsupported.Update]) -> Operation:
    """The operation that stands for a commit in the audit log."""
    return next(iter(unsupported.required_operations(updates)), Operation.ALTER)


def _page(names: list[str], request: Request) -> tuple[list[str], str | None]:
    """One page of the names, and the token of the next. A client that sends no token wants everything at once."""
    token, size_text = request.query_params.get("pageToken"), request.query_params.get("pageSize", "")
    is_number = size_text.isascii() and size_text.isdigit() and len(size_text) <= PAGE_DIGITS
    if size_text and not (is_number and int(size_text) > 0):
        raise CatalogError(400, "BadRequestException", f"pageSize={size_text[:40]} is not a whole number from 1 on")
    if token is None or not size_text:
        return [name for name in names if name > (token or "")], None
    rest = [name for name in names if name > token]
    page = rest[: int(size_text)]
    return page, page[-1] if len(page) < len(rest) else None


def _check_media_type(request: Request) -> None:
    """Rejects other types: a web page cannot send this one to another origin without a CORS preflight."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise CatalogError(415, "BadRequestException", "a commit is JSON: send Content-Type: application/json")


def _check_namespace(text: str) -> None:
    if text != NAMESPACE:
        raise no_such_namespace(_shown(text))


def _shown(namespace: str) -> str:
    return ".".join(namespace.split(LEVELS))


def _table_name(request: Request) -> str:
    """The table's name. Raises the 404 for another namespace: for `lake.TOPIC.snapshots` clients try the namespace
    `lake.TOPIC` first, and then the table TOPIC."""
    namespace, name = request.path_params["namespace"], request.path_params["table"]
    assert isinstance(name, str)
    if namespace != NAMESPACE:
        raise no_such_table(_shown(namespace), name)
    return name


def _credential_properties(keys: SessionCredentials) -> dict[str, str]:
    return {
        "s3.access-key-id": keys.access_key_id,
        "s3.secret-access-key": keys.secret_access_key,
        "s3.session-token": keys.session_token,
        "s3.session-token-expires-at-ms": str(keys.expires_ms),
    }


def _credentials_path(name: str) -> str:
    """The path relative to the catalog's URI. A topic's name needs no quoting."""
    return f"v1/namespaces/{NAMESPACE}/tables/{name}/credentials"


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > CATALOG_BODY_BYTES_MAX:
            raise CatalogError(
                413,
                "BadRequestException",
                f"the body exceeds {CATALOG_BODY_BYTES_MAX} bytes: send a smaller commit",
            )
    return body


async def _json_body(request: Request) -> dict[str, object]:
    try:
        return decode_json_object(await _body(request))
    except Undecodable as error:
        raise CatalogError(400, "BadRequestException", f"the body is not a JSON object: {error}") from error


def _json(value: Mapping[str, object]) -> Response:
    return JSONResponse(value, headers=dict(NO_STORE))


def _with_metadata(rest: str, metadata: bytes) -> Response:
    """A JSON object that embeds the metadata exactly as it is in the bucket."""
    body = rest[:-1].encode() + b',"metadata":' + metadata + b"}"
    return Response(body, media_type="application/json", headers=dict(NO_STORE))


def _rejected(message: str) -> Handler:
    async def reject(_: Request) -> Response:
        raise forbidden(message)

    return reject


async def _no_oauth(_: Request) -> Response:
    """The 400 in OAuth's error format, which the specification requires on this path."""
    content = {"error": "unsupported_grant_type", "error_description": NO_OAUTH}
    return JSONResponse(content, status_code=400, headers=dict(NO_STORE))


def _on_catalog_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, CatalogError)
    return error_response(error)


def _on_access_denied(_: Request, error: Exception) -> Response:
    assert isinstance(error, AccessDenied)
    return rejected(error.rejection)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "NotFoundException" if error.status_code == 404 else "UnsupportedOperationException"
    hint = "the catalog's URI ends with /iceberg, and clients request /iceberg/v1/config"
    message = f"{request.method} {request.scope['path']}: {error.detail}; {hint}"
    return error_response(CatalogError(error.status_code, kind, message))


def _on_unavailable(_: Request, error: Exception) -> Response:
    return error_response(CatalogError(503, "ServiceUnavailableException", f"{error}; try again"))


def _on_bug(request: Request, _: Exception) -> Response:
    line = f"{request.method} {request.scope['path']}"
    message = f"{line} failed because of a bug in Penstock: read the agent's log, and report it"
    return error_response(CatalogError(500, "InternalServerError", message))
