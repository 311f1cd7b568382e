"""What each route of the HTTP port takes and answers, in a line: the text of docs/reference/http-api.md.

Routes carry no text of their own. `tools.pages.reference` compares this table with the routes of the application, so
that a route without a row, or a row without a route, is an error.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class RouteText(NamedTuple):
    request: str
    answer: str


_ADMIN: Final[Mapping[str, RouteText]] = {
    "GET /live": RouteText("", "200 while the process runs; text"),
    "GET /ready": RouteText(
        "",
        "200 while the agent serves; text, with a fixed line for each kind of warning. 503 while it starts or drains, "
        "with one line that names what it waits for",
    ),
    "GET /metrics": RouteText("", "[metrics](metrics.md) as Prometheus text"),
    "GET /api/status": RouteText(
        "",
        "object: readiness, name, zone, version, seconds since it serves, cluster, session, rules version and its "
        "hold, the maintenance leader's name, advertised and bound Kafka addresses, bucket, and the warnings in full "
        "(`notices`)",
    ),
    "GET /api/state": RouteText("", "object: ledger position, rules version and digest of the state"),
    "GET /api/agents": RouteText(
        "",
        '`{"rules_version": ..., "rules_held_since_ms": ..., "agents": [...]}`: live agents with zone, version, HTTP '
        "address and drain",
    ),
    "POST /api/agents/{name}/drain": RouteText(
        "`{}`", '`{"agent": ..., "is_draining": ...}`: the agent sends its clients to the others, until it is restarted'
    ),
    "GET /api/topics": RouteText("", '`{"topics": [...]}`: topics with partitions and sizes'),
    "GET /api/topics/{name}": RouteText("", "object: partitions, configs and their sources"),
    "GET /api/lake": RouteText("`limit`", '`{"tables": [...], "external_catalogs": [...]}`'),
    "GET /api/lake/{name}": RouteText("", "object: files, lag, last snapshot and contents of the next archive pass"),
    "GET /api/lake/{name}/index": RouteText("`after`, `limit`", "archived ranges of offsets with their files"),
    "GET /api/lake/{name}/rewrites": RouteText("`purpose=rewrite` or `backfill`, `behind`", "plan for a Spark job"),
    "POST /api/lake/{name}/rewrites": RouteText("file that a Spark job wrote", '`{"done": true}` after its commit'),
    "POST /api/lake/{name}/rebuild": RouteText("`{}`", "object: the rebuilt table"),
    "POST /api/acls/confirm": RouteText("`{}`", "object: how many ACLs and SCRAM credentials are in force"),
    "POST /api/tail": RouteText(
        '`{"topics": ["orders"]}`', "the tail manifest with these topics, without those that do not exist; bytes"
    ),
    "GET /api/tail/{name}": RouteText("", "the topic's part of the tail manifest; bytes"),
    "GET /api/tail/{name}/bytes": RouteText(
        "`key`, `first`, `count`", "bytes of an object that are the topic's, counted against the fetch quota"
    ),
    "POST /api/tail/{name}/urls": RouteText(
        '`{"ranges": [["intake/...", 8, 100]]}`',
        "URLs of the store, each signed for one such range and five minutes; null where the store does not support it",
    ),
    "POST /api/archive": RouteText('`{"topics": ["orders"], "wait": true}`', "archive passes; 202 without `wait`"),
    "POST /api/audit": RouteText('`{"repair": false, "deep": false}`', "object: differences of bucket, ledger, state"),
    "GET /api/inspect/state": RouteText("", "object: counts, ledger position and live sessions"),
    "GET /api/inspect/objects": RouteText("`limit`", "referenced objects and `limit` released ones"),
    "GET /api/inspect/chunks": RouteText("`topic`, `partition`, `limit`", "chunks of a topic"),
    "GET /api/inspect/ledger": RouteText("`after`, `limit`", "ledger entries above a position, oldest first"),
    "GET /api/inspect/object": RouteText("`key`", "contents of an object as JSON"),
    "GET /api/inspect/transactions": RouteText("`limit`", "transactional ids: open transactions first"),
}
_SPACE: Final = "/iceberg/v1/namespaces"
_UNSUPPORTED: Final = "error with the supported alternative"
_ICEBERG: Final[Mapping[str, RouteText]] = {
    "GET /iceberg/v1/config": RouteText("", "catalog properties and endpoints"),
    f"GET {_SPACE}": RouteText("`parent`", "namespaces"),
    f"POST {_SPACE}": RouteText("namespace", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}": RouteText("", "properties of the namespace"),
    f"DELETE {_SPACE}/{{namespace}}": RouteText("", _UNSUPPORTED),
    f"POST {_SPACE}/{{namespace}}/properties": RouteText("property changes", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}/tables": RouteText("`pageToken`, `pageSize`", "table identifiers"),
    f"POST {_SPACE}/{{namespace}}/tables": RouteText("table", _UNSUPPORTED),
    f"POST {_SPACE}/{{namespace}}/register": RouteText("table", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}/tables/{{table}}": RouteText("`snapshots`", "metadata, and vended credentials"),
    f"POST {_SPACE}/{{namespace}}/tables/{{table}}": RouteText("requirements, updates", "metadata after the commit"),
    f"DELETE {_SPACE}/{{namespace}}/tables/{{table}}": RouteText("", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}/tables/{{table}}/credentials": RouteText("", "vended credentials of the table"),
    f"POST {_SPACE}/{{namespace}}/tables/{{table}}/metrics": RouteText("scan or commit report", "204; not stored"),
    "POST /iceberg/v1/tables/rename": RouteText("identifiers", _UNSUPPORTED),
    "POST /iceberg/v1/transactions/commit": RouteText("table changes", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}/views": RouteText("", "an empty list"),
    f"POST {_SPACE}/{{namespace}}/views": RouteText("view", _UNSUPPORTED),
    f"POST {_SPACE}/{{namespace}}/register-view": RouteText("view", _UNSUPPORTED),
    f"GET {_SPACE}/{{namespace}}/views/{{view}}": RouteText("", "404"),
    f"POST {_SPACE}/{{namespace}}/views/{{view}}": RouteText("view", "404"),
    f"DELETE {_SPACE}/{{namespace}}/views/{{view}}": RouteText("", "404"),
    "POST /iceberg/v1/views/rename": RouteText("identifiers", _UNSUPPORTED),
    "POST /iceberg/v1/oauth/tokens": RouteText("", "400: use a bearer token instead"),
}
_SUBJECTS: Final = "/schema-registry/subjects"
_IDS: Final = "/schema-registry/schemas/ids/{id}"
_ONE_VERSION: Final = f"{_SUBJECTS}/{{subject}}/versions/{{version}}"
_COMPATIBILITY: Final = "/schema-registry/compatibility/subjects/{subject}/versions"
_REGISTRY: Final[Mapping[str, RouteText]] = {
    "GET /schema-registry": RouteText("", "`{}`"),
    "GET /schema-registry/contexts": RouteText("`offset`, `limit`", "the default context alone"),
    "GET /schema-registry/schemas": RouteText("`subjectPrefix`, `deleted`, `latestOnly`", "versions with schemas"),
    "GET /schema-registry/schemas/types": RouteText("", "JSON, PROTOBUF, AVRO"),
    f"GET {_IDS}": RouteText("`format`, `fetchMaxId`", "schema of an id"),
    f"GET {_IDS}/schema": RouteText("`format`", "text of the schema"),
    f"GET {_IDS}/subjects": RouteText("`subject`, `deleted`", "subjects that use the schema"),
    f"GET {_IDS}/versions": RouteText("`subject`, `deleted`", "subjects and versions that use the schema"),
    "GET /schema-registry/schemas/guids/{id}": RouteText("`format`", "schema of a GUID"),
    f"GET {_SUBJECTS}": RouteText("`subjectPrefix`, `deleted`, `deletedOnly`", "subjects"),
    f"POST {_SUBJECTS}/{{subject}}": RouteText("schema; `normalize`, `deleted`", "version that has this schema"),
    f"DELETE {_SUBJECTS}/{{subject}}": RouteText("`permanent`", "deleted versions"),
    f"GET {_SUBJECTS}/{{subject}}/versions": RouteText("`deleted`, `deletedOnly`", "versions"),
    f"POST {_SUBJECTS}/{{subject}}/versions": RouteText("schema; `normalize`", "id, version and GUID"),
    f"GET {_ONE_VERSION}": RouteText("`format`, `deleted`", "version with its schema"),
    f"DELETE {_ONE_VERSION}": RouteText("`permanent`", "deleted version"),
    f"GET {_ONE_VERSION}/schema": RouteText("`format`, `deleted`", "text of the schema"),
    f"GET {_ONE_VERSION}/referencedby": RouteText("`deleted`", "ids of schemas that reference this one"),
    f"POST {_COMPATIBILITY}": RouteText("schema; `normalize`, `verbose`", "compatibility with the checked versions"),
    f"POST {_COMPATIBILITY}/{{version}}": RouteText("schema; `normalize`, `verbose`", "compatibility with one version"),
    "GET /schema-registry/config": RouteText("", "global compatibility level"),
    "PUT /schema-registry/config": RouteText("compatibility", "new compatibility level"),
    "DELETE /schema-registry/config": RouteText("", "former compatibility level"),
    "GET /schema-registry/config/{subject}": RouteText("`defaultToGlobal`", "compatibility level of a subject"),
    "PUT /schema-registry/config/{subject}": RouteText("compatibility", "new compatibility level"),
    "DELETE /schema-registry/config/{subject}": RouteText("", "former compatibility level"),
    "GET /schema-registry/mode": RouteText("", "global mode"),
    "PUT /schema-registry/mode": RouteText("mode; `force`", "new mode"),
    "DELETE /schema-registry/mode": RouteText("", "former mode"),
    "GET /schema-registry/mode/{subject}": RouteText("`defaultToGlobal`", "mode of a subject"),
    "PUT /schema-registry/mode/{subject}": RouteText("mode; `force`", "new mode"),
    "DELETE /schema-registry/mode/{subject}": RouteText("", "former mode"),
}
SECTIONS: Final[Mapping[str, Mapping[str, RouteText]]] = {
    "Agent and topics": _ADMIN,
    "Iceberg REST catalog": _ICEBERG,
    "Schema registry": _REGISTRY,
}
