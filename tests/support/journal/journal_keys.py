"""The objects in a journal that a broker may have open."""

from collections.abc import Mapping
from pathlib import Path

from storage.embedded.journal.opening import JournalFiles
from storage.embedded.journal.reading import RecordReader
from storage.embedded.journal.records import RecordLocation
from storage.embedded.local_files import Files


def journal_objects(folder: Path) -> Mapping[str, RecordLocation]:
    """The objects that are not deleted, by key; none where there is no folder. Nothing is changed."""
    if not folder.is_dir():
        return {}
    try:
        return JournalFiles(str(folder), Files()).read_all().content.objects
    except FileNotFoundError:  # a file was used again, or removed, while it was looked for
        return journal_objects(folder)


def read_from_journal(folder: Path, key: str, location: RecordLocation) -> bytes:
    """An object, as `journal_objects` found it."""
    files = Files()
    return RecordReader(files, JournalFiles(str(folder), files).path).read(key, location, 0, location.payload_bytes)
