"""The client of an HTTP request: its principal, by what the request shows, with its rights.

In: the connection's peer and client certificate, and the headers. Out: an `HttpIdentity`, or the error for the request.
Rule: what a request shows has to be valid. `Authorization: Bearer` is a token of --http-token-file, a delegation token
as `ID~HMAC`, or one that an issuer signed, as for OAUTHBEARER; `Basic` is a user of the cluster with the password,
checked as PLAIN is. A success is remembered for a minute by a keyed digest, and only while the credential, or the
issuer's keys, stay what they were. Without either, a client certificate counts, and without one the request is
ANONYMOUS. With an authorizer its rights decide about ANONYMOUS, too. Without one only this machine may be ANONYMOUS,
and where there are tokens no client may.
Source: RFC 6750 (Bearer), RFC 7617 (Basic); org.apache.kafka.common.security.auth.KafkaPrincipal (Kafka 4.3).
"""

import binascii
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agent.config.http_auth import (
    FOREIGN_HOST,
    AccessRejection,
    HttpAccess,
    is_foreign_name,
    rejection_from_elsewhere,
)
from agent.runtime.clock import Clock
from agent.security.audit.audit_events import AuditedResource, AuditEvent, AuditSource, AuthenticationEvent, DenialEvent
from agent.security.http_routes import route_of
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.oauth.web_tokens import InvalidToken, has_token_form
from agent.security.recorded_logins import RecordedLogins
from agent.security.remembered_logins import RememberedLogin, RememberedLogins
from agent.security.rights import ALL_RIGHTS, Rights
from protocol.auth.host_addresses import host_text
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import ANONYMOUS, GROUP, USER, Principal
from protocol.limits import (
    BEARER_TOKEN_BYTES_MAX,
    HTTP_BEARER_SECONDS_REMEMBERED,
    HTTP_BEARERS_REMEMBERED_MAX,
    HTTP_FAILED_LOGINS_WAITING_MAX,
    HTTP_PASSWORD_SECONDS_REMEMBERED,
    HTTP_PASSWORDS_REMEMBERED_MAX,
    HTTP_TOKEN_CHARS_MAX,
)

BEARER: Final = "Bearer"
BASIC: Final = "Basic"
CERTIFICATE: Final = "certificate"
TOKEN_IS_WRONG: Final = "the request's token is not valid"  # noqa: S105 - a message
NONE_GIVEN: Final = "None"
"""PyIceberg's bearer token where it was given none."""
LISTENER: Final = "HTTP"
"""The name of the HTTP port in the audit log."""


