"""The brokers of a cluster as clients see them, and a wait for a condition."""

import threading
import time
from collections.abc import Callable

from protocol.api_versions import ApiKey
from tests.support.clients.kafka_requests import ask
from tests.support.cluster.cluster import ClusterAgent

SECONDS_MAX = 60.0


def brokers_of(agent: ClusterAgent) -> dict[int, str]:
    """Node ids and addresses, as this agent lists them. A client of librdkafka may ask another agent of the list."""
    asked = {"topics": (), "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    brokers = ask(agent.bootstrap, ApiKey.METADATA, 12, asked).brokers
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in brokers}


def wait_until(is_so: Callable[[], bool], what: str, *, seconds_max: float = SECONDS_MAX) -> float:
    """Waits until `is_so()`; the seconds that passed. Fails after `seconds_max`, with `what`."""
    began_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - began_s < seconds_max, f"{what} did not come about in {seconds_max:.0f} s"
        threading.Event().wait(0.05)
    return time.monotonic() - began_s
