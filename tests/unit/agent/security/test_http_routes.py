"""The routes of the HTTP port by name: no text of a client is in them."""

import pytest

from agent.security.http_routes import route_of


@pytest.mark.parametrize(
    ("api", "route"),
    [
        ("GET /api/topics", "GET /api/topics"),
        ("GET /api/topics/orders", "GET /api/topics/{name}"),
        ("POST /api/lake/orders/rebuild", "POST /api/lake/{name}/rebuild"),
        ("GET /iceberg/v1/namespaces/lake/tables/orders", "GET /iceberg/v1/namespaces/{namespace}/tables/{table}"),
        (
            "GET /schema-registry/subjects/a-value/versions/1",
            "GET /schema-registry/subjects/{subject}/versions/{version}",
        ),
        ("GET /schema-registry/schemas/types", "GET /schema-registry/schemas/types"),
        ("GET /api/topics/", "GET (no route)"),
        ("GET /drawn at will", "GET (no route)"),
        ("GET /" + "x" * 240, "GET (no route)"),
        ("DRAWN /api/topics", "OTHER /api/topics"),
        ("", "OTHER (no route)"),
    ],
)
def test_a_request_has_the_pattern_of_its_path(api: str, route: str) -> None:
    assert route_of(api) == route
