"""THE table of the rights that each path of the HTTP port asks for. A route without its row cannot be built.

In: method and path. Out: operations on the cluster, of which one is needed; operations on the topic that the path
names, all of which are needed; and the rights that the handler asks for by itself.
Rule: the guard of a route asks for the first two before its handler runs, and rights come before existence. A client
that may not describe the topic gets the answer of one that does not exist. A test compares the table with the routes.
Source: the row of the Kafka API that shows or changes the same (agent.security.required_rights).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.auth.operations import Operation, ResourceType

REGISTRY_PREFIX: Final = "/schema-registry"
"""Before the paths of the schema registry."""
SCHEMA_PREFIX: Final = "schema:"
"""Before a subject's name: the topic resource by which ACLs name a subject of the schema registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredHttpRights:
    """One row."""

    cluster: tuple[Operation, ...] = ()
    """One of these on the cluster; none where it is empty."""
    topic: tuple[Operation, ...] = ()
    """Each of these on the topic that the path names."""
    listed: tuple[tuple[Operation, ResourceType], ...] = ()
    """The answer leaves out resources without these rights."""
    body: tuple[tuple[Operation, ResourceType], ...] = ()
    """The handler asks for those of these that the request's query or body calls for."""


_NOTHING: Final = RequiredHttpRights()
_ALTER_CLUSTER: Final = RequiredHttpRights(cluster=(Operation.ALTER,))
_DESCRIBE_CLUSTER: Final = RequiredHttpRights(cluster=(Operation.DESCRIBE,))
_DESCRIBED_TOPICS: Final = RequiredHttpRights(listed=((Operation.DESCRIBE, ResourceType.TOPIC),))
_DESCRIBE_TOPIC: Final = RequiredHttpRights(topic=(Operation.DESCRIBE,))
_READ_TOPIC: Final = RequiredHttpRights(topic=(Operation.READ,))
_ALTER_TOPIC: Final = RequiredHttpRights(topic=(Operation.ALTER,))
_NAMED_TOPIC: Final = RequiredHttpRights(body=((Operation.DESCRIBE, ResourceType.TOPIC),))
"""The body names the topic. To a client that may not describe it, it does not exist."""

_ADMIN: Final[Mapping[str, RequiredHttpRights]] = {
    "GET /live": _NOTHING,
    "GET /ready": _NOTHING,
    "GET /metrics": _DESCRIBE_CLUSTER,
    "GET /api/status": RequiredHttpRights(listed=((Operation.DESCRIBE, ResourceType.CLUSTER),)),
    "GET /api/state": _ALTER_CLUSTER,
    "GET /api/agents": _DESCRIBE_CLUSTER,
    "POST /api/agents/{name}/drain": _ALTER_CLUSTER,
    "GET /api/topics": _DESCRIBED_TOPICS,
    "GET /api/topics/{name}": RequiredHttpRights(
        topic=(Operation.DESCRIBE,), listed=((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),)
    ),
    "GET /api/lake": RequiredHttpRights(
        listed=((Operation.DESCRIBE, ResourceType.TOPIC), (Operation.DESCRIBE, ResourceType.CLUSTER))
    ),
    "GET /api/lake/{name}": _DESCRIBE_TOPIC,
    "GET /api/lake/{name}/index": _DESCRIBE_TOPIC,
    "GET /api/lake/{name}/rewrites": _READ_TOPIC,
    # A rewritten file stands for records.
    "POST /api/lake/{name}/rewrites": RequiredHttpRights(topic=(Operation.READ, Operation.WRITE, Operation.ALTER)),
    "POST /api/lake/{name}/rebuild": _ALTER_TOPIC,
    "POST /api/acls/confirm": _ALTER_CLUSTER,
    # Topics that the client may not describe are left out, as ones that do not exist.
    "POST /api/tail": RequiredHttpRights(body=((Operation.READ, ResourceType.TOPIC),)),
    "GET /api/tail/{name}": _READ_TOPIC,
    "GET /api/tail/{name}/bytes": _READ_TOPIC,
    "POST /api/tail/{name}/urls": _READ_TOPIC,
    "POST /api/archive": RequiredHttpRights(body=((Operation.ALTER, ResourceType.TOPIC),)),
    "POST /api/audit": RequiredHttpRights(
        cluster=(Operation.DESCRIBE,), body=((Operation.ALTER, ResourceType.CLUSTER),)
    ),
    "GET /api/inspect/state": _ALTER_CLUSTER,
    "GET /api/inspect/objects": _ALTER_CLUSTER,
    "GET /api/inspect/chunks": _ALTER_CLUSTER,
    "GET /api/inspect/ledger": _ALTER_CLUSTER,
    "GET /api/inspect/object": _ALTER_CLUSTER,
    "GET /api/inspect/transactions": RequiredHttpRights(
        listed=((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID), (Operation.DESCRIBE, ResourceType.TOPIC))
    ),
}
_SPACE: Final = "/iceberg/v1/namespaces"
_TABLE: Final = f"{_SPACE}/{{namespace}}/tables/{{table}}"
_VIEW: Final = f"{_SPACE}/{{namespace}}/views/{{view}}"
_CATALOG: Final[Mapping[str, RequiredHttpRights]] = {
    "GET /iceberg/v1/config": _NOTHING,
    f"GET {_SPACE}": _NOTHING,
    f"POST {_SPACE}": _NOTHING,
    f"GET {_SPACE}/{{namespace}}": _NOTHING,
    f"DELETE {_SPACE}/{{namespace}}": _NOTHING,
    f"POST {_SPACE}/{{namespace}}/properties": _NOTHING,
    f"GET {_SPACE}/{{namespace}}/tables": _DESCRIBED_TOPICS,
    f"POST {_SPACE}/{{namespace}}/tables": _NAMED_TOPIC,
    f"POST {_SPACE}/{{namespace}}/register": _NOTHING,
    # Metadata holds the least and the greatest values of columns.
    f"GET {_TABLE}": _READ_TOPIC,
    f"HEAD {_TABLE}": _DESCRIBE_TOPIC,
    # The answer is the metadata after the commit.
    f"POST {_TABLE}": RequiredHttpRights(
        topic=(Operation.READ,),
        body=((Operation.ALTER_CONFIGS, ResourceType.TOPIC), (Operation.ALTER, ResourceType.TOPIC)),
    ),
    f"DELETE {_TABLE}": _DESCRIBE_TOPIC,
    f"GET {_TABLE}/credentials": _READ_TOPIC,
    f"POST {_TABLE}/metrics": _DESCRIBE_TOPIC,
    "POST /iceberg/v1/tables/rename": _NOTHING,
    "POST /iceberg/v1/transactions/commit": _NOTHING,
    f"GET {_SPACE}/{{namespace}}/views": _NOTHING,
    f"POST {_SPACE}/{{namespace}}/views": _NOTHING,
    f"POST {_SPACE}/{{namespace}}/register-view": _NOTHING,
    f"GET {_VIEW}": _NOTHING,
    f"POST {_VIEW}": _NOTHING,
    f"DELETE {_VIEW}": _NOTHING,
    "POST /iceberg/v1/views/rename": _NOTHING,
    "POST /iceberg/v1/oauth/tokens": _NOTHING,
}
HTTP_RIGHTS: Final[Mapping[str, RequiredHttpRights]] = {**_ADMIN, **_CATALOG}
"""The rows by method and path. A HEAD without a row has that of GET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRights:
    """One row of the schema registry. A subject's rights are those of its topic or of `schema:SUBJECT`."""

    subject: tuple[Operation, ...] = ()
    """One of these on the subject that the path names; on the cluster where it names none."""
    listed: tuple[Operation, ...] = ()
    """The answer leaves out subjects without one of these."""