async def no_wait() -> None:
    """Return at once: an audit log that has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpIdentity:
    """The client of one request."""

    principal: Principal = ANONYMOUS
    groups: Sequence[Principal] = ()
    """The principals of the groups that a token gives the client."""
    mechanism: str = ""
    """How the principal was proved: Bearer, Basic or certificate; empty for ANONYMOUS."""
    host: str = ""
    """The address of the connection's other end."""
    rights: Rights = ALL_RIGHTS
    is_allowed_without_acls: bool = True
    """Whether resources that no ACL names are allowed to everybody."""
    api: str = ""
    """Method and path of the request, without its query; of a client without a login the path's pattern."""
    record: Callable[[AuditEvent], None] = lambda _: None
    """Takes events of the audit log."""
    until_room: Callable[[], Awaitable[None]] = no_wait
    """Returns once the audit log has room for another change."""

    @property
    def audit_source(self) -> AuditSource:
        groups = tuple(group.name for group in self.groups)
        return AuditSource(
            principal=self.principal, groups=groups, mechanism=self.mechanism, host=self.host, listener=LISTENER
        )

    def record_denial(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Record an operation that the client named and may not perform."""
        resource = AuditedResource(kind=resource_type, name=name)
        rule = self.rights.rule(operation, resource_type, name)
        self.record(
            DenialEvent(source=self.audit_source, api=self.api, resource=resource, operation=operation, decided_by=rule)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequestHead:
    """The parts of a request that say who sent it."""

    peer: str | None
    """The address of the connection's other end; None where it is not known."""
    headers: Mapping[str, str]
    """With names in lower case."""
    api: str
    """Method and path."""
    delay: Callable[[float], Awaitable[None]]
    """Returns after so many seconds, or when the client is gone."""
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


TokenOwner = Callable[[str], Awaitable[Principal | None]]
"""Takes a bearer token, and returns the owner of the delegation token that it is; None where it is none."""


async def _no_token(_: str) -> None:
    """There are no delegation tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRights:
    """The authorizer as the HTTP port uses it, by default one that is off: every principal may do everything."""

    is_enabled: bool = False
    is_allowed_without_acls: bool = True
    rights_of: Callable[[Principal, Sequence[Principal], str], Rights] = lambda _principal, _groups, _host: ALL_RIGHTS
    """The rights of a principal with its groups from an address."""


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
        bearer_tokens: BearerTokens | None = None,
        token_owner: TokenOwner | None = None,
        own_names: Collection[str] = (),
        record: Callable[[AuditEvent], None] = lambda _: None,
        until_room: Callable[[], Awaitable[None]] = no_wait,
    ) -> None:
        """
        Args:
            passwords: None where the cluster has no users.
            digest_key: random; the key of the digests by which logins are remembered.
            bearer_tokens: those of an issuer; None where they are not accepted.
            token_owner: finds the owners of delegation tokens; None where there are none.
            own_names: names of this machine, in lower case, that requests over loopback may use.
            record: takes events of the audit log.
            until_room: returns once that has room for another change.
        """
        self._access = access
        self._rights = rights
        self._passwords = passwords
        self._clock = clock
        self._bearer_tokens = bearer_tokens
        self._token_owner = token_owner or _no_token
        self._own_names = own_names
        self._record = record
        self._passwords_remembered = RememberedLogins(digest_key, count_max=HTTP_PASSWORDS_REMEMBERED_MAX)
        self._bearers_remembered = RememberedLogins(digest_key, count_max=HTTP_BEARERS_REMEMBERED_MAX)
        self._recorded_logins = RecordedLogins()
        self._until_room = until_room
        self._waiting_passwords = Counter[str]()
        """Wrong passwords whose answers wait, by address."""

    async def identify(self, head: HttpRequestHead) -> HttpIdentity | AccessRejection:
        """Who sent the request, or the error that it gets."""
        text = head.headers.get("authorization")
        if text is None:
            return self._without_login(head)
        scheme, _, shown = text.partition(" ")
        match scheme.lower(), shown.strip():
            case "bearer", token if token == NONE_GIVEN:
                return self._without_login(head)
            case "bearer", token if token and len(token) <= BEARER_TOKEN_BYTES_MAX:
                return await self._by_token(head, token)
            case "basic", encoded if encoded:
                return await self._by_password(head, encoded)
            case _:
                return await self._failed(head, "the Authorization header is neither a bearer token nor Basic", "")

    def open_rejection(self, head: HttpRequestHead) -> AccessRejection | None:
        """The error for a request to a path that is open to everybody: a web page may not read it by another name."""
        return FOREIGN_HOST if is_foreign_name(head.peer, head.headers, self._own_names) else None

    def _without_login(self, head: HttpRequestHead) -> HttpIdentity | AccessRejection:
        if head.certificate != ANONYMOUS:
            self._record_login_once(head, head.certificate, CERTIFICATE)
            return self._identity(head, head.certificate, CERTIFICATE)
        if self._rights.is_enabled:
            return self.open_rejection(head) or self._identity(head, ANONYMOUS, "")
        if self._access.tokens or self._bearer_tokens is not None:
            return login_required("a login is required")
        return rejection_from_elsewhere(head.peer, head.headers, self._own_names) or self._identity(head, ANONYMOUS, "")

    def _identity(
        self, head: HttpRequestHead, principal: Principal, mechanism: str, groups: Sequence[Principal] = ()
    ) -> HttpIdentity:
        host = host_text(head.peer or "")
        return HttpIdentity(
            principal=principal,
            groups=groups,
            mechanism=mechanism,
            host=host,
            rights=self._rights.rights_of(principal, groups, host),
            is_allowed_without_acls=self._rights.is_allowed_without_acls,
            api=head.api if mechanism else route_of(head.api),
            record=self._record,
            until_room=self._until_room,
        )

    async def _by_token(self, head: HttpRequestHead, token: str) -> HttpIdentity | AccessRejection:
        principal = None
        if len(token) <= HTTP_TOKEN_CHARS_MAX:
            principal = self._access.tokens.principal_of(token) or await self._token_owner(token)
        if principal is not None:
            self._record_login_once(head, principal, BEARER)
            return self._identity(head, principal, BEARER)
        if self._bearer_tokens is None or not has_token_form(token):
            return await self._failed(head, TOKEN_IS_WRONG, BEARER)
        login = self._bearers_remembered.find(token, self._clock.monotonic_s())
        if login is None:
            try:
                login = await self._signed_login(self._bearer_tokens, token)
            except InvalidToken as error:
                return await self._failed(head, TOKEN_IS_WRONG, BEARER, reason=str(error))
            self._record_login(head, login.principal, BEARER, "", login.groups)
        return self._identity(head, login.principal, BEARER, login.groups)

    async def _signed_login(self, bearer_tokens: BearerTokens, token: str) -> RememberedLogin:
        """The login by a token of an issuer, which is remembered until the token ends. Raises `InvalidToken`."""
        identity = await bearer_tokens.identity(token)
        assert identity.expires_ms is not None, "every token ends"
        left_s = (identity.expires_ms - self._clock.now_ms()) / 1000
        version = bearer_tokens.keys_version
        login = RememberedLogin(
            principal=Principal(USER, identity.name),
            groups=tuple(Principal(GROUP, group) for group in identity.groups),
            until_s=self._clock.monotonic_s() + min(HTTP_BEARER_SECONDS_REMEMBERED, left_s),
            is_current=lambda: bearer_tokens.keys_version == version,
        )
        self._bearers_remembered.remember(token, login)
        return login

    async def _by_password(self, head: HttpRequestHead, encoded: str) -> HttpIdentity | AccessRejection:
        try:
            user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user, colon, password = "", "", ""
        if not colon or not user or user == ANONYMOUS.name or self._passwords is None:
            return await self._failed(head, "the user is not known, or the password is wrong", BASIC)
        shown = f"{user}\0{password}"
        if self._passwords_remembered.find(shown, self._clock.monotonic_s()) is None:
            if self._waiting_passwords[host_text(head.peer or "")] >= HTTP_FAILED_LOGINS_WAITING_MAX:
                return AccessRejection(
                    status=429, code="too_many_logins", message="too many logins failed", remedy="try again later"
                )
            is_current = await self._passwords.is_current(user, password)
            if is_current is None:
                return await self._failed(head, "the user is not known, or the password is wrong", BASIC, user)
            until_s = self._clock.monotonic_s() + HTTP_PASSWORD_SECONDS_REMEMBERED
            login = RememberedLogin(principal=Principal(USER, user), until_s=until_s, is_current=is_current)
            self._passwords_remembered.remember(shown, login)
            self._record_login(head, Principal(USER, user), BASIC, "")
        return self._identity(head, Principal(USER, user), BASIC)

    async def _failed(
        self, head: HttpRequestHead, message: str, mechanism: str, user: str = "", *, reason: str = ""
    ) -> AccessRejection:
        """The error, after a delay. `reason` is for the audit log alone, where it says more than the message."""
        self._record_login(head, Principal(USER, user) if user else ANONYMOUS, mechanism, reason or message)
        if self._passwords is not None:
            address = host_text(head.peer or "")
            count = 1 if mechanism == BASIC else 0
            self._waiting_passwords[address] += count
            try:
                await head.delay(self._passwords.failure_delay_s(address))
            finally:
                self._waiting_passwords[address] -= count
                if not self._waiting_passwords[address]:
                    del self._waiting_passwords[address]
        return login_required(message)

    def _record_login_once(self, head: HttpRequestHead, principal: Principal, mechanism: str) -> None:
        """Record a log-in that is checked again for each request, at most once a minute."""
        host = host_text(head.peer or "")
        if self._recorded_logins.is_due(principal, mechanism, host, self._clock.monotonic_s()):
            self._record_login(head, principal, mechanism, "")

    def _record_login(
        self,
        head: HttpRequestHead,
        principal: Principal,
        mechanism: str,
        failure: str,
        groups: Sequence[Principal] = (),
    ) -> None:
        source = AuditSource(
            principal=principal,
            groups=tuple(group.name for group in groups),
            mechanism=mechanism,
            host=host_text(head.peer or ""),
            listener=LISTENER,
        )
        self._record(AuthenticationEvent(source=source, api=route_of(head.api), is_success=not failure, reason=failure))


def login_required(message: str) -> AccessRejection:
    """The 401 of a request whose client would need, or would need another, login."""
    return AccessRejection(
        status=401,
        code="not_authenticated",
        message=message,
        remedy="send a token of --http-token-file, a delegation token (ID~HMAC), or one of the issuer of tokens, as a "
        "bearer token, or a user and password of the cluster (Basic)",
    )
