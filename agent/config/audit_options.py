"""The options of the audit log: where it goes, and which classes of events it has."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.config.audit_classes import AuditClass, read_audit_class
from agent.config.option_sources import InvalidSettings, Value


class AuditTarget(Enum):
    """The kinds of places for the audit log. The values are words of `--audit-log`."""

    NONE = "none"
    STDERR = "stderr"
    TOPIC = "topic"
    FILE = "file"
    """Any other text is the path of a file."""


CLASSES_DEFAULT = frozenset(AuditClass) - {AuditClass.ALLOWED}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit log of an agent. `path` is absolute, and set for a file alone."""

    target: AuditTarget = AuditTarget.NONE
    path: Path | None = None
    file_bytes_max: int | None = None
    """The size at which the file is renamed and a new one begun; None: never."""
    classes: frozenset[AuditClass] = CLASSES_DEFAULT


def audit_settings(values: Mapping[str, Value], data_dir: Path) -> AuditSettings:
    """The audit log that the options describe. Raises `InvalidSettings` for a file whose folder does not exist.

    `data_dir` is created at the start.
    """
    text, names = values.get("audit-log", AuditTarget.NONE.value), values.get("audit-log-classes")
    file_bytes_max = values.get("audit-log-bytes")
    assert isinstance(text, str)
    assert file_bytes_max is None or isinstance(file_bytes_max, int)
    assert names is None or isinstance(names, tuple)
    classes = CLASSES_DEFAULT if names is None else frozenset(map(read_audit_class, names))
    if text in (AuditTarget.NONE.value, AuditTarget.STDERR.value, AuditTarget.TOPIC.value):
        target = AuditTarget(text)
        if target is AuditTarget.NONE and names is not None:
            raise InvalidSettings("--audit-log-classes needs --audit-log stderr, topic or a file")
        if file_bytes_max is not None:
            raise InvalidSettings(f"--audit-log-bytes bounds a file, and --audit-log is {text}: name a file")
        return AuditSettings(target=target, classes=classes)
    path = Path(text).expanduser().absolute()
    if not path.parent.is_dir() and path.parent != data_dir:
        raise InvalidSettings(f"--audit-log {text}: there is no folder {path.parent}; create it, or name another file")
    if path.is_dir():
        raise InvalidSettings(f"--audit-log {text}: it is a folder; name a file in it")
    return AuditSettings(target=AuditTarget.FILE, path=path, file_bytes_max=file_bytes_max, classes=classes)
