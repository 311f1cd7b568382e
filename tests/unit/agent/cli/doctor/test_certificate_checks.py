"""The doctor's check of certificates."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.cli.doctor.certificate_checks import check_certificates
from agent.cli.doctor.machine_checks import CheckStatus
from agent.config.settings import CliCommand, load_settings
from agent.runtime.clock import SystemClock
from tests.support.certificates import TestAuthority


def verdicts(folder: Path, days: float) -> list[tuple[CheckStatus, str, str]]:
    expires = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC) + timedelta(days=days)
    files = TestAuthority(folder=folder).issue("server", expires=expires)
    values: dict[str, object] = {
        "listen": ["SSL://127.0.0.1:0"],
        "http": "https://127.0.0.1:0",
        "tls-cert": str(files.cert),
        "tls-key": str(files.key),
    }
    settings = load_settings(CliCommand.RUN, values, environment={})
    return [(finding.verdict, finding.text, finding.remedy) for finding in check_certificates(settings)]


def test_a_certificate_for_a_year_is_fine(tmp_path: Path) -> None:
    kafka, http = verdicts(tmp_path, 365)
    assert (kafka[0], http[0]) == (CheckStatus.FINE, CheckStatus.FINE)
    assert "listener SSL is valid for 36" in kafka[1]
    assert "listener HTTPS" in http[1]


def test_one_that_expires_within_a_week_is_doubtful_and_an_expired_one_fails(tmp_path: Path) -> None:
    assert {(verdict, bool(remedy)) for verdict, _, remedy in verdicts(tmp_path, 6)} == {(CheckStatus.DOUBTFUL, True)}
    ((verdict, text, _), _) = verdicts(tmp_path, -1)
    assert verdict is CheckStatus.FAILED
    assert "expired on" in text


def test_an_agent_that_does_not_encrypt_has_no_finding() -> None:
    assert list(check_certificates(load_settings(CliCommand.RUN, {}, environment={}))) == []
