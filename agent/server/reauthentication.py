"""The end of a session, and a client that authenticates again before it (KIP-368).

Source: org.apache.kafka.network.SocketServer.Processor.processCompletedReceives and
org.apache.kafka.common.network.KafkaChannel.maybeBeginServerReauthentication (Kafka 4.3).
"""

from agent.request.services import Request, Services
from agent.security.authentication import ConnectionAuthenticator
from agent.server.login_audit import record_failure, record_success
from protocol.auth.sasl_session import Failure, ListVersions, Success
from storage.object_store import Buffer


class SessionOver(Exception):
    """The connection has to be closed, after the answer where there is one."""

    def __init__(self, reason: str, *, kind: str, answer: bytes | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        """The label of the metric of closed connections."""
        self.answer = answer


async def reauthenticate(
    authenticator: ConnectionAuthenticator, request: Request, services: Services
) -> list[Buffer] | None:
    """The answer to a request of a re-authentication; None for any other request, which is to be served.

    Called for each request of a session that has an end. Raises `SessionOver`, for a failure after its delay.
    """
    assert authenticator.ends_s is not None
    frame, listener, peer = request.frame, request.listener, request.peer
    now_s = services.clock.monotonic_s()
    if not (authenticator.is_reauthenticating or authenticator.may_begin_again(frame, now_s)):
        if now_s > authenticator.ends_s:
            raise SessionOver("its session has ended, and it has not authenticated again", kind="session_expired")
        return None
    output = await authenticator.receive_again(frame, now_s)
    assert not isinstance(output, ListVersions), "ApiVersions is no part of a re-authentication"
    if isinstance(output, Failure):
        services.metrics.authentication_failures.labels(listener, authenticator.mechanism).inc()
        record_failure(services, output, listener, peer)
        await services.clock.sleep(authenticator.failure_delay_s(peer.rpartition(":")[0]))
        raise SessionOver(output.reason, kind="unauthenticated", answer=output.answer)
    if isinstance(output, Success):
        record_success(services, authenticator, listener, peer)
    return [output.answer]
