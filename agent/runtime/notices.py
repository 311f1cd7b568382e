"""The conditions that an operator must act on although the agent serves.

Rule: `/ready` answers strangers, so it shows the fixed text of a `NoticeKind` alone, which names no file, address,
listener or count. The detail is for `/api/status`, whose readers may describe the cluster, and for the log.
"""

from dataclasses import dataclass
from enum import Enum


class NoticeKind(Enum):
    """The kinds of conditions. The value is the line of `/ready`."""

    CERTIFICATE_EXPIRES = "a certificate expires soon"
    CERTIFICATE_EXPIRED = "a certificate has expired"
    REVOCATION_LIST_ENDED = "a certificate revocation list has ended"
    ISSUER_KEYS_MISSING = "the keys of an issuer of tokens were never read"
    DISK_FULL = "the disk is full, no records are accepted"
    CLOCK_NOT_BELIEVED = "the clock is not believed"
    OBJECTS_DAMAGED = "consumers meet damaged objects"
    GROUPS_DO_NOT_FORM = "agents share an address, and groups behind it do not form"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One condition that holds now."""

    kind: NoticeKind
    detail: str
    """The sentence about it, with its files and addresses, and what to do."""
