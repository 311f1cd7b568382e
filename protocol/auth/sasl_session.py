"""The server's side of authentication on one connection: frames in, answers out, by a table of states.

Before a client has authenticated it may send ApiVersions, SaslHandshake and SaslAuthenticate, one at a time, nothing
else. After SaslHandshake 0 each frame is a token of the mechanism, and so is each answer.

Nothing here does I/O: the caller answers ApiVersions, checks passwords and tokens, and waits before it sends a failure.
Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator (Kafka 4.3), KIP-43, KIP-152, KIP-368.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from protocol.api_versions import ApiKey, range_of
from protocol.auth.sasl_exchange import (
    Accepted,
    Challenge,
    Check,
    SaslExchange,
    SaslIdentity,
    SaslRejection,
    Step,
)
from protocol.auth.sasl_messages import read_authenticate, read_handshake, write_authenticate, write_handshake
from protocol.client_names import has_valid_client_name
from protocol.connection import RequestFrame, read_request_frame
from protocol.errors import ErrorCode, MalformedRequest

FIRST_WITH_AUTHENTICATE: Final = 1
"""After this version of SaslHandshake tokens come in SaslAuthenticate, before it as they are (KIP-152)."""


class SaslState(Enum):
    """The requests that a connection may send next."""

    NEW = auto()
    VERSIONS_LISTED = auto()
    EXCHANGE = auto()
    RAW_EXCHANGE = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Send the answer, and receive the next frame."""

    answer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ListVersions:
    """Answer the ApiVersions request, and receive the next frame."""

    frame: RequestFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Send the answer. From then on the client may send any request."""

    answer: bytes
    identity: SaslIdentity
    mechanism: str
    lifetime_ms: int
    """How long the session lasts; 0 where it has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Send the answer after a delay, where there is one, and close the connection."""

    reason: str
    """For logs and the audit."""
    answer: bytes | None = field(default=None)
    mechanism: str = ""
    user: str = ""
    """The name that the client gave, whether it exists or not."""


Output = Reply | ListVersions | Success | Failure | Check
"""The action that the caller has to take. The outcome of a `Check` is passed on by `checked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslRules:
    """The rules of a listener."""

    mechanisms: Sequence[str]
    """The enabled ones, in the order in which they are listed."""
    begin_exchange: Callable[[str], SaslExchange]
    """Takes an enabled mechanism."""
    lifetime_ms: Callable[[str, SaslIdentity], int]
    """For how long a session lasts that begins now, by its mechanism and identity; 0 where it has no end."""


class SaslSession:
    """One authentication: of a new connection, or again of one that has authenticated before."""

    def __init__(self, rules: SaslRules, *, previous: tuple[str, str] | None = None) -> None:
        """Begin.

        Args:
            rules: of the listener.
            previous: mechanism and name of the identity that the client had before; None on a new connection. Both
                have to stay the same (KIP-368).
        """
        self._rules = rules
        self._previous = previous
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        self._frame: RequestFrame | None = None
        """The request whose answer is due; None for a raw token."""
        self._received_count = 0
        self._has_token = False
        self.state = SaslState.NEW if previous is None else SaslState.VERSIONS_LISTED

    @property
    def beginning_mechanism(self) -> str | None:
        """The mechanism whose first token, which names the user, is due; None where none is."""
        is_due = self.state in (SaslState.EXCHANGE, SaslState.RAW_EXCHANGE) and not self._has_token
        return self._mechanism if is_due else None

    def receive(self, frame: memoryview) -> Output:
        """Takes a frame of a new connection, without its size. Not called after `Success` or `Failure`."""
        assert self.state not in (SaslState.DONE, SaslState.FAILED), "the session is over"
        if self.state is SaslState.RAW_EXCHANGE:
            return self._take_token(bytes(frame))
        try:
            request = read_request_frame(self._received_count, frame)
        except MalformedRequest as error:
            return self._fail(str(error))
        self._received_count += 1
        return self.receive_request(request)

    def receive_request(self, request: RequestFrame) -> Output:
        """Takes a request. Not called after `Success` or `Failure`."""
        self._frame = request
        try:
            take = _TRANSITIONS.get((self.state, request.api_key))
            return self._reject_order(request) if take is None else take(self, request)
        except MalformedRequest as error:
            return self._fail(str(error))

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Output:
        """Takes what a `Check` found: the identity, or None where there is none, and why, if that is known."""
        assert self._exchange is not None, "no exchange has begun"
        return self._answer(self._exchange.checked(identity, reason))

    def list_versions(self, request: RequestFrame) -> Output:
        """Takes ApiVersions. One in an unknown version, or with an invalid name, is answered and may come again."""
        served = range_of(ApiKey.API_VERSIONS)
        assert served is not None
        if served.is_served(request.api_version) and has_valid_client_name(request):
            self.state = SaslState.VERSIONS_LISTED
        return ListVersions(frame=request)

    def begin_exchange(self, request: RequestFrame) -> Output:
        """Takes SaslHandshake."""
        mechanism, mechanisms = read_handshake(request), self._rules.mechanisms
        if mechanism not in mechanisms:
            answer = write_handshake(request, ErrorCode.unsupported_sasl_mechanism, mechanisms)
            return self._fail("the mechanism is not enabled", answer=answer)
        self._mechanism = mechanism
        is_raw = request.api_version < FIRST_WITH_AUTHENTICATE
        if self._previous is None:
            self._exchange = self._rules.begin_exchange(mechanism)
        elif is_raw:
            # Differs from Kafka: no client that sends version 0 authenticates again.
            answer = write_handshake(request, ErrorCode.illegal_sasl_state, [])
            return self._fail("re-authentication begins with SaslHandshake 0", answer=answer)
        elif mechanism == self._previous[0]:
            self._exchange = self._rules.begin_exchange(mechanism)
        else:
            self._exchange = _OtherMechanism(mechanism, self._previous[0])
        self.state = SaslState.RAW_EXCHANGE if is_raw else SaslState.EXCHANGE
        if is_raw:
            self._frame = None
        return Reply(answer=write_handshake(request, ErrorCode.none, mechanisms))

    def continue_exchange(self, request: RequestFrame) -> Output:
        """Takes SaslAuthenticate."""
        return self._take_token(read_authenticate(request))

    def _reject_order(self, request: RequestFrame) -> Output:
        # Differs from Kafka: it answers 34 to some of them before it closes the connection.
        return self._fail(f"API {request.api_key} is not allowed in the state {self.state.name}")

    def _take_token(self, token: bytes) -> Output:
        assert self._exchange is not None, "no exchange has begun"
        self._has_token = True
        return self._answer(self._exchange.receive(token))

    def _answer(self, step: Step) -> Output:
        match step:
            case Challenge():
                return Reply(answer=self._write(token=step.token))
            case Accepted():
                return self._succeed(step)
            case SaslRejection():
                return self._reject(step)
            case check:
                return check

    def _succeed(self, step: Accepted) -> Output:
        identity, mechanism = step.identity, self._mechanism
        if self._previous is not None and identity.name != self._previous[1]:
            text = (
                f"Cannot change principals during re-authentication from User.{self._previous[1]}: User.{identity.name}"
            )
            reason = "the client authenticates again as another user"
            return self._reject(SaslRejection(reason=reason, user=identity.name, message=text))
        lifetime_ms = self._rules.lifetime_ms(mechanism, identity)
        self.state = SaslState.DONE
        answer = self._write(token=step.token, lifetime_ms=lifetime_ms)
        return Success(answer=answer, identity=identity, mechanism=mechanism, lifetime_ms=lifetime_ms)

    def _reject(self, step: SaslRejection) -> Output:
        if self.state is SaslState.RAW_EXCHANGE:  # a raw token has no form for an error (KIP-152)
            return self._fail(step.reason, user=step.user)
        kind = "authentication" if self._previous is None else "re-authentication"
        message = step.message or (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        answer = self._write(error_code=ErrorCode.sasl_authentication_failed, message=message)
        return self._fail(step.reason, answer=answer, user=step.user)

    def _fail(self, reason: str, *, answer: bytes | None = None, user: str = "") -> Failure:
        self.state = SaslState.FAILED
        return Failure(reason=reason, answer=answer, mechanism=self._mechanism, user=user)

    def _write(
        self,
        *,
        error_code: ErrorCode = ErrorCode.none,
        message: str | None = None,
        token: bytes = b"",
        lifetime_ms: int = 0,
    ) -> bytes:
        if self._frame is None:
            return token
        return write_authenticate(self._frame, error_code, message=message, token=token, lifetime_ms=lifetime_ms)


class _OtherMechanism:
    """An exchange that fails: a client that authenticates again has to keep its mechanism (KIP-368)."""

    def __init__(self, mechanism: str, previous: str) -> None:
        self._message = (
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
            f"'{previous}'"
        )

    def receive(self, token: bytes) -> Step:
        del token
        return SaslRejection(reason="the client authenticates again by another mechanism", message=self._message)

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Step:
        raise AssertionError(f"no check is due; {identity is None} {reason}")


_Take = Callable[[SaslSession, RequestFrame], Output]
_TRANSITIONS: Final[dict[tuple[SaslState, int], _Take]] = {
    (SaslState.NEW, ApiKey.API_VERSIONS): SaslSession.list_versions,
    (SaslState.NEW, ApiKey.SASL_HANDSHAKE): SaslSession.begin_exchange,
    (SaslState.VERSIONS_LISTED, ApiKey.SASL_HANDSHAKE): SaslSession.begin_exchange,
    (SaslState.EXCHANGE, ApiKey.SASL_AUTHENTICATE): SaslSession.continue_exchange,
}
"""The requests that each state accepts. Any other request closes the connection."""
