"""The sweep that ends slow connections: those that are silent, do not read, or keep memory from other connections.

It runs every RECEIVE_STALLED_SECONDS_MAX. The limits are stricter while other connections wait for memory; each of them
is explained in `protocol.limits`. Differs from Kafka: connections.max.idle.ms is its only limit, which a byte now and
then satisfies.
"""

from agent.server.connection_table import ConnectionTable
from protocol.limits import (
    HALF_OPEN_SECONDS_MAX,
    RECEIVE_IDLE_SECONDS_MAX,
    RECEIVE_STALLED_SECONDS_MAX,
    RESERVE_SECONDS_MAX,
    WRITE_SECONDS_MAX,
)


def sweep(table: ConnectionTable, now_s: float) -> None:
    """End the connections that have been too slow for too long.

    Args:
        table: the open connections. `receiving` is brought up to date; the memories say whether others wait.
        now_s: the injected monotonic clock's time.
    """
    answers, receiving = table.answers, table.receiving
    has_waiting = table.memory.has_waiting
    for connection, before_bytes in list(receiving.items()):
        arrived_bytes = connection.arrived_bytes
        receiving[connection] = arrived_bytes
        if has_waiting and arrived_bytes - before_bytes < connection.progress_bytes_min:
            table.end_slow(connection, "sends a large request too slowly while other connections wait for memory")
    for connection in list(table.connections):
        stalled_s = connection.stalled_s(now_s)
        if has_waiting and stalled_s >= RECEIVE_STALLED_SECONDS_MAX and connection not in receiving:
            table.end_slow(connection, "sends a request too slowly while other connections wait for memory")
        elif stalled_s >= RECEIVE_IDLE_SECONDS_MAX:
            table.end_slow(connection, "stopped in the middle of a request")
        elif has_waiting and connection.blocking_s > RESERVE_SECONDS_MAX:
            table.end_slow(connection, "keeps requests queued while other connections wait for their memory")
        elif answers.is_tight and connection.unread_s > RESERVE_SECONDS_MAX:
            table.end_slow(connection, "does not read its answers while other connections need their memory")
        elif connection.unread_s > WRITE_SECONDS_MAX:
            # Not counted as "stalled": it kept no memory that another connection needed.
            table.end_slow(connection, "does not read its answers", is_counted=False)
        elif connection.is_idle and now_s - connection.used_s > HALF_OPEN_SECONDS_MAX:
            # Kafka's connections.max.idle.ms. A connection that waits for memory is idle, too, so that wait is bounded.
            connection.close()
