"""Which connections are ended unasked: the silent, those that do not read, and those that keep memory from others.

Rule: called every RECEIVE_STALLED_SECONDS_MAX. Without others who wait for memory a peer may be slow in sending as long
as its request makes progress in each RECEIVE_IDLE_SECONDS_MAX, and while there is memory for answers for as long as
WRITE_SECONDS_MAX in reading; what it is slow at and for how long is in `protocol.limits`.
"""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from agent.metrics import Metrics
from protocol.answer_memory import AnswerMemory
from protocol.limits import (
    HALF_OPEN_SECONDS_MAX,
    RECEIVE_IDLE_SECONDS_MAX,
    RECEIVE_STALLED_SECONDS_MAX,
    RESERVE_SECONDS_MAX,
    WRITE_SECONDS_MAX,
)
from protocol.request_memory import RequestMemory

if TYPE_CHECKING:
    from agent.client_connection import Connection

log = logging.getLogger(__name__)


def sweep(
    connections: "Collection[Connection]",
    receiving: "dict[Connection, int]",
    memory: "RequestMemory[Connection]",
    answers: "AnswerMemory[Connection]",
    metrics: Metrics,
    now_s: float,
) -> None:
    """End what has been too slow for too long.

    Args:
        connections: all of them.
        receiving: those on which a large request arrives, and how much had arrived last time; brought up to date.
        memory: tells whether others wait for it.
        answers: tells whether others are answered less because of those who do not read.
        metrics: count what is ended for their sake.
        now_s: the injected monotonic clock's time.
    """
    has_waiting = memory.has_waiting
    for connection, before_bytes in list(receiving.items()):
        arrived_bytes = connection.arrived_bytes
        receiving[connection] = arrived_bytes
        if has_waiting and arrived_bytes - before_bytes < connection.due_bytes:
            end_slow(connection, "holds memory for a request that hardly arrives", metrics)
    for connection in list(connections):
        stalled_s = connection.stalled_s(now_s)
        if has_waiting and stalled_s >= RECEIVE_STALLED_SECONDS_MAX and connection not in receiving:
            end_slow(connection, "keeps a receive buffer for a request that hardly arrives", metrics)
        elif stalled_s >= RECEIVE_IDLE_SECONDS_MAX:
            end_slow(connection, "does not go on with the request that it began", metrics)
        elif has_waiting and connection.withheld_s > RESERVE_SECONDS_MAX:
            end_slow(connection, "holds memory for a request that waits for its peer", metrics)
        elif answers.is_tight and connection.unread_s > RESERVE_SECONDS_MAX:
            end_slow(connection, "leaves answers unread that others need the memory of", metrics)
        elif connection.unread_s > WRITE_SECONDS_MAX:
            end_slow(connection, "does not read its answers")
        elif connection.is_idle and now_s - connection.used_s > HALF_OPEN_SECONDS_MAX:
            # Kafka's connections.max.idle.ms. Waiting for memory is being idle, too: it ends some time.
            connection.close()


def end_slow(connection: "Connection", reason: str, metrics: Metrics | None = None) -> None:
    """End a connection at once; with `metrics` it is counted as ended for others' sake."""
    log.warning(
        "ended a connection that %s", reason, extra={"peer": connection.peer, "arrived_bytes": connection.arrived_bytes}
    )
    if metrics is not None:
        metrics.connections_refused.labels("stalled").inc()
    connection.abort()
