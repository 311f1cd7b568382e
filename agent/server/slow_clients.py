"""Which connections are ended unasked: the silent, those that do not read, and those that keep memory from others.

Rule: called every RECEIVE_STALLED_SECONDS_MAX. Without others who wait for memory a peer may be slow in sending as long
as its request makes progress in each RECEIVE_IDLE_SECONDS_MAX, and while there is memory for answers for as long as
WRITE_SECONDS_MAX in reading; what it is slow at and for how long is in `protocol.limits`.
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
        if has_waiting and arrived_bytes - before_bytes < connection.due_bytes:
            table.end_slow(connection, "holds memory for a request that hardly arrives")
    for connection in list(table.connections):
        stalled_s = connection.stalled_s(now_s)
        if has_waiting and stalled_s >= RECEIVE_STALLED_SECONDS_MAX and connection not in receiving:
            table.end_slow(connection, "keeps a receive buffer for a request that hardly arrives")
        elif stalled_s >= RECEIVE_IDLE_SECONDS_MAX:
            table.end_slow(connection, "does not go on with the request that it began")
        elif has_waiting and connection.withheld_s > RESERVE_SECONDS_MAX:
            table.end_slow(connection, "holds memory for a request that waits for its peer")
        elif answers.is_tight and connection.unread_s > RESERVE_SECONDS_MAX:
            table.end_slow(connection, "leaves answers unread that others need the memory of")
        elif connection.unread_s > WRITE_SECONDS_MAX:
            # Ended for its own sake: no other connection is held up by it.
            table.end_slow(connection, "does not read its answers", is_counted=False)
        elif connection.is_idle and now_s - connection.used_s > HALF_OPEN_SECONDS_MAX:
            # Kafka's connections.max.idle.ms. Waiting for memory is being idle, too: it ends some time.
            connection.close()
