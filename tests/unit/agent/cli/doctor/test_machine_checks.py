"""What doctor says of this machine's memory, and of the folder of compiled code."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli.doctor.machine_checks import CheckStatus, _memory, check_machine
from agent.config.settings import CliCommand, Settings, load_settings
from protocol.limits import MIB

GIB = 1024 * MIB


def settings_of(tmp_path: Path, **values: str) -> Settings:
    given = {"data-dir": str(tmp_path), "listen": ["127.0.0.1:0"], "http": "127.0.0.1:0", **values}
    return load_settings(CliCommand.RUN, given, environment={})


@pytest.mark.parametrize(
    ("limit", "status", "text"),
    [
        (None, CheckStatus.FINE, "read cache 256.0 MiB, memory limit none"),
        (GIB, CheckStatus.FINE, "read cache 256.0 MiB, memory limit 1.0 GiB"),
        (511 * MIB, CheckStatus.DOUBTFUL, "read cache 256.0 MiB, memory limit 511.0 MiB"),
    ],
)
def test_the_read_cache_is_shown_beside_the_memory_limit(
    tmp_path: Path, limit: int | None, status: CheckStatus, text: str
) -> None:
    finding = _memory(settings_of(tmp_path, **{"read-cache-bytes": "256MiB"}), limit)
    assert (finding.verdict, finding.text) == (status, text)
    assert ("--read-cache-bytes" in finding.remedy) is (status is CheckStatus.DOUBTFUL)


def test_the_caches_of_all_processes_count(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, **{"read-cache-bytes": "256MiB"}), processes=3)
    finding = _memory(settings, GIB)
    assert (finding.verdict, finding.text) == (
        CheckStatus.DOUBTFUL,
        "read cache 3 x 256.0 MiB, memory limit 1.0 GiB",
    )


def test_the_folder_of_compiled_code_is_checked(tmp_path: Path) -> None:
    def of(**values: str) -> list[tuple[CheckStatus, str]]:
        findings = check_machine(settings_of(tmp_path / "data", **values))
        return [(finding.verdict, finding.text) for finding in findings if finding.name == "cache dir"]

    (tmp_path / "file").touch()
    assert of() == []
    assert of(**{"cache-dir": f"{tmp_path}/new"}) == [(CheckStatus.FINE, f"{tmp_path}/new can be written")]
    assert of(**{"cache-dir": f"{tmp_path}/file"}) == [(CheckStatus.FAILED, f"{tmp_path}/file: it is a file")]
