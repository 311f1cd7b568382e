"""The options of the audit log."""

from pathlib import Path

import pytest

from agent.config.audit_classes import AuditClass
from agent.config.audit_options import CLASSES_DEFAULT, AuditSettings, AuditTarget
from agent.config.option_sources import InvalidSettings
from agent.config.settings import CliCommand, load_settings
from protocol.limits import AUDIT_LOG_FILE_BYTES_SECURE


def audit(**options: object) -> AuditSettings:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return load_settings(CliCommand.RUN, named, environment={}).audit


def test_there_is_no_audit_log_unless_it_is_asked_for() -> None:
    assert audit().target is AuditTarget.NONE
    assert audit(audit_log="none").target is AuditTarget.NONE


def test_words_name_stderr_and_the_topic() -> None:
    assert audit(audit_log="stderr") == AuditSettings(target=AuditTarget.STDERR, classes=CLASSES_DEFAULT)
    assert audit(audit_log="topic").target is AuditTarget.TOPIC


def test_any_other_text_is_the_path_of_a_file(tmp_path: Path) -> None:
    assert audit(audit_log=str(tmp_path / "a.log")).path == tmp_path / "a.log"
    assert audit(audit_log="./topic") == AuditSettings(target=AuditTarget.FILE, path=Path("topic").absolute())


def test_a_file_may_be_bounded_and_a_secure_broker_has_one(tmp_path: Path) -> None:
    assert audit(audit_log=str(tmp_path / "a.log")).file_bytes_max is None
    assert audit(audit_log=str(tmp_path / "a.log"), audit_log_bytes="1MiB").file_bytes_max == 1 << 20
    secure = audit(secure=True, data_dir=str(tmp_path / "new"))
    assert secure.path == tmp_path / "new" / "audit.log"
    assert secure.file_bytes_max == AUDIT_LOG_FILE_BYTES_SECURE
    assert audit(secure=True, audit_log="none").target is AuditTarget.NONE


def test_allowed_operations_are_recorded_only_if_they_are_chosen() -> None:
    assert AuditClass.ALLOWED not in audit(audit_log="topic").classes
    chosen = audit(audit_log="topic", audit_log_classes=["allowed", "change"]).classes
    assert chosen == {AuditClass.ALLOWED, AuditClass.CHANGE}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audit_log": "/nowhere/at/all.log"}, "there is no folder /nowhere/at; create it"),
        ({"audit_log": "/"}, "it is a folder"),
        ({"audit_log": "topic", "audit_log_classes": ["refused"]}, "no class of audit events; the classes are"),
        ({"audit_log": "topic", "audit_log_bytes": "1MiB"}, "bounds a file, and --audit-log is topic"),
        ({"audit_log_classes": ["denied"]}, "needs --audit-log stderr, topic or a file"),
    ],
)
def test_what_cannot_be_an_audit_log_is_rejected_at_the_start(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        audit(**options)
