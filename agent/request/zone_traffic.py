"""Bytes to and from clients in the agent's own zone and in others: what crosses zones costs money in most clouds."""

from typing import Final

from agent.request.services import Request, Services

SAME: Final = "yes"
OTHER: Final = "no"
UNKNOWN: Final = "unknown"
"""The client or the agent names no zone."""


def count_zone_bytes(services: Services, request: Request, direction: str, byte_count: int, rack: str = "") -> None:
    """Count the bytes of records in a request or an answer. `rack`: the consumer's own, where it names one."""
    if byte_count == 0:
        return
    own = services.state.sessions.get(services.ledger.session)
    compared = UNKNOWN
    if own is not None and own.zone:
        zone = rack or services.zone_of(request)
        if zone:
            compared = SAME if zone == own.zone else OTHER
    services.metrics.zone_bytes_of(direction, compared).inc(byte_count)
