"""The four APIs of delegation tokens answer as Kafka's broker and controller do: the same errors, in the same order."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from agent.config.authorizer_settings import AuthorizerSettings
from agent.config.token_settings import TokenSettings
from agent.request.services import Request, Services
from agent.request.token_requests import NO_TIME, UNSET_TIME
from agent.security.audit.audit_subject import SUBJECT
from coordinator.commands.rules import RULES_NEWEST, RULES_SECURITY
from coordinator.commands.security import CreateAcls
from coordinator.ledger.memory import MemoryLedger
from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import ANONYMOUS, Principal
from protocol.errors import ErrorCode
from protocol.limits import DELEGATION_TOKEN_RENEWERS_MAX, DELEGATION_TOKEN_TIME_MS_MAX, SECURITY_NAME_CHARS_MAX
from protocol.messages import response_type
from tests.support.acls import make_acl
from tests.support.agent.audit_logs import KeptAuditLog
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths, services_of
from tests.support.handlers.handler_client import answered, frame_of, handled
from tests.support.handlers.stalled_ledger import Impatient, never
from tests.support.records.kio_messages import KioEntity, kio_read

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
KEY = TokenSettings(key=b"secret", lifetime_ms=1_000_000, renewal_ms=10_000)
ENFORCED = AuthorizerSettings(is_enabled=True, super_users=frozenset({Principal("User", "admin")}))
TIMEDELTA_MS_MIN = timedelta.min // timedelta(milliseconds=1)
DISALLOWED = ErrorCode.delegation_token_request_not_allowed


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


class ExpirySet(NamedTuple):
    """The answer of RenewDelegationToken and ExpireDelegationToken. kio reads no time before 1970."""

    error_code: int
    expiry_ms: int


class Created(NamedTuple):
    """The answer of CreateDelegationToken."""

    error_code: int
    owner: Principal
    requester: Principal | None
    times_ms: tuple[int, int, int]
    """Issue, expiry, and the longest life's end."""
    token_id: str
    hmac: bytes


def read_created(data: bytes, version: int) -> Created:
    """Read by the schema in kafka-clients' jar: common/message/CreateDelegationTokenResponse.json."""
    position = 2

    def read_bytes(size: str) -> bytes:
        nonlocal position
        if version >= 2:  # compact (KIP-482): the length plus one, seven bits a byte
            length, shift = -1, 0
            while True:
                byte, position = data[position], position + 1
                length, shift = length + ((byte & 0x7F) << shift), shift + 7
                if byte < 0x80:
                    break
        else:
            (length,) = struct.unpack_from(size, data, position)
            position += struct.calcsize(size)
        position += length
        return data[position - length : position]

    def read_principal() -> Principal:
        return Principal(read_bytes(">h").decode(), read_bytes(">h").decode())

    owner = read_principal()
    requester = read_principal() if version >= 3 else None
    times = struct.unpack_from(">qqq", data, position)
    position += 24
    token_id, hmac = read_bytes(">h").decode(), read_bytes(">i")
    (error_code,) = struct.unpack_from(">h", data)
    return Created(error_code, owner, requester, times, token_id, hmac)


