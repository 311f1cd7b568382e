"""The doctor's check of files with secrets."""

from pathlib import Path

from agent.cli.doctor.machine_checks import CheckStatus
from agent.cli.doctor.secret_checks import check_secret_files
from agent.config.settings import CliCommand, load_settings


def test_a_token_file_that_others_can_read_is_a_warning_with_a_remedy(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    tokens = tmp_path / "tokens"
    tokens.write_text("User:a 0123456789abcdef\n")
    settings = load_settings(CliCommand.RUN, {"http-token-file": str(tokens)}, environment={})
    tokens.chmod(0o600)
    (finding,) = check_secret_files(settings, root=tmp_path)
    assert (finding.verdict, finding.text) == (CheckStatus.FINE, "1 file with secrets; no other user can read them")
    tokens.chmod(0o644)
    (finding,) = check_secret_files(settings, root=tmp_path)
    assert finding.verdict is CheckStatus.DOUBTFUL
    assert finding.text == f"{tokens} (--http-token-file) is open to every user of this machine: mode 0644"
    assert finding.remedy.startswith(f"chmod go= {tokens}")


def test_an_agent_without_secrets_has_no_finding() -> None:
    assert list(check_secret_files(load_settings(CliCommand.RUN, {}, environment={}))) == []
