"""A recovery is an event of the audit log: in a file, or on stderr, where it is for the topic, too."""

import json
from pathlib import Path

import pytest

from agent.config.audit_classes import AuditClass
from agent.config.audit_options import AuditSettings, AuditTarget
from agent.recovery.preconditions import Permissions
from agent.recovery.recovery_event import record_recovery
from agent.recovery.report import RecoveryReport
from tests.support.agent.ledger_parts import ManualClock

REPORT = RecoveryReport(cluster_id="c", incarnation=2, snapshot_key="", position=7, is_carried_out=True)
PERMISSIONS = Permissions(is_loss_accepted=True, is_forced=True)


async def test_it_says_who_began_which_incarnation_and_with_which_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "operator")
    path = tmp_path / "audit.log"
    settings = AuditSettings(target=AuditTarget.FILE, path=path)
    for _ in range(2):
        await record_recovery(settings, REPORT, PERMISSIONS, agent="a", clock=ManualClock())
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == 2
    event = events[0]
    assert (event["principal"], event["mechanism"], event["cluster"]) == ("User:operator", "command", "c")
    assert (event["api"], event["resource"], event["operation"], event["decision"]) == (
        "penstock recover",
        "Cluster:kafka-cluster",
        "ALTER",
        "changed",
    )
    assert event["detail"] == (
        "incarnation 2 begun from position 7; 0 objects missing, 0 unreadable; options: --accept-loss --force"
    )


@pytest.mark.parametrize(
    "settings",
    [
        AuditSettings(),
        AuditSettings(target=AuditTarget.TOPIC, classes=frozenset({AuditClass.DENIED})),
        AuditSettings(target=AuditTarget.STDERR, classes=frozenset({AuditClass.DENIED})),
    ],
)
async def test_without_an_audit_log_of_changes_nothing_is_written(
    settings: AuditSettings, capfd: pytest.CaptureFixture[str]
) -> None:
    await record_recovery(settings, REPORT, Permissions(), agent="a", clock=ManualClock())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("target", [AuditTarget.STDERR, AuditTarget.TOPIC])
async def test_on_stderr_it_is_a_line_as_it_is_for_the_topic(
    target: AuditTarget, capfd: pytest.CaptureFixture[str]
) -> None:
    await record_recovery(AuditSettings(target=target), REPORT, Permissions(), agent="a", clock=ManualClock())
    assert json.loads(capfd.readouterr().err)["detail"].endswith("options: none")


async def test_a_user_without_a_name_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    path = tmp_path / "audit.log"
    settings = AuditSettings(target=AuditTarget.FILE, path=path)
    await record_recovery(settings, REPORT, Permissions(), agent="a", clock=ManualClock())
    assert json.loads(path.read_text())["principal"] == "User:unknown"