@dataclass(slots=True)
class TokenApis:
    """An agent, as its users ask it. Requests are those of clients that logged in by SCRAM."""

    services: Services
    paths: DataPaths
    mechanism: str = "SCRAM-SHA-256"
    is_by_token: bool = False

    @property
    def now_ms(self) -> int:
        return self.paths.parts.clock.now_ms()

    async def _ask(self, principal: Principal, api_key: ApiKey, version: int, **values: object) -> bytes:
        request = Request(
            frame=frame_of(api_key, version, values),
            listener="SASL",
            peer="10.0.0.1:1",
            principal=principal,
            rights=self.services.authorizer.rights(principal, (), "10.0.0.1"),
            mechanism=self.mechanism,
            is_by_token=self.is_by_token,
        )
        SUBJECT.set(request)
        return answered(request.frame, await handled(self.services, request))

    async def create(
        self,
        principal: Principal = ALICE,
        *,
        owner: Principal | None = None,
        renewers: tuple[Principal, ...] = (),
        lifetime_ms: int = -1,
        version: int = 3,
    ) -> Created:
        owned = {"owner_principal_type": owner and owner.kind, "owner_principal_name": owner and owner.name}
        data = await self._ask(
            principal,
            ApiKey.CREATE_DELEGATION_TOKEN,
            version,
            renewers=[{"principal_type": each.kind, "principal_name": each.name} for each in renewers],
            max_lifetime=ms(lifetime_ms),
            **(owned if version >= 3 else {}),
        )
        return read_created(data, version)

    async def renew(
        self, hmac: bytes, period_ms: int = -1, *, principal: Principal = ALICE, version: int = 2
    ) -> ExpirySet:
        values = {"hmac": hmac, "renew_period": ms(period_ms)}
        data = await self._ask(principal, ApiKey.RENEW_DELEGATION_TOKEN, version, **values)
        return ExpirySet(*struct.unpack_from(">hq", data))

    async def expire(
        self, hmac: bytes, period_ms: int = -1, *, principal: Principal = ALICE, version: int = 2
    ) -> ExpirySet:
        values = {"hmac": hmac, "expiry_time_period": ms(period_ms)}
        data = await self._ask(principal, ApiKey.EXPIRE_DELEGATION_TOKEN, version, **values)
        return ExpirySet(*struct.unpack_from(">hq", data))

    async def describe(
        self, principal: Principal = ALICE, *, owners: tuple[Principal, ...] | None = None, version: int = 3
    ) -> KioEntity:
        named = owners and [{"principal_type": each.kind, "principal_name": each.name} for each in owners]
        api_key = ApiKey.DESCRIBE_DELEGATION_TOKEN
        data = await self._ask(principal, api_key, version, owners=[] if owners == () else named)
        return kio_read(response_type(api_key, version), data)

    async def allow(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        acl = make_acl(operation, name, principal=BOB, resource_type=resource_type)
        await self.paths.parts.ledger.propose(CreateAcls.of([acl]))


@asynccontextmanager
async def token_apis(
    settings: TokenSettings = KEY, *, rules: int = RULES_NEWEST, authorizer: AuthorizerSettings | None = None
) -> AsyncIterator[TokenApis]:
    async with data_paths(rules=rules) as paths, asyncio.TaskGroup() as tasks:
        yield TokenApis(services_of(paths, paths.parts.clock, tasks, authorizer, settings), paths)


class TestCreation:
    @pytest.mark.parametrize("version", [1, 2, 3])
    async def test_a_user_creates_a_token(self, version: int) -> None:
        async with token_apis() as apis:
            answer = await apis.create(renewers=(CAROL,), version=version)
            assert (answer.error_code, answer.owner) == (ErrorCode.none, ALICE)
            assert answer.times_ms == (apis.now_ms, apis.now_ms + 10_000, apis.now_ms + 1_000_000)
            assert (len(answer.token_id), len(answer.hmac)) == (22, 64)
            assert apis.services.delegation_tokens.id_of(answer.hmac) == answer.token_id
            assert answer.requester == (ALICE if version == 3 else None)

    async def test_a_shorter_life_may_be_asked_for_and_no_longer_one(self) -> None:
        async with token_apis() as apis:
            short, long = await apis.create(lifetime_ms=500), await apis.create(lifetime_ms=2_000_000)
            assert short.times_ms == (apis.now_ms, apis.now_ms + 500, apis.now_ms + 500)
            assert long.times_ms[2] == apis.now_ms + 1_000_000

    async def test_no_life_is_longer_than_an_answer_can_say(self) -> None:
        async with token_apis(replace(KEY, lifetime_ms=(1 << 63) - 1, renewal_ms=(1 << 63) - 1)) as apis:
            answer = await apis.create()
            assert answer.times_ms[1:] == (DELEGATION_TOKEN_TIME_MS_MAX,) * 2
            (row,) = (await apis.describe()).tokens
            assert row.max_timestamp == DELEGATION_TOKEN_TIME_MS_MAX

    async def test_for_another_owner_it_needs_a_right_on_the_owner(self) -> None:
        async with token_apis(authorizer=ENFORCED) as apis:
            denied = await apis.create(BOB, owner=ALICE)
            assert denied == (ErrorCode.delegation_token_authorization_failed, ALICE, BOB, (NO_TIME,) * 3, "", b"")
            await apis.allow(Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")
            allowed = await apis.create(BOB, owner=ALICE)
            assert (allowed.error_code, allowed.owner) == (ErrorCode.none, ALICE)
            assert (await apis.create(BOB, owner=BOB)).error_code == ErrorCode.none

    @pytest.mark.parametrize("principal", [Principal("Group", "g"), Principal("", "x"), Principal("User", "")])
    async def test_owner_and_renewers_are_users(self, principal: Principal) -> None:
        async with token_apis() as apis:
            answer = await apis.create(renewers=(CAROL, principal))
            assert (answer.error_code, answer.times_ms) == (ErrorCode.invalid_principal_type, (NO_TIME,) * 3)
            if principal.name:  # no name means: the requester
                assert (await apis.create(owner=principal)).error_code == ErrorCode.invalid_principal_type

    async def test_names_and_renewers_have_limits(self) -> None:
        long = Principal("User", "x" * (SECURITY_NAME_CHARS_MAX + 1))
        async with token_apis() as apis:
            for answer in (
                await apis.create(renewers=(long,)),
                await apis.create(owner=long),
                await apis.create(long),
                await apis.create(renewers=(CAROL,) * (DELEGATION_TOKEN_RENEWERS_MAX + 1)),
            ):
                assert (answer.error_code, answer.times_ms) == (ErrorCode.policy_violation, (UNSET_TIME,) * 3)
            assert not apis.services.state.tokens


class TestRenewalAndExpiry:
    @pytest.mark.parametrize("version", [1, 2])
    async def test_a_renewer_renews(self, version: int) -> None:
        async with token_apis() as apis:
            hmac = (await apis.create(renewers=(CAROL,))).hmac
            apis.paths.parts.clock.seconds += 5
            answer = await apis.renew(hmac, principal=CAROL, version=version)
            assert answer == (ErrorCode.none, apis.now_ms + 10_000)
            assert (await apis.renew(hmac, 700)).expiry_ms == apis.now_ms + 700
            assert (await apis.renew(hmac, 99_000)).expiry_ms == apis.now_ms + 10_000

    @pytest.mark.parametrize("version", [1, 2])
    async def test_an_owner_sets_the_end(self, version: int) -> None:
        async with token_apis() as apis:
            hmac = (await apis.create()).hmac
            assert await apis.expire(hmac, 50_000, version=version) == (ErrorCode.none, apis.now_ms + 50_000)
            assert await apis.expire(hmac, 0, version=version) == (ErrorCode.none, apis.now_ms)

    @pytest.mark.parametrize("period_ms", [-1, -7, TIMEDELTA_MS_MIN])
    async def test_a_negative_period_removes_the_token_which_ends_now(self, period_ms: int) -> None:
        async with token_apis() as apis:
            hmac = (await apis.create()).hmac
            apis.paths.parts.clock.seconds += 5
            assert await apis.expire(hmac, period_ms) == (ErrorCode.none, apis.now_ms)
            assert not apis.services.state.tokens
            assert await apis.expire(hmac) == (ErrorCode.delegation_token_not_found, UNSET_TIME)

    async def test_errors_of_the_controller_have_the_time_0(self) -> None:
        async with token_apis() as apis:
            hmac = (await apis.create()).hmac
            not_found = (ErrorCode.delegation_token_not_found, UNSET_TIME)
            mismatch = (ErrorCode.delegation_token_owner_mismatch, UNSET_TIME)
            expired = (ErrorCode.delegation_token_expired, UNSET_TIME)
            for ask in (apis.renew, apis.expire):
                assert await ask(b"unknown") == not_found
                assert await ask(hmac, principal=BOB) == mismatch
            apis.paths.parts.clock.seconds += 11
            assert await apis.renew(hmac) == expired == await apis.expire(hmac, 5)
            assert await apis.renew(hmac, principal=BOB) == expired
            assert await apis.expire(hmac, 5, principal=BOB) == mismatch
            assert await apis.expire(hmac) == (ErrorCode.none, apis.now_ms)

    async def test_s4_a_token_of_another_agent_is_found_behind_a_barrier(self) -> None:
        async with token_apis() as apis, another_agent(apis.paths) as others, asyncio.TaskGroup() as tasks:
            other = TokenApis(services_of(others, others.parts.clock, tasks, None, KEY), others)
            for _ in range(20):
                hmac = (await apis.create()).hmac
                assert (await other.renew(hmac)).error_code == ErrorCode.none
                assert (await apis.expire(hmac)).error_code == ErrorCode.none
                assert (await other.expire(hmac)).error_code == ErrorCode.delegation_token_not_found


class TestDescription:
    async def test_owners_and_renewers_see_their_tokens_with_hmac(self) -> None:
        async with token_apis(authorizer=ENFORCED) as apis:
            created = await apis.create(renewers=(CAROL,))
            for principal in (ALICE, CAROL):
                (row,) = (await apis.describe(principal)).tokens
                assert (row.token_id, row.hmac) == (created.token_id, created.hmac)
                assert (row.principal_name, row.token_requester_principal_name) == ("alice", "alice")
                assert (row.issue_timestamp, row.expiry_timestamp, row.max_timestamp) == created.times_ms
                assert [renewer.principal_name for renewer in row.renewers] == ["carol"]
            assert (await apis.describe(BOB)).tokens == ()

    @pytest.mark.parametrize("version", [1, 2])
    async def test_older_versions_have_no_requester(self, version: int) -> None:
        async with token_apis() as apis:
            await apis.create()
            (row,) = (await apis.describe(version=version)).tokens
            assert row.principal_name == "alice"

    @pytest.mark.parametrize("is_by_owner", [False, True])
    async def test_others_need_a_right_on_the_token_or_its_owner(self, *, is_by_owner: bool) -> None:
        async with token_apis(authorizer=ENFORCED) as apis:
            token_id = (await apis.create()).token_id
            await apis.create(CAROL)
            if is_by_owner:
                await apis.allow(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
            else:
                await apis.allow(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id)
            assert [row.token_id for row in (await apis.describe(BOB)).tokens] == [token_id]

    async def test_who_asked_for_a_token_sees_it_and_may_not_renew_it(self) -> None:
        async with token_apis(authorizer=ENFORCED) as apis:
            await apis.allow(Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")
            created = await apis.create(BOB, owner=ALICE)
            for owners in (None, (BOB,), (ALICE,)):
                assert [row.hmac for row in (await apis.describe(BOB, owners=owners)).tokens] == [created.hmac]
            for ask in (apis.renew, apis.expire):
                assert (await ask(created.hmac, principal=BOB)).error_code == ErrorCode.delegation_token_owner_mismatch

    async def test_owners_may_be_named(self) -> None:
        async with token_apis() as apis:
            for principal in (ALICE, BOB):
                await apis.create(principal, renewers=(CAROL,))
            for owners, names in (
                (None, ["alice", "bob"]),
                ((), []),
                ((BOB,), ["bob"]),
                ((CAROL,), ["alice", "bob"]),
                ((Principal("Group", "bob"),), []),
            ):
                answer = await apis.describe(CAROL, owners=owners)
                assert [row.principal_name for row in answer.tokens] == names


class TestWhoMayAsk:
    @pytest.mark.parametrize(
        ("mechanism", "principal", "is_by_token", "is_allowed"),
        [
            ("", ANONYMOUS, False, False),
            ("", ALICE, False, True),  # by a certificate
            ("PLAIN", ANONYMOUS, False, True),  # a user of that name
            ("SCRAM-SHA-256", ALICE, True, False),
        ],
    )
    async def test_no_client_without_a_login_and_none_that_a_token_proved(
        self, mechanism: str, principal: Principal, *, is_by_token: bool, is_allowed: bool
    ) -> None:
        async with token_apis() as apis:
            apis.mechanism, apis.is_by_token = mechanism, is_by_token
            created, described = await apis.create(principal), await apis.describe(principal)
            assert created.error_code == described.error_code == (ErrorCode.none if is_allowed else DISALLOWED)
            expected = (ErrorCode.delegation_token_not_found, UNSET_TIME) if is_allowed else (DISALLOWED, NO_TIME)
            assert await apis.renew(b"x", principal=principal) == expected
            assert await apis.expire(b"x", principal=principal) == expected
            if not is_allowed:
                assert (created.times_ms, described.tokens) == ((NO_TIME,) * 3, ())

    @pytest.mark.parametrize(
        ("settings", "rules", "error_code"),
        [
            (TokenSettings(), RULES_NEWEST, ErrorCode.delegation_token_auth_disabled),
            (KEY, RULES_SECURITY, ErrorCode.unsupported_version),
        ],
    )
    async def test_without_a_key_and_beside_older_agents_there_are_none(
        self, settings: TokenSettings, rules: int, error_code: ErrorCode
    ) -> None:
        async with token_apis(settings, rules=rules) as apis:
            assert await apis.create() == (error_code, ALICE, ALICE, (UNSET_TIME,) * 3, "", b"")
            assert await apis.renew(b"x") == await apis.expire(b"x") == (error_code, UNSET_TIME)
            assert (await apis.describe()).error_code is error_code

    async def test_s2_without_a_checked_clock_none_begins(self) -> None:
        async with token_apis() as apis:
            apis.paths.parts.is_clock_checked = False
            assert (await apis.create()).error_code == ErrorCode.request_timed_out

    async def test_without_the_ledger_it_is_a_time_out(self) -> None:
        async with token_apis() as apis, asyncio.TaskGroup() as tasks:
            hmac = (await apis.create()).hmac
            apis.services = services_of(apis.paths, Impatient(), tasks, None, KEY)
            ledger = apis.paths.parts.backend
            assert isinstance(ledger, MemoryLedger)
            ledger.fate_of_append = never
            assert (await apis.create()).error_code == ErrorCode.request_timed_out
            assert (await apis.renew(hmac)).error_code == ErrorCode.request_timed_out
            ledger.is_reachable = False
            assert (await apis.expire(b"unknown")).error_code == ErrorCode.request_timed_out
            assert (await apis.describe()).error_code is ErrorCode.request_timed_out


async def test_changes_are_in_the_audit_log_without_secrets() -> None:
    async with token_apis() as apis:
        audit = KeptAuditLog()
        apis.services = replace(apis.services, audit_log=audit)
        created = await apis.create(renewers=(CAROL,))
        await apis.renew(created.hmac)
        await apis.renew(created.hmac, principal=BOB)
        await apis.expire(created.hmac, 5)
        await apis.expire(created.hmac)
        await audit.flush()
        changed = [line for line in audit.sink.lines if line["decision"] == "changed"]
        lines = [(line["api"], line["resource"], line["operation"], line["detail"]) for line in changed]
        token = f"DelegationToken:{created.token_id}"
        most, renewed, ended = (
            datetime.fromtimestamp((apis.now_ms + count) / 1000, UTC).isoformat() for count in (1_000_000, 10_000, 5)
        )
        assert lines == [
            (
                "CreateDelegationToken",
                token,
                "CREATE_TOKENS",
                f"created for User:alice, renewable by User:carol, until {most} at most",
            ),
            ("RenewDelegationToken", token, "ALTER", f"renewed until {renewed}"),
            ("ExpireDelegationToken", token, "ALTER", f"end set to {ended}"),
            ("ExpireDelegationToken", token, "ALTER", "removed"),
        ]


async def test_what_is_refused_is_in_the_audit_log_without_the_hmac() -> None:
    async with token_apis() as apis:
        audit = KeptAuditLog()
        apis.services = replace(apis.services, audit_log=audit)
        created = await apis.create()
        await audit.flush()
        audit.sink.records.clear()
        for ask in (apis.renew, apis.expire):
            await ask(created.hmac, principal=BOB)
            await ask(b"guessed", principal=BOB)
        apis.is_by_token = True
        await apis.create(BOB)
        await apis.describe(BOB)
        await apis.renew(created.hmac, principal=BOB)
        await audit.flush()
        token, mismatch = f"DelegationToken:{created.token_id}", "neither the token's owner nor one of its renewers"
        unknown = "no token has the HMAC that the request names"
        by_token = "only a client that has logged in, and not by a token, may ask"
        assert [(line["api"], line["operation"], line["resource"], line["rule"]) for line in audit.sink.lines] == [
            ("RenewDelegationToken", "ALTER", token, mismatch),
            ("RenewDelegationToken", "ALTER", "DelegationToken:", unknown),
            ("ExpireDelegationToken", "ALTER", token, mismatch),
            ("ExpireDelegationToken", "ALTER", "DelegationToken:", unknown),
            ("CreateDelegationToken", "CREATE_TOKENS", "DelegationToken:", by_token),
            ("DescribeDelegationToken", "DESCRIBE", "DelegationToken:", by_token),
            ("RenewDelegationToken", "ALTER", "DelegationToken:", by_token),
        ]
        assert {(line["principal"], line["decision"]) for line in audit.sink.lines} == {("User:bob", "denied")}
