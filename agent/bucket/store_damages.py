"""Damage that the embedded store found in its own files: logged, counted, and listed for `penstock audit` (S20)."""

import logging
from collections.abc import Sequence

from protocol.limits import STORE_DAMAGES_LISTED_MAX
from storage.embedded.journal.opening import SUFFIX
from storage.store_damage import StoreDamage

log = logging.getLogger(__name__)

REMEDY = 'docs/operations/damage.md, "A pack of the embedded store is damaged"'
JOURNAL_REMEDY = 'docs/operations/damage.md, "A file of the journal is damaged"'


class StoreDamages:
    """The damaged parts of files that were found since the start and still exist. Each part is logged once."""

    def __init__(self) -> None:
        self._damages: dict[tuple[str, str], StoreDamage] = {}

    def report(self, damage: StoreDamage) -> None:
        """Note one unreadable part. A part that a crash may have torn is logged, and not counted as damage."""
        where = {"file": damage.file, "key": damage.key, "reason": damage.detail}
        is_of_journal = damage.file.endswith(SUFFIX)
        what = "a file of the journal" if is_of_journal else "a pack of the embedded store"
        if not damage.is_certain:
            log.warning(
                f"{what} ends in an incomplete write, as after a crash: none of it was acknowledged, unless the disk "
                "has lost data that it reported as written. Run penstock audit to check",
                extra=where,
            )
            return
        part = damage.file, damage.key or damage.detail
        if part in self._damages or len(self._damages) >= STORE_DAMAGES_LISTED_MAX:
            return
        self._damages[part] = damage
        remedy = JOURNAL_REMEDY if is_of_journal else REMEDY
        log.error(f"{what} is damaged; other objects are served. {remedy}", extra=where)

    def forget(self, file: str) -> None:
        """Drop the damages of a file that was removed. May be called by any thread."""
        for part in list(self._damages):
            if part[0] == file:
                self._damages.pop(part, None)

    @property
    def parts(self) -> Sequence[StoreDamage]:
        """Every part that is certainly damaged."""
        return tuple(self._damages.values())
