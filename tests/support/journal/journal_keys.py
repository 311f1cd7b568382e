"""The objects in a journal that a broker may have open."""

from pathlib import Path

from storage.embedded.journal.opening import JournalFiles
from storage.embedded.local_files import Files


def journal_keys(folder: Path) -> set[str]:
    """The keys of the objects that are not deleted. Nothing is changed."""
    try:
        return set(JournalFiles(str(folder), Files()).read_all().content.objects)
    except FileNotFoundError:  # a file was used again, or removed, while it was looked for
        return journal_keys(folder)
