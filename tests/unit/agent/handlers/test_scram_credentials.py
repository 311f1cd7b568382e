"""SCRAM credentials by Kafka's requests: keys are derived here, and the password is nowhere."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent.config.secret_key import SecretKey
from agent.request.services import Services
from agent.security.credential_seal import CredentialSeal
from coordinator.apply import security as apply_security
from coordinator.commands.rules import RULES_CHECKED_ENTRIES
from coordinator.ledger.port import LedgerUnavailable
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import SECURITY_NAME_CHARS_MAX
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, stalled

DESCRIBE, ALTER = 50, 51
SALTED = b"the salted password"


def password(user: str, **changes: object) -> Mapping[str, object]:
    fields = {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": SALTED}
    return {**fields, **changes}


def deletion(user: str, mechanism: int = 1) -> Mapping[str, object]:
    return {"name": user, "mechanism": mechanism}


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        yield services_of(paths, ManualClock(), tasks)


async def alter(
    services: Services, *upsertions: Mapping[str, object], deletions: tuple[Mapping[str, object], ...] = ()
) -> dict[str, ErrorCode]:
    answer = await ask(services, ALTER, 0, deletions=list(deletions), upsertions=list(upsertions))
    assert all((result.error_code is ErrorCode.none) == (result.error_message is None) for result in answer.results)
    return {result.user: result.error_code for result in answer.results}


async def described(services: Services, *users: str) -> dict[str, tuple[ErrorCode, list[tuple[int, int]]]]:
    answer = await ask(services, DESCRIBE, 0, users=[{"name": user} for user in users] or None)
    assert answer.error_code is ErrorCode.none
    return {
        result.user: (result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in answer.results
    }


async def test_credentials_are_set_described_and_deleted() -> None:
    async with serving() as services:
        assert await alter(services, password("ann"), password("bob", mechanism=2, iterations=8192)) == {
            "ann": ErrorCode.none,
            "bob": ErrorCode.none,
        }
        await alter(services, password("ann", mechanism=2))
        assert await described(services) == {
            "ann": (ErrorCode.none, [(1, 4096), (2, 4096)]),
            "bob": (ErrorCode.none, [(2, 8192)]),
        }
        assert await alter(services, deletions=(deletion("ann"), deletion("bob"))) == {
            "ann": ErrorCode.none,
            "bob": ErrorCode.resource_not_found,
        }
        assert await described(services, "ann") == {"ann": (ErrorCode.none, [(2, 4096)])}


async def test_the_keys_are_those_of_rfc_5802() -> None:
    async with serving() as services:
        await alter(services, password("ann"))
        credential = services.state.scram["ann", ScramMechanism.SCRAM_SHA_256]
    client_key = hmac.digest(SALTED, b"Client Key", "sha256")
    assert credential.stored_key == hashlib.sha256(client_key).digest()
    assert credential.server_key == hmac.digest(SALTED, b"Server Key", "sha256")
    assert (credential.salt, credential.iterations) == (b"salt", 4096)


async def test_the_salted_password_is_in_no_entry() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        await alter(services, password("ann"))
        known = await paths.parts.backend.load()
        credential = services.state.scram["ann", ScramMechanism.SCRAM_SHA_256]
        payloads = [record.payload for record in known.records]
    assert any(credential.stored_key in payload for payload in payloads)
    assert not any(SALTED in payload for payload in payloads)


async def test_with_a_secret_key_no_entry_has_a_key_of_a_user() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        seal = CredentialSeal(SecretKey(bytes(32)))
        services = replace(services_of(paths, ManualClock(), tasks), credential_seal=seal)
        await alter(services, password("ann"))
        known = await paths.parts.backend.load()
        user = ("ann", ScramMechanism.SCRAM_SHA_256)
        credential = seal.open(user, services.state.scram[user])
    assert credential.server_key == hmac.digest(SALTED, b"Server Key", "sha256")
    for key in (credential.stored_key, credential.server_key):
        assert not any(key in record.payload for record in known.records)


@pytest.mark.parametrize(
    ("upsertion", "error_code"),
    [
        (password(""), ErrorCode.unacceptable_credential),
        (password("u", mechanism=3), ErrorCode.unsupported_sasl_mechanism),
        (password("u", mechanism=0), ErrorCode.unsupported_sasl_mechanism),
        (password("u", iterations=4095), ErrorCode.unacceptable_credential),
        (password("u", iterations=16_385), ErrorCode.unacceptable_credential),
        (password("u", salt=b""), ErrorCode.unacceptable_credential),
        (password("u", salt=bytes(257)), ErrorCode.unacceptable_credential),
        (password("u", salted_password=b""), ErrorCode.unacceptable_credential),
        (password("u" * (SECURITY_NAME_CHARS_MAX + 1)), ErrorCode.policy_violation),
    ],
)
async def test_what_is_no_credential_is_refused_and_the_others_are_set(
    upsertion: Mapping[str, object], error_code: ErrorCode
) -> None:
    async with serving() as services:
        assert await alter(services, upsertion, password("ann")) == {
            upsertion["name"]: error_code,
            "ann": ErrorCode.none,
        }
        assert list(services.state.scram) == [("ann", ScramMechanism.SCRAM_SHA_256)]


async def test_a_user_that_is_named_twice_stays_as_it_is() -> None:
    async with serving() as services:
        await alter(services, password("ann"))
        twice = await alter(services, password("ann", mechanism=2), deletions=(deletion("ann"),))
        assert twice == {"ann": ErrorCode.duplicate_resource}
        assert list(services.state.scram) == [("ann", ScramMechanism.SCRAM_SHA_256)]


async def test_unknown_and_repeated_users_are_errors_of_a_description() -> None:
    async with serving() as services:
        await alter(services, password("ann"))
        assert await described(services, "ann", "gone", "ann") == {
            "ann": (ErrorCode.duplicate_resource, []),
            "gone": (ErrorCode.resource_not_found, []),
        }


async def test_beyond_the_limit_each_user_has_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_security, "SCRAM_CREDENTIALS_MAX", 1)
    async with serving() as services:
        refused = await alter(services, password("ann"), password("bob"))
        assert refused == {"ann": ErrorCode.policy_violation, "bob": ErrorCode.policy_violation}


async def test_before_the_rules_have_them_none_can_be_set() -> None:
    async with serving() as services:
        services.state.rules_version = RULES_CHECKED_ENTRIES
        assert await alter(services, password("ann")) == {"ann": ErrorCode.unsupported_version}


async def test_without_the_ledger_requests_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with stalled(Impatient()) as services:
        assert await alter(services, password("ann")) == {"ann": ErrorCode.request_timed_out}
        monkeypatch.setattr(services.ledger, "barrier", away)
        answer = await ask(services, DESCRIBE, 0, users=None)
        assert answer.error_code is ErrorCode.request_timed_out
