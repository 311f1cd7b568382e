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
    zone = rack or services.zone_of(request)
    own = services.state.sessions.get(services.ledger.session)
    own_zone = None if own is None else own.zone
    services.metrics.zone_bytes.labels(direction, _compared(zone, own_zone)).inc(byte_count)


def _compared(zone: str | None, own_zone: str | None) -> str:
    if not zone or not own_zone:
        return UNKNOWN
    return SAME if zone == own_zone else OTHER
