"""The checks of routes and handlers: whether the client of a request has the rights for it.

Rule: a denial says which right is missing and nothing else, and stands behind a barrier (S16). To a request without a
login it is a 401, which says how to log in. What may not be described is answered as what does not exist.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.config.http_auth import AccessRejection
from agent.http.change_audit import with_recorded_changes
from agent.security.http_identity import HttpIdentity, login_required
from agent.security.required_http_rights import HTTP_RIGHTS, SCHEMA_PREFIX
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType

STATE_KEY: Final = "penstock_identity"
Handler = Callable[[Request], Awaitable[Response]]
HiddenTopic = Callable[[str], Exception]
"""The error of an API for a topic that does not exist."""


class AccessDenied(Exception):
    """The client lacks a right, or a login. The API's error has the status of the rejection."""

    def __init__(self, rejection: AccessRejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def identity_of(request: Request) -> HttpIdentity:
    """Who sent the request. `agent.http.access_guard` has found out."""
    identity = request.scope["state"][STATE_KEY]
    assert isinstance(identity, HttpIdentity)
    return identity


async def require(request: Request, operation: Operation, resource_type: ResourceType, *names: str) -> None:
    """Raise `AccessDenied` unless the client may perform the operation on all resources."""
    denied = await identity_of(request).rights.denied_names(operation, resource_type, names)
    if denied:
        raise denial(request, operation, resource_type, min(denied))


async def require_on_cluster(request: Request, *operations: Operation) -> None:
    """Raise `AccessDenied` unless the client may perform one of the operations on the cluster."""
    if not await identity_of(request).rights.may_on_cluster(*operations):
        raise denial(request, operations[0], ResourceType.CLUSTER, CLUSTER_NAME)


async def require_on_topic(request: Request, name: str, operations: Iterable[Operation], hidden: HiddenTopic) -> None:
    """Raise unless the client may perform all operations on the topic: `hidden` where it may not describe it."""
    if not await may_describe(request, name):
        raise hidden(name)
    for operation in operations:
        await require(request, operation, ResourceType.TOPIC, name)


async def may_describe(request: Request, name: str) -> bool:
    """Whether the client may know of the topic. Raises `AccessDenied` where a login is missing."""
    try:
        await require(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
    except AccessDenied as error:
        if error.rejection.status == 401:
            raise
        return False
    return True


async def described(request: Request, names: Iterable[str]) -> frozenset[str]:
    """The topics of `names` that the client may know of. What a list leaves out is no denial."""
    return await allowed(request, Operation.DESCRIBE, ResourceType.TOPIC, names)


async def allowed(
    request: Request, operation: Operation, resource_type: ResourceType, names: Iterable[str]
) -> frozenset[str]:
    """The resources of `names` on which the client may perform the operation."""
    rights, names = identity_of(request).rights, frozenset(names)
    if all(rights.may(operation, resource_type, name) for name in names):
        return names
    await rights.catch_up()
    return frozenset(name for name in names if rights.may(operation, resource_type, name))


def denial(request: Request, operation: Operation, resource_type: ResourceType, name: str) -> AccessDenied:
    """The error for a right that is missing."""
    identity_of(request).record_denial(operation, resource_type, name)
    where = "the cluster" if resource_type is ResourceType.CLUSTER else f"{_words(resource_type)} {name}"
    return denial_of(request, f"{operation.name} on {where}")


def denial_of(request: Request, right: str) -> AccessDenied:
    """The error for a right in words, such as `READ on topic orders`. The caller has recorded the denial."""
    if not identity_of(request).mechanism:
        return AccessDenied(login_required(f"a login with the right {right} is required"))
    return AccessDenied(
        AccessRejection(
            status=403,
            code="not_authorized",
            message=f"the right {right} is missing",
            remedy="an administrator grants rights with kafka-acls.sh",
        )
    )


def _words(resource_type: ResourceType) -> str:
    return resource_type.name.lower().replace("_", " ")


# The schema registry.


def may_on_subject(request: Request, operations: Iterable[Operation], subject: str) -> bool:
    """Whether the client may perform one of the operations on a subject, by what is applied now.

    Its rights are those on the topic `schema:SUBJECT` and, for TOPIC-key and TOPIC-value, those on the topic. Where
    resources without ACLs are allowed to everybody, both have to allow it: otherwise the one without ACLs would.
    """
    identity = identity_of(request)
    resources = [SCHEMA_PREFIX + subject]
    topic = next((subject.removesuffix(end) for end in ("-key", "-value") if subject.endswith(end)), "")
    if topic:
        resources.append(topic)
    quantifier = all if identity.is_allowed_without_acls else any
    return any(
        quantifier(identity.rights.may(operation, ResourceType.TOPIC, name) for name in resources)
        for operation in operations
    )


async def allowed_subjects(
    request: Request, operations: tuple[Operation, ...], subjects: Iterable[str]
) -> frozenset[str]:
    """The subjects on which the client may perform one of the operations."""
    subjects = frozenset(subjects)
    visible = frozenset(subject for subject in subjects if may_on_subject(request, operations, subject))
    if len(visible) == len(subjects):
        return visible
    await identity_of(request).rights.catch_up()
    return frozenset(subject for subject in subjects if may_on_subject(request, operations, subject))


async def require_on_subject(request: Request, operations: tuple[Operation, ...], subject: str) -> bool:
    """Whether the client may perform one of the operations on a subject; False where it may not know of it at all.

    Raises `AccessDenied` where it may know of it, or lacks a login.
    """
    if await allowed_subjects(request, operations, (subject,)):
        return True
    name = SCHEMA_PREFIX + subject
    identity_of(request).record_denial(operations[0], ResourceType.TOPIC, name)
    error = denial_of(request, f"{' or '.join(each.name for each in operations)} on topic {name}")
    if error.rejection.status == 401 or may_on_subject(request, (Operation.DESCRIBE,), subject):
        raise error
    return False


# Routes.


def guarded_route(
    path: str,
    handler: Handler,
    *,
    hidden: HiddenTopic,
    methods: tuple[str, ...] = ("GET",),
    prefix: str = "",
    topic_parameter: str = "name",
) -> Route:
    """A route whose handler runs only with the rights of its row in `required_http_rights`.

    Args:
        hidden: the error for a topic that does not exist.
        prefix: what the application is mounted below.
        topic_parameter: the parameter of the path that names the topic.
    """
    rows = {method: HTTP_RIGHTS[f"{method} {prefix}{path}"] for method in methods if method != "HEAD"}
    if "HEAD" in methods:
        rows["HEAD"] = HTTP_RIGHTS.get(f"HEAD {prefix}{path}", rows["GET"])

    async def answer(request: Request) -> Response:
        row = rows[request.method] if request.method in rows else rows["GET"]  # Starlette serves HEAD as GET
        if row.cluster:
            await require_on_cluster(request, *row.cluster)
        if row.topic:
            await require_on_topic(request, request.path_params[topic_parameter], row.topic, hidden)
        return await with_recorded_changes(request, identity_of(request), partial(handler, request))

    return Route(path, answer, methods=list(methods))
