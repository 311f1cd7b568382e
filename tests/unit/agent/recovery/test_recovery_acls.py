"""A recovery restores ACLs and credentials, and doubts them: a later revocation may be among what is lost."""

import pytest

from agent.bucket.cluster_identity import check_bucket
from agent.recovery.preconditions import Permissions
from agent.recovery.report import report_rows
from coordinator.commands.commands import RaiseRules
from coordinator.commands.rules import RULES_SECURITY
from coordinator.commands.security import AlterScram, CreateAcls, DeleteAcls
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.security.acls import AclFilter
from protocol.auth.operations import Operation
from storage.memory_store import MemoryStore
from tests.support.acls import make_acl
from tests.support.agent.ledger_parts import running_parts
from tests.support.agent.recovery_clusters import TimedStore, recover, snapshot, state_of, wiped
from tests.support.commands.commands import start
from tests.support.commands.every_command import SCRAM_ROW

READ, WRITE = make_acl(Operation.READ), make_acl(Operation.WRITE)


async def lived_with_acls(store: MemoryStore) -> None:
    """A cluster whose snapshot has two ACLs and a credential. One ACL was revoked later; that entry is lost."""
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, start(rules=RULES_SECURITY), store=store) as parts:
        if parts.ledger.state.rules_version < RULES_SECURITY:
            await parts.ledger.propose(RaiseRules(rules_version=RULES_SECURITY))
        await parts.ledger.propose(CreateAcls.of([READ, WRITE]))
        await parts.ledger.propose(AlterScram(upsertions=(SCRAM_ROW,)))
        await snapshot(parts)
        await parts.ledger.propose(DeleteAcls.of(AclFilter(operation=Operation.WRITE)))
        ledger.core.expire(parts.ledger.session)


@pytest.mark.parametrize("is_confirmed", [False, True])
async def test_what_the_snapshot_has_comes_back_and_counts_when_it_is_confirmed(*, is_confirmed: bool) -> None:
    store, ledger = TimedStore(), wiped()
    await lived_with_acls(store)
    report = await recover(ledger, store, Permissions(are_acls_confirmed=is_confirmed))
    assert report.is_carried_out
    assert (report.acls, report.scram_credentials, report.are_acls_confirmed) == (2, 1, is_confirmed)
    state = await state_of(ledger, store)
    assert list(state.acls) == [READ, WRITE]
    assert state.scram == {SCRAM_ROW.credential_id: SCRAM_ROW.credential()}
    assert state.is_acls_confirmed == is_confirmed
    assert state.is_security_set_up


async def test_the_report_says_of_which_time_they_are() -> None:
    store = TimedStore()
    await lived_with_acls(store)
    report = await recover(wiped(), store)
    assert report_rows(report)["security_known_until"] == "2023-11-14T22:13:20+00:00"
    report.security_known_ms = 0
    assert report_rows(report)["security_known_until"] == "no time is known"
