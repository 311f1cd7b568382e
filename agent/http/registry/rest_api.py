"""The routes of the schema registry, compatible with Confluent's REST API. `agent.http.api` mounts them.

Rule: names in paths may hold any escaped character, so paths are split before they are unescaped. Every error is JSON
with a code of the API. Access control comes first (`agent.http.access_guard`).
Source: Confluent Schema Registry API 8. Differences: docs/compatibility.md.

    GET    /schemas  /schemas/types  /schemas/ids/ID[/schema|/subjects|/versions]  /schemas/guids/GUID
    GET    /subjects  /subjects/S/versions[/V[/schema|/referencedby]]   POST /subjects/S  /subjects/S/versions
    DELETE /subjects/S  /subjects/S/versions/V
    POST   /compatibility/subjects/S/versions[/V]
    GET    PUT  DELETE  /config[/S]  /mode[/S]         GET /contexts
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from agent.config.http_auth import AccessRejection
from agent.http.authorization import (
    AccessDenied,
    allowed_subjects,
    identity_of,
    require_on_cluster,
    require_on_subject,
)
from agent.http.change_audit import (
    CLUSTER,
    AnnouncedChange,
    announce_change,
    topic_resource,
    with_recorded_changes,
)
from agent.http.registry.params import (
    compatibility_of,
    flag,
    mode_of,
    page,
    read_body,
    read_id,
    read_subject,
    read_version,
    schema_request,
)
from agent.http.registry.registry import (
    LATEST,
    NOT_FOUND,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    TIMED_OUT,
    Registered,
    RegistryFailure,
    SchemaRegistry,
    SchemaRequest,
    guid_of,
    registered,
)
from agent.http.services import AdminServices
from agent.security.audit.audit_events import AuditedResource
from agent.security.required_http_rights import REGISTRY_PREFIX, REGISTRY_RIGHTS, SCHEMA_PREFIX
from coordinator.commands.registry import (
    EVERY_SUBJECT,
    DeleteVersions,
    SchemaContent,
    SchemaType,
    SetCompatibility,
    SetMode,
    VersionsDeleted,
)
from coordinator.ledger.port import LedgerError, OutcomeUnknown
from coordinator.state.registry import COMPATIBILITY_DEFAULT, MODE_DEFAULT, Registry
from protocol.auth.operations import Operation

PREFIX = REGISTRY_PREFIX
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
NOT_ALLOWED = 405
SEEN = (Operation.READ, Operation.WRITE)
"""Either of these on a subject shows its schemas."""
NO_OWN_COMPATIBILITY, NO_OWN_MODE = 40408, 40409
SUBJECT, VERSION, ID = "{subject}", "{version}", "{id}"
VERSIONS = ("subjects", SUBJECT, "versions")
COMPATIBILITY = ("compatibility", *VERSIONS)

Handler = Callable[[Any, Request, Sequence[str]], Awaitable[object]]
"""An unbound method of `_RegistryApi`."""
Rows = Mapping[str, object]


def registry_mount(services: AdminServices) -> Mount:
    """The registry under its prefix, for the application of the HTTP port."""
    missing = sorted(f"{method} {path}" for method, path in routes() if rights_key(method, path) not in REGISTRY_RIGHTS)
    assert not missing, f"required_http_rights has no row for {missing}"
    api = _RegistryApi(SchemaRegistry(services))

    async def app(scope: object, receive: object, send: object) -> None:
        request = Request(scope, receive)  # type: ignore[arg-type]
        response = await api.answer(request)
        await response(scope, receive, send)  # type: ignore[arg-type]

    return Mount(PREFIX, app=app)


def routes() -> list[tuple[str, str]]:
    """Every method and path of the registry, with its prefix, as docs/reference/http-api.md lists them."""
    return [
        (method, "/".join((PREFIX, *parts))) for parts, methods in _RegistryApi.ROUTES.items() for method in methods
    ]


def rights_key(method: str, path: str) -> str:
    """The row of a route of `routes` in `required_http_rights.REGISTRY_RIGHTS`."""
    return f"{method} {path.removeprefix(PREFIX) or '/'}"


class _RegistryApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    async def answer(self, request: Request) -> Response:
        """The answer to a request, errors included."""
        try:
            pattern, handler, names = self._find(request)
            await _check_rights(request, pattern, names)
            handle = partial(handler, self, request, names)
            answer = await with_recorded_changes(request, identity_of(request), handle)
        except AccessDenied as error:
            return rejected(error.rejection)
        except RegistryFailure as failure:
            return failed(failure.code, str(failure))
        except OutcomeUnknown:
            return failed(
                TIMED_OUT, "The outcome is unknown: the change may still be made. Read it back, and try again."
            )
        except LedgerError as error:
            return failed(TIMED_OUT, f"The ledger does not answer, try again: {error}")
        if isinstance(answer, Response):
            return answer
        return Response(_json(answer), media_type=MEDIA_TYPE)

    def _find(self, request: Request) -> tuple[tuple[str, ...], Handler, list[str]]:
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.decode("ascii", errors="replace").partition("?")[0]
        parts = [unquote(part) for part in path.removeprefix(PREFIX).split("/") if part]
        for pattern, methods in self.ROUTES.items():
            if len(pattern) == len(parts) and all(
                segment.startswith("{") or segment == part for segment, part in zip(pattern, parts, strict=True)
            ):
                handler = methods.get(request.method)
                if handler is None:
                    raise RegistryFailure(NOT_ALLOWED, f"HTTP 405 Method Not Allowed: {request.method} {path}")
                named = (part for segment, part in zip(pattern, parts, strict=True) if segment.startswith("{"))
                return pattern, handler, list(named)
        raise RegistryFailure(NOT_FOUND, f"HTTP 404 Not Found: {path}")

    async def _root(self, request: Request, names: Sequence[str]) -> object:
        return {}

    async def _contexts(self, request: Request, names: Sequence[str]) -> object:
        return page(request, ["."])

    async def _types(self, request: Request, names: Sequence[str]) -> object:
        return [each.name for each in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)]

    async def _schemas(self, request: Request, names: Sequence[str]) -> object:
        registry, prefix = await self._registry.caught_up(), request.query_params.get("subjectPrefix", "")
        with_deleted, is_latest = flag(request, "deleted"), flag(request, "latestOnly")
        found: list[object] = []
        seen = await allowed_subjects(request, SEEN, _with_prefix(registry, prefix))
        for subject in sorted(seen & set(registry.subjects)):  # behind the barrier one may be deleted for good
            state = registry.subjects[subject]
            versions = list(state.versions) if with_deleted else state.live()
            found += [(subject, version) for version in (versions[-1:] if is_latest else versions)]
        rows = [registered(registry, *each) for each in page(request, found) if isinstance(each, tuple)]
        return [_version_row(row, row.content.text) for row in rows]

    async def _by_id(self, request: Request, names: Sequence[str]) -> object:
        content = await self._content(request, names[0])
        row = _content_row(content, await self._registry.formatted(content, request.query_params.get("format", "")))
        if flag(request, "fetchMaxId"):
            row["maxId"] = max(await self._seen_ids(request), default=int(names[0]))
        return {**row, "guid": guid_of(content)}

    async def _seen_ids(self, request: Request) -> set[int]:
        """The ids of all schemas that the client sees: the highest of all would show how many others there are."""
        subjects = self._registry.registry.subjects
        seen = await allowed_subjects(request, SEEN, set(subjects))
        return {version.schema_id for name in seen & set(subjects) for version in subjects[name].versions.values()}

    async def _by_guid(self, request: Request, names: Sequence[str]) -> object:
        registry = await self._registry.caught_up()
        try:
            digest = bytes.fromhex(names[0].replace("-", ""))
        except ValueError:
            digest = b""
        schema_id = registry.ids_by_digest.get(digest)
        if schema_id is None:
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {names[0]} not found")
        content = registry.schemas[schema_id]  # before the barrier, behind which it may be deleted for good
        if not await self._is_seen(request, schema_id):
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {names[0]} not found")
        text = await self._registry.formatted(content, request.query_params.get("format", ""))
        return {**_content_row(content, text), "guid": guid_of(content)}

    async def _content(self, request: Request, name: str) -> SchemaContent:
        """The schema with this id, if the client may read one of the subjects that have it."""
        schema_id = read_id(name)
        content = await self._registry.content(schema_id)
        if not await self._is_seen(request, schema_id):
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return content

    async def _is_seen(self, request: Request, schema_id: int, operations: tuple[Operation, ...] = SEEN) -> bool:
        subjects = {subject for subject, _ in self._registry.registry.users.get(schema_id, {})}
        return bool(await allowed_subjects(request, operations, subjects))

    async def _schema_of(self, request: Request) -> SchemaRequest:
        """The schema in the body. What it refers to has to be readable, too: its text becomes part of answers."""
        given = schema_request(await read_body(request), is_normalized=flag(request, "normalize"))
        for reference in given.references:
            if not await require_on_subject(request, SEEN, reference.subject):
                raise _no_subject(reference.subject)
        return given

    async def _text_by_id(self, request: Request, names: Sequence[str]) -> object:
        content = await self._content(request, names[0])
        text = await self._registry.formatted(content, request.query_params.get("format", ""))
        return Response(text, media_type=MEDIA_TYPE)

    async def _users(self, request: Request, name: str) -> list[tuple[str, int]]:
        schema_id = read_id(name)
        registry = await self._registry.caught_up()
        if schema_id not in registry.schemas:
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        filtered = request.query_params.get("subject")
        if not await self._is_seen(request, schema_id, (Operation.DESCRIBE,)):
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        users = registry.users_of(schema_id, with_deleted=flag(request, "deleted"))
        visible = await allowed_subjects(request, (Operation.DESCRIBE,), {subject for subject, _ in users})
        users = [(subject, version) for subject, version in users if subject in visible]
        return [(subject, version) for subject, version in users if not filtered or subject == read_subject(filtered)]

    async def _subjects_by_id(self, request: Request, names: Sequence[str]) -> object:
        users = await self._users(request, names[0])
        return page(request, list(dict.fromkeys(subject for subject, _ in users)))

    async def _versions_by_id(self, request: Request, names: Sequence[str]) -> object:
        users = await self._users(request, names[0])
        return page(request, [{"subject": subject, "version": version} for subject, version in users])

    async def _subjects(self, request: Request, names: Sequence[str]) -> object:
        registry, prefix = await self._registry.caught_up(), request.query_params.get("subjectPrefix", "")
        prefix = prefix.removeprefix(":*:").removeprefix(":.:")
        with_deleted, only_deleted = flag(request, "deleted"), flag(request, "deletedOnly")
        visible = await allowed_subjects(request, (Operation.DESCRIBE,), _with_prefix(registry, prefix))
        found = [
            subject
            for subject, state in sorted(registry.subjects.items())
            if subject in visible
            if (not state.live() if only_deleted else with_deleted or state.live())
        ]
        return page(request, list(found))

    async def _versions(self, request: Request, names: Sequence[str]) -> object:
        subject = read_subject(names[0])
        await self._registry.caught_up()
        only_deleted = flag(request, "deletedOnly")
        versions = self._registry.versions(subject, with_deleted=flag(request, "deleted") or only_deleted)
        if only_deleted:
            live = self._registry.registry.subjects[subject].live()
            versions = [version for version in versions if version not in live]
        return page(request, list(versions))

    async def _one(self, request: Request, names: Sequence[str]) -> Registered:
        subject, version = read_subject(names[0]), read_version(names[1])
        await self._registry.caught_up()
        return self._registry.version(subject, version, with_deleted=flag(request, "deleted"))

    async def _version(self, request: Request, names: Sequence[str]) -> object:
        row = await self._one(request, names)
        text = await self._registry.formatted(row.content, request.query_params.get("format", ""))
        return _version_row(row, text)

    async def _text(self, request: Request, names: Sequence[str]) -> object:
        row = await self._one(request, names)
        text = await self._registry.formatted(row.content, request.query_params.get("format", ""))
        return Response(text, media_type=MEDIA_TYPE)

    async def _referrers(self, request: Request, names: Sequence[str]) -> object:
        row = await self._one(request, names)
        with_deleted = flag(request, "deleted")
        return page(
            request,
            list(self._registry.registry.referrers_of(row.subject, row.version, with_deleted=with_deleted)),
        )

    async def _register(self, request: Request, names: Sequence[str]) -> object:
        subject = read_subject(names[0])
        given = await self._schema_of(request)
        changes: list[AnnouncedChange] = []

        def begin() -> None:
            changes.append(announce_change(request, _resource(subject), Operation.WRITE, "a schema registered"))

        row = await self._registry.register(subject, given, begin)
        for change in changes:
            change.text = f"a schema registered: version {row.version}, id {row.schema_id}"
        return {"id": row.schema_id, "version": row.version, "guid": row.guid}

    async def _look_up(self, request: Request, names: Sequence[str]) -> object:
        subject = read_subject(names[0])
        given = await self._schema_of(request)
        row = await self._registry.look_up(subject, given, with_deleted=flag(request, "deleted"))
        text = await self._registry.formatted(row.content, request.query_params.get("format", ""))
        return _version_row(row, text)

    async def _delete(self, request: Request, names: Sequence[str]) -> object:
        subject, is_permanent = read_subject(names[0]), flag(request, "permanent")
        version = read_version(names[1]) if len(names) > 1 else None
        await self._registry.caught_up()
        if version == LATEST:
            version = self._registry.version(subject, version, with_deleted=is_permanent).version
        command = DeleteVersions(subject=subject, version=version, is_permanent=is_permanent)
        what = "all versions" if version is None else f"version {version}"
        text = f"{what} deleted{' for good' if is_permanent else ''}"
        announce_change(request, _resource(subject), Operation.DELETE, text)
        outcome = await self._registry.propose(command)
        assert isinstance(outcome, VersionsDeleted)
        return list(outcome.versions) if version is None else outcome.versions[0]

    async def _compare(self, request: Request, names: Sequence[str]) -> object:
        subject = read_subject(names[0])
        version = read_version(names[1]) if len(names) > 1 else None
        given = await self._schema_of(request)
        faults = await self._registry.faults(subject, given, version)
        answer: dict[str, object] = {"is_compatible": not faults}
        if flag(request, "verbose"):
            answer["messages"] = faults
        return answer

    async def _config(self, request: Request, names: Sequence[str]) -> object:
        subject = _every_or(names)
        registry = await self._registry.caught_up()
        if (
            subject != EVERY_SUBJECT
            and subject not in registry.compatibilities
            and not flag(request, "defaultToGlobal")
        ):
            message = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RegistryFailure(NO_OWN_COMPATIBILITY, message)
        return {"compatibilityLevel": registry.compatibility(subject).name}

    async def _set_config(self, request: Request, names: Sequence[str]) -> object:
        compatibility = compatibility_of(await read_body(request))
        _announce_setting(request, names, f"compatibility {compatibility.name}")
        await self._registry.propose(SetCompatibility(subject=_every_or(names), compatibility=compatibility))
        return {"compatibility": compatibility.name}

    async def _unset_config(self, request: Request, names: Sequence[str]) -> object:
        subject = _every_or(names)
        before = (await self._registry.caught_up()).compatibilities.get(subject, COMPATIBILITY_DEFAULT)
        _announce_setting(request, names, "compatibility removed")
        await self._registry.propose(SetCompatibility(subject=subject, compatibility=None))
        return {"compatibilityLevel": before.name}

    async def _mode(self, request: Request, names: Sequence[str]) -> object:
        subject = _every_or(names)
        registry = await self._registry.caught_up()
        if subject != EVERY_SUBJECT and subject not in registry.modes and not flag(request, "defaultToGlobal"):
            raise RegistryFailure(NO_OWN_MODE, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": registry.mode(subject).name}

    async def _set_mode(self, request: Request, names: Sequence[str]) -> object:
        mode = mode_of(await read_body(request))
        _announce_setting(request, names, f"mode {mode.name}")
        await self._registry.propose(SetMode(subject=_every_or(names), mode=mode, is_forced=flag(request, "force")))
        return {"mode": mode.name}

    async def _unset_mode(self, request: Request, names: Sequence[str]) -> object:
        subject = _every_or(names)
        before = (await self._registry.caught_up()).modes.get(subject, MODE_DEFAULT)
        _announce_setting(request, names, "mode removed")
        await self._registry.propose(SetMode(subject=subject, mode=None, is_forced=False))
        return {"mode": before.name}

    ROUTES: ClassVar[Mapping[tuple[str, ...], Mapping[str, Handler]]] = {
        (): {"GET": _root},
        ("contexts",): {"GET": _contexts},
        ("schemas",): {"GET": _schemas},
        ("schemas", "types"): {"GET": _types},
        ("schemas", "ids", ID): {"GET": _by_id},
        ("schemas", "ids", ID, "schema"): {"GET": _text_by_id},
        ("schemas", "ids", ID, "subjects"): {"GET": _subjects_by_id},
        ("schemas", "ids", ID, "versions"): {"GET": _versions_by_id},
        ("schemas", "guids", ID): {"GET": _by_guid},
        ("subjects",): {"GET": _subjects},
        ("subjects", SUBJECT): {"POST": _look_up, "DELETE": _delete},
        VERSIONS: {"GET": _versions, "POST": _register},
        (*VERSIONS, VERSION): {"GET": _version, "DELETE": _delete},
        (*VERSIONS, VERSION, "schema"): {"GET": _text},
        (*VERSIONS, VERSION, "referencedby"): {"GET": _referrers},
        COMPATIBILITY: {"POST": _compare},
        (*COMPATIBILITY, VERSION): {"POST": _compare},
        ("config",): {"GET": _config, "PUT": _set_config, "DELETE": _unset_config},
        ("config", SUBJECT): {"GET": _config, "PUT": _set_config, "DELETE": _unset_config},
        ("mode",): {"GET": _mode, "PUT": _set_mode, "DELETE": _unset_mode},
        ("mode", SUBJECT): {"GET": _mode, "PUT": _set_mode, "DELETE": _unset_mode},
    }
    """The handler of each path below the prefix, by its parts."""


async def _check_rights(request: Request, pattern: tuple[str, ...], names: Sequence[str]) -> None:
    """Raise unless the client has the rights of the route's row."""
    row = REGISTRY_RIGHTS[f"{request.method} /{'/'.join(pattern)}"]
    if not row.subject:
        return
    if SUBJECT not in pattern:
        await require_on_cluster(request, *row.subject)
        return
    subject = read_subject(names[0])
    if not await require_on_subject(request, row.subject, subject):
        raise _no_subject(subject)


