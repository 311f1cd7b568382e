"""Requests of the HTTP port are counted by route and status, with bounded labels."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from agent.http.request_metrics import RequestTimer, route_of
from agent.runtime.metrics import Metrics


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/metrics", "/metrics"),
        ("/live", "/live"),
        ("/api/topics", "/api/topics"),
        ("/api/topics/orders", "/api/topics"),
        ("/api/lake/orders/index", "/api/lake"),
        ("/iceberg", "/iceberg"),
        ("/iceberg/v1/namespaces/lake/tables/orders", "/iceberg"),
        ("/schema-registry/subjects/orders-value", "/schema-registry"),
        ("/icebergs", "other"),
        ("/api", "other"),
        ("/api/nothing", "other"),
        ("/", "other"),
        ("/wp-login.php", "other"),
    ],
)
def test_a_route_has_no_names_of_topics(path: str, route: str) -> None:
    assert route_of(path) == route


async def counted(*statuses: int) -> str:
    """The metrics after a request to /live that is answered so, or not at all."""
    metrics = Metrics()
    seconds = iter([1.0, 1.2])

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for status in statuses:
            await send({"type": "http.response.start", "status": status})
            await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_message: Message) -> None:
        pass

    timer = RequestTimer(app, metrics=metrics, monotonic_s=lambda: next(seconds))
    await timer({"type": "http", "path": "/live"}, receive, send)
    return metrics.exposition().decode()


async def test_a_request_is_timed_by_its_status() -> None:
    text = await counted(503)
    assert 'penstock_http_request_duration_seconds_count{route="/live",status="503"} 1.0' in text
    assert 'penstock_http_request_duration_seconds_bucket{le="0.1",route="/live",status="503"} 0.0' in text
    assert 'penstock_http_request_duration_seconds_bucket{le="0.25",route="/live",status="503"} 1.0' in text


async def test_a_client_that_has_gone_is_counted_without_a_status() -> None:
    assert 'penstock_http_request_duration_seconds_count{route="/live",status="none"} 1.0' in await counted()