_SEEN: Final = (Operation.READ, Operation.WRITE)
_READS: Final = SubjectRights(subject=_SEEN)
_OF_ANY: Final = SubjectRights(listed=_SEEN)
"""One of the subjects that have the schema is needed."""
_LISTS: Final = SubjectRights(listed=(Operation.DESCRIBE,))
_FREE: Final = SubjectRights()
_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = f"{_SUBJECT}/versions/{{version}}"
_COMPARED: Final = f"/compatibility{_SUBJECT}/versions"
_ID: Final = "/schemas/ids/{id}"


def _settings(name: str) -> dict[str, SubjectRights]:
    reads = (Operation.DESCRIBE_CONFIGS,)
    changes = (Operation.ALTER_CONFIGS,)
    rows: dict[str, SubjectRights] = {}
    for path in (f"/{name}", f"/{name}/{{subject}}"):
        rows[f"GET {path}"] = SubjectRights(subject=reads)
        rows |= {f"{method} {path}": SubjectRights(subject=changes) for method in ("PUT", "DELETE")}
    return rows


REGISTRY_RIGHTS: Final[Mapping[str, SubjectRights]] = {
    "GET /": _FREE,
    "GET /contexts": _FREE,
    "GET /schemas": SubjectRights(listed=_SEEN),
    "GET /schemas/types": _FREE,
    f"GET {_ID}": _OF_ANY,
    f"GET {_ID}/schema": _OF_ANY,
    f"GET {_ID}/subjects": _LISTS,
    f"GET {_ID}/versions": _LISTS,
    "GET /schemas/guids/{id}": _OF_ANY,
    "GET /subjects": _LISTS,
    f"POST {_SUBJECT}": _READS,
    f"DELETE {_SUBJECT}": SubjectRights(subject=(Operation.DELETE,)),
    f"GET {_SUBJECT}/versions": _READS,
    f"POST {_SUBJECT}/versions": SubjectRights(subject=(Operation.WRITE,)),
    f"GET {_VERSION}": _READS,
    f"DELETE {_VERSION}": SubjectRights(subject=(Operation.DELETE,)),
    f"GET {_VERSION}/schema": _READS,
    f"GET {_VERSION}/referencedby": _READS,
    f"POST {_COMPARED}": _READS,
    f"POST {_COMPARED}/{{version}}": _READS,
    **_settings("config"),
    **_settings("mode"),
}
"""The rows by method and path below the registry's prefix."""