def _no_subject(subject: str) -> RegistryFailure:
    return RegistryFailure(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def _with_prefix(registry: Registry, prefix: str) -> list[str]:
    return [subject for subject in registry.subjects if subject.startswith(prefix)]


def _every_or(names: Sequence[str]) -> str:
    return read_subject(names[0]) if names else EVERY_SUBJECT


def _resource(subject: str) -> AuditedResource:
    """The resource by which ACLs name a subject."""
    return topic_resource(SCHEMA_PREFIX + subject)


def _announce_setting(request: Request, names: Sequence[str], text: str) -> None:
    """Announce a change of a subject's settings, or of those of all subjects."""
    resource = _resource(read_subject(names[0])) if names else CLUSTER
    announce_change(request, resource, Operation.ALTER_CONFIGS, f"schema registry: {text}")


def _content_row(content: SchemaContent, text: str) -> dict[str, object]:
    """The row of a schema. Confluent's registry omits the type of Avro, its first format, and so does this."""
    row: dict[str, object] = {"schema": text}
    if content.schema_type is not SchemaType.AVRO:
        row["schemaType"] = content.schema_type.name
    if content.references:
        row["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in content.references
        ]
    return row


def _version_row(row: Registered, text: str) -> Rows:
    return {
        "subject": row.subject,
        "version": row.version,
        "id": row.schema_id,
        "guid": row.guid,
        **_content_row(row.content, text),
        **({"deleted": True} if row.is_deleted else {}),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def failed(code: int, message: str) -> Response:
    """An error in the API's format. The first three digits of a code above 1000 are the status."""
    status = code if code < 1000 else code // 100
    body = _json({"error_code": code, "message": message.encode(errors="replace").decode()})
    return Response(body, status_code=status, media_type=MEDIA_TYPE)


def rejected(rejection: AccessRejection) -> Response:
    """The answer to a request that lacks a login or a right."""
    answer = failed(rejection.status * 100 + 1, rejection.text)
    answer.headers.update(rejection.headers)
    return answer
