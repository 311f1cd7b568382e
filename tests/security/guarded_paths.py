"""The paths of the HTTP port as requests about one topic: what each row of the tables of rights asks for.

The rows are those of `agent.security.required_http_rights`, so that no path goes without its request. A path that needs
more than its row to be asked for (a query or a body) has it here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from agent.security.required_http_rights import HTTP_RIGHTS, REGISTRY_RIGHTS
from agent.security.required_rights import Right
from protocol.auth.operations import Operation, ResourceType

REGISTRY: Final = "/schema-registry"
QUERIES: Final = {
    "GET /api/lake/{name}/rewrites": "?purpose=rewrite",
    "GET /api/inspect/chunks": "?topic={name}",
    "GET /api/inspect/object": "?key=cluster.json",
    "GET /api/tail/{name}/bytes": "?object=1&first=0&count=1",
}
BODIES: Final[dict[str, Any]] = {
    "POST /api/archive": {"topics": ["{name}"]},
    "POST /api/audit": {"repair": True},
    "POST /iceberg/v1/namespaces/{namespace}/tables": {
        "name": "{name}",
        "schema": {"type": "struct", "schema-id": 0, "fields": []},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPath:
    """A request, and the sets of rights of which it needs one each, in the order in which they are asked for."""

    row: str
    """Method and path, as the tables have them."""
    needs: tuple[frozenset[Right], ...]
    lists: tuple[frozenset[Right], ...]
    """One of each set is needed to see the topic in the answer."""

    @property
    def method(self) -> str:
        return self.row.partition(" ")[0]

    def path(self, topic: str) -> str:
        """The path of a request about the topic, with its query."""
        path = self.row.partition(" ")[2] + QUERIES.get(self.row, "")
        values = {"name": topic, "namespace": "lake", "table": topic, "view": topic, "version": "1", "id": "1"}
        return path.format(**values, subject=f"{topic}-value")

    def body(self, topic: str) -> object:
        return _filled(BODIES.get(self.row), topic)


def _filled(value: object, topic: str) -> object:
    match value:
        case str():
            return value.replace("{name}", topic)
        case dict():
            return {key: _filled(each, topic) for key, each in value.items()}
        case list():
            return [_filled(each, topic) for each in value]
        case _:
            return value


def guarded_paths() -> Iterator[GuardedPath]:
    """A request for each row of both tables."""
    for row, required in HTTP_RIGHTS.items():
        cluster = frozenset(Right(operation, ResourceType.CLUSTER) for operation in required.cluster)
        topics = [frozenset({Right(operation, ResourceType.TOPIC)}) for operation in required.topic]
        bodies = [frozenset({Right(*right)}) for right in required.body] if row in BODIES else []
        needs = [rights for rights in (cluster, *topics, *bodies) if rights]
        lists = [frozenset({Right(*right)}) for right in required.listed]
        yield GuardedPath(row=row, needs=tuple(needs), lists=tuple(lists))
    for row, subject in REGISTRY_RIGHTS.items():
        method, _, path = row.partition(" ")
        kind = ResourceType.TOPIC if "{subject}" in path else ResourceType.CLUSTER
        yield GuardedPath(
            row=f"{method} {REGISTRY}{path}",
            needs=_sets(subject.subject, kind),
            lists=_sets(subject.listed, ResourceType.TOPIC),
        )


def _sets(operations: tuple[Operation, ...], kind: ResourceType) -> tuple[frozenset[Right], ...]:
    return (frozenset(Right(operation, kind) for operation in operations),) if operations else ()
