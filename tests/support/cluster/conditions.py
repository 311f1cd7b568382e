"""The brokers of a cluster as clients see them, and a wait for a condition."""

import threading
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from tests.support.cluster.cluster import ClusterAgent

SECONDS_MAX = 60.0


def brokers_of(agent: ClusterAgent) -> dict[int, str]:
    """Node ids and addresses, as this agent lists them."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap, "log_level": 0})
    brokers = admin.list_topics(timeout=30).brokers
    return {node_id: f"{broker.host}:{broker.port}" for node_id, broker in brokers.items()}


def wait_until(is_so: Callable[[], bool], what: str, *, seconds_max: float = SECONDS_MAX) -> float:
    """Waits until `is_so()`; the seconds that passed. Fails after `seconds_max`, with `what`."""
    began_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - began_s < seconds_max, f"{what} did not come about in {seconds_max:.0f} s"
        threading.Event().wait(0.05)
    return time.monotonic() - began_s
