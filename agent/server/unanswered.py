"""Requests that are not answered, or by nothing but a closed connection: what is counted and logged of them.

Kafka has no error code that every API knows and every client repeats after. A closed connection is one: the client
connects again, to this agent or another one, and repeats the request.
"""

import logging

from agent.request.services import NoAnswerOwed
from agent.runtime.metrics import Metrics
from agent.server.reauthentication import SessionOver
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from storage.object_store import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

UNANSWERED = (LedgerUnavailable, StoreError, OutcomeUnknown, SessionOver, NoAnswerOwed)
"""Exceptions of handlers after which the connection is closed."""


def report_unanswered(error: Exception, *, metrics: Metrics, peer: str, api_key: int) -> None:
    """Count and log one of `UNANSWERED`."""
    extra = {"peer": peer, "api_key": api_key, "reason": str(error)}
    if isinstance(error, NoAnswerOwed):
        log.info("closing a connection whose request is not answered", extra=extra)
    elif isinstance(error, SessionOver):
        metrics.connections_closed.labels(error.kind).inc()
        log.info("closing a connection whose session is over", extra=extra)
    else:
        # An outage is logged once for all requests (`agent.runtime.outages`), so it is DEBUG here.
        metrics.connections_closed.labels("unanswerable").inc()
        log.log(
            logging.DEBUG if isinstance(error, LedgerUnavailable | StoreUnavailable) else logging.WARNING,
            "closing a connection: its request could not be answered, and its client has to repeat it",
            extra=extra,
        )
