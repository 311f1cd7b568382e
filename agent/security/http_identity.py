"""The client of an HTTP request: its principal, by what the request shows, with its rights.

In: the connection's peer and client certificate, and the headers. Out: an `HttpIdentity`, or the error for the request.
Rule: what a request shows has to be valid. `Authorization: Bearer` is a token of --http-token-file; `Basic` is a user
of the cluster with the password, checked as PLAIN is. A success is remembered for a minute by a keyed digest, and only
while the credential stays what it was. Without either, a client certificate counts, and without one the request is
ANONYMOUS. With an authorizer its rights decide about ANONYMOUS, too. Without one only this machine may be ANONYMOUS,
and where there are tokens no client may.
Source: RFC 6750 (Bearer), RFC 7617 (Basic); org.apache.kafka.common.security.auth.KafkaPrincipal (Kafka 4.3).
"""

import binascii
import hashlib
import hmac
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from agent.config.http_auth import (
    FOREIGN_HOST,
    AccessRejection,
    HttpAccess,
    is_foreign_name,
    peer_address,
    rejection_from_elsewhere,
)
from agent.runtime.clock import Clock
from agent.security.audit.audit_events import AuditedResource, AuditEvent, AuditSource, AuthenticationEvent, DenialEvent
from agent.security.audit.audit_subject import NO_ACL_ALLOWS
from agent.security.rights import ALL_RIGHTS, Rights
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import ANONYMOUS, USER, Principal
from protocol.limits import (
    HTTP_FAILED_LOGINS_WAITING_MAX,
    HTTP_PASSWORD_SECONDS_REMEMBERED,
    HTTP_PASSWORDS_REMEMBERED_MAX,
    HTTP_TOKEN_CHARS_MAX,
)

