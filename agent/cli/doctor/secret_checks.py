"""Checks of files with secrets by `penstock doctor`: whether others can read them."""

from collections.abc import Iterator
from pathlib import Path

from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.output import counted
from agent.config.settings import Settings
from agent.security.file_modes import open_secret_files


def check_secret_files(settings: Settings, *, root: Path = Path("/")) -> Iterator[DoctorFinding]:
    """A warning for each file that others can read or write; one finding where there is none, but files with secrets.

    Another user than the agent's may call the doctor: groups are judged as those of the caller.
    """
    open_files = list(open_secret_files(settings.secret_files, root=root))
    for open_file in open_files:
        yield DoctorFinding(name="secrets", verdict=CheckStatus.DOUBTFUL, text=open_file.text, remedy=open_file.remedy)
    if settings.secret_files and not open_files:
        count = counted(len(settings.secret_files), "file")
        yield DoctorFinding(
            name="secrets", verdict=CheckStatus.FINE, text=f"{count} with secrets; no other user can read them"
        )
