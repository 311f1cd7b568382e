"""The check by `penstock doctor` for damage in the files of a journal, whether a broker runs or not (S20).

It checks headers. Payloads of the ledger are checked by `ledger_checks`, those of objects by each read, and by
`penstock audit`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from agent.bucket.store_damages import JOURNAL_REMEDY
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.output import counted
from agent.config.addresses import JournalUrl, read_ledger_url
from agent.config.settings import Settings
from protocol.limits import JOURNAL_SCANS_MAX
from storage.embedded.journal.open_journal import is_empty
from storage.embedded.journal.opening import JournalFiles
from storage.embedded.local_files import Files
from storage.object_store import StoreError
from storage.store_damage import StoreDamage

DAMAGES_SHOWN = 5


def check_journal(settings: Settings) -> Iterator[DoctorFinding]:
    """A finding for each damaged part; none where the ledger is in no journal, or there is none yet."""
    url = read_ledger_url(settings.ledger_url)
    if not isinstance(url, JournalUrl):
        return
    if os.path.lexists(url.path) and not os.path.isdir(url.path):
        remedy = "move away what has its name, and bring back the journal"
        yield _finding(CheckStatus.FAILED, f"{url.path} is no folder", remedy)
    if is_empty(Path(url.path)):
        return
    try:
        damages, files_count = _damages(url.path)
    except (OSError, StoreError) as error:
        yield _finding(CheckStatus.FAILED, f"{url.path} cannot be read: {error}", "check the disk")
        return
    for damage in damages[:DAMAGES_SHOWN]:
        yield _finding(CheckStatus.FAILED, f"{damage.file}: {damage.detail}", JOURNAL_REMEDY)
    if len(damages) > DAMAGES_SHOWN:
        text = f"{counted(len(damages) - DAMAGES_SHOWN, 'damaged part')} more"
        yield _finding(CheckStatus.FAILED, text, JOURNAL_REMEDY)
    if not damages:
        yield _finding(CheckStatus.FINE, f"{counted(files_count, 'file')}, every header is readable")


def _damages(folder: str) -> tuple[list[StoreDamage], int]:
    """The certain damages, and the number of files. A broker may write while this reads, and use a file again: so what
    looks like damage counts only after several looks."""
    looks = 0
    damages: list[StoreDamage] | None = None
    while True:
        looks += 1
        seen: list[StoreDamage] = []
        try:
            opened = JournalFiles(folder, Files(), on_damage=seen.append).read_all()
        except FileNotFoundError:
            if looks == JOURNAL_SCANS_MAX:
                raise
            continue
        damages = [damage for damage in seen if damage.is_certain and (damages is None or damage in damages)]
        if not damages or looks == JOURNAL_SCANS_MAX:
            return damages, len(opened.begun) + len(opened.unused)


def _finding(verdict: CheckStatus, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name="journal", verdict=verdict, text=text, remedy=remedy)