BEARER: Final = "Bearer"
BASIC: Final = "Basic"
CERTIFICATE: Final = "certificate"
NONE_GIVEN: Final = "None"
"""PyIceberg's bearer token where it was given none."""
LISTENER: Final = "HTTP"
"""The name of the HTTP port in the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpIdentity:
    """The client of one request."""

    principal: Principal = ANONYMOUS
    mechanism: str = ""
    """How the principal was proved: Bearer, Basic or certificate; empty for ANONYMOUS."""
    host: str = ""
    """The address of the connection's other end."""
    rights: Rights = ALL_RIGHTS
    is_allowed_without_acls: bool = True
    """Whether resources that no ACL names are allowed to everybody."""
    api: str = ""
    """Method and path of the request, without its query."""
    record: Callable[[AuditEvent], None] = lambda _: None
    """Takes events of the audit log."""

    @property
    def audit_source(self) -> AuditSource:
        return AuditSource(principal=self.principal, mechanism=self.mechanism, host=self.host, listener=LISTENER)

    def record_denial(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Record an operation that the client named and may not perform."""
        resource = AuditedResource(kind=resource_type, name=name)
        event = DenialEvent(
            source=self.audit_source, api=self.api, resource=resource, operation=operation, decided_by=NO_ACL_ALLOWS
        )
        self.record(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequestHead:
    """The parts of a request that say who sent it."""

    peer: str | None
    """The address of the connection's other end; None where it is not known."""
    headers: Mapping[str, str]
    """With names in lower case."""
    api: str
    """Method and path."""
    certificate: Principal = ANONYMOUS
    """The principal of the client's certificate; ANONYMOUS without one."""


class HttpPasswords(Protocol):
    """The check of users' passwords."""

    async def is_current(self, user: str, password: str) -> Callable[[], bool] | None:
        """None where the password is wrong. Otherwise a function: whether the credential that it fits still holds."""
        ...

    def failure_delay_s(self, address: str) -> float:
        """Counts a failure of an address, and returns for how many seconds its answer waits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRights:
    """The authorizer as the HTTP port uses it, by default one that is off: every principal may do everything."""

    is_enabled: bool = False
    is_allowed_without_acls: bool = True
    rights_of: Callable[[Principal, str], Rights] = lambda _principal, _host: ALL_RIGHTS
    """The rights of a principal from an address."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    until_s: float
    is_current: Callable[[], bool]


class HttpIdentities:
    """Finds out who sends the requests of one HTTP port."""

    def __init__(
        self,
        *,
        access: HttpAccess,
        rights: HttpRights,
        passwords: HttpPasswords | None,
        clock: Clock,
        digest_key: bytes,
        own_names: Collection[str] = (),
        record: Callable[[AuditEvent], None] = lambda _: None,
    ) -> None:
        """
        Args:
            passwords: None where the cluster has no users.
            digest_key: random; the key of the digests by which passwords are remembered.
            own_names: names of this machine, in lower case, that requests over loopback may use.
            record: takes events of the audit log.
        """
        self._access = access
        self._rights = rights
        self._passwords = passwords
        self._clock = clock
        self._digest_key = digest_key
        self._own_names = own_names
        self._record = record
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._failed_waiting_count = 0

    async def identify(self, head: HttpRequestHead) -> HttpIdentity | AccessRejection:
        """Who sent the request, or the error that it gets."""
        text = head.headers.get("authorization")
        if text is None:
            return self._without_login(head)
        scheme, _, shown = text.partition(" ")
        match scheme.lower(), shown.strip():
            case "bearer", token if token == NONE_GIVEN:
                return self._without_login(head)
            case "bearer", token if token and len(token) <= HTTP_TOKEN_CHARS_MAX:
                principal = self._access.tokens.principal_of(token)
                if principal is None:
                    return await self._failed(head, "the request's token is not valid", BEARER)
                return self._identity(head, principal, BEARER)
            case "basic", encoded if encoded:
                return await self._by_password(head, encoded)
            case _:
                return await self._failed(head, "the Authorization header is neither a bearer token nor Basic", "")

    def open_rejection(self, head: HttpRequestHead) -> AccessRejection | None:
        """The error for a request to a path that is open to everybody: a web page may not read it by another name."""
        return FOREIGN_HOST if is_foreign_name(head.peer, head.headers, self._own_names) else None

    def _without_login(self, head: HttpRequestHead) -> HttpIdentity | AccessRejection:
        if head.certificate != ANONYMOUS:
            return self._identity(head, head.certificate, CERTIFICATE)
        if self._rights.is_enabled:
            return self.open_rejection(head) or self._identity(head, ANONYMOUS, "")
        if self._access.tokens:
            return login_required("a login is required")
        return rejection_from_elsewhere(head.peer, head.headers, self._own_names) or self._identity(head, ANONYMOUS, "")

    def _identity(self, head: HttpRequestHead, principal: Principal, mechanism: str) -> HttpIdentity:
        host = peer_address(head.peer)
        return HttpIdentity(
            principal=principal,
            mechanism=mechanism,
            host=host,
            rights=self._rights.rights_of(principal, host),
            is_allowed_without_acls=self._rights.is_allowed_without_acls,
            api=head.api,
            record=self._record,
        )

    async def _by_password(self, head: HttpRequestHead, encoded: str) -> HttpIdentity | AccessRejection:
        try:
            user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user, colon, password = "", "", ""
        if not colon or not user or user == ANONYMOUS.name or self._passwords is None:
            return await self._failed(head, "the user is not known, or the password is wrong", BASIC)
        digest = hmac.digest(self._digest_key, f"{user}\0{password}".encode(), hashlib.sha256)
        if not self._is_remembered(digest):
            if self._failed_waiting_count >= HTTP_FAILED_LOGINS_WAITING_MAX:
                return AccessRejection(
                    status=429, code="too_many_logins", message="too many logins failed", remedy="try again later"
                )
            is_current = await self._passwords.is_current(user, password)
            if is_current is None:
                return await self._failed(head, "the user is not known, or the password is wrong", BASIC, user)
            self._remember(digest, is_current)
            self._record_login(head, Principal(USER, user), BASIC, "")
        return self._identity(head, Principal(USER, user), BASIC)

    def _is_remembered(self, digest: bytes) -> bool:
        known = self._remembered.get(digest)
        if known is None:
            return False
        if known.until_s <= self._clock.monotonic_s() or not known.is_current():
            del self._remembered[digest]
            return False
        return True

    def _remember(self, digest: bytes, is_current: Callable[[], bool]) -> None:
        until_s = self._clock.monotonic_s() + HTTP_PASSWORD_SECONDS_REMEMBERED
        self._remembered[digest] = _Remembered(until_s, is_current)
        self._remembered.move_to_end(digest)
        if len(self._remembered) > HTTP_PASSWORDS_REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    async def _failed(self, head: HttpRequestHead, reason: str, mechanism: str, user: str = "") -> AccessRejection:
        self._record_login(head, Principal(USER, user) if user else ANONYMOUS, mechanism, reason)
        if self._passwords is not None and self._failed_waiting_count < HTTP_FAILED_LOGINS_WAITING_MAX:
            self._failed_waiting_count += 1
            try:
                await self._clock.sleep(self._passwords.failure_delay_s(peer_address(head.peer)))
            finally:
                self._failed_waiting_count -= 1
        return login_required(reason)

    def _record_login(self, head: HttpRequestHead, principal: Principal, mechanism: str, failure: str) -> None:
        source = AuditSource(principal=principal, mechanism=mechanism, host=peer_address(head.peer), listener=LISTENER)
        self._record(AuthenticationEvent(source=source, api=head.api, is_success=not failure, reason=failure))


def login_required(message: str) -> AccessRejection:
    """The 401 of a request whose client would need, or would need another, login."""
    return AccessRejection(
        status=401,
        code="not_authenticated",
        message=message,
        remedy="send a token of --http-token-file as a bearer token, or a user and password of the cluster (Basic)",
    )
