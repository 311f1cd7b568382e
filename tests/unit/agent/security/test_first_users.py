"""A cluster's first users are created once."""

import asyncio
import logging

import pytest

from agent.config.bootstrap_users import BootstrapUser
from agent.runtime.ids import SystemIds
from agent.security.audit.audit_events import AuditEvent
from agent.security.credential_seal import CredentialSeal
from agent.security.first_users import create_first_users, new_credential
from coordinator.commands.rules import RULES_SECURITY
from coordinator.security.acls import Acl
from protocol.auth.decoy_credentials import CredentialShape, shapes_of
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import is_password_of
from tests.support.agent.data_paths import data_paths
from tests.support.agent.ledger_parts import ManualClock

MECHANISM = ScramMechanism.SCRAM_SHA_512
ACL = Acl(
    principal=Principal("User", "admin"),
    host="*",
    operation=Operation.ALL,
    permission=Permission.ALLOW,
    resource_type=ResourceType.TOPIC,
    name="*",
    pattern=PatternType.LITERAL,
)
NO_SEAL = CredentialSeal()
ADMIN = BootstrapUser(name="admin", mechanism=MECHANISM, password="secret", acls=(ACL,))
OTHER = BootstrapUser(name="other", mechanism=MECHANISM, password="secret")


async def test_one_proposal_is_taken_with_its_acls(caplog: pytest.LogCaptureFixture) -> None:
    async with data_paths() as paths:
        ledger, ids, clock = paths.parts.ledger, SystemIds(), ManualClock()
        created = await asyncio.gather(
            create_first_users([ADMIN], ledger, ids, clock, NO_SEAL),
            create_first_users([OTHER], ledger, ids, clock, NO_SEAL),
        )
        assert sorted(created) == [False, True]
        assert len(ledger.state.scram) == 1
        with caplog.at_level(logging.INFO, "agent.security.first_users"):
            assert not await create_first_users([OTHER], ledger, ids, clock, NO_SEAL)
        (line,) = caplog.records
        assert (line.levelname, "changes nothing" in line.message) == ("INFO", True)
        assert vars(line)["reason"] == "The cluster has, or had, users or ACLs already."
        assert "change users with penstock users" in vars(line)["remedy"]


async def test_the_credential_fits_the_password_and_the_acls_are_there() -> None:
    async with data_paths() as paths:
        ledger = paths.parts.ledger
        events: list[AuditEvent] = []
        assert await create_first_users([ADMIN], ledger, SystemIds(), ManualClock(), NO_SEAL, record=events.append)
        assert [(event.api, str(event.resource), event.detail) for event in events] == [
            ("--bootstrap-users", "User:admin", "created as a first user: SCRAM-SHA-512 credential, 1 ACLs")
        ]
        assert not await create_first_users([OTHER], ledger, SystemIds(), ManualClock(), NO_SEAL, record=events.append)
        assert len(events) == 1
        assert is_password_of(ledger.state.scram["admin", MECHANISM], "secret", MECHANISM)
        assert list(ledger.state.acls) == [ACL]


async def test_agents_with_older_rules_are_waited_for() -> None:
    async with data_paths(rules=RULES_SECURITY - 1) as paths:
        clock = ManualClock()
        creating = asyncio.ensure_future(create_first_users([ADMIN], paths.parts.ledger, SystemIds(), clock, NO_SEAL))
        while len(clock.slept) < 3:
            await clock.sleep(0)
        assert not creating.done()
        creating.cancel()


def test_a_new_credential_looks_like_one_of_kafkas_tools() -> None:
    credential = new_credential("secret", MECHANISM, SystemIds())
    assert shapes_of([credential]) == [CredentialShape()]
    assert credential.salt != new_credential("secret", MECHANISM, SystemIds()).salt
