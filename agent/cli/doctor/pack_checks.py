"""The check by `penstock doctor` for damage in the packs of an embedded store, whether a broker runs or not (S20).

It checks headers. Payloads are checked by each read, and by `penstock audit`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from agent.bucket.store_damages import REMEDY
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.output import counted
from agent.config.addresses import FileUrl, read_store_url
from agent.config.settings import Settings
from storage.embedded.local_files import Files
from storage.embedded.local_store import PACKS_FOLDER
from storage.embedded.pack_opening import PackFiles, folder_fault

DAMAGES_SHOWN = 5


def check_packs(settings: Settings) -> Iterator[DoctorFinding]:
    """A finding for each damaged part; none for a store without packs."""
    url = read_store_url(settings.store_url)
    if not isinstance(url, FileUrl):
        return
    folder = Path(url.path) / PACKS_FOLDER
    fault = folder_fault(str(folder))
    if fault:
        yield _finding(CheckStatus.FAILED, fault, REMEDY)
    if not os.path.isdir(folder):
        return
    files = PackFiles(str(folder), Files())
    try:
        damages = files.damages()
        packs_count = len(files.numbers())
    except OSError as error:
        yield _finding(CheckStatus.FAILED, f"{folder} cannot be read: {error}", "check the disk")
        return
    for damage in damages[:DAMAGES_SHOWN]:
        yield _finding(CheckStatus.FAILED, f"{damage.file}: {damage.detail}", REMEDY)
    if len(damages) > DAMAGES_SHOWN:
        text = f"{counted(len(damages) - DAMAGES_SHOWN, 'damaged part')} more"
        yield _finding(CheckStatus.FAILED, text, REMEDY)
    if not damages:
        yield _finding(CheckStatus.FINE, f"{counted(packs_count, 'pack')}, every header is readable")


def _finding(verdict: CheckStatus, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name="packs", verdict=verdict, text=text, remedy=remedy)
